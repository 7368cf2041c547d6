"""The gate: which line fails, and with which figures."""

from dataclasses import replace

import numpy as np
import pytest

from semif.measuring import paired
from semif.measuring.paired import Said
from sia.dream.proof import Proof, Side, prove

PHASES = ("contains_request", "urgency", "navigate_skill", "read_next")


def said(
    count: int, right: float, p: float, seed: int, phases: tuple[str, ...] = PHASES
) -> list[Said]:
    """Rows of which a share is right, each with about probability ``p`` on what it chose."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        hit = bool(i < right * count)
        top = float(np.clip(p + rng.normal(0, 0.02), 0.51, 0.99))
        loss = -np.log(top if hit else 1 - top)
        rows.append(
            Said(
                id=f"x{i}", phase=phases[i % len(phases)], text=f"t{i}", weight=1.0,
                loss=float(loss), brier=0.0, right=hit, top=top, selected="a", prompt_sha256="h",
            )
        )  # fmt: skip
    return rows


@pytest.fixture
def old() -> Side:
    return Side(said(60, 0.6, 0.7, 1), said(1200, 0.8, 0.8, 2), 0, [100.0, 101.0, 99.0] * 10)


@pytest.fixture
def new(old: Side) -> Side:
    return Side(said(60, 0.9, 0.85, 3), old.golden, 0, old.ms)


def failed(proof: Proof) -> list[str]:
    return [line.name for line in proof.failed]


def test_a_better_one_passes(old: Side, new: Side) -> None:
    proof = prove(old, new)
    assert proof.passed and not failed(proof)
    assert [line.name for line in proof.lines] == [
        "held out", "golden", "phases", "calibration", "prompts", "order", "latency",
    ]  # fmt: skip


def test_the_same_one_is_not_better(old: Side) -> None:
    assert failed(prove(old, old)) == ["held out"]


def test_fewer_than_40_rows_prove_nothing(old: Side, new: Side) -> None:
    few = replace(old, held=old.held[:39]), replace(new, held=new.held[:39])
    (line,) = prove(*few).failed
    assert line.text == "not enough to prove: 39 labelled rows are held out, 40 are needed"


def test_fewer_than_1000_golden_rows_prove_nothing(old: Side, new: Side) -> None:
    few = replace(old, golden=old.golden[:999]), replace(new, golden=new.golden[:999])
    assert failed(prove(*few)) == ["golden"]


def test_golden_accuracy_may_fall_by_half_a_point(old: Side, new: Side) -> None:
    def without(count: int) -> Side:
        rows = [replace(r, right=False) if i < count else r for i, r in enumerate(old.golden)]
        return replace(new, golden=rows)

    assert "golden" not in failed(prove(old, without(6)))  # of 1,200
    assert "golden" in failed(prove(old, without(7)))


def test_a_phase_that_is_forgotten_is_named(old: Side, new: Side) -> None:
    rows = [
        replace(r, right=False) if r.phase == "urgency" and r.right and int(r.id[1:]) < 100 else r
        for r in old.golden
    ]
    lines = {line.name: line for line in prove(old, replace(new, golden=rows)).lines}
    assert not lines["phases"].passed and lines["phases"].text.startswith(
        "urgency loses 8.3 points"
    )


def test_a_few_rows_of_a_phase_are_no_proof_that_it_was_forgotten(old: Side, new: Side) -> None:
    small = [replace(r, phase="cover") if i < 40 else r for i, r in enumerate(old.golden)]
    lost = [replace(r, right=False) if i < 2 else r for i, r in enumerate(small)]
    lines = prove(replace(old, golden=small), replace(new, golden=lost)).lines
    assert {line.name: line.passed for line in lines}["phases"]  # 5 points, p 0.5


def test_surer_than_it_is_right_fails(old: Side, new: Side) -> None:
    rows = [replace(r, top=min(0.999, r.top + 0.05)) for r in old.golden]
    assert failed(prove(old, replace(new, golden=rows))) == ["calibration"]


def test_another_prompt_fails(old: Side, new: Side) -> None:
    rows = [replace(old.golden[0], prompt_sha256="other"), *old.golden[1:]]
    assert failed(prove(old, replace(new, golden=rows))) == ["prompts"]


def test_order_and_latency(old: Side, new: Side) -> None:
    assert failed(prove(old, replace(new, flips=1))) == ["order"]
    assert failed(prove(old, replace(new, ms=[1.2 * ms for ms in old.ms]))) == ["latency"]
    assert prove(old, replace(new, ms=[1.03 * ms for ms in old.ms])).passed


def test_two_of_other_rows_are_not_compared(old: Side) -> None:
    with pytest.raises(ValueError, match="same rows"):
        paired.change(old.held, old.held[::-1])


def test_mcnemar_is_the_exact_one() -> None:
    a = said(100, 1.0, 0.8, 1)
    b = [replace(row, right=i >= 8) for i, row in enumerate(a)]
    b[50] = replace(b[50])
    assert paired.worse(a, b) == (8.0, pytest.approx(2 * 0.5**8))
    assert paired.worse(a, a) == (0.0, 1.0)


def test_bounds_widen_where_rows_are_of_one_text() -> None:
    rng = np.random.default_rng(0)
    values, ones = rng.normal(0, 1, 200), np.ones(200)
    alone = paired.bootstrap(values, ones, [str(i) for i in range(200)])
    twins = paired.bootstrap(np.repeat(values[:20], 10), ones, [str(i // 10) for i in range(200)])
    assert alone.low < alone.mean < alone.high
    # 1.64 standard errors on each side
    assert alone.high - alone.low == pytest.approx(2 * 1.645 / np.sqrt(200), rel=0.15)
    assert twins.high - twins.low > 2 * (alone.high - alone.low)


def test_a_weighted_row_counts_by_its_weight() -> None:
    found = paired.bootstrap(np.array([0.0, 1.0]), np.array([1.0, 3.0]), ["a", "b"])
    assert found.mean == 0.75
