"""Two revisions on the same rows: what one lost or gained against the other, and how sure that is.

A row's loss is -ln p(what it is), or -ln(1 - p(what it is not)); rows made from one text are drawn
together, since they are right or wrong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from semif.export import LabelledRow
from semif.measuring import measures
from semif.measuring.evaluate import Judged

RESAMPLES = 10_000
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Said:
    """What a decider said on one labelled row. `text`: rows with the same one belong together.

    `right`: the selection is the outcome, or none of what the row is only known not to be.
    `top`: the highest probability.
    """

    id: str
    phase: str
    text: str
    weight: float
    loss: float
    brier: float
    right: bool
    top: float
    selected: str
    prompt_sha256: str = ""

    @classmethod
    def of(
        cls, row: LabelledRow, probs: Mapping[str, float], text: str, prompt_sha256: str = ""
    ) -> Said:
        selected = max(probs, key=lambda id_: probs[id_])
        if row.outcome is None:
            brier = sum(probs[id_] ** 2 for id_ in row.not_outcomes)
            right = selected not in row.not_outcomes
        else:
            brier = sum((q - (id_ == row.outcome)) ** 2 for id_, q in probs.items())
            right = selected == row.outcome
        return cls(
            id=row.decision.id,
            phase=row.decision.phase,
            text=text,
            weight=row.weight,
            loss=float(-np.log(max(row.right(probs), _EPS))),
            brier=float(brier),
            right=right,
            top=probs[selected],
            selected=selected,
            prompt_sha256=prompt_sha256,
        )

    @classmethod
    def judged(cls, judged: Judged, text: str) -> Said:
        answer = judged.answer
        return cls.of(judged.row, answer.probs, text, answer.prompt_sha256)


@dataclass(frozen=True)
class Interval:
    """A mean and the bounds that its resamples lie between, 90 % of them unless said otherwise."""

    mean: float
    low: float
    high: float


def cost(rows: Sequence[Said], seed: int = 0, level: float = 0.9) -> dict[str, Any]:
    """Weighted loss and Brier score with their intervals, ECE and accuracy, over all rows.

    ``level``: the share of resamples that lies within an interval.
    """
    weights = np.array([row.weight for row in rows])
    texts = [row.text for row in rows]

    def mean(values: Sequence[float]) -> Interval:
        return bootstrap(np.array(values), weights, texts, seed, level)

    return {
        "rows": len(rows),
        "nll": vars(mean([row.loss for row in rows])),
        "brier": vars(mean([row.brier for row in rows])),
        "accuracy": vars(mean([float(row.right) for row in rows])),
        "ece": ece(rows),
    }


def ece(rows: Sequence[Said]) -> float:
    return float(measures.ece([row.top for row in rows], [row.right for row in rows]))


def ece_interval(rows: Sequence[Said], seed: int = 0, level: float = 0.9) -> Interval:
    """Expected calibration error, texts drawn with all their rows. Of few rows it is too high, and
    more so in resamples: the bounds may lie above it."""
    known: dict[str, int] = {}
    index = [known.setdefault(row.text, len(known)) for row in rows]
    gaps, counts = np.zeros((len(known), measures.BINS)), np.zeros(len(known))
    for of, row in zip(index, rows, strict=True):
        gaps[of, min(int(row.top * measures.BINS), measures.BINS - 1)] += row.right - row.top
        counts[of] += 1
    rng = np.random.default_rng(seed)
    draws = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):
        size = min(500, RESAMPLES - start)
        drawn = rng.multinomial(len(known), np.full(len(known), 1 / len(known)), size)
        draws[start : start + size] = np.abs(drawn @ gaps).sum(1) / (drawn @ counts)
    low, high = np.percentile(draws, _tails(level))
    return Interval(ece(rows), float(low), float(high))


def bootstrap(
    values: np.ndarray,
    weights: np.ndarray,
    texts: Sequence[str],
    seed: int = 0,
    level: float = 0.9,
) -> Interval:
    """The weighted mean and the percentiles that leave half of the rest on each side, by default
    the 5th and the 95th; texts are drawn, with all their rows.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13 (percentile).
    """
    draws = _draws(values, weights, texts, seed)
    low, high = np.percentile(draws, _tails(level))
    return Interval(float(np.average(values, weights=weights)), float(low), float(high))


def change(old: Sequence[Said], new: Sequence[Said], seed: int = 0) -> Interval:
    """Of the weighted mean loss, from one decider to the other on the same rows in one order.

    `low` and `high` are the 10th and the 90th percentile: each a one-sided bound of 90 %.
    """
    values = np.array([b.loss - a.loss for a, b in _pairs(old, new)])
    weights = np.array([row.weight for row in old])
    draws = _draws(values, weights, [row.text for row in old], seed)
    low, high = np.percentile(draws, [10, 90])
    return Interval(float(np.average(values, weights=weights)), float(low), float(high))


def ratio(old: Sequence[float], new: Sequence[float], seed: int = 0) -> Interval:
    """Of medians of times taken in turns, new over old, with one-sided bounds of 90 %."""
    a, b = np.array(old), np.array(new)
    if len(a) != len(b) or not len(a):
        raise ValueError("times are compared in pairs")
    index = np.random.default_rng(seed).integers(0, len(a), (RESAMPLES // 10, len(a)))
    draws = np.median(b[index], axis=1) / np.median(a[index], axis=1)
    low, high = np.percentile(draws, [10, 90])
    return Interval(float(np.median(b) / np.median(a)), float(low), float(high))


def worse(old: Sequence[Said], new: Sequence[Said]) -> tuple[float, float]:
    """(points of accuracy lost, two-sided p of the exact McNemar test) on the same rows.

    McNemar, Psychometrika 12, 1947: of the rows on which the two differ, half would go either way.
    """
    pairs = _pairs(old, new)
    lost = sum(a.right and not b.right for a, b in pairs)
    won = sum(b.right and not a.right for a, b in pairs)
    differ = lost + won
    tail = sum(comb(differ, k) for k in range(min(lost, won) + 1)) / 2**differ
    return 100 * (lost - won) / len(pairs), min(1.0, 2 * tail)


def _pairs(old: Sequence[Said], new: Sequence[Said]) -> list[tuple[Said, Said]]:
    pairs = list(zip(old, new, strict=True))
    if any(a.id != b.id for a, b in pairs):
        raise ValueError("the two are not of the same rows")
    return pairs


def _draws(values: np.ndarray, weights: np.ndarray, texts: Sequence[str], seed: int) -> np.ndarray:
    """Weighted means of resamples, [RESAMPLES]."""
    known: dict[str, int] = {}
    index = np.array([known.setdefault(text, len(known)) for text in texts])
    sums = np.bincount(index, values * weights)
    totals = np.bincount(index, weights)
    rng = np.random.default_rng(seed)
    draws = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):  # a block at a time: the matrix of all is large
        drawn = rng.integers(0, len(sums), (min(500, RESAMPLES - start), len(sums)))
        draws[start : start + len(drawn)] = sums[drawn].sum(1) / totals[drawn].sum(1)
    return draws


def _tails(level: float) -> list[float]:
    return [50 * (1 - level), 50 * (1 + level)]
