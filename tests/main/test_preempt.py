"""Who may interrupt a drive, decided by the embedded model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import semif
from sia.config import IntakeConfig
from sia.entries import ProcessView
from sia.questions import Questions
from sia.scheduler import Preemption, Scheduler, Situation
from sia.sources import SOURCES

pytestmark = pytest.mark.model

DRIVING = ProcessView("driving/drive", 1, "r1", "drive me to the station")
BRAKES = (("driving/decelerate", "Slow down or stop the vehicle at once."),)
ALARMS = [
    "holy shit stop!",
    "stop the car!!",
    "brake, brake!",
    "there is a child on the road!",
    "watch out, that lorry is coming right at us",
    "halt! now!",
    "oh god, stop!",
    "slam the brakes!",
    "a deer ahead, stop!",
    "emergency stop!",
]
OTHERS = [
    "send a mail to my girlfriend that I love her",
    "what is the weather in rome",
    "remind me to buy milk when we are there",
    "note that the plumber comes on friday",
    "thanks, you drive very well",
]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    weights, revision = semif.load()
    engine = semif.Engine(weights, revision, 2, 2048)
    ids = iter(range(10_000))
    yield Scheduler(engine, revision.contents.thresholds, Questions.load(), lambda: f"d{next(ids)}")
    engine.close()


def admitted(scheduler: Scheduler, texts: list[str], source: str, preemption: Preemption):
    situation = Situation(DRIVING, preemption)
    found = [scheduler.admit(text, SOURCES[source], situation) for text in texts]
    return [(admission.action, admission.skill) for admission in found]


def test_an_alarm_stops_a_drive_and_nothing_else_does(scheduler: Scheduler) -> None:
    high = Preemption("typed", ("typed",), IntakeConfig().high_stakes, BRAKES)
    stops = [action for action, _ in admitted(scheduler, ALARMS, "typed", high)]
    assert stops.count("preempt") >= 9, stops
    assert "preempt" not in [action for action, _ in admitted(scheduler, OTHERS, "typed", high)]


def test_an_alarm_from_a_sensor_stops_it_by_the_brake_alone(scheduler: Scheduler) -> None:
    high = Preemption("typed", ("typed",), IntakeConfig().high_stakes, BRAKES)
    found = admitted(scheduler, ALARMS, "event", high)
    assert found.count(("preempt", "driving/decelerate")) >= 9, found
    assert not [item for item in admitted(scheduler, OTHERS, "event", high) if item[1]]
    without = Preemption("typed", ("typed",), IntakeConfig().high_stakes)
    assert "preempt" not in [action for action, _ in admitted(scheduler, ALARMS, "event", without)]
