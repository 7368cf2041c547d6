"""Calibration, checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semif.measuring.fit import Fit, Scored, fit, mean_nll, metrics


def row(phase: str, right: int, *scores: float, none: int | None = None) -> Scored:
    means_none = np.array([i == none for i in range(len(scores))])
    return Scored(phase, np.array(scores), means_none, right)


def test_numbers_by_hand() -> None:
    rows = [row("p", 0, math.log(3), 0.0), row("p", 1, math.log(3), 0.0)]
    found = metrics(rows, {})
    # Sure 0.75 twice, right once.
    assert found["rows"] == 2 and found["accuracy"] == 0.5
    assert found["nll"] == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2, abs=1e-4)
    assert found["ece"] == pytest.approx(0.25, abs=1e-4)
    # .25^2 twice, .75^2 twice, over two rows
    assert found["brier"] == pytest.approx(0.625, abs=1e-4)
    keys = ("rows", "accuracy", "nll", "brier", "ece")
    assert found["phases"] == {"p": {key: found[key] for key in keys}}
    warmer = metrics(rows, {"p": Fit(temperature=2.0)})
    assert warmer["ece"] == pytest.approx(3**0.5 / (1 + 3**0.5) - 0.5, abs=1e-4)


def test_temperature_and_bias_are_found_again() -> None:
    random = np.random.default_rng(0)
    rows = []
    for _ in range(2000):
        true = random.normal(0, 2, 3)
        odds = np.exp(true) / np.exp(true).sum()
        seen = true * 4 - np.array([0, 0, 2.0])  # over-confident, and shy of "none"
        rows.append(row("p", int(random.choice(3, p=odds)), *seen, none=2))
    found = fit(rows)["p"]
    assert found.temperature == pytest.approx(4, rel=0.1)
    assert found.none_bias == pytest.approx(2, abs=0.5)
    assert metrics(rows, {"p": found})["ece"] < 0.03


def test_types_of_a_question_have_one_temperature() -> None:
    random = np.random.default_rng(4)

    def rows(phase: str, count: int, factor: float, shy: float) -> list[Scored]:
        made = []
        for _ in range(count):
            true = random.normal(0, 2, 3)
            seen = true * factor - np.array([0, 0, shy])
            right = int(random.choice(3, p=np.exp(true) / np.exp(true).sum()))
            made.append(row(phase, right, *seen, none=2 if shy else None))
        return made

    noul, choice, other = rows("noul", 200, 4, 0), rows("choice", 300, 2, 2.0), rows("o", 200, 1, 0)
    found = fit([*noul, *choice, *other])
    assert list(found) == ["choice", "noul", "o", "score"]
    shared = found["noul"].temperature
    assert found["choice"].temperature == found["score"].temperature == shared
    assert fit(noul)["noul"].temperature > shared > fit(choice)["choice"].temperature
    assert found["o"] == fit(other)["o"] and found["o"].temperature == pytest.approx(1, rel=0.15)
    # By hand: the bias is the choices' own, the temperature that of all rows as one phase.
    assert found["choice"].none_bias == pytest.approx(2, abs=0.75)
    assert found["noul"].none_bias == found["score"].none_bias == 0
    biased = [
        Scored("p", r.scores + found["choice"].none_bias * r.none, np.zeros(3, bool), r.right)
        for r in (*noul, *choice)
    ]
    assert fit(biased)["p"].temperature == shared


def test_a_bias_that_is_kept_is_not_fitted() -> None:
    rows = [row("choice", 1, 2.0, 0.0, none=1)] * 30
    assert fit(rows)["choice"].none_bias > 3
    found = fit(rows, {"choice": 0.5, "score": 1.0, "elsewhere": 2.0})
    assert found["choice"].none_bias == 0.5 and found["score"].none_bias == 1.0
    assert found["choice"].temperature == found["noul"].temperature > 2
    assert set(found) == {"choice", "noul", "score"}


def test_few_rows_that_are_all_right_claim_little() -> None:
    found = fit([row("p", 0, 2.0, 0.0)] * 3)["p"]
    assert 0.5 < found.temperature < 1.0 and found.none_bias == 0


def test_every_phase_counts_alike() -> None:
    sure, lost = row("a", 0, 9.0, 0.0), row("b", 1, 0.0, 0.0)
    assert mean_nll([sure] * 50 + [lost]) == pytest.approx(mean_nll([sure] * 50 + [lost] * 9))
