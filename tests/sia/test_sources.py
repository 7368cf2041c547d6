"""The table of sources: what the document shows, its limits, and what admission makes of it."""

import math
from pathlib import Path

import pytest

from semif.testing import ScriptedDecider
from sia.entries import ProcessView
from sia.questions import Questions
from sia.scheduler import Preemption, Scheduler, Situation
from sia.sources import SOURCES, Limiter, Source, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "intake.md"
RUNNING = ProcessView("demo/work", 1, "r1", "work on")
BRAKES = (("demo/brake", "Stop at once."), ("demo/slow", "Slow down."))


def test_the_document_shows_the_table_that_the_code_reads() -> None:
    text = DOCUMENT.read_text("utf-8")
    (shown,) = [part for part in text.split("\n\n") if part.startswith("| source |")]
    assert shown == table()


def test_no_source_of_low_authority_may_more_than_a_person() -> None:
    people = {name for name, source in SOURCES.items() if source.answers}
    assert people == {"typed", "piped"}
    for name, source in SOURCES.items():
        assert source.answers == source.confirmed == (name in people)
        assert name in people or not people & set(source.interrupts)
        assert set(source.interrupts) <= set(SOURCES)
        assert source.gated or not source.interrupts  # it is never asked
    # Nothing a person says is ever refused.
    assert all(SOURCES[name].over == "held" for name in people)


# limits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_limit_lets_a_burst_through_and_then_its_rate() -> None:
    clock = Clock()
    limiter = Limiter(Source("x", "", gated=True, rate=30, burst=3), clock)
    assert [limiter.take() for _ in range(4)] == [True, True, True, False]
    assert limiter.wait() == pytest.approx(2.0)
    clock.now += 1.5
    assert not limiter.take() and limiter.wait() == pytest.approx(0.5)
    clock.now += limiter.wait()
    assert limiter.take() and not limiter.take()
    clock.now += 3600
    assert [limiter.take() for _ in range(4)] == [True, True, True, False]


def test_over_an_hour_no_more_than_the_rate_comes_through() -> None:
    clock = Clock()
    limiter = Limiter(Source("x", "", gated=True, rate=60, burst=10), clock)
    taken = 0
    for _ in range(36_000):
        taken += limiter.take()
        clock.now += 0.1
    assert taken == pytest.approx(3600 + 10, abs=1)


def test_without_a_limit_all_comes_through() -> None:
    limiter = Limiter(Source("x", "", gated=True, rate=math.inf), Clock())
    assert all(limiter.take() for _ in range(10_000)) and limiter.wait() == 0


def test_the_limit_is_told_once_a_minute() -> None:
    clock = Clock()
    limiter = Limiter(SOURCES["event"], clock)
    told = []
    for second in range(181):
        clock.now = 100.0 + second
        if limiter.tells():
            told.append(second)
    assert told == [0, 60, 120, 180]


# admission


def admit(text: str, source: str, situation: Situation, p: float = 0.9, brake: str = ""):
    """(admission, phases asked). p: of interrupt. brake: which brake is meant."""

    def decide(decision):
        match decision.phase:
            case "contains_request":
                return "no" if "thanks" in text else "yes"
            case "interrupt":
                return {"interrupt": p, "defer": 1 - p}
            case "navigate_skill":
                return brake or "create_skill"
            case "answers":
                return "yes"
        return "medium"

    decider = ScriptedDecider(decide)
    ids = iter(range(100))
    taus = {"interrupt": 0.25, "answers": 0.5}
    scheduler = Scheduler(decider, taus, Questions.load(), lambda: f"d{next(ids)}")
    admission = scheduler.admit(text, SOURCES[source], situation)
    return admission, [decision.phase for call in decider.calls for decision in call]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("of", SOURCES)
def test_who_displaces_whom(source: str, of: str) -> None:
    admission, asked = admit("go", source, Situation(RUNNING, Preemption(of)))
    may = of in SOURCES[source].interrupts
    waits = "hold" if SOURCES[source].held else "queue"
    assert admission.action == ("preempt" if may else waits)
    assert ("interrupt" in asked) == may  # where it may not, it is not even asked
    assert bool(asked) == SOURCES[source].gated
    if not asked:
        assert admission.urgency == SOURCES[source].urgency


@pytest.mark.parametrize(
    ("source", "p", "permitted", "tau", "action"),
    [
        ("typed", 0.79, ("typed",), 0.8, "queue"),
        ("typed", 0.81, ("typed",), 0.8, "preempt"),
        ("piped", 0.99, ("typed",), 0.8, "hold"),
        ("piped", 0.81, ("typed", "piped"), 0.8, "preempt"),
        ("typed", 0.3, (), 0.0, "preempt"),
        ("typed", 0.2, (), 0.0, "queue"),  # the threshold of the phase holds too
        ("typed", 0.99, ("piped",), 0.0, "queue"),
    ],
)
def test_a_process_yields_only_to_whom_it_permits_and_from_its_own_tau(
    source, p, permitted, tau, action
) -> None:
    preemption = Preemption("typed", permitted, tau)
    assert admit("go", source, Situation(RUNNING, preemption), p)[0].action == action


@pytest.mark.parametrize("source", ["typed", "piped", "event"])
def test_a_brake_interrupts_whatever_the_source_and_only_for_itself(source: str) -> None:
    preemption = Preemption("typed", ("timer",), 0.99, BRAKES)
    situation = Situation(RUNNING, preemption)
    admission, asked = admit("whoa", source, situation, p=0.3, brake="slow")
    assert (admission.action, admission.skill) == ("preempt", "demo/slow")
    assert asked[-1] == "navigate_skill" and len(admission.answers) == 4
    admission, asked = admit("hello", source, situation, p=0.3)
    assert admission.action in ("queue", "hold") and not admission.skill
    assert asked[-1] == "navigate_skill" and len(admission.answers) == 4
    # Below the threshold of the phase nothing more is asked.
    admission, asked = admit("whoa", source, situation, p=0.2, brake="slow")
    assert admission.action in ("queue", "hold") and "navigate_skill" not in asked


def test_a_brake_is_asked_about_too_where_the_process_would_yield_by_itself() -> None:
    situation = Situation(RUNNING, Preemption("typed", (), 0, BRAKES))
    admission, asked = admit("stop", "typed", situation, brake="brake")
    assert (admission.action, admission.skill) == ("preempt", "demo/brake")
    admission, asked = admit("look here", "typed", situation)
    assert (admission.action, admission.skill) == ("preempt", "")
    assert "navigate_skill" in asked


@pytest.mark.parametrize("source", ["event", "skill", "concern", "timer"])
@pytest.mark.parametrize(
    "situation",
    [
        Situation(asking="r1", question="Send it?", options=("yes", "no")),
        Situation(asking="r1", question="How many?"),
        Situation(RUNNING, asking="r1", question="How many?", reads=True),
        Situation(RUNNING, reads=True),
    ],
)
@pytest.mark.parametrize("text", ["yes", "1", "thanks", "forty"])
def test_only_a_person_answers(source: str, situation: Situation, text: str) -> None:
    admission, asked = admit(text, source, situation, p=0.0)
    assert admission.action in ("queue", "run", "ignore") and admission.run == ""
    assert "answers" not in asked
    if text == "yes" and situation.question:
        assert admit(text, "typed", situation, p=0.0)[0].action == "answer"
