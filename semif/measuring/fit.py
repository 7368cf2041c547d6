"""Calibration: a temperature and a bias for "none of these" by phase, and what they are worth.

The types of question that `semif serve` takes are phases of one family, with one temperature: a
question that is asked as another type must keep its probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semif.export import LabelledRow
from semif.measuring import measures
from semif.serving.systemone import TYPES

# Steps of a tenth of an octave, and of a quarter logit; both hold the neutral value.
_TEMPERATURES = 2.0 ** np.linspace(-2, 3, 51)
_BIASES = np.linspace(-6, 6, 49)


@dataclass(frozen=True)
class Scored:
    """One labelled decision as a readout scored it, options in one order.

    `none[i]`: option i means "none of these". `right`: index of the right option.
    """

    phase: str
    scores: np.ndarray
    none: np.ndarray
    right: int

    @classmethod
    def of(cls, row: LabelledRow, scores: Mapping[str, float]) -> Scored:
        """A row that names its right option, with its scores by option."""
        none = {option.id for option in row.decision.options if option.means_none}
        return cls(
            phase=row.decision.phase,
            scores=np.array(list(scores.values())),
            none=np.array([id_ in none for id_ in scores]),
            right=list(scores).index(str(row.outcome)),
        )

    def log_probs(self, fit: Fit) -> np.ndarray:
        """Log probability by option, as the engine computes it."""
        return _log_softmax((self.scores + fit.none_bias * self.none) / fit.temperature)


@dataclass(frozen=True)
class Fit:
    temperature: float = 1.0
    none_bias: float = 0.0


def family(phase: str) -> tuple[str, ...]:
    """The phases that have one temperature with this one, itself among them."""
    return TYPES if phase in TYPES else (phase,)


def fit(scored: Sequence[Scored], kept: Mapping[str, float] | None = None) -> dict[str, Fit]:
    """By phase, the values with the least negative log likelihood on a grid.

    A weak prior (0.5 on log temperature, 2 logits on the bias) speaks against claiming, from a few
    rows that are all right, that the phase is never wrong. A family's temperature is that of all
    its rows, and given to its phases without rows too. `kept`: biases that are not fitted.
    """
    kept = kept or {}
    rows = by_phase(scored)
    found: dict[str, Fit] = {}
    for phases in dict.fromkeys(family(phase) for phase in rows):
        costs = {p: _costs(rows[p], kept.get(p)) for p in phases if p in rows}
        prior = np.log(_TEMPERATURES) ** 2 / (2 * 0.5**2)
        t = int((prior + sum(cost.min(1) for _, cost in costs.values())).argmin())
        biases = dict(kept) | {p: float(of[cost[t].argmin()]) for p, (of, cost) in costs.items()}
        temperature = round(float(_TEMPERATURES[t]), 4)
        found |= {phase: Fit(temperature, biases.get(phase, 0.0)) for phase in phases}
    return dict(sorted(found.items()))


def mean_nll(scored: Sequence[Scored]) -> float:
    """Mean over phases of the negative log likelihood once fitted: every phase counts alike."""
    fits = fit(scored)
    return float(
        np.mean([_measure(*_said(rows, fits))["nll"] for rows in by_phase(scored).values()])
    )


def metrics(scored: Sequence[Scored], fits: Mapping[str, Fit]) -> dict[str, Any]:
    """rows, accuracy, nll, brier, ece over all rows, and the same in `phases` by phase."""
    return judged(*_said(scored, fits))


def judged(scored: Sequence[Scored], log_probs: Sequence[np.ndarray]) -> dict[str, Any]:
    """The same for log probabilities by option, one array a row, however they were fitted."""
    said: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for row, of_row in zip(scored, log_probs, strict=True):
        said[row.phase].append(of_row)
    phases = {phase: _measure(rows, said[phase]) for phase, rows in by_phase(scored).items()}
    return {**_measure(scored, log_probs), "phases": phases}


def by_phase(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """The rows of each phase, in their order."""
    found: defaultdict[str, list[Scored]] = defaultdict(list)
    for row in scored:
        found[row.phase].append(row)
    return dict(sorted(found.items()))


def _costs(rows: Sequence[Scored], bias: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Biases to choose from, only `bias` where it is given, and [temperature, bias] the negative
    log likelihood of a phase's rows with the bias' prior."""
    if bias is not None:
        biases = np.array([bias])
    else:
        biases = _BIASES if any(row.none.any() for row in rows) else np.zeros(1)
    cost = np.zeros((len(_TEMPERATURES), 1)) + biases**2 / (2 * 2.0**2)
    for row in rows:  # [temperature, bias, option] at a time
        biased = row.scores + biases[:, None] * row.none
        cost -= _log_softmax(biased / _TEMPERATURES[:, None, None])[..., row.right]
    return biases, cost


def _said(
    rows: Sequence[Scored], fits: Mapping[str, Fit]
) -> tuple[Sequence[Scored], list[np.ndarray]]:
    return rows, [row.log_probs(fits.get(row.phase, Fit())) for row in rows]


def _measure(rows: Sequence[Scored], log_probs: Sequence[np.ndarray]) -> dict[str, Any]:
    right = [int(p.argmax()) == row.right for p, row in zip(log_probs, rows, strict=True)]
    nll = -np.mean([p[row.right] for p, row in zip(log_probs, rows, strict=True)])
    brier = measures.brier([np.exp(p) for p in log_probs], [row.right for row in rows])
    ece = measures.ece([float(np.exp(p.max())) for p in log_probs], right)
    return {
        "rows": len(rows),
        "accuracy": round(float(np.mean(right)), 4),
        "nll": round(float(nll), 4),
        "brier": round(brier, 4),
        "ece": round(ece, 4),
    }


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    shifted = scores - scores.max(-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
