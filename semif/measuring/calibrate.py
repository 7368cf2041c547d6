"""Calibration of a revision on labelled rows: temperature, bias for "none", thresholds by phase.

Weights stay as they are. What calibration is worth is measured by cross-fitting: each row is judged
by a fit that has not seen its text, since a fit always flatters the rows it was made on. Whether a
phase keeps what its parent had is chosen without its text too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from semif.errors import DecisionError
from semif.export import LabelledRow
from semif.measuring import measures
from semif.measuring.costs import Cost, Costs
from semif.measuring.evaluate import Judged
from semif.measuring.fit import Fit, Scored, by_phase, family, fit, judged, metrics
from semif.measuring.measures import Bin
from semif.revision import Contents, Revision
from semif.rows import normal_text
from semif.types import Decision
from semif.writing.pin import METRICS as WRITING

ALL = "all"
# With fewer rows of an outcome than this the costs of mistakes are known better than their number.
_LEAST = 20
_RESAMPLES = 2000
Curve = list[Bin | None]


@dataclass(frozen=True)
class Threshold:
    """A phase's threshold. Costs are means over `rows`; `empirical_cost` is cross-fitted.

    `bayes` is best for calibrated probabilities, `empirical` on these rows; it is taken only where
    `significant`: its cost is lower on 97.5 % of the resampled sets of rows (paired bootstrap).
    """

    positive: str
    rows: int
    bayes: float
    bayes_cost: float
    empirical: float
    empirical_cost: float
    significant: bool

    @property
    def value(self) -> float:
        return round(self.empirical if self.significant else self.bayes, 4)


@dataclass(frozen=True)
class Calibration:
    """What was fitted, by phase, and the measures before and after (see `fit.metrics`).

    `kept`: phases that keep the parent's fit, since the new one gave rows it had not seen no less
    negative log likelihood, or there were none. The phases of a family are kept together, and never
    where the parent has several temperatures for it. `curves`: reliability before and after, by
    phase, and over all rows under `ALL`.
    """

    folds: int
    fits: Mapping[str, Fit]
    kept: tuple[str, ...]
    thresholds: Mapping[str, Threshold]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    curves: Mapping[str, tuple[Curve, Curve]]


def calibrate(
    rows: Sequence[Judged], parent: Contents, costs: Costs, folds: int = 5
) -> Calibration:
    """Fit on rows that the parent revision has answered.

    Thresholds are set for phases that the parent has one for or whose costs are named: a threshold
    also switches a phase on. Raises DecisionError for named costs without rows of two options.
    """
    rows = sorted(rows, key=lambda row: row.row.decision.phase)  # as `by_phase` gives them
    check_costs([row.row for row in rows], costs)
    scored = [Scored.of(row.row, row.answer.logits) for row in rows]
    texts = [normal_text(row.row.decision.state) for row in rows]
    old = {
        phase: Fit(parent.temperatures.get(phase, 1.0), parent.none_bias.get(phase, 0.0))
        for row in scored
        for phase in family(row.phase)
    }
    before = [row.log_probs(old[row.phase]) for row in scored]
    chosen = _chosen(scored, texts, old, folds)
    after = _without_its_text(scored, texts, old, folds)
    settled = [
        before[i] if row.phase in chosen.kept else chosen.unseen[i] for i, row in enumerate(scored)
    ]
    return Calibration(
        folds=folds,
        fits=chosen.fits,
        kept=chosen.kept,
        thresholds=_thresholds(rows, settled, _sides(scored, texts, folds), parent, costs),
        before=metrics(scored, old),
        after=judged(scored, after),
        curves=_curves(scored, before, after),
    )


def check_costs(rows: Iterable[LabelledRow], costs: Costs) -> None:
    """DecisionError for costs that were named for a phase without rows they speak about."""
    left = set(costs.named)
    for row in rows:
        phase = row.decision.phase
        if phase in left and _speak(costs.phases[phase], row.decision):
            left.remove(phase)
    for phase in sorted(left):
        message = f"no row has two options, one of them {costs.phases[phase].positive!r}"
        raise DecisionError("--costs", phase, message)


def revised(parent: Revision, found: Calibration, data_sha256: str) -> Contents:
    """The parent's contents with what was found; phases without rows stay as they were.

    `data_sha256` is that of the rows. The parent of a revision that lies nowhere is its parent.
    """
    old = parent.contents
    biases = old.none_bias | {phase: each.none_bias for phase, each in found.fits.items()}
    return msgspec.structs.replace(
        old,
        parent=parent.id if parent.folder else old.parent,
        temperatures=old.temperatures | {p: each.temperature for p, each in found.fits.items()},
        none_bias={phase: bias for phase, bias in biases.items() if bias},
        thresholds=old.thresholds | {p: each.value for p, each in found.thresholds.items()},
        metrics={
            **found.after,
            "ece_before": found.before["ece"],
            "measured_on": "the rows it was calibrated on, each by a fit that had not seen its "
            f"text ({found.folds} folds)",
            "calibration_sha256": data_sha256,
            # The adapter for writing goes along, and so does what it was measured at.
            **{name: old.metrics[name] for name in (WRITING,) if name in old.metrics},
        },
    )


def rows_sha256(rows: Sequence[Judged]) -> str:
    """sha256 of the labelled rows, one JSON line each, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row.row.to_json(), sort_keys=True, default=dict).encode() + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True)
