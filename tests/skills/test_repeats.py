"""Repeat rules: words to rules and back, and the times that they give by the person's clock."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia import repeats, times

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=BERLIN)  # a Monday

SAID = [  # (text, first time, the rule in words, the text without it)
    ("every day at 8 take the pill", "12-01 08:00", "every day at 08:00", "take the pill"),
    ("every single day at 6am run", "12-01 06:00", "every day at 06:00", "run"),
    ("daily at 02:30", "12-01 02:30", "every day at 02:30", ""),
    ("every monday at 9", "12-07 09:00", "every Monday at 09:00", ""),
    (
        "every monday and thursday at 9 water the plants",
        "12-03 09:00",
        "every Monday and Thursday at 09:00",
        "water the plants",
    ),
    (
        "mondays and thursdays at 6pm gym",
        "11-30 18:00",
        "every Monday and Thursday at 18:00",
        "gym",
    ),
    ("montags um 8 Sport", "12-07 08:00", "every Monday at 08:00", "Sport"),
    ("every weekday at 7:30", "12-01 07:30", "every weekday at 07:30", ""),
    ("werktags um 7", "12-01 07:00", "every weekday at 07:00", ""),
    ("every other friday at 9", "12-04 09:00", "every other Friday at 09:00", ""),
    ("jeden zweiten Montag um 9", "12-07 09:00", "every other Monday at 09:00", ""),
    ("every last friday at 17:00", "12-25 17:00", "every last Friday of the month at 17:00", ""),
    (
        "every second monday of the month at 10",
        "12-14 10:00",
        "every second Monday of the month at 10:00",
        "",
    ),
    (
        "jeden letzten Freitag im Monat um 9",
        "12-25 09:00",
        "every last Friday of the month at 09:00",
        "",
    ),
    (
        "the last friday of every month at 16:00",
        "12-25 16:00",
        "every last Friday of the month at 16:00",
        "",
    ),
    (
        "alle zwei Wochen um 10 den Müll",
        "12-14 10:00",
        "every 2 weeks on Monday at 10:00",
        "den Müll",
    ),
    ("alle zwei Wochen am Freitag um 10", "12-04 10:00", "every 2 weeks on Friday at 10:00", ""),
    ("on the 1st of every month at 9", "12-01 09:00", "every month on day 1 at 09:00", ""),
    ("every last day of the month at 9", "12-31 09:00", "every month on the last day at 09:00", ""),
    ("every year on 24 december at 18:00", "12-24 18:00", "every year on 24 December at 18:00", ""),
    ("every 24 December", "12-24 09:00", "every year on 24 December at 09:00", ""),
    ("every 20 minutes", "11-30 15:20", "every 20 minutes", ""),
    ("alle 20 Minuten", "11-30 15:20", "every 20 minutes", ""),
    ("every hour and a half stretch", "11-30 16:30", "every 90 minutes", "stretch"),
    ("quarterly at 10", "02-28 10:00", "every 3 months on day 30 at 10:00", ""),
    (
        "every day at 9 until friday",
        "12-01 09:00",
        "every day at 09:00 until 4 December 2026",
        "",
    ),
    ("every day at 8 pm for 5 times", "11-30 20:00", "every day at 20:00, 5 times", ""),
]


@pytest.mark.parametrize(("text", "first", "words", "rest"), SAID)
def test_said(text: str, first: str, words: str, rest: str) -> None:
    phrase = times.understand(text, NOW, "Europe/Berlin")
    assert phrase is not None
    assert f"{phrase.due:%m-%d %H:%M}" == first
    assert repeats.words(phrase.repeat) == words
    assert phrase.rest(text) == rest
    assert repeats.check(phrase.repeat) == phrase.repeat
    assert repeats.first_after(phrase.repeat, BERLIN, NOW) == phrase.due


def after(rule: str, zone: str, moment: str, number: int) -> list[str]:
    """The next ``number`` times after ``moment``, on the clock with its offset."""
    found, at = [], datetime.fromisoformat(moment)
    for _ in range(number):
        due = repeats.first_after(rule, ZoneInfo(zone), at)
        assert due is not None
        found.append(due.isoformat(timespec="minutes"))
        at = due
    return found


DAILY = "DTSTART:20260101T{}00\nRRULE:FREQ=DAILY"


@pytest.mark.parametrize(
    ("zone", "clock", "moment", "due"),
    [
        # Twice: only the first 02:30. Not at all: 02:30 with the offset before is 03:30.
        (
            "Europe/Berlin",
            "0230",
            "2026-10-24T12:00+02:00",
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
        ),
        (
            "Europe/Berlin",
            "0230",
            "2027-03-27T12:00+01:00",
            ["2027-03-28T03:30+02:00", "2027-03-29T02:30+02:00"],
        ),
        (
            "America/New_York",
            "0130",
            "2026-10-31T12:00-04:00",
            ["2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"],
        ),
        (
            "America/New_York",
            "0230",
            "2027-03-13T12:00-05:00",
            ["2027-03-14T03:30-04:00", "2027-03-15T02:30-04:00"],
        ),
        # Half an hour: 02:00 becomes 02:30 in October, and comes twice in April.
        (
            "Australia/Lord_Howe",
            "0215",
            "2026-10-03T12:00+10:30",
            ["2026-10-04T02:45+11:00", "2026-10-05T02:15+11:00"],
        ),
        (
            "Australia/Lord_Howe",
            "0145",
            "2027-04-03T12:00+11:00",
            ["2027-04-04T01:45+11:00", "2027-04-05T01:45+10:30"],
        ),
        (
            "UTC",
            "0230",
            "2027-03-27T12:00+00:00",
            ["2027-03-28T02:30+00:00", "2027-03-29T02:30+00:00"],
        ),
        (
            "Europe/Berlin",
            "0900",
            "2027-03-27T12:00+01:00",
            ["2027-03-28T09:00+02:00", "2027-03-29T09:00+02:00"],
        ),
    ],
)
def test_summer_time(zone: str, clock: str, moment: str, due: list[str]) -> None:
    assert after(DAILY.format(clock), zone, moment, 2) == due


@pytest.mark.parametrize(
    ("rule", "moment", "due"),
    [
        # Between the two 02:30s the first one is over.
        (DAILY.format("0230"), "2026-10-25T02:40+02:00", ["2026-10-26T02:30+01:00"]),
        (DAILY.format("0230"), "2026-10-25T02:10+01:00", ["2026-10-26T02:30+01:00"]),
        (
            "DTSTART:20261231T090000\nRRULE:FREQ=MONTHLY;BYMONTHDAY=28,29,30,31;BYSETPOS=-1",
            "2027-01-31T12:00+01:00",
            ["2027-02-28T09:00+01:00", "2027-03-31T09:00+02:00"],
        ),
        # Hours count elapsed time: five a quarter of an hour apart, whatever the clock shows.
        (
            "DTSTART:20261025T000000Z\nRRULE:FREQ=MINUTELY;INTERVAL=30",
            "2026-10-25T02:10+02:00",
            ["2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00"],
        ),
    ],
)
def test_next(rule: str, moment: str, due: list[str]) -> None:
    assert after(rule, "Europe/Berlin", moment, len(due)) == due


def test_a_rule_ends() -> None:
    start = datetime(2026, 12, 1, 9)
    three = repeats.series(start, "FREQ=DAILY;COUNT=3")
    until = repeats.series(start, "FREQ=DAILY;UNTIL=20261203T235959")
    for rule in (three, until):
        assert repeats.count(rule, BERLIN, NOW, datetime(2027, 1, 1, tzinfo=UTC)) == 3
        assert repeats.first_after(rule, BERLIN, datetime(2026, 12, 3, 9, tzinfo=BERLIN)) is None
    minutes = repeats.series(NOW, "FREQ=MINUTELY;INTERVAL=5;COUNT=3")
    assert repeats.count(minutes, BERLIN, NOW, datetime(2027, 1, 1, tzinfo=UTC)) == 2


def test_an_old_rule_of_minutes_takes_no_time() -> None:
    rule = "DTSTART:19700101T000000Z\nRRULE:FREQ=SECONDLY"
    assert repeats.first_after(rule, BERLIN, NOW) == datetime(2026, 11, 30, 14, 0, 1, tzinfo=UTC)
    assert repeats.count(rule, BERLIN, datetime(1990, 1, 1, tzinfo=UTC), NOW) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "RRULE:FREQ=DAILY",
        "DTSTART:20261201T090000Z\nRRULE:FREQ=DAILY",
        "DTSTART:20261301T000000\nRRULE:FREQ=DAILY",
        "x\ny",
    ]
    + ["DTSTART:20261201T090000\nRRULE:FREQ=DAYLY", "DTSTART:20261201T090000\nRRULE:FREQ=DAILY\nX"]
    + ["DTSTART:20261201T090000\nRRULE:FREQ=DAILY;INTERVAL=0", "DTSTART:20261201T090000"],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        repeats.check(text)


WORDS = (
    "every each other second last 3rd 31st monday friday and thursday day weekday week month year "
    "hour minutes 2 0 99999 of the at 9 02:30 until tomorrow 5 times alle zwei Wochen jeden "
    "letzten Freitag im Monat 24 december 29 february weekly"
).split()


@given(st.lists(st.sampled_from(WORDS), max_size=9))
def test_any_words_give_a_rule_or_none(words: list[str]) -> None:
    phrase = times.understand(" ".join(words), NOW, "Europe/Berlin")
    if phrase and phrase.repeat:
        assert repeats.check(phrase.repeat) and repeats.words(phrase.repeat)
        assert times.is_after(phrase.due, NOW)
        assert repeats.first_after(phrase.repeat, BERLIN, NOW) == phrase.due
