"""Reminders with a fake clock: rules, what was missed, timers, and databases of older programs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sia import times
from sia.reminders import Reminders
from sia.schema import MIGRATIONS, SCHEMA, VERSION
from sia.store import Store

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")


class Machine:
    """Its clock can be set, its stopwatch only runs."""

    def __init__(self, tmp_path: Path, zone: str, now: str) -> None:
        self.zone, self.now, self.boot, self.up = zone, datetime.fromisoformat(now), "b1", 100.0
        (tmp_path / "reminders").mkdir(exist_ok=True)
        self.folder = tmp_path / "reminders"
        self.store = Store(tmp_path / "state.db")
        self.reminders = self.open()

    def open(self, zone: str = "") -> Reminders:
        return Reminders(
            self.store,
            self.folder,
            zone or self.zone,
            lambda: None,
            clock=lambda: self.now,
            uptime=lambda: (self.boot, self.up),
        )

    def say(self, text: str) -> str:
        phrase = times.understand(text, self.now, self.zone)
        assert phrase is not None
        rest = phrase.rest(text)
        return self.reminders.add(phrase.due, rest, "r1", phrase.repeat, phrase.elapsed)

    def awake(self, *, seconds: float) -> list[str]:
        """So much time later, what rings."""
        self.now += timedelta(seconds=seconds)
        self.up += seconds
        return self.rings()

    def rings(self) -> list[str]:
        now = self.now.astimezone(ZoneInfo(self.zone))
        return [self.reminders.ring(row, now) for row in self.reminders.due(now)]


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    made: list[Machine] = []

    def make(zone: str, now: str) -> Machine:
        made.append(Machine(tmp_path, zone, now))
        return made[-1]

    yield make
    for one in made:
        one.store.close()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "start", ["2026-10-02T12:00:00+00:00", "2026-10-23T12:00:00+00:00", "2027-03-12T12:00:00+00:00"]
)
def test_daily_rings_once_a_day_at_the_wall_clock(
    machine: Callable[..., Machine], zone: str, start: str
) -> None:
    """Over the nights of every change, looked at each half hour: once for each day."""
    one = machine(zone, start)
    one.say("daily at 02:30 look")
    rang: list[datetime] = []
    for _ in range(17 * 24 * 2):
        if one.awake(seconds=1800):
            rang.append(one.now.astimezone(ZoneInfo(zone)))
    days = [moment.date() for moment in rang]
    assert len(days) == len(set(days)) == (days[-1] - days[0]).days + 1 >= 16
    for moment in rang:
        expected = times.wall(
            datetime(moment.year, moment.month, moment.day, 2, 30), ZoneInfo(zone)
        )
        assert moment.isoformat() == expected.isoformat()


def test_missed_while_asleep_it_rings_once_and_says_so(machine: Callable[..., Machine]) -> None:
    one = machine("Europe/Berlin", "2026-11-30T15:00:00+01:00")
    one.say("every day at 8 take the pill")
    one.say("tomorrow at 9 call mum")
    said = one.awake(seconds=4 * 86400)
    assert said == [
        "Reminder: take the pill"
        " (it was due on Tuesday 1 December at 08:00, and 3 more times since)",
        "Reminder: call mum (it was due on Tuesday 1 December at 09:00)",
    ]
    assert one.rings() == []
    [left] = one.reminders.waiting()
    assert left.due.isoformat() == "2026-12-05T08:00:00+01:00"
    assert one.awake(seconds=17 * 3600) == ["Reminder: take the pill"]
    assert [row.text for row in one.reminders.rung(one.now - timedelta(hours=12))] == [
        "take the pill"
    ]


def test_one_that_ends_is_fired_at_its_last_time(machine: Callable[..., Machine]) -> None:
    one = machine("UTC", "2026-11-30T15:00:00+00:00")
    id = one.say("every day at 8 for 2 times take the pill")
    assert one.awake(seconds=17 * 3600) == ["Reminder: take the pill"]
    assert one.awake(seconds=86400) == ["Reminder: take the pill"]
    assert one.awake(seconds=86400) == [] and one.reminders.waiting() == []
    assert "status: fired" in (one.folder / f"{id}.md").read_text()


def test_a_rule_follows_the_clock_it_was_set_by(machine: Callable[..., Machine]) -> None:
    """The machine runs in UTC, and the person's zone is another one later."""
    one = machine("Europe/Berlin", "2026-11-30T14:00:00+00:00")
    one.say("every day at 8 take the pill")
    one.reminders = one.open("America/New_York")
    assert one.awake(seconds=17 * 3600 - 1) == []
    assert one.awake(seconds=1) == ["Reminder: take the pill"]
    [left] = one.reminders.waiting()
    assert left.due.isoformat() == "2026-12-02T02:00:00-05:00"


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_timer_does_not_mind_the_clock_being_set(
    machine: Callable[..., Machine], hours: int
) -> None:
    one = machine("Europe/Berlin", "2026-11-30T15:00:00+01:00")
    one.say("in 10 minutes look")
    one.say("today at 15:10 read the clock")
    one.now += timedelta(hours=hours)
    assert one.rings() == [
        f"Reminder: read the clock (it was due {times.words(at, one.now)})"
        for at in [datetime.fromisoformat("2026-11-30T15:10:00+01:00")]
        if hours > 0
    ]
    [timer] = [row for row in one.reminders.waiting() if row.text == "look"]
    assert timer.due == one.now + timedelta(minutes=10)
    assert one.awake(seconds=599) == []
    assert one.awake(seconds=1) == ["Reminder: look"]


