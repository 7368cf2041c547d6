"""Times in sentences: right values at Monday 30 November 2026, 15:00, in Berlin."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia import times

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=BERLIN)

FOUND = [  # (text, due on the person's clock, the text without the time)
    ("remind me to feed the cat tomorrow at 9", "2026-12-01 09:00", "remind me to feed the cat"),
    ("in 20 minutes check the oven", "2026-11-30 15:20", "check the oven"),
    ("remember to call mum on friday", "2026-12-04 09:00", "remember to call mum"),
    ("wake me at 7", "2026-12-01 07:00", "wake me"),
    ("set a timer for 10 minutes", "2026-11-30 15:10", "set a timer"),
    ("every day at 8 take the pill", "2026-12-01 08:00", "take the pill"),
    ("remind me in half an hour", "2026-11-30 15:30", "remind me"),
    ("remind me in an hour and a half to stretch", "2026-11-30 16:30", "remind me to stretch"),
    ("in 1 hour and 30 minutes", "2026-11-30 16:30", ""),
    ("in 1.5 hours", "2026-11-30 16:30", ""),
    ("remind me in 2 hours 15 minutes to go", "2026-11-30 17:15", "remind me to go"),
    ("remind me in two weeks to pay", "2026-12-14 09:00", "remind me to pay"),
    ("in a month", "2026-12-30 09:00", ""),
    ("in 3 days at 10", "2026-12-03 10:00", ""),
    ("remind me 20 minutes from now to call", "2026-11-30 15:20", "remind me to call"),
    ("set a 10 minute timer", "2026-11-30 15:10", "set a timer"),
    ("timer 90 seconds", "2026-11-30 15:01", "timer"),
    ("alarm at 6:30 for gym", "2026-11-30 18:30", "alarm for gym"),
    ("set an alarm for 7", "2026-11-30 19:00", "set an alarm"),
    ("wake me up at half past six", "2026-12-01 06:30", "wake me up"),
    ("wake me at quarter to seven tomorrow", "2026-12-01 06:45", "wake me"),
    ("remind me at 9 to feed the cat", "2026-11-30 21:00", "remind me to feed the cat"),
    ("remind me at 5 to call mum", "2026-11-30 17:00", "remind me to call mum"),
    ("remind me at 5:30 pm", "2026-11-30 17:30", "remind me"),
    ("remind me at 17:30 to leave", "2026-11-30 17:30", "remind me to leave"),
    ("remind me at 14:30 to leave", "2026-12-01 14:30", "remind me to leave"),
    ("remind me tonight to lock the door", "2026-11-30 20:00", "remind me to lock the door"),
    ("tonight at 8", "2026-11-30 20:00", ""),
    ("tonight at 11pm", "2026-11-30 23:00", ""),
    ("tomorrow morning", "2026-12-01 09:00", ""),
    ("tomorrow evening at 7", "2026-12-01 19:00", ""),
    ("tomorrow at noon", "2026-12-01 12:00", ""),
    ("at midnight", "2026-12-01 00:00", ""),
    ("tomorrow at 3", "2026-12-01 15:00", ""),
    ("tomorrow at 03:00", "2026-12-01 03:00", ""),
    ("the day after tomorrow at 10", "2026-12-02 10:00", ""),
    ("remind me the day after tomorrow", "2026-12-02 09:00", "remind me"),
    ("next friday", "2026-12-11 09:00", ""),
    ("friday at 17:00", "2026-12-04 17:00", ""),
    ("this friday", "2026-12-04 09:00", ""),
    ("on monday", "2026-12-07 09:00", ""),
    ("next monday at 9", "2026-12-07 09:00", ""),
    ("next week", "2026-12-07 09:00", ""),
    ("next week on wednesday at 3pm", "2026-12-09 15:00", ""),
    ("wednesday next week", "2026-12-09 09:00", ""),
    ("next month", "2026-12-30 09:00", ""),
    ("at the weekend", "2026-12-05 09:00", ""),
    ("next weekend", "2026-12-12 09:00", ""),
    ("at the end of the month", "2026-11-30 18:00", ""),
    ("end of the week", "2026-12-04 09:00", ""),
    ("end of next week", "2026-12-11 09:00", ""),
    ("on the 15th", "2026-12-15 09:00", ""),
    ("on the 15th at 10", "2026-12-15 10:00", ""),
    ("by the 1st", "2026-12-01 09:00", ""),
    ("24 December", "2026-12-24 09:00", ""),
    ("December 24th at 6pm", "2026-12-24 18:00", ""),
    ("on Dec 24", "2026-12-24 09:00", ""),
    ("March 3rd, 2027 at 2pm", "2027-03-03 14:00", ""),
    ("2027-03-03 14:30", "2027-03-03 14:30", ""),
    ("on 24.12. um 18 Uhr", "2026-12-24 18:00", ""),
    ("3/12/2026", "2026-12-03 09:00", ""),
    ("on 3/12 at 10", "2026-12-03 10:00", ""),
    ("3rd of march", "2027-03-03 09:00", ""),
    ("Friday 4 December at 10", "2026-12-04 10:00", ""),
    ("tomorrow remind me at 9 to feed the cat", "2026-12-01 09:00", "remind me to feed the cat"),
    ("30 minutes before noon", "2026-12-01 11:30", ""),
    ("remind me to drink water every 20 minutes", "2026-11-30 15:20", "remind me to drink water"),
    ("every monday at 17:00", "2026-11-30 17:00", ""),
    ("every monday at 14:00", "2026-12-07 14:00", ""),
    ("every friday", "2026-12-04 09:00", ""),
    ("every morning", "2026-12-01 09:00", ""),
    ("on weekdays at 7:30", "2026-12-01 07:30", ""),
    ("every other day", "2026-12-02 09:00", ""),
    ("weekly", "2026-12-07 09:00", ""),
    ("morgen um 9", "2026-12-01 09:00", ""),
    ("übermorgen um halb acht", "2026-12-02 07:30", ""),
    ("am Freitag", "2026-12-04 09:00", ""),
    ("nächsten Freitag um 10", "2026-12-11 10:00", ""),
    ("in zwei Tagen", "2026-12-02 09:00", ""),
    ("in einer Stunde", "2026-11-30 16:00", ""),
    ("in einer halben Stunde", "2026-11-30 15:30", ""),
    ("in einer Viertelstunde", "2026-11-30 15:15", ""),
    ("am 3. März um 14:30", "2027-03-03 14:30", ""),
    ("heute abend", "2026-11-30 18:00", ""),
    ("heute Abend um 8", "2026-11-30 20:00", ""),
    ("morgen früh", "2026-12-01 09:00", ""),
    ("morgen Nachmittag um 3", "2026-12-01 15:00", ""),
    ("um viertel vor neun", "2026-11-30 20:45", ""),
    ("am 24.12. um 18 Uhr", "2026-12-24 18:00", ""),
    ("jeden Tag um 8", "2026-12-01 08:00", ""),
    ("jeden Montag um 9", "2026-12-07 09:00", ""),
    ("am Freitagabend", "2026-12-04 18:00", ""),
    ("nächste Woche", "2026-12-07 09:00", ""),
    ("weck mich um 7", "2026-12-01 07:00", "weck mich"),
    ("demain", "2026-12-01 09:00", ""),
    ("vendredi", "2026-12-04 09:00", ""),
    ("9", "2026-11-30 21:00", ""),
    ("9 uhr", "2026-11-30 21:00", ""),
    ("tomorrow 9", "2026-12-01 09:00", ""),
    ("20 minutes", "2026-11-30 15:20", ""),
    ("half an hour", "2026-11-30 15:30", ""),
    ("in 5 minutes or so", "2026-11-30 15:05", "or so"),
    ("at 8 in the evening", "2026-11-30 20:00", ""),
    ("at 7 in the morning", "2026-12-01 07:00", ""),
    ("in the morning", "2026-12-01 09:00", ""),
    ("this evening", "2026-11-30 18:00", ""),
    ("this afternoon at 4", "2026-11-30 16:00", ""),
    ("today", "2026-11-30 18:00", ""),
    ("today at 9", "2026-11-30 21:00", ""),
    ("today at 10:00", "2026-11-30 22:00", ""),
    ("in 30 seconds", "2026-11-30 15:00", ""),
    ("remind me at nine to call", "2026-11-30 21:00", "remind me to call"),
    ("remind me friday to call bob", "2026-12-04 09:00", "remind me to call bob"),
    ("at 9am tomorrow", "2026-12-01 09:00", ""),
    ("remind me on the 15th to pay", "2026-12-15 09:00", "remind me to pay"),
    ("noon", "2026-12-01 12:00", ""),
    ("at ten past eight", "2026-11-30 20:10", ""),
    ("at 5 o'clock", "2026-11-30 17:00", ""),
    ("remind me to call bob at 9, then eat", "2026-11-30 21:00", "remind me to call bob, then eat"),
    ("set an alarm for 6", "2026-11-30 18:00", "set an alarm"),
    ("every evening at 8", "2026-11-30 20:00", ""),
    ("at 12", "2026-12-01 12:00", ""),
    ("tomorrow at 12", "2026-12-01 12:00", ""),
    ("tomorrow night at 12", "2026-12-02 00:00", ""),
    ("in 3 hours' time", "2026-11-30 18:00", ""),
    ("call bob in a second", "2026-11-30 15:00", "call bob"),
    ("7am", "2026-12-01 07:00", ""),
    ("at 7 p.m.", "2026-11-30 19:00", ""),
    ("at 7 a.m. tomorrow", "2026-12-01 07:00", ""),
    ("remind me to call mum before 5pm", "2026-11-30 17:00", "remind me to call mum"),
    ("around noon", "2026-12-01 12:00", ""),
    ("set a timer for an hour", "2026-11-30 16:00", "set a timer"),
    ("5 minute timer", "2026-11-30 15:05", "timer"),
    ("countdown 45 minutes", "2026-11-30 15:45", "countdown"),
    ("in 90 minutes", "2026-11-30 16:30", ""),
    ("remind me by friday to pay the bill", "2026-12-04 09:00", "remind me to pay the bill"),
    ("remind me in the evening", "2026-11-30 18:00", "remind me"),
    ("on saturday night", "2026-12-05 20:00", ""),
    ("sunday morning at 10", "2026-12-06 10:00", ""),
    ("remind me at 10 pm on the 24th of december", "2026-12-24 22:00", "remind me"),
    ("Montag um 8", "2026-12-07 08:00", ""),
    ("nächsten Monat", "2026-12-30 09:00", ""),
    ("in 10 Tagen", "2026-12-10 09:00", ""),
    ("am Wochenende", "2026-12-05 09:00", ""),
    ("morgen um viertel nach acht", "2026-12-01 08:15", ""),
    ("um 20 nach 9", "2026-11-30 21:20", ""),
    ("in drei Stunden", "2026-11-30 18:00", ""),
    ("am 1.12. um 9", "2026-12-01 09:00", ""),
    ("Donnerstag, 10. Dezember 2026, 9:15 Uhr", "2026-12-10 09:15", ""),
    ("a week from now", "2026-12-07 09:00", ""),
    ("remind me of mum's party on saturday at 7pm", "2026-12-05 19:00", "remind me of mum's party"),
    ("remind me next tuesday at 8:15", "2026-12-08 08:15", "remind me"),
    ("remind me later today", "2026-11-30 18:00", "remind me"),
    ("remind me on 29 February", "2028-02-29 09:00", "remind me"),
    ("remind me at 9 on 1.12.", "2026-12-01 09:00", "remind me"),
    ("erinnere mich um 18 Uhr 30 an den Müll", "2026-11-30 18:30", "erinnere mich an den Müll"),
    ("remind me today at 11", "2026-11-30 23:00", "remind me"),
]

NOT_FOUND = [
    "",
    "later",
    "soon",
    "no",
    "remind me about tomorrow's meeting",
    "remind me about the friday meeting",
    "remind me to buy 3 apples",
    "remind me to look at 3 pictures",
    "remind me to send the 3 March report",
    "remind me of the 15th anniversary",
    "remind me to ring 112 at 200 degrees",
    "remind me at 3.50 euros",
    "I may go to the sun with mar and sat down",
    "remind me to plan the weekend trip",
    "in 99999999 years",
    "in 9999 years",
    "in 99999999999999999999 minutes",
    f"in {'9' * 400} days",
    "at 25:00",
    "31 april",
    "on the 32nd",
]


@pytest.mark.parametrize(("text", "due", "rest"), FOUND)
def test_found(text: str, due: str, rest: str) -> None:
    phrase = times.understand(text, NOW, "Europe/Berlin")
    assert phrase is not None
    assert f"{phrase.due:%Y-%m-%d %H:%M}" == due
    assert phrase.rest(text) == rest
    assert phrase.due.tzinfo == BERLIN


@pytest.mark.parametrize("text", NOT_FOUND)
def test_not_found(text: str) -> None:
    assert times.understand(text, NOW, "Europe/Berlin") is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("book the flight on friday tomorrow at 9", "book the flight on friday"),
        ("watch the 8 o'clock news tomorrow", "watch the 8 o'clock news"),
        ("on tuesday ask about the meeting on friday", "ask about the meeting on friday"),
        ("rest for 10 minutes tomorrow", "rest for 10 minutes"),
        ("write my daily report tomorrow", "write my daily report"),
    ],
)
def test_of_two_times_the_right_one(text: str, rest: str) -> None:
    phrase = times.understand(text, NOW, "Europe/Berlin")
    assert phrase is not None and phrase.due.date().isoformat() == "2026-12-01"
    assert phrase.rest(text) == rest


@pytest.mark.parametrize(
    ("text", "has_time", "repeats"),
    [
        ("tomorrow at 9", True, False),
        ("tomorrow", False, False),
        ("tomorrow evening", False, False),
        ("in 3 hours", True, False),
        ("in 3 days", False, False),
        ("every day at 8", True, True),
        ("every friday", False, True),
        ("every 20 minutes", True, True),
    ],
)
def test_what_was_said(text: str, has_time: bool, repeats: bool) -> None:
    phrase = times.understand(text, NOW, "Europe/Berlin")
    assert phrase is not None and (phrase.has_time, bool(phrase.repeat)) == (has_time, repeats)


def test_a_time_today_that_has_passed_stays_in_the_past() -> None:
    phrase = times.understand("today at 14:30", NOW, "Europe/Berlin")
    assert phrase is not None and not times.is_after(phrase.due, NOW)


def test_before_takes_the_time_off() -> None:
    text = "remind me 10 minutes before the meeting tomorrow at 3pm"
    phrase = times.understand(text, NOW, "Europe/Berlin")
    assert phrase is not None and f"{phrase.due:%d %H:%M}" == "01 14:50"


# The nights of the change: 28 March 2027 (02:00 to 03:00), 25 October 2026 (03:00 to 02:00).
@pytest.mark.parametrize(
    ("now", "text", "due"),
    [
        ("2027-03-27T20:00:00+01:00", "tomorrow at 02:30", "2027-03-28T03:30:00+02:00"),
        ("2027-03-27T20:00:00+01:00", "every day at 02:30", "2027-03-28T03:30:00+02:00"),
        ("2027-03-28T12:00:00+02:00", "every day at 02:30", "2027-03-29T02:30:00+02:00"),
        ("2027-03-27T20:00:00+01:00", "tomorrow at 9", "2027-03-28T09:00:00+02:00"),
        ("2027-03-27T20:00:00+01:00", "in 12 hours", "2027-03-28T09:00:00+02:00"),
        ("2026-10-24T20:00:00+02:00", "tomorrow at 02:30", "2026-10-25T02:30:00+02:00"),
        ("2026-10-24T20:00:00+02:00", "tomorrow at 9", "2026-10-25T09:00:00+01:00"),
        ("2026-10-24T20:00:00+02:00", "in 12 hours", "2026-10-25T07:00:00+01:00"),
        ("2026-10-24T20:00:00+02:00", "in 1 day at 20:00", "2026-10-25T20:00:00+01:00"),
        ("2026-10-25T02:20:00+02:00", "in 20 minutes", "2026-10-25T02:40:00+02:00"),
        ("2026-10-25T02:20:00+01:00", "in 20 minutes", "2026-10-25T02:40:00+01:00"),
        # In the second 02:10 the first 02:30 is over: once, not twice.
        ("2026-10-25T02:10:00+01:00", "every day at 02:30", "2026-10-26T02:30:00+01:00"),
        ("2026-10-25T02:10:00+01:00", "at 02:30", "2026-10-26T02:30:00+01:00"),
        # The machine runs in UTC, the person lives in Berlin, where it is tomorrow already.
        ("2027-03-27T19:00:00+00:00", "tomorrow at 9", "2027-03-28T09:00:00+02:00"),
        ("2026-11-30T23:30:00+00:00", "tomorrow at 9", "2026-12-02T09:00:00+01:00"),
    ],
)
def test_summer_time(now: str, text: str, due: str) -> None:
    phrase = times.understand(text, datetime.fromisoformat(now), "Europe/Berlin")
    assert phrase is not None and phrase.due.isoformat() == due
    assert phrase.moved == ("03:30" in due)


def test_another_zone() -> None:
    phrase = times.understand("tomorrow at 9", NOW, "America/New_York")
    assert (
        phrase is not None and phrase.due.astimezone(UTC).isoformat() == "2026-12-01T14:00:00+00:00"
    )


@pytest.mark.parametrize(
    ("due", "words"),
    [
        ("2026-12-01T09:00", "tomorrow, Tuesday 1 December, at 09:00"),
        ("2026-11-30T17:30", "today at 17:30"),
        ("2026-12-04T09:00", "on Friday 4 December at 09:00"),
        ("2027-03-03T14:30", "on Wednesday 3 March 2027 at 14:30"),
        ("2026-11-30T15:01", "in 60 seconds"),
    ],
)
def test_words(due: str, words: str) -> None:
    assert times.words(datetime.fromisoformat(due).replace(tzinfo=BERLIN), NOW) == words


@given(
    st.lists(
        st.sampled_from(
            "in at on the 3 20 9:30 half past next week friday tomorrow every 15th of march "
            "minutes before noon morgen um an hour and am 24.12. 2027-01-01 31 tonight call 99 "
            ". , ’s".split()
        ),
        max_size=9,
    )
)
def test_any_text_is_safe(words: list[str]) -> None:
    text = " ".join(words)
    phrase = times.understand(text, NOW, "Europe/Berlin")
    if phrase:
        assert phrase.due.utcoffset() is not None
        assert all(0 <= start < end <= len(text) for start, end in phrase.spans)
        assert len(phrase.rest(text)) <= len(text)


def test_long_text_takes_no_time() -> None:
    from time import monotonic

    start = monotonic()
    assert (
        times.understand("call 3 of the 20 people at 4 tables " * 500, NOW, "Europe/Berlin") is None
    )
    assert monotonic() - start < 2