class _Chosen:
    """Fits by phase, those `kept` of them the parent's; `unseen`: by row the log probabilities by a
    new fit that has not seen its text."""

    fits: Mapping[str, Fit]
    kept: tuple[str, ...]
    unseen: Sequence[np.ndarray]


def _chosen(
    scored: Sequence[Scored], texts: Sequence[str], old: Mapping[str, Fit], folds: int
) -> _Chosen:
    """New fits where they are better on rows they have not seen, the old ones elsewhere."""
    sides = _sides(scored, texts, folds).tolist()
    in_folds: dict[str, set[int]] = {}
    for row, side in zip(scored, sides, strict=True):
        in_folds.setdefault(row.phase, set()).add(side)
    # Of rows that all lie in one fold no bias could be judged.
    biases = {phase: old[phase].none_bias for phase, of in in_folds.items() if len(of) < 2}
    unseen = [row.scores for row in scored]
    for side in set(sides):
        others = [row for row, of_row in zip(scored, sides, strict=True) if of_row != side]
        fits = fit(others, biases)
        for i, row in enumerate(scored):
            if sides[i] == side:
                unseen[i] = row.log_probs(fits.get(row.phase, old[row.phase]))
    kept = _no_better(scored, unseen, old, in_folds)
    absent = {phase: each.none_bias for phase, each in old.items() if phase not in in_folds}
    new = {p: found for p, found in fit(scored, biases | absent).items() if family(p) not in kept}
    of_kept = tuple(phase for phase in in_folds if family(phase) in kept)
    return _Chosen(new | {phase: old[phase] for phase in of_kept}, of_kept, unseen)


def _without_its_text(
    scored: Sequence[Scored], texts: Sequence[str], old: Mapping[str, Fit], folds: int
) -> list[np.ndarray]:
    """Log probabilities of each row by what is chosen from the other folds."""
    sides = _sides(scored, texts, folds).tolist()
    result = [row.scores for row in scored]
    for side in set(sides):
        others = [i for i, of_row in enumerate(sides) if of_row != side]
        fits = _chosen([scored[i] for i in others], [texts[i] for i in others], old, folds).fits
        for i, row in enumerate(scored):
            if sides[i] == side:
                result[i] = row.log_probs(fits.get(row.phase, old[row.phase]))
    return result


def _sides(scored: Sequence[Scored], texts: Sequence[str], folds: int) -> np.ndarray:
    """By row the number of its fold: in each family texts are dealt out in the order of their hash,
    so that folds are of one size and rows of one text are in one."""
    dealt: dict[tuple[str, ...], dict[str, int]] = {}
    for i in sorted(
        range(len(scored)), key=lambda i: hashlib.sha256(texts[i].encode("utf-8")).digest()
    ):
        seen = dealt.setdefault(family(scored[i].phase), {})
        seen.setdefault(texts[i], len(seen) % folds)
    return np.array(
        [dealt[family(row.phase)][text] for row, text in zip(scored, texts, strict=True)]
    )


