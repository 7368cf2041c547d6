"""reminders/set, list and cancel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sia.skills.api import Reminder
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Make = Callable[..., FakeCtx]
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            "remind me to feed the cat tomorrow at 9",
            "I will remind you tomorrow, Tuesday 1 December, at 09:00: feed the cat.",
        ),
        ("in 20 minutes check the oven", "I will remind you today at 15:20: check the oven."),
        (
            "remember to call mum on friday",
            "I will remind you on Friday 4 December at 09:00: call mum."
            " You named no hour, so I took 09:00.",
        ),
        ("wake me at 7", "I will remind you tomorrow, Tuesday 1 December, at 07:00: wake up."),
        ("set a timer for 10 minutes", "I will remind you today at 15:10: timer, 10 minutes."),
        ("set a timer for 30 seconds", "I will remind you in 30 seconds: timer, 30 seconds."),
        (
            "remind me about the dentist on 3 March at 14:30",
            "I will remind you on Wednesday 3 March 2027 at 14:30: the dentist.",
        ),
        (
            "every day at 8 take the pill",
            "I will remind you every day at 08:00, first tomorrow, Tuesday 1 December, at 08:00:"
            " take the pill.",
        ),
        (
            "Could you please remind me at 5 pm that the bins go out?",
            "I will remind you today at 17:00: the bins go out.",
        ),
        (
            "set an alarm at 6:30 pm for the gym, please",
            "I will remind you today at 18:30: the gym.",
        ),
        (
            "erinnere mich morgen um 9 Uhr daran, die Katze zu füttern",
            "I will remind you tomorrow, Tuesday 1 December, at 09:00: die Katze zu füttern.",
        ),
        ("tomorrow at 9 remind me to ask: why?", None),
    ],
)
def test_set(make: Make, skills: Path, request_: str, said: str | None) -> None:
    ctx = make(request_)
    outcome = run_actions(skills / "reminders/set", ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    assert not ctx.asked and len(ctx.reminders_set) == 1
    if said:
        assert ctx.said == [said]
    else:
        assert ctx.said[0].endswith(": ask: why.")


def test_set_keeps_the_rule_and_knows_a_timer(make: Make, skills: Path) -> None:
    ctx = make("every last friday at 17:00 send the report")
    assert run_actions(skills / "reminders/set", ctx).value is True
    [reminder] = ctx.reminders_set
    assert reminder.repeat == "DTSTART:20261225T170000\nRRULE:FREQ=MONTHLY;BYDAY=-1FR"
    assert not ctx.timers
    ctx = make("in 10 minutes look at the oven")
    run_actions(skills / "reminders/set", ctx)
    assert ctx.timers == ["m1"] and ctx.reminders_set[0].repeat == ""
    ctx = make("remind me tomorrow at 9 to look")
    run_actions(skills / "reminders/set", ctx)
    assert not ctx.timers


def test_without_a_time_it_asks_and_understands_the_answer(make: Make, skills: Path) -> None:
    ctx = make("remind me to feed the cat", answers=["dunno", "tomorrow at 9"])
    assert run_actions(skills / "reminders/set", ctx).value is True
    assert ctx.asked[0] == "When should I remind you: feed the cat?"
    [reminder] = ctx.reminders_set
    assert (reminder.text, reminder.due.isoformat()) == (
        "feed the cat",
        "2026-12-01T09:00:00+01:00",
    )


def test_a_time_that_has_passed_is_asked_again(make: Make, skills: Path) -> None:
    ctx = make("remind me today at 14:30 to feed the cat", answers=["at 16:00"])
    run_actions(skills / "reminders/set", ctx)
    assert ctx.asked == ["That time has passed (today at 14:30). When instead?"]
    assert ctx.said == ["I will remind you today at 16:00: feed the cat."]


def test_nothing_to_remind_of_is_asked(make: Make, skills: Path) -> None:
    ctx = make("remind me at 9 pm", answers=["the laundry"])
    run_actions(skills / "reminders/set", ctx)
    assert ctx.said == ["I will remind you today at 21:00: the laundry."]


@pytest.mark.parametrize("answer", ["never mind", "no", ""])
def test_the_person_may_drop_it(make: Make, skills: Path, answer: str) -> None:
    ctx = make("remind me to feed the cat", answers=[answer])
    outcome = run_actions(skills / "reminders/set", ctx)
    assert (outcome.kind, outcome.value) == ("finished", None)
    assert ctx.reminders_set == [] and ctx.said == ["All right, no reminder is set."]


def test_the_third_answer_counts(make: Make, skills: Path) -> None:
    ctx = make("remind me to feed the cat", answers=["x", "today at 9:00 am", "at 16:00"])
    assert run_actions(skills / "reminders/set", ctx).value is True
    assert ctx.asked[2] == "That time has passed (today at 09:00). When instead?"


def test_after_three_answers_it_gives_up(make: Make, skills: Path) -> None:
    ctx = make("remind me to feed the cat", answers=["x", "y", "z"])
    outcome = run_actions(skills / "reminders/set", ctx)
    assert (outcome.kind, outcome.cause) == ("failed", "text")


def test_the_skipped_hour_is_said(make: Make, skills: Path) -> None:
    now = datetime(2027, 3, 27, 20, 0, tzinfo=NOW.tzinfo)
    ctx = make("remind me tomorrow at 02:30 to look", now=now)
    run_actions(skills / "reminders/set", ctx)
    assert "at 03:30: look." in ctx.said[0] and "clock skips the hour" in ctx.said[0]


def test_interrupted_everywhere_it_sets_one(make: Make, skills: Path) -> None:
    ctx, outcome = run_interrupted(
        skills / "reminders/set", lambda: make("remind me to feed the cat", answers=["at 17:00"])
    )
    assert outcome.value is True and len(ctx.reminders_set) == 1
    assert len(ctx.said) == len(ctx.asked) == 1


def waiting(*rows: tuple[str, int]) -> list[Reminder]:
    """(text, hours from now)"""
    return [
        Reminder(f"m{n}", NOW + timedelta(hours=hours), text, "waiting")
        for n, (text, hours) in enumerate(rows, 1)
    ]


THREE = waiting(("feed the cat", 18), ("call mum", 2), ("call the bank", 90))


def test_list(make: Make, skills: Path) -> None:
    ctx = make("what reminders do I have", waiting=THREE)
    run_actions(skills / "reminders/list", ctx)
    assert ctx.said == [
        "3 reminders are waiting:\n"
        "- today at 17:00: call mum\n"
        "- tomorrow, Tuesday 1 December, at 09:00: feed the cat\n"
        "- on Friday 4 December at 09:00: call the bank"
    ]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            "what reminders do I have tomorrow",
            "1 reminder is waiting tomorrow, Tuesday 1 December:",
        ),
        ("reminders for sunday?", "No reminders are waiting on Sunday 6 December."),
        ("show my reminders for this week", "3 reminders are waiting:"),
    ],
)
def test_list_of_a_day(make: Make, skills: Path, request_: str, said: str) -> None:
    ctx = make(request_, waiting=THREE)
    run_actions(skills / "reminders/list", ctx)
    assert ctx.said[0].split("\n")[0] == said


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        ("cancel the reminder about the cat", ["m1"]),
        ("delete my 5 pm reminder", ["m2"]),
        ("delete the 9 o'clock reminder for the cat", ["m1"]),
        ("cancel the reminder for tomorrow", ["m1"]),
        ("cancel the call to the bank", ["m3"]),
        ("cancel all reminders", ["m1", "m2", "m3"]),
    ],
)
def test_cancel_by_words_or_time(make: Make, skills: Path, request_: str, left: list[str]) -> None:
    ctx = make(request_, waiting=THREE, answers=["yes"])
    outcome = run_actions(skills / "reminders/cancel", ctx)
    assert outcome.value is True and not ctx.chosen
    assert {row.id for row in THREE} - {row.id for row in ctx.reminders()} == set(left)


def test_cancel_by_decision_where_no_word_helps(make: Make, skills: Path) -> None:
    ctx = make("forget about the pet", waiting=THREE, choices=["feed-the-cat-2"], answers=["y"])
    run_actions(skills / "reminders/cancel", ctx)
    [(question, options, _)] = ctx.chosen
    assert question == "Which reminder is meant?"
    assert options[0] == ("call-mum-1", "call mum, today at 17:00")
    assert ctx.said == ["Cancelled: feed the cat."]


def test_cancel_asks_where_words_fit_several(make: Make, skills: Path) -> None:
    answers = ["call mum, today at 17:00", "yes"]
    ctx = make("cancel the call", waiting=THREE, answers=answers)
    run_actions(skills / "reminders/cancel", ctx)
    assert not ctx.chosen and ctx.said == ["Cancelled: call mum."]


def test_cancel_is_confirmed(make: Make, skills: Path) -> None:
    ctx = make("cancel the cat reminder", waiting=THREE, answers=["no"])
    outcome = run_actions(skills / "reminders/cancel", ctx)
    assert (outcome.kind, outcome.value, len(ctx.reminders())) == ("finished", None, 3)


def test_cancel_of_nothing(make: Make, skills: Path) -> None:
    ctx = make("cancel my reminder")
    run_actions(skills / "reminders/cancel", ctx)
    assert ctx.said == ["No reminders are waiting."]


PILL = "DTSTART:20261101T080000\nRRULE:FREQ=DAILY"
BINS = "DTSTART:20261102T190000\nRRULE:FREQ=WEEKLY;BYDAY=MO"
SERIES = [
    Reminder("m4", NOW + timedelta(hours=17), "take the pill", "waiting", PILL),
    Reminder("m5", NOW + timedelta(hours=4), "put out the bins", "waiting", BINS),
    *THREE,
]


def test_list_and_cancel_name_the_rule(make: Make, skills: Path) -> None:
    ctx = make("list my reminders for tomorrow", waiting=SERIES)
    run_actions(skills / "reminders/list", ctx)
    assert ctx.said[0].split("\n")[1] == (
        "- tomorrow, Tuesday 1 December, at 08:00: take the pill (every day at 08:00)"
    )
    for request in ("cancel the pill", "cancel the reminder of every day"):
        ctx = make(request, waiting=SERIES, answers=["yes"])
        run_actions(skills / "reminders/cancel", ctx)
        assert ctx.asked == ["Cancel this reminder?\n- every day at 08:00: take the pill"]
        assert ctx.said == ["Cancelled: take the pill."]


RANG = [
    Reminder("m6", NOW - timedelta(minutes=1), "call the vet", "fired", rang=NOW),
    Reminder("m4", NOW + timedelta(hours=17), "take the pill", "waiting", PILL, NOW - timedelta(1)),
]


@pytest.mark.parametrize(
    ("request_", "said", "timer"),
    [
        ("snooze", "today at 15:10: call the vet.", True),
        ("snooze for 20 minutes", "today at 15:20: call the vet.", True),
        ("snooze the pill for an hour", "today at 16:00: take the pill.", True),
        ("remind me of the vet again at 17:00", "today at 17:00: call the vet.", False),
        (
            "postpone the bank to friday at 10",
            "on Friday 4 December at 10:00: call the bank.",
            False,
        ),
        ("push the bank by an hour", "on Friday 4 December at 10:00: call the bank.", False),
    ],
)
def test_snooze(make: Make, skills: Path, request_: str, said: str, timer: bool) -> None:
    ctx = make(request_, waiting=[*RANG[:1], *THREE, *RANG[1:]])
    outcome = run_actions(skills / "reminders/snooze", ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    assert ctx.said == [f"I will remind you {said}"]
    assert bool(ctx.timers) == timer
    left = {row.id for row in ctx.reminders()}
    assert ("m3" in left) == ("bank" not in said) and "m4" in left  # a rule stays as it is


def test_snooze_without_any_and_of_several(make: Make, skills: Path) -> None:
    ctx = make("snooze")
    assert run_actions(skills / "reminders/snooze", ctx).kind == "finished"
    assert ctx.said == ["No reminder has gone off lately, and none is waiting."]
    ctx = make("postpone it to 18:00", waiting=THREE, answers=["call mum, today at 17:00"])
    assert run_actions(skills / "reminders/snooze", ctx).value is True
    assert [row.text for row in ctx.reminders_set] == ["call mum"]
    ctx = make("snooze until today at 14:00", waiting=RANG)
    outcome = run_actions(skills / "reminders/snooze", ctx)
    assert (outcome.kind, outcome.cause) == ("failed", "text") and not ctx.reminders_set


def test_snooze_interrupted_everywhere_sets_one(make: Make, skills: Path) -> None:
    ctx, outcome = run_interrupted(
        skills / "reminders/snooze", lambda: make("postpone mum to 18:00", waiting=THREE)
    )
    assert outcome.value is True and len(ctx.reminders_set) == 1 and len(ctx.reminders()) == 3
