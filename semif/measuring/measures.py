"""What probabilities are worth against outcomes: the field's measures, each in its own words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 10
# Probabilities are kept off 0 in a logarithm by the precision of a float, as in scikit-learn.
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Bin:
    """Rows whose top probability lies in one tenth: how many, how sure and how right on average."""

    rows: int
    confidence: float
    accuracy: float


def reliability(top: Sequence[float], right: Sequence[bool]) -> list[Bin | None]:
    """Ten bins of equal width over the top probability, None where one is empty."""
    sure, hit = np.asarray(top, dtype=float), np.asarray(right, dtype=float)
    index = np.minimum((sure * BINS).astype(int), BINS - 1)
    result: list[Bin | None] = []
    for i in range(BINS):
        inside = index == i
        count = int(inside.sum())
        found = Bin(count, float(sure[inside].mean()), float(hit[inside].mean())) if count else None
        result.append(found)
    return result


def ece(top: Sequence[float], right: Sequence[bool]) -> float:
    """Expected calibration error: mean over rows of |accuracy - confidence| of a row's bin.

    Guo et al., On Calibration of Modern Neural Networks, ICML 2017, equation 3, with ten bins.
    """
    gaps = [b.rows * abs(b.accuracy - b.confidence) for b in reliability(top, right) if b]
    return sum(gaps) / len(top)


def brier(probs: Sequence[Sequence[float]], right: Sequence[int]) -> float:
    """Mean over rows of the sum over options of (p - outcome)^2: 0 perfect, 2 surely wrong.

    G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly Weather
    Review 78, 1950. `right[i]` indexes `probs[i]`.
    """
    errors = [
        sum((p - (k == outcome)) ** 2 for k, p in enumerate(row))
        for row, outcome in zip(probs, right, strict=True)
    ]
    return float(np.mean(errors))


def nll(right: Sequence[float]) -> float:
    """Mean negative log of the probability given to what was observed, in nats."""
    return float(-np.log(np.maximum(right, _EPS)).mean())


def balanced_accuracy(selected: Sequence[str], observed: Sequence[str]) -> float:
    """Mean over the outcomes that were observed of their recall, as in scikit-learn."""
    hits: defaultdict[str, list[bool]] = defaultdict(list)
    for said, outcome in zip(selected, observed, strict=True):
        hits[outcome].append(said == outcome)
    return float(np.mean([np.mean(of_outcome) for of_outcome in hits.values()]))
