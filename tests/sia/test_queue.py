"""The order of the queue, and the bound on waiting, with a clock that the test turns."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia.queue import effective, latest, ordered
from sia.store import Run

START = datetime(2026, 11, 30, tzinfo=UTC)


def run(n: int, urgency: float, hours: float = 0.0, **more: object) -> Run:
    arrived = START + timedelta(hours=hours)
    requeued = more.pop("requeued", arrived)
    return Run(f"r{n}", "typed", "x", urgency, arrived, requeued, **more)


def order(*runs: Run, rate: float = 0.1, hours: float = 0.0) -> list[str]:
    return [item.id for item in ordered(runs, rate, START + timedelta(hours=hours))]


def test_urgency_grows_with_waiting_up_to_one() -> None:
    low = run(1, 0.1)
    for hours, expected in ((0, 0.1), (1, 0.2), (4.5, 0.55), (9, 1.0), (99, 1.0), (-5, 0.1)):
        assert effective(low, 0.1, START + timedelta(hours=hours)) == pytest.approx(expected)
    assert latest(low, 0.1) == START + timedelta(hours=9)
    assert latest(run(1, 1.0), 0.1) == START


def test_the_more_urgent_goes_first_and_ties_go_by_arrival() -> None:
    found = order(run(1, 0.4), run(2, 0.7), run(3, 0.4, -0.01), run(4, 0.1))
    assert found == ["r2", "r3", "r1", "r4"]
    assert order(run(10, 0.4), run(9, 0.4), run(2, 0.4)) == ["r2", "r9", "r10"]


def test_differences_below_a_hundredth_are_ties() -> None:
    assert order(run(1, 0.409), run(2, 0.401, -1e-4)) == ["r2", "r1"]
    assert order(run(1, 0.41), run(2, 0.409, -1e-4)) == ["r1", "r2"]
    # 0.29 x 100 is a little less than 29 in binary.
    assert order(run(1, 0.29), run(2, 0.285, -1e-4)) == ["r1", "r2"]


def test_among_equals_the_later_requeue_goes_first() -> None:
    early, late = (START + timedelta(minutes=m) for m in (5, 10))
    assert order(run(1, 0.4, requeued=early), run(2, 0.4, requeued=late)) == ["r2", "r1"]


def test_a_preempt_jumps_it() -> None:
    assert order(run(1, 1.0, -50), run(2, 0.1, preempts=True)) == ["r2", "r1"]


@given(
    urgency=st.integers(0, 100).map(lambda n: n / 100),
    rate=st.sampled_from([0.05, 0.1, 0.5, 2.0]),
    minutes=st.integers(5, 120),
    ahead=st.integers(0, 5),
)
def test_the_wait_is_bounded(urgency: float, rate: float, minutes: int, ahead: int) -> None:
    """A low request among a steady stream of 0.9: each takes its time, one comes as one goes."""
    step = timedelta(minutes=minutes)
    old = [run(n + 1, 0.9, -0.1 * (ahead - n)) for n in range(ahead)]
    low = run(ahead + 1, urgency)
    waiting, now, number = [*old, low], START, ahead + 1
    bound = timedelta(hours=(1 - urgency) / rate)
    while True:
        head = ordered(waiting, rate, now)[0]
        if head.id == low.id:
            break
        waiting.remove(head)
        now += step
        number += 1
        waiting.append(replace(run(number, 0.9), arrived=now, requeued=now))
    # From the bound on, only what arrived before it and the one being worked then go first.
    assert now - START <= bound + (ahead + 1) * step
    assert now <= latest(low, rate) + (ahead + 1) * step