def test_after_a_reboot_a_timer_goes_by_the_clock(machine: Callable[..., Machine]) -> None:
    one = machine("Europe/Berlin", "2026-11-30T15:00:00+01:00")
    one.say("in 10 minutes look")
    one.boot, one.up = "b2", 3.0
    one.now += timedelta(minutes=9)
    assert one.rings() == []
    assert one.awake(seconds=60) == ["Reminder: look"]


def test_the_rule_outlives_the_database(machine: Callable[..., Machine], tmp_path: Path) -> None:
    one = machine("Europe/Berlin", "2026-11-30T15:00:00+01:00")
    one.say("every monday at 9 water the plants")
    broken = one.folder / "m2.md"
    broken.write_text((one.folder / "m1.md").read_text().replace("FREQ=WEEKLY", "FREQ=FOOLY"))
    store = Store(tmp_path / "other.db")
    again = Reminders(store, one.folder, "Europe/Berlin", lambda: None)
    assert again.restore() == 1
    [row] = again.waiting()
    assert row.repeat == "DTSTART:20261207T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO"
    assert row.due.isoformat() == "2026-12-07T09:00:00+01:00"
    store.close()


def old_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.executescript(SCHEMA)
    db.execute("INSERT INTO meta VALUES ('schema', '1')")
    db.execute(
        "INSERT INTO reminders VALUES "
        "('m1', '2026-12-01T08:00:00+00:00', 'UTC', 'cat', 'waiting', '')"
    )
    db.commit()
    db.close()


def test_a_database_of_version_1_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    old_database(path)
    look = Store.look(path)  # reads it as it will be, and leaves it as it is
    assert [row.text for row in Reminders(look, tmp_path, "UTC", lambda: None).waiting()] == ["cat"]
    look.close()
    assert sqlite3.connect(path).execute("SELECT value FROM meta").fetchone() == ("1",)
    for _ in range(2):
        store = Store(path)
        [row] = Reminders(store, tmp_path, "UTC", lambda: None).waiting()
        assert (row.text, row.repeat, row.rang) == ("cat", "", None)
        assert store.meta("schema") == VERSION == str(len(MIGRATIONS) + 1)
        store.close()


def test_a_step_that_fails_leaves_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    old_database(path)
    with monkeypatch.context() as patch, pytest.raises(Exception, match="no such table"):
        patch.setattr("sia.schema.MIGRATIONS", ("CREATE TABLE x (y); DROP TABLE nowhere",))
        Store(path)
    store = Store(path)
    assert store.meta("schema") == VERSION
    assert store._rows("SELECT name FROM sqlite_master WHERE name = 'x'") == []
    store.close()


def test_rung_is_of_the_last_hours(machine: Callable[..., Machine]) -> None:
    one = machine("UTC", "2026-11-30T15:00:00+00:00")
    one.say("in 10 minutes first")
    one.say("in 20 minutes second")
    one.awake(seconds=600)
    one.awake(seconds=600)
    since = datetime(2026, 11, 30, 15, 5, tzinfo=UTC)
    assert [row.text for row in one.reminders.rung(since)] == ["second", "first"]
    assert one.reminders.rung(since + timedelta(hours=1)) == []
