"""Events as blocks of text."""

from __future__ import annotations

import pytest

from sia.events import Admitted, Asked, Ended, Notice, Routed, Said, TurnEnded
from sia.shell.text import plain
from sia.shell.transcript import Transcript, options_words


@pytest.fixture
def transcript() -> Transcript:
    return Transcript(plain, lambda: 60, {"r1": "an old request"}.get)


def test_one_request_needs_no_repeating(transcript: Transcript) -> None:
    blocks = [transcript.typed("› ", "tidy up")]
    transcript.sent("r5", "tidy up")
    for event in (Routed("r5", "files/organize", 0.9), Said("r5", "Done."), Ended("r5", "done")):
        blocks.append(transcript.event(event))
    assert "".join(blocks) == "› tidy up\n  files/organize\n│ Done.\n"


def test_an_answer_that_comes_later_names_its_request(transcript: Transcript) -> None:
    for run, text in (("r5", "first"), ("r6", "second")):
        transcript.typed("› ", text)
        transcript.sent(run, text)
    assert transcript.event(Said("r5", "one")) == "\n› first\n│ one\n"
    assert transcript.event(Said("r6", "two")) == "\n› second\n│ two\n"
    assert transcript.event(Said("r6", "three")) == "│ three\n"


def test_a_request_from_before_this_start_is_looked_up(transcript: Transcript) -> None:
    assert transcript.event(Said("r1", "done at last")) == "› an old request\n│ done at last\n"


def test_a_reminder_stands_alone(transcript: Transcript) -> None:
    transcript.note("started")
    assert transcript.event(Said("r9", "Reminder: tea")) == "\n│ Reminder: tea\n"


def test_what_became_of_an_input_is_one_line(transcript: Transcript) -> None:
    transcript.typed("› ", "x")
    transcript.sent("r5", "x")
    shown = [
        transcript.event(Admitted("r5", action, "x", 0.714))
        for action in ("queue", "preempt", "stdin", "run", "reject", "ignore")
    ]
    assert shown == [
        "  queued · urgency 0.71\n",
        "  goes first · urgency 0.71\n",
        "  handed to what is running\n",
        "",
        "",
        "  heard, nothing to do\n",
    ]
    assert transcript.event(TurnEnded(4)) == ""


def test_an_answer_goes_on_under_its_question(transcript: Transcript) -> None:
    transcript.typed("› ", "write to anna")
    transcript.sent("r5", "write to anna")
    transcript.event(Asked("r5", "Send it?", ("yes", "no")))
    transcript.typed("? yes/no › ", "yes")
    transcript.sent("r6", "yes")
    assert transcript.event(Admitted("r5", "answer", "yes")) == ""
    assert transcript.event(Said("r5", "Sent.")) == "│ Sent.\n"


def test_a_failure_names_what_failed(transcript: Transcript) -> None:
    transcript.sent("r5", "x")
    transcript.event(Routed("r5", "email/compose", 0.8))
    assert transcript.event(Ended("r5", "failed", "no server")) == (
        "  failed · email/compose: no server\n"
    )
    transcript.sent("r6", "y")
    transcript.event(Routed("r6", "email/compose", 0.8))
    transcript.event(Said("r6", "That did not work: no server."))
    assert transcript.event(Ended("r6", "failed", "no server")) == "  failed · email/compose\n"


def test_what_no_skill_covers_says_so_once(transcript: Transcript) -> None:
    transcript.sent("r5", "x")
    assert transcript.event(Routed("r5", "-", 0.6)) == "  no skill covers this\n"
    transcript.event(Said("r5", "I have no skill for that."))
    assert transcript.event(Ended("r5", "failed", "I have no skill for that.")) == ""


def test_long_options_are_numbered(transcript: Transcript) -> None:
    transcript.sent("r5", "x")
    options = ("Anna Berg, girlfriend", "Anna Karenina")
    assert transcript.event(Asked("r5", "Which Anna?", options)) == (
        "? Which Anna?\n   1  Anna Berg, girlfriend\n   2  Anna Karenina\n"
    )
    assert options_words(options) == "1-2"
    assert options_words(("yes", "no")) == "yes/no"


def test_repeats_are_marked_and_long_lines_wrap(transcript: Transcript) -> None:
    words = "word " * 15
    assert transcript.event(Said("r7", words, again=True)) == (
        "│ (again) word word word word word word word word word word\n│ word word word word word\n"
    )


def test_notices_do_not_tear_a_block_apart(transcript: Transcript) -> None:
    transcript.sent("r5", "x")
    assert transcript.event(Notice("skills reloaded")) == "  skills reloaded\n"
    assert transcript.event(Said("r5", "done")) == "│ done\n"
