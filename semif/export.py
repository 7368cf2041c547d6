"""Decisions joined with their labels into labelled rows, the form SemIf trains and measures on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semif.errors import DecisionError
from semif.jsonl import iter_rows, numbered_rows
from semif.log import Label
from semif.types import Decision, named

RANK = {"assessed": 0, "verified": 1, "human": 2}
Report = Callable[[object], None]


@dataclass(frozen=True)
class LabelledRow:
    """A decision with what it should have been, or at least what it should not.

    `outcome` is None where only `not_outcomes` are known. `source` is "given" for rows that came
    labelled.
    """

    decision: Decision
    outcome: str | None
    not_outcomes: tuple[str, ...]
    source: str
    weight: float

    @classmethod
    def denied(cls, value: Mapping[str, Any], row: str) -> LabelledRow:
        """The same, or what `to_json` makes of a row that is only known not to be something."""
        if "not_outcomes" not in value:
            return cls.from_json(value, row)
        options = {option.id for option in Decision.from_json(value, row).options}
        denied = value["not_outcomes"]
        if not isinstance(denied, list) or not denied or not set(map(str, denied)) < options:
            message = f"{denied!r} is no list of some of the options"
            raise DecisionError(named(row, value), "not_outcomes", message)
        given = {**value, "observed_outcome": str(denied[0])}
        known = cls.from_json(given, row)
        return replace(known, outcome=None, not_outcomes=tuple(map(str, denied)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any], row: str) -> LabelledRow:
        """Read a SemIf row as it is; DecisionError when it is malformed or has no outcome."""
        decision = Decision.from_json(value, row)
        outcome, weight = value.get("observed_outcome"), value.get("weight", 1.0)
        if "observed_outcome" not in value:
            raise DecisionError(named(row, value), "observed_outcome", "is missing")
        if outcome not in [option.id for option in decision.options]:
            message = f"{outcome!r} is none of the options"
            raise DecisionError(named(row, value), "observed_outcome", message)
        if not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise DecisionError(named(row, value), "weight", f"{weight!r} is no number from 0 on")
        return cls(decision, outcome, (), str(value.get("source", "given")), float(weight))

    def right(self, probs: Mapping[str, float]) -> float:
        """What `probs`, by option id, give to the outcome, or to all options not denied."""
        if self.outcome is not None:
            return probs[self.outcome]
        # As a sum over the others: 1 - p has no precision where p is near 1.
        return sum(p for option, p in probs.items() if option not in self.not_outcomes)

    def to_json(self) -> dict[str, Any]:
        """A SemIf row; one without an outcome has `not_outcomes` instead."""
        known: dict[str, Any] = {"observed_outcome": self.outcome}
        if self.outcome is None:
            known = {"not_outcomes": list(self.not_outcomes)}
        return {**self.decision.to_json(), **known, "source": self.source, "weight": self.weight}


def labelled(home: Path, report: Report) -> Iterator[LabelledRow]:
    """The labelled rows of a home's `.sia` folder; what cannot be read goes to `report`."""
    labels = read_labels(home / ".sia" / "labels.jsonl", report)
    yield from join(iter_rows(home / ".sia" / "decisions.jsonl", report), labels, report)


def read_labels(path: Path, report: Report) -> list[Label]:
    """All whole labels of a file, in order."""
    labels = []
    for number, value in numbered_rows(path, report):
        try:
            labels.append(Label.from_json(value, named(f"{path.name}:{number}", value)))
        except DecisionError as error:
            report(error)
    return labels


def join(
    rows: Iterable[Mapping[str, Any]], labels: Iterable[Label], report: Report
) -> Iterator[LabelledRow]:
    """Labelled rows in the order of `rows`; rows that no label speaks about are left out."""
    by_row: dict[str, list[Label]] = defaultdict(list)
    for label in in_force(list(labels)):
        by_row[label.row].append(label)
    for value in rows:
        id_ = value.get("id")
        if not isinstance(id_, str) or id_ not in by_row:
            continue
        try:
            decision = Decision.from_json(value, "decisions.jsonl")
        except DecisionError as error:
            report(error)
            continue
        result = _judge(decision, by_row.pop(decision.id), report)
        if result is not None:
            yield result
    for row in by_row:
        report(f"labels.jsonl: the row {row} is labelled but not in decisions.jsonl")


def in_force(labels: Sequence[Label]) -> list[Label]:
    """Labels of weight above 0 that none of the same or a higher source supersedes, in order.

    `labels` in order of time. A label that supersedes another takes its place; one of weight 0
    takes it back with all it did, so that what it had superseded is in force again.
    """
    known = {label.id: (index, label) for index, label in enumerate(labels)}
    gone: set[str] = set()
    undone: set[str] = set()
    for index, label in reversed(list(enumerate(labels))):
        earlier, old = known.get(label.supersedes or "", (index, label))
        if label.id in undone or earlier >= index or old.row != label.row:
            continue
        if RANK[label.source] >= RANK[old.source]:
            gone.add(old.id)
            if not label.weight:
                undone.add(old.id)
    return [label for label in labels if label.weight > 0 and label.id not in gone]


def _judge(decision: Decision, labels: list[Label], report: Report) -> LabelledRow | None:
    options = {option.id for option in decision.options}
    for label in labels:
        if label.option not in options:
            report(f"label {label.id}: {label.option!r} is no option of the row {label.row}")
    fitting = [label for label in labels if label.option in options]
    # Latest human, then verified, then assessed; the file is in order of time, sorting is stable.
    ranked = sorted(reversed(fitting), key=lambda label: -RANK[label.source])
    denied: list[Label] = []
    for label in ranked:
        names = {other.option for other in denied}
        if label.polarity == "is":
            if label.option not in names:
                return LabelledRow(decision, label.option, (), label.source, label.weight)
        elif len(names | {label.option}) < len(options):  # something must be left to be right
            denied.append(label)
    if not denied:
        return None
    first = denied[0]
    # The row counts as much as who says most of it: what others deny is not theirs.
    names_of = dict.fromkeys(label.option for label in denied if label.source == first.source)
    return LabelledRow(decision, None, tuple(names_of), first.source, first.weight)
