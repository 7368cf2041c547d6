"""What labelled decisions cost, and what dreams made of it, as figures for people."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semif.errors import DecisionError
from semif.jsonl import numbered_rows
from semif.measuring.measures import Bin, reliability
from semif.measuring.paired import Said, cost, ece_interval
from semif.rows import main_text
from semif.types import converted
from sia.dream.dataset import Dataset, Logged
from sia.errors import UsageError

WORST = 12
LARGEST = 10  # options of a phase whose confusion is still readable; the rarer ones are one
OTHERS = "others"
LEVEL = 0.95  # of resamples within the bounds of a figure


@dataclass(frozen=True)
class Row:
    """A labelled decision. p: of what was selected; right_p: of what it should have been, None
    where only what it is not is known."""

    phase: str
    text: str
    selected: str
    p: float
    outcome: str
    right_p: float | None
    source: str
    loss: float


@dataclass(frozen=True)
class Day:
    """The mean loss of a day, UTC, with its bounds."""

    day: str
    rows: int
    nll: float
    low: float
    high: float


@dataclass(frozen=True)
class Confusion:
    """counts[i][j]: rows that are ``names[i]`` of which ``names[j]`` was selected."""

    phase: str
    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Night:
    """Accuracy after one night, of one arm such as `gate`, with its 90 % bounds."""

    night: int
    arm: str
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """The period. reliability: bins of the highest probability, None where empty. dreams: as each
    `proof.json` has it, with its folder's name as `dream`, oldest first; kind: `decisions`, or
    `turns` where the generator learned."""

    rows: int
    held_out: int
    dropped: int
    sources: Mapping[str, int]
    whole: Mapping[str, Any] | None
    phases: Mapping[str, Mapping[str, Any]]
    reliability: tuple[Bin | None, ...]
    days: tuple[Day, ...]
    confusions: tuple[Confusion, ...]
    worst: tuple[Row, ...]
    corrections: tuple[Row, ...]
    dreams: tuple[Mapping[str, Any], ...]
    nights: tuple[Night, ...] = ()
    forgotten: int = 0

    def to_json(self) -> dict[str, Any]:
        """The figures, without the plots' data."""
        return {
            "rows": self.rows,
            "held_out": self.held_out,
            "alike_dropped": self.dropped,
            "corrections": len(self.corrections),
            "sources": dict(self.sources),
            "all": self.whole,
            "phases": dict(self.phases),
            "days": [vars(day) for day in self.days],
            "worst": [vars(row) for row in self.worst],
            "corrected": [vars(row) for row in self.corrections],
            "forgotten": self.forgotten,
            "dreams": [
                {
                    "dream": dream["dream"],
                    "kind": dream["kind"],
                    "candidate": dream["candidate"],
                    "parent": dream["parent"],
                    "passed": dream["passed"],
                    "failed": [line["name"] for line in dream["lines"] if not line["passed"]],
                    "lines": dream["lines"],
                    "corrections": dream.get("corrections"),
                }
                for dream in self.dreams
            ],
        }


def report(dataset: Dataset, dreams: Path, nights: Sequence[Night] = ()) -> Report:
    """``dreams``: the folder of a home's dreams."""
    said = [row.said() for row in dataset.rows]
    rows = [_row(row, one) for row, one in zip(dataset.rows, said, strict=True)]
    fixed = {row.row.decision.id for row in dataset.corrections}
    corrections = [
        row for row, of in zip(rows, dataset.rows, strict=True) if of.row.decision.id in fixed
    ]
    phases = sorted({row.phase for row in said})
    return Report(
        rows=len(rows),
        held_out=len(dataset.held),
        dropped=dataset.dropped,
        sources=dict(sorted(Counter(row.source for row in rows).items())),
        whole=_cost(said) if said else None,
        phases={phase: _cost([row for row in said if row.phase == phase]) for phase in phases},
        reliability=tuple(reliability([row.top for row in said], [row.right for row in said])),
        days=tuple(_days(dataset.rows, said)),
        confusions=tuple(found for phase in phases if (found := _confusion(phase, dataset, said))),
        worst=tuple(sorted(rows, key=lambda row: -row.loss)[:WORST]),
        corrections=tuple(corrections),
        dreams=tuple(_dreams(dreams)),
        nights=tuple(nights),
        forgotten=dataset.forgotten,
    )


def _cost(said: Sequence[Said]) -> dict[str, Any]:
    return {**cost(said, level=LEVEL), "ece": vars(ece_interval(said, level=LEVEL))}


def _row(logged: Logged, said: Said) -> Row:
    row = logged.row
    outcome = row.outcome or f"not {', '.join(row.not_outcomes)}"
    return Row(
        phase=said.phase,
        text=main_text(row.decision.state),
        selected=said.selected,
        p=said.top,
        outcome=outcome,
        right_p=None if row.outcome is None else logged.probs[row.outcome],
        source=row.source,
        loss=said.loss,
    )


def _days(rows: Sequence[Logged], said: Sequence[Said]) -> list[Day]:
    by_day: dict[str, list[Said]] = defaultdict(list)
    for row, one in zip(rows, said, strict=True):
        by_day[row.time[:10]].append(one)
    found = []
    for day in sorted(by_day):
        nll = cost(by_day[day], level=LEVEL)["nll"]
        found.append(Day(day, len(by_day[day]), nll["mean"], nll["low"], nll["high"]))
    return found


def _confusion(phase: str, dataset: Dataset, said: Sequence[Said]) -> Confusion | None:
    """None where nothing is known for certain."""
    pairs = Counter(
        (row.row.outcome, one.selected)
        for row, one in zip(dataset.rows, said, strict=True)
        if one.phase == phase and row.row.outcome is not None
    )
    often = Counter(name for pair in pairs.elements() for name in pair)
    if len(often) < 2:
        return None
    kept = {name for name, _ in often.most_common(LARGEST - 1 if len(often) > LARGEST else LARGEST)}
    names = [*sorted(kept), *([OTHERS] if len(kept) < len(often) else [])]
    shown = Counter[tuple[str, str]]()
    for (a, b), count in pairs.items():
        shown[a if a in kept else OTHERS, b if b in kept else OTHERS] += count
    counts = tuple(tuple(shown[a, b] for b in names) for a in names)
    return Confusion(phase, tuple(names), counts)


def _dreams(folder: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob("*/proof*.json")):
        try:
            said = json.loads(path.read_bytes())
            found.append({"dream": path.parent.name, "kind": "decisions", **said})
        except ValueError:
            continue  # written whole or not at all: not ours
    return found


def read_nights(path: Path) -> list[Night]:
    """The nights of a benchmark, one a line. Raises UsageError."""
    problems: list[object] = []
    try:
        nights = [
            converted(row, Night, f"{path} line {number}")
            for number, row in numbered_rows(path, problems.append)
        ]
    except DecisionError as error:
        raise UsageError(str(error)) from None
    if problems or not nights:
        raise UsageError(f"{path}: {problems[0] if problems else 'holds no nights'}")
    return nights
