"""Labelled rows put to a decider: how often it is right, how sure it is, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from semif.errors import DecisionError
from semif.export import LabelledRow
from semif.inputs import Entry, Report
from semif.log import LOW_MASS
from semif.measuring import measures
from semif.measuring.costs import shipped_costs
from semif.types import Answer, Decider, Decision, Option

Order = Callable[[tuple[Option, ...]], tuple[Option, ...]]
Advance = Callable[[int], object]
DEFINITIONS = {
    "balanced_accuracy": "mean recall over the outcomes observed in a phase; overall the mean over "
    "phases, since an option of one phase is no option of another",
    "nll": "mean -ln p(observed), p kept off 0 by 2.2e-16",
    "brier": "mean over rows of the sum over options of (p - outcome)^2, from 0 to 2 (Brier 1950)",
    "ece": "mean |accuracy - confidence| over ten bins of equal width of the top probability, "
    "weighted by rows (Guo et al. 2017)",
    "order_flips": "rows asked again with their options in another order; flipped: those whose "
    "selection changed in any of them",
    "ms_per_decision": "wall time of a batch's call, shared among its rows by tokens evaluated; "
    "loading and asking again are not in it. Throughput: with --batch 1 it is latency",
    "tokens_per_decision": "tokens evaluated, mean; beginnings that prompts share are counted once",
    "low_mass": f"rows whose slots leave yes and no, or the letters, less than {LOW_MASS} of the "
    "probability over the whole vocabulary",
    "accuracy_at_threshold": "the phase's positive option is taken from its threshold on",
}


@dataclass(frozen=True)
class Judged:
    """A labelled row and what a decider said; `ms` is its share of its batch's wall time.

    `flipped`: another selection under another order of options; None where it was not asked again.
    """

    row: LabelledRow
    answer: Answer
    ms: float
    flipped: bool | None = None

    @property
    def right(self) -> bool:
        return self.answer.selected == self.row.outcome


def orders(readout: str) -> tuple[Order, ...]:
    """In which other orders options are shown: from behind, and for letters turned by one too."""
    return (_reversed, _turned) if readout == "letters" else (_reversed,)


def evaluate(
    decider: Decider,
    entries: Sequence[Entry[LabelledRow]],
    report: Report,
    again: Sequence[Order] = (),
    batch: int = 32,
    advance: Advance = lambda rows: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Judged]:
    """Every row that can be scored, in order; the others go to `report`.

    `again`: orders of options that each row is asked again in. `batch` rows go to the decider at
    a time. `clock` gives seconds.
    """
    judged: list[Judged] = []
    for start in range(0, len(entries), batch):
        part = entries[start : start + batch]
        answered, ms = _answered(decider, part, report, clock)
        rows = [entry.value for entry, _ in answered]
        flipped = _flipped(decider, answered, again)
        judged += map(Judged, rows, [answer for _, answer in answered], ms, flipped)
        advance(len(part))
    return judged


def _answered(
    decider: Decider,
    entries: Sequence[Entry[LabelledRow]],
    report: Report,
    clock: Callable[[], float],
) -> tuple[list[tuple[Entry[LabelledRow], Answer]], list[float]]:
    """Answers of one call, and by row its share of the time; a row that cannot be scored is
    reported, and the others are asked without it."""
    left = list(entries)
    while left:
        began = clock()
        try:
            answers = decider.decide([entry.value.decision for entry in left])
        except DecisionError as error:
            bad = next((entry for entry in left if entry.id == error.row), None)
            if bad is None:
                raise
            report(bad.error(error))
            left.remove(bad)
            continue
        ms = (clock() - began) * 1000
        tokens = [answer.tokens for answer in answers]
        shares = [count / sum(tokens) if sum(tokens) else 1 / len(tokens) for count in tokens]
        return list(zip(left, answers, strict=True)), [ms * share for share in shares]
    return [], []


def _flipped(
    decider: Decider, answered: Sequence[tuple[Entry[LabelledRow], Answer]], again: Sequence[Order]
) -> list[bool | None]:
    """By row, whether any of the orders changes its selection; None where none could be asked."""
    found: dict[str, bool] = {}
    for order in again:
        entries = []
        for entry, _ in answered:
            decision = entry.value.decision
            turned = replace(entry.value, decision=_in(order, decision))
            entries.append(replace(entry, value=turned))
        # A longer prompt in another order is no fault of the row: it is only not asked again.
        others, _ = _answered(decider, entries, lambda error: None, lambda: 0.0)
        first = {entry.id: answer.selected for entry, answer in answered}
        for entry, answer in others:
            changed = answer.selected != first[entry.id]
            found[entry.id] = found.get(entry.id, False) or changed
    return [found.get(entry.id) for entry, _ in answered]


def _in(order: Order, decision: Decision) -> Decision:
    return replace(decision, options=order(decision.options))


def _reversed(options: tuple[Option, ...]) -> tuple[Option, ...]:
    return options[::-1]


def _turned(options: tuple[Option, ...]) -> tuple[Option, ...]:
    return options[1:] + options[:1]


def summary(judged: Sequence[Judged], thresholds: Mapping[str, float]) -> dict[str, Any]:
    """The measures over all rows, and the same in `phases`; see DEFINITIONS. None without rows.

    `thresholds`: by phase, those of the revision.
    """
    by_phase: dict[str, list[Judged]] = {}
    for row in judged:
        by_phase.setdefault(row.row.decision.phase, []).append(row)
    phases = {
        phase: _measures(rows, _balanced(rows)) | _at_threshold(rows, thresholds.get(phase))
        for phase, rows in sorted(by_phase.items())
    }
    balanced = [_balanced(rows) for rows in by_phase.values()]
    overall = float(np.mean(balanced)) if balanced else None
    return {**_measures(judged, overall), "phases": phases}


def _balanced(rows: Sequence[Judged]) -> float:
    observed = [str(row.row.outcome) for row in rows]
    return measures.balanced_accuracy([row.answer.selected for row in rows], observed)


def _measures(rows: Sequence[Judged], balanced: float | None) -> dict[str, Any]:
    asked = [row.flipped for row in rows if row.flipped is not None]
    flips = {"rows": len(asked), "flipped": sum(asked), "share": _mean(asked)} if asked else None
    ms = [row.ms for row in rows]
    probs = [list(row.answer.probs.values()) for row in rows]
    observed = [list(row.answer.probs).index(str(row.row.outcome)) for row in rows]
    said = [p[i] for p, i in zip(probs, observed, strict=True)]
    right = [row.right for row in rows]
    return {
        "rows": len(rows),
        "accuracy": _mean(right),
        "balanced_accuracy": None if balanced is None else round(balanced, 4),
        "nll": round(measures.nll(said), 4) if rows else None,
        "brier": round(measures.brier(probs, observed), 4) if rows else None,
        "ece": round(measures.ece([max(p) for p in probs], right), 4) if rows else None,
        "order_flips": flips,
        "ms_per_decision": {"mean": _mean(ms, 2), "median": round(median(ms), 2) if ms else None},
        "tokens_per_decision": _mean([row.answer.tokens for row in rows], 1),
        "prompt_tokens_per_decision": _mean([row.answer.prompt_tokens for row in rows], 1),
        "low_mass": sum(row.answer.allowed_token_mass < LOW_MASS for row in rows),
    }


def _at_threshold(rows: Sequence[Judged], threshold: float | None) -> dict[str, Any]:
    """How often the phase's positive option is taken or left rightly, over rows of two options."""
    cost = shipped_costs().phases.get(rows[0].row.decision.phase)
    positive = cost.positive if cost else "yes"
    two = [row for row in rows if len(row.answer.probs) == 2 and positive in row.answer.probs]
    if threshold is None or not two:
        return {}
    right = [
        (row.answer.probs[positive] >= threshold) == (row.row.outcome == positive) for row in two
    ]
    return {"threshold": threshold, "accuracy_at_threshold": _mean(right)}


def _mean(values: Iterable[float], digits: int = 4) -> float | None:
    listed = list(values)
    return round(float(np.mean(listed)), digits) if listed else None
