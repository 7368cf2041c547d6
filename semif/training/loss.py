"""What a labelled row costs: cross-entropy over its options, and what keeps the scores honest.

Options that share a score share its probability, as in the engine: each of n gets the score less
log n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Weights:
    """How much the terms of the loss count beside the cross-entropy over the options.

    `smoothing`: share of the target spread over all options. `option`: cross-entropy of each
    score's own yes or no. `brier`: squared error of the probabilities over the options (G. W.
    Brier, Verification of forecasts expressed in terms of probability, 1950): like the
    cross-entropy least for true probabilities, but bounded, so that a wrong label or a lost row
    does not drive all others to excess. `mass`: -log of the probability that the model says any
    of the answers asked for (the engine's allowed_token_mass), which the others leave free.
    """

    smoothing: float = 0.02
    option: float = 0.3
    brier: float = 0.2
    mass: float = 0.05


@dataclass(frozen=True)
class Target:
    """What is known of a row: the index of its right option, or only which ones are not right."""

    right: int | None
    denied: tuple[int, ...] = ()


def option_scores(scores: Tensor, options: Sequence[int]) -> Tensor:
    """Scores [options] as the engine gives them; `options`: index into `scores` by option."""
    index = torch.tensor(options, device=scores.device)
    return scores[index] - torch.bincount(index)[index].to(scores.dtype).log()


def row_loss(scores: Tensor, options: Sequence[int], target: Target, weights: Weights) -> Tensor:
    """The loss of one row from its scores, float32; `options`: index into `scores` by option.

    With a right option, cross-entropy + option and Brier terms. Where only is known what is not
    right, -log(1 - p) of what is denied, and the same terms for these options.
    """
    index = torch.tensor(options, device=scores.device)
    logits = option_scores(scores, options)
    log_probs = functional.log_softmax(logits, 0)
    if target.right is None:
        return _denied(scores, log_probs, index, target.denied, weights)
    aim = torch.full_like(logits, weights.smoothing / len(logits))
    aim[target.right] += 1 - weights.smoothing
    loss = -(aim * log_probs).sum()
    if weights.option:
        own = torch.zeros_like(scores).index_add(0, index, aim)
        of_each = functional.binary_cross_entropy_with_logits(scores, own)
        loss = loss + weights.option * of_each
    exact = torch.zeros_like(logits)
    exact[target.right] = 1
    return loss + weights.brier * (log_probs.exp() - exact).square().sum()


def _denied(
    scores: Tensor, log_probs: Tensor, index: Tensor, denied: Sequence[int], weights: Weights
) -> Tensor:
    free = torch.ones_like(log_probs, dtype=torch.bool)
    free[list(denied)] = False
    if not free.any() or free.all():
        raise ValueError("a row must deny some of its options, not all or none")
    # log(1 - p) as the sum over the others: 1 - p itself has no precision where p is near 1.
    loss = -torch.logsumexp(log_probs[free], 0)
    loss = loss + weights.brier * log_probs[~free].exp().square().sum()
    # A score shared with an option that may be right is not denied itself.
    none = torch.unique(index[~free])
    none = none[~torch.isin(none, index[free])]
    if weights.option and len(none):
        no = torch.full_like(scores[none], weights.smoothing / len(log_probs))
        own = functional.binary_cross_entropy_with_logits(scores[none], no)
        loss = loss + weights.option * own
    return loss
