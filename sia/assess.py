"""What the outcome of a run says of the decisions that led to it, and how far a judge is trusted.

Pure functions; what is observed goes through ``words`` before a model sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semif.export import in_force
from semif.log import Label
from sia.redact import redact
from sia.store import RunVerdict

# A judge counts for something once it agrees with the world or a person on this share of at least
# this many runs, and then for this much.
SHARE, RUNS, TRUSTED = 0.8, 30, 0.3
LONG = 80  # characters; of a longer text only its length is said
MOST = 12  # items said of a list or an object

Decided = tuple[str, str, str]  # row id, chosen option, phase


@dataclass(frozen=True)
class Verdict:
    """Whether a run did what was asked. cause, of a failure: which | environment | text | unknown
    (see ``api.Failed``). summary: a sentence for the person, or ""."""

    success: bool
    source: Literal["verified", "assessed"]
    by: str
    cause: str = ""
    summary: str = ""


def words(value: Any) -> str:
    """What was observed, as one line without secrets: ``server: answers; free: 3 GB``."""
    if isinstance(value, Mapping):
        items = [f"{name}: {_inner(item)}" for name, item in value.items()]
        return redact("; ".join(_most(items)))
    return redact(_inner(value))


def _inner(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(_most([f"{name} {_inner(item)}" for name, item in value.items()]))
    if isinstance(value, list | tuple):
        return ", ".join(_most([_inner(item) for item in value])) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    text = " ".join(str(value).split())
    return text if len(text) <= LONG else f"{len(text)} characters"


def _most(items: list[str]) -> list[str]:
    more = len(items) - MOST
    return items if more <= 0 else [*items[:MOST], f"and {more} more"]


def changes(before: Any, after: Any) -> str:
    """What is different ``after``, as one line without secrets."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return f"{words(before)}, now {words(after)}"
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return redact(
        "; ".join(
            _most([f"{n}: {_inner(before.get(n))}, now {_inner(after.get(n))}" for n in names])
        )
    )


def labels(
    decided: Sequence[Decided], verdict: Verdict, run: str, weight: float | None = None
) -> list[Label]:
    """The labels that ``verdict`` gives the decisions of a run.

    Success: what was chosen is right. The world's own yes speaks for the way to the skill and for
    the prediction only: that a mail went out says nothing of whom it should have reached. Failure:
    the rows of the phase that its cause names are wrong; text and unknown name none.
    """
    if verdict.success:
        spoken = decided if verdict.source == "assessed" else _but(decided, "read_next")
        return [
            _label(row, option, verdict, run, weight, right=phase != "predict" or option != "fail")
            for row, option, phase in spoken
        ]
    if verdict.cause == "environment":
        return [
            _label(row, option, verdict, run, weight, right=option == "fail")
            for row, option, phase in decided
            if phase == "predict"
        ]
    if verdict.cause != "which":
        return []
    for phase in ("read_next", "navigate_skill", "navigate_category"):
        if found := [item for item in decided if item[2] == phase]:
            return [
                _label(row, option, verdict, run, weight, right=False) for row, option, _ in found
            ]
    return []


def _but(decided: Sequence[Decided], phase: str) -> list[Decided]:
    return [item for item in decided if item[2] != phase]


def _label(
    row: str, option: str, verdict: Verdict, run: str, weight: float | None, right: bool
) -> Label:
    polarity: Literal["is", "not"] = "is" if right else "not"
    return Label.new(row, run, polarity, option, verdict.source, verdict.by, weight)


def agreement(verdicts: Iterable[RunVerdict], given: Iterable[Label]) -> tuple[int, int]:
    """On how many runs the judge said the same as the person or the world, of how many.

    The person's word on a run is what they said of its decisions: one that was wrong makes it a
    failure. It goes before the world's.
    """
    known: list[RunVerdict] = []
    assessed: dict[str, bool] = {}
    settled: dict[str, bool] = {}
    for verdict in verdicts:
        known.append(verdict)
        (assessed if verdict.source == "assessed" else settled)[verdict.run] = verdict.success
    human = [label for label in in_force(given) if label.source == "human"]
    settled |= _human(known, human)
    compared = assessed.keys() & settled.keys()
    return sum(assessed[run] == settled[run] for run in compared), len(compared)


def _human(verdicts: Sequence[RunVerdict], human: Sequence[Label]) -> dict[str, bool]:
    latest = {label.row: label for label in human}  # in order of time
    outcomes: dict[str, bool] = {}
    for verdict in verdicts:
        said = [
            (latest[row].polarity == "is") == (latest[row].option == option)
            for row, option, phase in verdict.decided
            if row in latest and phase != "predict"  # that it would fail may well be right
        ]
        if said:
            outcomes[verdict.run] = all(said)
    return outcomes


def trust(agreeing: int, compared: int) -> float:
    """The weight of an ``assessed`` label."""
    return TRUSTED if compared >= RUNS and agreeing >= SHARE * compared else 0.0
