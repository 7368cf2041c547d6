"""calendar/add, move, show and free against a real CalDAV server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia import calendars
from sia.dav import DavServer, Refused
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Ask = Callable[..., FakeCtx]
BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=BERLIN)  # a Monday
ZONE = "DTSTART;TZID=Europe/Berlin:{}\nDTEND;TZID=Europe/Berlin:{}\nSUMMARY:{}"


def at(start: str, end: str, title: str) -> str:
    return ZONE.format(start, end, title)


DENTIST = at("20261204T090000", "20261204T100000", "Dentist")
LUNCH = at("20261201T120000", "20261201T133000", "Lunch with Anna") + "\nLOCATION:Café"
STANDUP = at("20261102T100000", "20261102T101500", "Standup") + "\nRRULE:FREQ=DAILY"
BIRTHDAY = "DTSTART;VALUE=DATE:20161202\nSUMMARY:Tom's birthday\nRRULE:FREQ=YEARLY"
UTC_CALL = "DTSTART:20261201T150000Z\nDURATION:PT45M\nSUMMARY:Call with New York"


@pytest.fixture
def skill(skills: Path) -> Callable[[str], Path]:
    return lambda name: skills / "calendar" / name


@pytest.mark.parametrize(
    ("request_", "said", "lines"),
    [
        (
            "put dentist into my calendar tomorrow at 3",
            "Dentist, tomorrow, Tuesday 1 December, 15:00–16:00.",
            ["SUMMARY:Dentist", "DTSTART;TZID=Europe/Berlin:20261201T150000"],
        ),
        (
            "schedule a meeting with Tom on friday from 10 to 11:30",
            "Meeting with Tom, on Friday 4 December, 10:00–11:30.",
            [
                "DTSTART;TZID=Europe/Berlin:20261204T100000",
                "DTEND;TZID=Europe/Berlin:20261204T113000",
            ],
        ),
        (
            "add an event called Party on saturday at 20:00 for 5 hours please",
            "Party, on Saturday 5 December, 20:00 to Sunday 6 December, 01:00.",
            ["SUMMARY:Party", "DTEND;TZID=Europe/Berlin:20261206T010000"],
        ),
        (
            "add Anna's birthday on 3 March to my calendar",
            "Anna's birthday, on Wednesday 3 March 2027, all day.",
            ["DTSTART;VALUE=DATE:20270303", "DTEND;VALUE=DATE:20270304"],
        ),
        (
            "vacation from 3 August to 10 August",
            "Vacation, on Tuesday 3 August 2027 to Tuesday 10 August 2027, all day.",
            ["DTSTART;VALUE=DATE:20270803", "DTEND;VALUE=DATE:20270811"],
        ),
        (
            "every monday at 10 standup for 15 minutes",
            "Standup, on Monday 7 December, 10:00–10:15.",
            ["RRULE:FREQ=WEEKLY;BYDAY=MO", "DTSTART;TZID=Europe/Berlin:20261207T100000"],
        ),
        (
            "trag morgen um 9 Uhr Zahnarzt in meinen Kalender ein",
            "Zahnarzt, tomorrow, Tuesday 1 December, 09:00–10:00.",
            ["SUMMARY:Zahnarzt"],
        ),
        (  # summer time skips 02:30
            "night shift on 28 March at 02:30",
            "Night shift, on Sunday 28 March 2027, 03:30–04:30.",
            ["DTSTART;TZID=Europe/Berlin:20270328T033000"],
        ),
    ],
)
def test_create(dav: Any, ask: Ask, skill: Any, request_: str, said: str, lines: list[str]) -> None:
    dav.calendar("Home")
    ctx = ask(request_, answers=["yes"])
    outcome = run_actions(skill("add"), ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    assert ctx.said == [f"In the calendar Home: {said}"]
    [text] = dav.texts("Home")
    for line in lines:
        assert line in text.splitlines()
    assert "BEGIN:VTIMEZONE" in text or "VALUE=DATE" in text


def test_create_asks_what_it_lacks_and_says_what_it_overlaps(
    dav: Any, ask: Ask, skill: Any
) -> None:
    dav.calendar("Home", LUNCH, BIRTHDAY)
    ctx = ask("new appointment", answers=["haircut", "dunno", "tomorrow at 13:00", "no"])
    outcome = run_actions(skill("add"), ctx)
    assert outcome.kind == "finished" and len(dav.texts("Home")) == 2
    assert ctx.asked[:2] == ["What is the event called?", "When is it: haircut?"]
    assert ctx.asked[3] == (
        "Put this into the calendar Home? haircut, tomorrow, Tuesday 1 December, 13:00–14:00\n"
        "It overlaps: Tomorrow, Tuesday 1 December, 12:00–13:30: Lunch with Anna, Café"
    )


def test_create_in_the_past_is_asked(dav: Any, ask: Ask, skill: Any) -> None:
    dav.calendar("Home")
    ctx = ask("dentist today at 9 am", answers=["tomorrow at 9", "yes"])
    assert run_actions(skill("add"), ctx).value is True
    assert "20261201T090000" in dav.texts("Home")[0]


@pytest.mark.parametrize(
    ("request_", "given", "place"),
    [
        ("dentist tomorrow at 3", {"choices": ["calendar-2"]}, "Work"),
        ("dentist tomorrow at 3", {"settings": {"calendar": "Work"}}, "Work"),
        ("put dentist into my home calendar tomorrow at 3", {}, "Home"),
    ],
)
def test_which_calendar(
    dav: Any, ask: Ask, skill: Any, request_: str, given: dict[str, Any], place: str
) -> None:
    dav.calendar("Home")
    dav.calendar("Work")
    ctx = ask(request_, answers=["yes"], **given)
    assert run_actions(skill("add"), ctx).value is True
    assert "SUMMARY:Dentist" in dav.texts(place)[0]
    if "choices" in given:
        [(question, options, _)] = ctx.chosen
        assert question == "Into which calendar does it go?"
        assert [name for _, name in options] == ["Home", "Work"]


@pytest.mark.parametrize("lose", [[], ["put event into calendar"]])
def test_create_interrupted_everywhere_makes_one(
    dav: Any, ask: Ask, skill: Any, lose: list[str]
) -> None:
    dav.calendar("Home")
    ctx, outcome = run_interrupted(
        skill("add"), lambda: ask("dentist tomorrow at 3", answers=["yes"]), lose
    )
    assert outcome.kind == "done" and len(dav.texts("Home")) == 1
    assert ctx.tried()[0][2] == 1  # the server was asked, and the person was not


def test_create_is_not_doubled_where_the_answer_is_lost(dav: Any, ask: Ask, skill: Any) -> None:
    """The server has it but the person is told of an error: said again, it is there once."""
    dav.calendar("Home")
    dav.fail["PUT"] = "after 503 Service Unavailable"
    ctx = ask("dentist tomorrow at 3", answers=["yes"])
    outcome = run_actions(skill("add"), ctx)
    assert (outcome.kind, outcome.cause) == ("failed", "environment")
    server = DavServer(dav.url, "robin", "s3cret")
    uid = calendars.uid(server, "r1-save-1", NOW)
    with calendars.opened(server, BERLIN) as found:
        assert found.has("Home", uid)
        found.add("Home", uid, "Dentist", NOW, NOW + timedelta(hours=1))
    assert len(dav.texts("Home")) == 1


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            "what is in my calendar tomorrow",
            "Tomorrow, Tuesday 1 December:\n"
            "- Tomorrow, Tuesday 1 December, 10:00–10:15: Standup\n"
            "- Tomorrow, Tuesday 1 December, 12:00–13:30: Lunch with Anna, Café\n"
            "- Tomorrow, Tuesday 1 December, 16:00–16:45: Call with New York",
        ),
        ("what's my next appointment", "Tomorrow, Tuesday 1 December, 10:00–10:15: Standup"),
        ("when is the dentist?", "On Friday 4 December, 09:00–10:00: Dentist"),
        (
            "what do I have on wednesday",
            "On Wednesday 2 December:\n"
            "- On Wednesday 2 December, all day: Tom's birthday\n"
            "- On Wednesday 2 December, 10:00–10:15: Standup",
        ),
        ("anything on today?", "Nothing is in the calendar today."),
    ],
)
def test_next(dav: Any, ask: Ask, skill: Any, request_: str, said: str) -> None:
    dav.calendar("Home", DENTIST, LUNCH, BIRTHDAY)
    dav.calendar("Work", STANDUP, UTC_CALL)
    ctx = ask(request_)
    assert run_actions(skill("show"), ctx).kind == "done"
    assert ctx.said == [said]


def test_next_of_a_series_with_exceptions(dav: Any, ask: Ask, skill: Any) -> None:
    """One left out, one moved, one cancelled; and over the change of the clocks it stays at ten."""
    series = at("20261026T100000", "20261026T103000", "Standup") + (
        "\nRRULE:FREQ=DAILY\nEXDATE;TZID=Europe/Berlin:20261201T100000\n--\n"
        "RECURRENCE-ID;TZID=Europe/Berlin:20261202T100000\n"
        + at("20261202T140000", "20261202T143000", "Standup later")
        + "\n--\nRECURRENCE-ID;TZID=Europe/Berlin:20261203T100000\nSTATUS:CANCELLED\n"
        + at("20261203T100000", "20261203T103000", "Standup")
    )
    dav.calendar("Work", series)
    ctx = ask("show my calendar for this week")
    run_actions(skill("show"), ctx)
    assert ctx.said[0].split("\n") == [
        "This week:",
        "- On Wednesday 2 December, 14:00–14:30: Standup later",
        "- On Friday 4 December, 10:00–10:30: Standup",
        "- On Saturday 5 December, 10:00–10:30: Standup",
        "- On Sunday 6 December, 10:00–10:30: Standup",
    ]


def test_a_broken_object_is_named_and_left_out(
    dav: Any, ask: Ask, skill: Any, tmp_path: Path
) -> None:
    dav.calendar("Home", DENTIST, LUNCH)
    file = tmp_path / "radicale/collection-root/robin/home/e2.ics"
    file.write_text(file.read_text().replace("DTSTART;TZID=Europe/Berlin:2026", "DTSTART:99"))
    ctx = ask("what is in my calendar this week")
    run_actions(skill("show"), ctx)
    assert "Dentist" in ctx.said[0] and "Lunch" not in ctx.said[0]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            "when am I free tomorrow for two hours",
            "Free for 2 hours:\n- tomorrow, Tuesday 1 December, 13:30–16:00",
        ),
        (
            "when am I free tomorrow afternoon",
            "Free for 1 hour:\n- tomorrow, Tuesday 1 December, 13:30–16:00"
            "\n- tomorrow, Tuesday 1 December, 16:45–18:00",
        ),
        (
            "find me a free hour",
            "Free for 1 hour:\n- today, 15:00–18:00"
            "\n- tomorrow, Tuesday 1 December, 09:00–10:00"
            "\n- tomorrow, Tuesday 1 December, 10:15–12:00",
        ),
        (
            "am I free on friday at 9:30",
            "No, you are not free on Friday 4 December, 09:30–10:30:\n"
            "- On Friday 4 December, 09:00–10:00: Dentist\n"
            "- On Friday 4 December, 10:00–10:15: Standup",
        ),
        (
            "am I free on friday from 2 to 4 pm?",
            "Yes, you are free on Friday 4 December, 14:00–16:00.",
        ),
        (
            "am I free on wednesday at 15:00",
            "Yes, you are free on Wednesday 2 December, 15:00–16:00 (but it is Tom's birthday).",
        ),
        (
            "do I have 10 hours free on friday",
            "There is no free time of 10 hours on Friday 4 December.",
        ),
    ],
)
def test_free(dav: Any, ask: Ask, skill: Any, request_: str, said: str) -> None:
    dav.calendar("Home", DENTIST, LUNCH, BIRTHDAY)
    dav.calendar("Work", STANDUP, UTC_CALL)
    ctx = ask(request_)
    assert run_actions(skill("free"), ctx).kind == "done"
    assert ctx.said == [said]


@pytest.mark.parametrize(
    ("request_", "asked", "lines"),
    [
        (
            "move the dentist to monday at 11",
            "Move Dentist from Friday 4 December, 09:00–10:00 to Monday 7 December, 11:00–12:00?",
            [
                "DTSTART;TZID=Europe/Berlin:20261207T110000",
                "DTEND;TZID=Europe/Berlin:20261207T120000",
            ],
        ),
        (
            "reschedule the dentist to thursday",
            "Move Dentist from Friday 4 December, 09:00–10:00 to Thursday 3 December, 09:00–10:00?",
            ["DTSTART;TZID=Europe/Berlin:20261203T090000"],
        ),
        (
            "move the lunch to 1pm",
            "Move Lunch with Anna from tomorrow, Tuesday 1 December, 12:00–13:30"
            " to tomorrow, Tuesday 1 December, 13:00–14:30?",
            ["DTSTART;TZID=Europe/Berlin:20261201T130000"],
        ),
        (
            "push the lunch by half an hour",
            "Move Lunch with Anna from tomorrow, Tuesday 1 December, 12:00–13:30"
            " to tomorrow, Tuesday 1 December, 12:30–14:00?",
            ["DTEND;TZID=Europe/Berlin:20261201T140000"],
        ),
        (
            "move the call with new york to 17:00",
            "Move Call with New York from tomorrow, Tuesday 1 December, 16:00–16:45"
            " to tomorrow, Tuesday 1 December, 17:00–17:45?",
            ["DTSTART:20261201T160000Z", "DTEND:20261201T164500Z", "SEQUENCE:1"],
        ),
        (
            "move tomorrow's lunch to friday from 12 to 13",
            "Move Lunch with Anna from tomorrow, Tuesday 1 December, 12:00–13:30"
            " to Friday 4 December, 12:00–13:00?",
            ["DTEND;TZID=Europe/Berlin:20261204T130000"],
        ),
    ],
)
def test_move(dav: Any, ask: Ask, skill: Any, request_: str, asked: str, lines: list[str]) -> None:
    dav.calendar("Home", DENTIST, LUNCH, UTC_CALL)
    ctx = ask(request_, answers=["yes"])
    outcome = run_actions(skill("move"), ctx)
    assert ctx.asked == [asked] and not ctx.chosen
    assert (outcome.kind, outcome.value) == ("done", True)
    texts = dav.texts("Home")
    assert len(texts) == 3 and any(all(line in t.splitlines() for line in lines) for t in texts)


def test_move_one_time_of_a_series(dav: Any, ask: Ask, skill: Any) -> None:
    dav.calendar("Work", STANDUP)
    for request, day in (
        ("tomorrow's standup to 11", "01"),
        ("the standup on thursday to 12", "03"),
    ):
        ctx = ask(f"move {request}", answers=["yes"])
        assert run_actions(skill("move"), ctx).value is True
        assert "Standup (this time only)" in ctx.asked[0]
        assert f"RECURRENCE-ID;TZID=Europe/Berlin:202612{day}T100000" in dav.texts("Work")[0]
    # Moved once more, it is the same time of the series that moves.
    ctx = ask("move tomorrow's standup to 15:00", answers=["yes"])
    assert run_actions(skill("move"), ctx).value is True
    [text] = dav.texts("Work")
    assert text.count("RECURRENCE-ID") == 2 and text.count("RRULE:FREQ=DAILY") == 1
    with calendars.opened(dav.server, BERLIN) as found:
        rows = found.between(NOW, NOW + timedelta(days=4))
    assert [f"{row.start:%d %H:%M}" for row in rows] == [
        "01 15:00",
        "02 10:00",
        "03 12:00",
        "04 10:00",
    ]


def test_move_all_of_a_series(dav: Any, ask: Ask, skill: Any) -> None:
    dav.calendar("Work", STANDUP + "\nEXDATE;TZID=Europe/Berlin:20261202T100000")
    ctx = ask("move every standup to 11", answers=["yes"])
    assert run_actions(skill("move"), ctx).kind == "done"
    assert "all times of Standup" in ctx.asked[0]
    with calendars.opened(dav.server, BERLIN) as found:
        rows = found.between(NOW, NOW + timedelta(days=4))
    assert [f"{row.start:%d %H:%M}" for row in rows] == ["01 11:00", "03 11:00", "04 11:00"]


def test_move_is_chosen_among_real_events(dav: Any, ask: Ask, skill: Any) -> None:
    dav.calendar("Home", DENTIST, LUNCH)

    def pick(question: str, options: Any) -> str:
        return next(id for id, text in options if "Dentist" in text)

    ctx = ask("move my teeth thing to monday at 11", choices=pick, answers=["yes"])
    assert run_actions(skill("move"), ctx).value is True
    [(question, options, _)] = ctx.chosen
    assert question == "Which event is meant?" and len(options) == 2
    assert options[0][0].startswith("lunch-with-anna-")
    # Two that the words fit alike: the person is asked.
    dav.event("Home", "e3", at("20261210T090000", "20261210T100000", "Dentist"))
    line = "On Thursday 10 December, 09:00–10:00: Dentist"
    ctx = ask("move the dentist to 11 december at 8:00", answers=[line, "yes"])
    assert run_actions(skill("move"), ctx).value is True
    assert any("20261211T080000" in text for text in dav.texts("Home"))


@pytest.mark.parametrize("lose", [[], ["move event"]])
def test_move_interrupted_everywhere(dav: Any, ask: Ask, skill: Any, lose: list[str]) -> None:
    dav.calendar("Home", LUNCH)
    ctx, outcome = run_interrupted(
        skill("move"), lambda: ask("push the lunch by half an hour", answers=["yes"]), lose
    )
    assert outcome.kind == "done" and ctx.tried()[0][2] == 1
    assert "DTSTART;TZID=Europe/Berlin:20261201T123000" in dav.texts("Home")[0]


def test_move_does_not_write_over_what_changed_meanwhile(dav: Any) -> None:
    """The server compares the version; nothing of another program is lost."""
    dav.calendar("Home", LUNCH)
    with calendars.opened(dav.server, BERLIN) as found:
        [event] = found.between(NOW, NOW + timedelta(days=2))
        find = found._find

        def changed(*names: str) -> Any:
            item = find(*names)
            dav.event("Home", "e1", LUNCH.replace("Anna", "Anna and Tom"))
            return item

        found._find = changed
        with pytest.raises(Refused):
            found.move(event, event.start + timedelta(hours=1), event.end + timedelta(hours=1))
    assert "SUMMARY:Lunch with Anna and Tom" in dav.texts("Home")[0]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"password": "wrong"}, "refused user robin"),
        (
            {"url": "http://127.0.0.1:1/"},
            "127.0.0.1:1 cannot be reached: the connection was refused",
        ),
        ({"url": "nonsense"}, "'nonsense' is no address like https://dav.example.org/"),
        ({"url": "http://dav.example.org/"}, "would send everything readable; use https"),
        ({"url": "https://robin:s3cret@dav.example.org/"}, "the address holds a user or password"),
    ],
)
def test_a_server_that_does_not_work_is_named(
    dav: Any, server: dict[str, str], reason: str
) -> None:
    values = {"url": dav.url, "user": "robin", "password": "s3cret", **server}
    with pytest.raises(Refused) as caught, calendars.opened(DavServer(**values), BERLIN):
        pass
    assert reason in str(caught.value) and "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_server_no_calendar(ask: Ask, skill: Any, dav: Any) -> None:
    ctx = ask("what is next", settings={"url": "http://127.0.0.1:1/"})
    outcome = run_actions(skill("show"), ctx)
    assert (outcome.kind, outcome.cause) == ("failed", "environment")
    ctx = ask("dentist tomorrow at 3")
    outcome = run_actions(skill("add"), ctx)
    assert outcome.message == "The server has no calendar to write to."


def test_a_repeat_ends_as_the_format_wants_it(dav: Any, ask: Ask, skill: Any) -> None:
    """In UTC beside a time with a zone, as a day beside a day (RFC 5545, 3.3.10)."""
    dav.calendar("Home")
    run_actions(skill("add"), ask("standup every monday at 10 until 21 December", answers=["yes"]))
    rule, day = "FREQ=WEEKLY;BYDAY=MO;UNTIL=20261221T235959", date(2026, 12, 7)
    with calendars.opened(dav.server, BERLIN) as found:
        found.add("Home", "bins", "Bins", day, day + timedelta(1), rule)
    texts = dav.texts("Home")
    rules = {line for text in texts for line in text.splitlines() if "UNTIL" in line}
    assert rules == {
        "RRULE:FREQ=WEEKLY;UNTIL=20261221T225959Z;BYDAY=MO",
        "RRULE:FREQ=WEEKLY;UNTIL=20261221;BYDAY=MO",
    }
    with calendars.opened(dav.server, BERLIN) as found:
        rows = found.between(NOW, NOW + timedelta(days=40))
    assert [row.start.day for row in rows if row.title == "Standup"] == [7, 14, 21]


def test_move_all_of_a_series_keeps_its_last_time(dav: Any, ask: Ask, skill: Any) -> None:
    dav.calendar("Work", f"{STANDUP};UNTIL=20261203T090000Z")
    outcome = run_actions(skill("move"), ask("move every standup to 17:00", answers=["yes"]))
    assert outcome.kind == "done"
    with calendars.opened(dav.server, BERLIN) as found:
        rows = found.between(NOW, NOW + timedelta(days=9))
    assert [f"{row.start:%d %H:%M}" for row in rows] == [
        f"{day} 17:00" for day in ("30", "01", "02", "03")
    ]


def test_a_series_of_days_is_not_said_to_be_moved(dav: Any) -> None:
    dav.calendar("Home", BIRTHDAY)
    with calendars.opened(dav.server, BERLIN) as found:
        [event] = found.between(NOW, NOW + timedelta(days=9))
        with pytest.raises(Refused, match="only be moved to another hour"):
            at = event.start.replace(hour=14)
            found.move(event, at, at + timedelta(hours=1), whole=True)
