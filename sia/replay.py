"""A saved iteration run again: its prompt and its decisions, rebuilt from the file alone.

A decision's state comes from the phase's own builder, over the context of the file: who edits what
came in changes what the decisions about it see. Where the context is as it was recorded, which its
prompt's hash says, the state stands as the file keeps it, so an edited state counts too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from semif.errors import DecisionError, ModelError
from semif.measuring.verify import MAX_DP
from semif.types import NONE_IDS, Answer, Decision, Option
from sia.entries import DecisionView, InputEntry, Iteration
from sia.prompt import prompt
from sia.questions import BUILDERS, View

Ask = Callable[[Decision], Answer]
# Who makes the decisions of a revision again; ModelError says why nobody can.
Find = Callable[[str], Ask]
_MARK = "\0"  # no text of a person's, to see where a builder puts one


@dataclass(frozen=True)
class Replayed:
    """A decision as the file keeps it, and as it is made now. ``state``: what it saw now. ``why``:
    what is different, "" where it is equal. ``now``: probability by option, empty where it could
    not be asked."""

    before: DecisionView
    state: str
    selected: str
    now: Mapping[str, float]
    why: str

    @property
    def equal(self) -> bool:
        return not self.why

    def to_json(self) -> dict[str, Any]:
        was = {id: p for id, _, p in self.before.options}
        return {
            "id": self.before.id,
            "phase": self.before.phase,
            "equal": self.equal,
            "why": self.why,
            "state": self.state,
            "selected": {"before": self.before.selected, "now": self.selected},
            "probs": {"before": was, "now": {id: round(p, 6) for id, p in self.now.items()}},
        }


@dataclass(frozen=True)
class Replay:
    """An iteration run again. ``revision``: that decided now. ``prompt``: whether the prompt has
    the hash that the file names. The response is no part of ``equal``."""

    iteration: Iteration
    revision: str
    prompt: bool
    decisions: tuple[Replayed, ...]

    @property
    def equal(self) -> bool:
        return all(decision.equal for decision in self.decisions)

    @property
    def moved(self) -> tuple[Replayed, ...]:
        return tuple(decision for decision in self.decisions if not decision.equal)

    def to_json(self) -> dict[str, Any]:
        response = self.iteration.response
        return {
            "iteration": f"{self.iteration.session}/{self.iteration.n}",
            "equal": self.equal,
            "revision": self.revision,
            "prompt_equal": self.prompt,
            "decisions": [decision.to_json() for decision in self.decisions],
            "response": {"by": response.by, "text": response.text} if response else None,
        }


def replay(iteration: Iteration, find: Find, revision: str = "") -> Replay:
    """Run an iteration again. ``revision``: another than the one the file names.

    Raises ModelError when nobody can decide as that revision.
    """
    chosen = revision or iteration.decision_revision
    same = untouched(iteration)
    ask = find(chosen) if iteration.decisions else None
    made = tuple(
        _again(view, decision_of(view, iteration, same), ask)
        for view in iteration.decisions
        if ask is not None
    )
    return Replay(iteration, chosen, same, made)


def untouched(iteration: Iteration) -> bool:
    """Whether the context is the one that was recorded, by the hash of its prompt."""
    return prompt(iteration).sha256 == iteration.prompt_sha256


def decision_of(view: DecisionView, iteration: Iteration, untouched: bool) -> Decision:
    """The decision of a file, its state made from the context."""
    state = _state(view.state)
    if not untouched and isinstance(state, dict):
        state = _rebuilt(view, iteration, state)
    return Decision(
        id=view.id,
        phase=view.phase,
        state=state,
        question=view.question,
        options=tuple(Option(id, text, none=id in NONE_IDS) for id, text, _ in view.options),
    )


def _state(text: str) -> str | dict[str, str]:
    """As the file keeps it: a plain string, or a JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    whole = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if whole else text


def _rebuilt(view: DecisionView, iteration: Iteration, state: dict[str, str]) -> dict[str, str]:
    """The state with the text of the entry that the decision was made from."""
    builder = BUILDERS.get(view.phase)
    entry = source(iteration, view.source)
    if builder is None or entry is None:
        return state
    names = [name for name, value in builder(View(_MARK)).items() if value == _MARK]
    # A skill may have shown a choice another state than the phase's own.
    return {**state, **{name: entry.text.text for name in names if name in state}}


def source(iteration: Iteration, id: str) -> InputEntry | None:
    """The input with this id, or the one that began the run with this id."""
    inputs = [entry for entry in iteration.entries if isinstance(entry, InputEntry)]
    named = [entry for entry in inputs if entry.id == id]
    return next(iter(named or [entry for entry in inputs if entry.run == id]), None)


def _again(view: DecisionView, decision: Decision, ask: Ask) -> Replayed:
    state = (
        decision.state
        if isinstance(decision.state, str)
        else json.dumps(decision.state, ensure_ascii=False)
    )
    try:
        answer = ask(decision)
    except (DecisionError, ModelError) as error:
        return Replayed(view, state, "", {}, f"cannot be asked: {error}")
    was = {id: p for id, _, p in view.options}
    moved = max(was, key=lambda id: abs(was[id] - answer.probs[id]))
    dp = abs(was[moved] - answer.probs[moved])
    why = ""
    if answer.selected != view.selected:
        why = f"{view.selected} was chosen, now {answer.selected}"
    elif dp > MAX_DP:
        why = f"p of {moved} was {was[moved]:.3f}, is {answer.probs[moved]:.3f}"
    return Replayed(view, state, answer.selected, answer.probs, why)
