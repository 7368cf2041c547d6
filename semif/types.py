"""The values of the engine: option, decision, answer; and who answers: the decider."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from semif.errors import DecisionError

MAX_OPTIONS = 255
# Ids that mean "none of these" in every phase, said or not.
NONE_IDS = frozenset({"create_category", "create_skill", "none"})

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_T = TypeVar("_T")

State = str | Mapping[str, Any] | list[Any] | int | float | bool


@dataclass(frozen=True)
class Option:
    """One possible answer; `none` marks the one that means "none of these"."""

    id: str
    description: str = ""
    none: bool = False

    @property
    def means_none(self) -> bool:
        return self.none or self.id in NONE_IDS


@dataclass(frozen=True)
class Decision:
    """A question about a state with 2..255 options.

    `state` is a text or a mapping of texts; the readout `letters` takes any JSON value.
    """

    id: str
    phase: str
    state: State
    question: str
    options: tuple[Option, ...]

    @classmethod
    def from_json(cls, value: object, row: str) -> Decision:
        """Read `{id, phase, state, question, options}`; other fields are passed over.

        `row` names the input (such as "line 3") in errors. `phase` may be missing.
        Raises DecisionError naming row and field.
        """
        row = named(row, value)
        if isinstance(value, dict):
            value = {"phase": "", **value}
        decision = converted(value, cls, row)
        decision.check(row)
        return decision

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` reads."""
        options = [
            {"id": o.id, "description": o.description, **({"none": True} if o.none else {})}
            for o in self.options
        ]
        return {
            "id": self.id,
            "phase": self.phase,
            "state": self.state,
            "question": self.question,
            "options": options,
        }

    def check(self, row: str | None = None) -> None:
        """Raise DecisionError for what no readout can score; `row` defaults to the id."""
        row = row or self.id or "a decision"
        ids = [option.id for option in self.options]
        if not self.id:
            raise DecisionError(row, "id", "is empty")
        _name(row, "id", self.id)
        _name(row, "phase", self.phase)
        if not self.question.strip():
            raise DecisionError(row, "question", "is empty")
        if len(ids) < 2:
            raise DecisionError(row, "options", f"{len(ids)} of them is no decision; give 2 to 255")
        if len(ids) > MAX_OPTIONS:
            raise DecisionError(row, "options", f"{len(ids)} are more than {MAX_OPTIONS}")
        for i, id_ in enumerate(ids):
            if not id_.strip():
                raise DecisionError(row, f"options[{i}].id", "is empty")
            _name(row, f"options[{i}].id", id_)
        twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
        if twice:
            raise DecisionError(row, "options", f"the id {twice[0]!r} stands twice")
        if _empty(self.state):
            raise DecisionError(row, "state", "is empty")
        for name, part in (
            ("state", self.state),
            ("question", self.question),
            ("options", [o.description for o in self.options]),
        ):
            _encodable(row, name, part)


@dataclass(frozen=True)
class Answer:
    """What a decider says: `probs` and `logits` by option id, and how they came about.

    `logits` are the readout's scores (branches: logit(yes) - logit(no)), before temperature.
    `tokens` were evaluated for this answer, `prompt_tokens` is the whole prompt; `ms` is this
    decision's share of the time. `allowed_token_mass` is the probability, over the whole
    vocabulary, that the slot holds an allowed token (branches: the least of all branches).
    `plan` names what numerics depend on: build, threads, n_batch, splits, neighbours.
    """

    decision: Decision
    probs: Mapping[str, float]
    logits: Mapping[str, float]
    selected: str
    prompt_version: str
    prompt_sha256: str
    revision: str
    tokens: int
    prompt_tokens: int
    ms: float
    allowed_token_mass: float
    plan: Mapping[str, Any]


@runtime_checkable
class Decider(Protocol):
    """Whatever answers decisions: the engine, a client of a server, a scripted double."""

    revision: str

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision, in order; DecisionError when one cannot be scored."""
        ...


def converted(value: object, kind: type[_T], row: str) -> _T:
    """A JSON value as a `kind`; DecisionError naming row and field when it is none."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.") or "row"
        raise DecisionError(row, field, message) from error


def named(row: str, value: object) -> str:
    """`row`, and in brackets the id that the value has there."""
    id_ = value.get("id") if isinstance(value, Mapping) else None
    return f"{row} ({id_})" if isinstance(id_, str) and id_ else row


def _empty(state: object) -> bool:
    if isinstance(state, str):
        return not state.strip()
    return state is None or (isinstance(state, Mapping | list) and not state)


def _name(row: str, field: str, text: str) -> None:
    """Refuse what would break the line that names the decision, or no file can hold."""
    if _CONTROL.search(text):
        raise DecisionError(row, field, "holds a line break or control")
    if _SURROGATE.search(text):
        raise DecisionError(row, field, "holds a lone surrogate, which is no text")


def _encodable(row: str, field: str, value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False, default=dict).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DecisionError(row, field, "holds a lone surrogate, which is no text") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise DecisionError(row, field, f"is no JSON value ({error})") from error
