"""How concerns build up: the right values, with a clock of the test's own."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia.concerns import dynamics
from sia.concerns.dynamics import FULL, activation, candidate
from sia.concerns.testing import HOUR, START, concern
from sia.concerns.values import RHYTHMS, Concern, snapped
from sia.errors import UsageError


def fires(item: Concern, step: timedelta, until: timedelta) -> list[timedelta]:
    """When it fires and is served at once, looked at every ``step``."""
    found, now, moment = [], START, candidate(item)
    while now <= START + until:
        if moment is not None and moment <= now:
            found.append(now - START)
            item = dynamics.served(dynamics.fired(item, now, "r1"), now)
            moment = candidate(item)
        now += step
    return found


@pytest.mark.parametrize("step", [timedelta(seconds=1), HOUR])
def test_a_daily_concern_fires_after_28_hours_and_then_every_24(step) -> None:
    assert fires(concern(), step, 101 * HOUR) == [28 * HOUR, 52 * HOUR, 76 * HOUR, 100 * HOUR]


def test_the_moment_of_crossing_is_exact() -> None:
    assert candidate(concern()) == START + 28 * HOUR
    before = START + 28 * HOUR - timedelta(microseconds=1)
    assert activation(concern(), before) == 699_999
    assert activation(concern(), START + 28 * HOUR) == 700_000
    assert activation(concern(), START + 400 * HOUR) == FULL


@given(
    st.sampled_from(RHYTHMS),
    st.integers(0, FULL),
    st.lists(st.integers(0, 10**12), max_size=6),
)
def test_it_crosses_when_it_was_said_to_however_often_it_is_looked_at(rhythm, value, looks) -> None:
    item = concern(rhythm=rhythm, value=value)
    for microseconds in looks:
        activation(item, START + timedelta(microseconds=microseconds))
    moment = candidate(item)
    assert activation(item, moment) >= 700_000
    if moment > START:
        assert activation(item, moment - timedelta(microseconds=1)) < 700_000


@pytest.mark.parametrize("rhythm", RHYTHMS)
def test_one_that_waited_at_full_is_ready_again_after_half_its_rhythm(rhythm) -> None:
    item = concern(rhythm=rhythm, value=FULL)
    now = START + 1000 * HOUR
    served = dynamics.served(dynamics.fired(item, now, "r1"), now)
    assert served.value == 400_000
    assert candidate(served) == now + rhythm * HOUR / 2


def test_a_bump_adds_and_clears_the_verdict_but_no_backoff() -> None:
    now = START + 28 * HOUR
    put_off = dynamics.deferred(concern(), now)
    assert candidate(put_off) == now + 3 * HOUR
    later = now + HOUR
    touched = dynamics.bumped(put_off, later)
    assert (touched.value, touched.bumped) == (725_000 + 150_000, later)
    assert candidate(touched) == later
    broken = dynamics.bumped(dynamics.failed(concern(), now), later)
    assert candidate(broken) == now + 3 * HOUR
    assert dynamics.bumped(concern(value=950_000), START).value == FULL


@pytest.mark.parametrize(("rhythm", "hours"), [(1, 1), (8, 1), (12, 1.5), (24, 3), (168, 21)])
def test_a_verdict_and_a_backoff_hold_for_an_eighth_of_the_rhythm(rhythm, hours) -> None:
    item, now = concern(rhythm=rhythm, value=FULL), START + HOUR
    for after in (dynamics.deferred, dynamics.failed, dynamics.cut):
        assert after(item, now).held == now + timedelta(hours=hours)


def test_what_a_fire_and_a_reset_take_away() -> None:
    now = START + 28 * HOUR
    item = dynamics.fired(dynamics.deferred(concern(), now), now, "r7")
    assert (item.fire, item.defers, item.held, item.fired) == ("r7", 0, None, now)
    assert candidate(item) is None  # until that fire is over
    assert dynamics.served(item, now).value == 100_000
    assert dynamics.cut(item, now).value == 450_000
    assert activation(dynamics.failed(item, now), now) == 700_000
    put_off = replace(concern(), defers=3)
    back = dynamics.reset(put_off, now)
    assert (back.value, back.defers, back.fire, back.fired) == (100_000, 0, "", None)


def test_without_an_instruction_or_when_over_it_never_fires() -> None:
    assert candidate(concern(instruction="", value=FULL)) is None
    assert candidate(concern(status="dropped", value=FULL)) is None
    once = concern(kind="one_shot", value=FULL)
    assert dynamics.served(once, START).status == "done"
    assert candidate(dynamics.cut(once, START)) is None


def test_an_obligation_comes_up_when_it_is_due_and_ends_only_when_discharged() -> None:
    due = START + 10 * HOUR
    item = concern(kind="obligation", rhythm=168, owed="Kim", until=due, mover="me")
    assert candidate(item) == due
    assert activation(item, due - timedelta(microseconds=1)) < 50_000
    assert activation(item, due) == FULL
    assert not dynamics.overdue(item, due)
    late = due + HOUR
    assert dynamics.overdue(item, late)
    again = dynamics.served(dynamics.fired(item, late, "r1"), late)
    assert again.status == "open" and dynamics.overdue(again, late)
    assert candidate(again) == late + 84 * HOUR
    assert not dynamics.overdue(replace(again, status="done"), late)


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    assert activation(concern(value=300_000), START - 5 * HOUR) == 300_000


def test_a_rhythm_is_snapped() -> None:
    asked = [0.1, 1.2, 3, 6, 10, 20, 48, 100, 1000]
    assert [snapped(hours) for hours in asked] == [1, 1, 4, 8, 12, 24, 24, 168, 168]
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            snapped(wrong)


def test_what_cannot_be_a_concern_is_refused() -> None:
    for wrong, words in (
        (concern(instruction=""), None),
        (replace(concern(), text="x" * 121), "at most 120"),
        (replace(concern(), text=" "), "needs a text"),
        (concern(kind="obligation", owed="Kim"), "needs --owed NAME, --until"),
        (concern(owed="Kim"), "are of an obligation"),
    ):
        if words is None:
            assert wrong.check() is wrong
            continue
        with pytest.raises(UsageError, match=words):
            wrong.check()
