"""The decisions SIA asks for: wording from a data file, state from one pure builder a phase.

The same builder makes the state while running and at replay, so an edited context changes what
the decisions see. Secrets are redacted here, before model, hash and row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from semif.types import NONE_IDS, Decision, Option
from sia.entries import ProcessView
from sia.redact import redact


@dataclass(frozen=True)
class View:
    """What a decision looks at: an input or request, the process it meets, an open question, the
    skill or category in words, what stands ready for it, an earlier request; of a concern ``text``
    and all else by name."""

    text: str
    process: ProcessView | None = None
    question: str = ""
    skill: str = ""
    observed: str = ""
    earlier: str = ""
    concern: tuple[tuple[str, str], ...] = ()


def process_words(process: ProcessView | None) -> str:
    """The current process in words, ``none`` when nothing runs."""
    if process is None:
        return "none"
    name = process.skill.replace("/", " ") if process.skill not in ("", "-") else "working"
    return f"{name}: {process.text}" if process.text else name


def _input(view: View) -> dict[str, str]:
    return {"current_process": process_words(view.process), "input": view.text}


def _request(view: View) -> dict[str, str]:
    return {"input": view.text}


def _answer(view: View) -> dict[str, str]:
    return {"question": view.question, "input": view.text}


def _cover(view: View) -> dict[str, str]:
    return {"input": view.text, "skill": view.skill}


def _prediction(view: View) -> dict[str, str]:
    return {"request": view.text, "skill": view.skill, "observed": view.observed}


def _same_action(view: View) -> dict[str, str]:
    return {"earlier": view.earlier, "input": view.text}


def _triage(view: View) -> dict[str, str]:
    return {"concern": view.text, **dict(view.concern)}


BUILDERS: dict[str, Callable[[View], dict[str, str]]] = {
    "contains_request": _input,
    "interrupt": _input,
    "urgency": _input,
    "answers": _answer,
    "navigate_category": _request,
    "navigate_skill": _request,
    "read_next": _request,
    "cover": _cover,
    "predict": _prediction,
    "same_action": _same_action,
    "triage": _triage,
}


def state(phase: str, view: View) -> dict[str, str]:
    """The state of a decision of ``phase``, redacted."""
    return {name: redact(value) for name, value in BUILDERS[phase](view).items()}


@dataclass(frozen=True)
class Questions:
    """The wording of every phase."""

    phases: Mapping[str, Mapping[str, Any]]
    urgency: Mapping[str, float]

    @classmethod
    def load(cls, version: str = "questions-v1") -> Questions:
        text = (resources.files("sia") / "prompts" / f"{version}.json").read_text("utf-8")
        data = json.loads(text)
        return cls(data["phases"], data["urgency"])

    def decision(
        self,
        phase: str,
        view: View,
        id: str,
        options: Iterable[tuple[str, str]] = (),
    ) -> Decision:
        """A decision of ``phase``: ``options`` (id, description) before the phase's own."""
        wording = self.phases[phase]
        return Decision(
            id=id,
            phase=phase,
            state=state(phase, view),
            question=wording["question"],
            options=tuple(
                Option(name, text, none=name in NONE_IDS)
                for name, text in [*options, *wording["options"].items()]
            ),
        )
