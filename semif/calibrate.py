"""Calibration of a revision on labelled rows: temperature, bias for "none", thresholds by phase.

Weights stay as they are. What calibration is worth is measured by cross-fitting: each row is judged
by a fit that has not seen its text, since a fit always flatters the rows it was made on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import numpy as np

from semif import measures
from semif.costs import Cost, Costs
from semif.errors import DecisionError, FileError
from semif.evaluate import Judged
from semif.fit import Fit, Scored, by_phase, fit, judged, metrics
from semif.jsonl import sync_folder, write_whole
from semif.measures import Bin
from semif.revision import Contents, Revision, load
from semif.rows import main_text

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
    """What was fitted, by phase, and the measures before and after (see `semif.fit.metrics`).

    `kept`: phases that keep the parent's fit, since the new one gave rows it had not seen no less
    negative log likelihood. `curves`: reliability before and after, by phase, and over all rows
    under `ALL`.
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
    scored = [_scored(row) for row in rows]
    sides = _sides(rows, folds)
    old = {
        phase: Fit(parent.temperatures.get(phase, 1.0), parent.none_bias.get(phase, 0.0))
        for phase in by_phase(scored)
    }
    before = [row.log_probs(old[row.phase]) for row in scored]
    after = _cross_fitted(scored, sides)
    kept = _no_better(scored, before, after)
    after = [before[i] if row.phase in kept else after[i] for i, row in enumerate(scored)]
    return Calibration(
        folds=folds,
        fits={p: old[p] if p in kept else found for p, found in fit(scored).items()},
        kept=kept,
        thresholds=_thresholds(rows, after, sides, parent, costs),
        before=metrics(scored, old),
        after=judged(scored, after),
        curves=_curves(scored, before, after),
    )


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
        },
    )


def write(parent: Revision, contents: Contents, out: Path) -> Revision:
    """The new revision in a folder of its own in `out`, named by its id, with the same adapters.

    Raises FileError; what is left then is no revision.
    """
    data = json.dumps(msgspec.to_builtins(contents), indent=1).encode() + b"\n"
    target = out / hashlib.sha256(data).hexdigest()[:12]
    if target.exists():
        return load(target)
    draft = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=".calibrate-", dir=out))
        for adapter in (parent.decide_path, parent.write_path):
            if adapter is not None:
                _copy(adapter, draft / adapter.name)
        write_whole(draft / "revision.json", data)
        draft.chmod(0o755)
        draft.rename(target)
        sync_folder(out)
    except OSError as error:
        raise FileError(target, f"cannot be written: {error.strerror}") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
    return load(target)


def rows_sha256(rows: Sequence[Judged]) -> str:
    """sha256 of the labelled rows, one JSON line each, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row.row.to_json(), sort_keys=True, default=dict).encode() + b"\n")
    return digest.hexdigest()


def _scored(row: Judged) -> Scored:
    logits = row.answer.logits
    none = {option.id for option in row.row.decision.options if option.means_none}
    return Scored(
        phase=row.row.decision.phase,
        scores=np.array(list(logits.values())),
        none=np.array([id_ in none for id_ in logits]),
        right=list(logits).index(str(row.row.outcome)),
    )


def _sides(rows: Sequence[Judged], folds: int) -> np.ndarray:
    """By row the number of its fold: in each phase texts are dealt out in the order of their hash,
    so that folds are of one size and rows of one text are in one."""
    texts = [" ".join(main_text(row.row.decision.state).casefold().split()) for row in rows]
    dealt: dict[str, dict[str, int]] = {}
    order = sorted(range(len(rows)), key=lambda i: hashlib.sha256(texts[i].encode()).digest())
    for i in order:
        seen = dealt.setdefault(rows[i].row.decision.phase, {})
        seen.setdefault(texts[i], len(seen) % folds)
    phases = [row.row.decision.phase for row in rows]
    return np.array([dealt[phase][text] for phase, text in zip(phases, texts, strict=True)])


def _cross_fitted(scored: Sequence[Scored], sides: np.ndarray) -> list[np.ndarray]:
    """Log probabilities of each row by a fit of the other folds; unfitted where there are none."""
    result: list[np.ndarray] = [row.scores for row in scored]
    for side in set(sides.tolist()):
        fits = fit([row for row, of_row in zip(scored, sides, strict=True) if of_row != side])
        for i, row in enumerate(scored):
            if sides[i] == side:
                result[i] = row.log_probs(fits.get(row.phase, Fit()))
    return result


def _no_better(
    scored: Sequence[Scored], before: Sequence[np.ndarray], after: Sequence[np.ndarray]
) -> tuple[str, ...]:
    """Phases whose rows have no lower negative log likelihood after than before."""
    gain: dict[str, float] = {}
    for row, one, other in zip(scored, before, after, strict=True):
        gain[row.phase] = gain.get(row.phase, 0.0) + float(other[row.right] - one[row.right])
    return tuple(phase for phase, total in gain.items() if not total > 0)


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
            if row.row.decision.phase == phase
            and len(row.answer.logits) == 2
            and cost.positive in row.answer.logits
        ]
        if which:
            places = [list(rows[i].answer.logits).index(cost.positive) for i in which]
            probs = np.exp([after[i][place] for i, place in zip(which, places, strict=True)])
            positive = np.array([rows[i].row.outcome == cost.positive for i in which])
            found[phase] = threshold(probs, positive, sides[which], cost)
        elif phase in costs.named:
            message = f"no row has two options, one of them {cost.positive!r}"
            raise DecisionError("--costs", phase, message)
    return found


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


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    fd = os.open(target, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
