"""The loss of a row, checked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from semif.training.loss import Target, Weights, option_scores, row_loss

PLAIN = Weights(smoothing=0, option=0, brier=0)
SCORES = torch.tensor([math.log(3), 0.0])  # 0.75 and 0.25


def test_terms_by_hand() -> None:
    def loss(weights: Weights) -> float:
        return row_loss(SCORES, (0, 1), Target(0), weights).item()

    assert loss(PLAIN) == pytest.approx(-math.log(0.75))
    smooth = -0.95 * math.log(0.75) - 0.05 * math.log(0.25)
    assert loss(Weights(0.1, 0, 0)) == pytest.approx(smooth)
    own = (-math.log(0.75) - math.log(0.5)) / 2  # sigmoid(log 3) = 0.75, sigmoid(0) = 0.5
    assert loss(Weights(0, 1, 0)) == pytest.approx(-math.log(0.75) + own)
    assert loss(Weights(0, 0, 1)) == pytest.approx(-math.log(0.75) + 0.25**2 * 2)


def test_options_of_one_score_share_its_probability() -> None:
    # a and c are one text: the probabilities are 0.375, 0.25, 0.375.
    options = (0, 1, 0)
    probs = torch.softmax(option_scores(SCORES, options), 0)
    assert probs.tolist() == pytest.approx([0.375, 0.25, 0.375])
    assert row_loss(SCORES, options, Target(2), PLAIN).item() == pytest.approx(-math.log(0.375))
    # The text is right, whichever of its names is: its own answer is yes.
    own = row_loss(SCORES, options, Target(2), Weights(0, 1, 0)).item() + math.log(0.375)
    assert own == pytest.approx((-math.log(0.75) - math.log(0.5)) / 2)


def test_a_denied_option_costs_minus_log_of_the_rest() -> None:
    assert row_loss(SCORES, (0, 1), Target(None, (0,)), PLAIN).item() == pytest.approx(
        -math.log(1 - 0.75)
    )
    with_terms = row_loss(SCORES, (0, 1), Target(None, (0,)), Weights(0, 1, 1)).item()
    assert with_terms == pytest.approx(-math.log(0.25) - math.log(0.25) + 0.75**2)
    # Sure of what is denied: the loss is the score's lead, not infinity.
    far = torch.tensor([60.0, 0.0], requires_grad=True)
    loss = row_loss(far, (0, 1), Target(None, (0,)), PLAIN)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(60) and far.grad is not None
    assert far.grad.tolist() == pytest.approx([1, -1])
    # A text that is denied under one of its two names may still be right under the other.
    shared = row_loss(SCORES, (0, 1, 0), Target(None, (0,)), Weights(0, 1, 0)).item()
    assert shared == pytest.approx(-math.log(1 - 0.375))


@pytest.mark.parametrize("denied", [(), (0, 1)])
def test_denying_all_or_nothing_teaches_nothing(denied: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="some of its options"):
        row_loss(SCORES, (0, 1), Target(None, denied), PLAIN)