def _no_better(
    scored: Sequence[Scored],
    unseen: Sequence[np.ndarray],
    old: Mapping[str, Fit],
    in_folds: Mapping[str, set[int]],
) -> set[tuple[str, ...]]:
    """Families whose rows have no lower negative log likelihood by the new fit; not those that have
    several temperatures, where it could be judged."""
    gain: dict[tuple[str, ...], float] = {}
    for row, new in zip(scored, unseen, strict=True):
        more = float(new[row.right] - row.log_probs(old[row.phase])[row.right])
        gain[family(row.phase)] = gain.get(family(row.phase), 0.0) + more
    kept = set()
    for phases, total in gain.items():
        judged_in = set().union(*(in_folds.get(phase, ()) for phase in phases))
        one = len({old[phase].temperature for phase in phases}) == 1
        if not total > 0 and (one or len(judged_in) < 2):
            kept.add(phases)
    return kept


def _curves(
    scored: Sequence[Scored], before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> dict[str, tuple[Curve, Curve]]:
    def curve(log_probs: Sequence[np.ndarray], phase: str) -> Curve:
        chosen = [
            (float(np.exp(of_row.max())), int(of_row.argmax()) == row.right)
            for row, of_row in zip(scored, log_probs, strict=True)
            if phase in (ALL, row.phase)
        ]
        return measures.reliability([top for top, _ in chosen], [right for _, right in chosen])

    phases = [*by_phase(scored), ALL]
    return {phase: (curve(before, phase), curve(after, phase)) for phase in phases}


def _thresholds(
    rows: Sequence[Judged],
    after: Sequence[np.ndarray],
    sides: np.ndarray,
    parent: Contents,
    costs: Costs,
) -> dict[str, Threshold]:
    found = {}
    for phase, cost in costs.phases.items():
        if phase not in parent.thresholds and phase not in costs.named:
            continue
        which = [
            i
            for i, row in enumerate(rows)
            if row.row.decision.phase == phase and _speak(cost, row.row.decision)
        ]
        if which:
            places = [list(rows[i].answer.logits).index(cost.positive) for i in which]
            probs = np.exp([after[i][place] for i, place in zip(which, places, strict=True)])
            positive = np.array([rows[i].row.outcome == cost.positive for i in which])
            found[phase] = threshold(probs, positive, sides[which], cost)
    return found


def _speak(cost: Cost, decision: Decision) -> bool:
    """Whether costs of their phase speak about a decision."""
    return len(decision.options) == 2 and cost.positive in {o.id for o in decision.options}


def threshold(probs: np.ndarray, positive: np.ndarray, sides: np.ndarray, cost: Cost) -> Threshold:
    """The threshold for one phase from cross-fitted probabilities [rows] of its positive option.

    `positive` [rows]: whether it was observed; `sides` [rows]: the rows' folds.
    """
    at_bayes = _costs(probs, positive, cost.bayes, cost)
    held_out = np.empty(len(probs))
    for side in set(sides.tolist()):
        inside = sides == side
        best = _best(probs[~inside], positive[~inside], cost)
        held_out[inside] = _costs(probs[inside], positive[inside], best, cost)
    enough = min(positive.sum(), (~positive).sum()) >= _LEAST
    return Threshold(
        positive=cost.positive,
        rows=len(probs),
        bayes=cost.bayes,
        bayes_cost=round(float(at_bayes.mean()), 4),
        empirical=round(_best(probs, positive, cost), 4),
        empirical_cost=round(float(held_out.mean()), 4),
        significant=bool(enough and _lower(held_out, at_bayes)),
    )


def _costs(
    probs: np.ndarray, positive: np.ndarray, at: float | np.ndarray, cost: Cost
) -> np.ndarray:
    """What each row costs with a threshold, or [thresholds, rows] with several in a column."""
    taken = probs >= at
    result: np.ndarray = cost.false_positive * (taken & ~positive)
    return result + cost.false_negative * (~taken & positive)


def _best(probs: np.ndarray, positive: np.ndarray, cost: Cost) -> float:
    """The threshold that costs these rows least; of equal ones the nearest to Bayes."""
    values = np.unique(probs)
    between = (values[1:] + values[:-1]) / 2
    candidates = np.concatenate([[0.0, cost.bayes, 1.0], between])
    totals = _costs(probs, positive, candidates[:, None], cost).sum(axis=1)
    least = candidates[totals <= totals.min() + 1e-9]
    return float(least[np.abs(least - cost.bayes).argmin()])


def _lower(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean of `one` is below that of `other`: a paired bootstrap, one-sided 2.5 %."""
    apart = other - one
    drawn = np.random.default_rng(0).integers(0, len(apart), (_RESAMPLES, len(apart)))
    return float(np.quantile(apart[drawn].mean(axis=1), 0.025)) > 0
