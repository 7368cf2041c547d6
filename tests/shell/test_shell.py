"""The shell at a real (pseudo-)terminal, with an agent that has no model."""

from __future__ import annotations

import re
import signal
import stat
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semif.jsonl import read
from sia.store import Store

BURST_LINE = re.compile(r"^│ line (\d+) of the burst$", re.MULTILINE)
Start = Callable[..., Any]


def test_first_start_greets_and_the_next_does_not(start: Start) -> None:
    shell = start()
    text = shell.wait("idle · queue 0")
    assert "Try: remind me to feed the cat tomorrow at 9      /help shows the rest" in text
    assert shell.prompt_line() == "› remind me to feed the cat tomorrow at 9"  # a placeholder
    shell.enter("hello")
    shell.wait("heard: hello")
    shell.enter("/quit")
    assert shell.end() == 0
    again = start()
    text = again.wait("idle · queue 0")
    assert "Try:" not in text
    assert "the session goes on at iteration 1" in text


def test_a_request_its_route_and_its_answer_stand_together(shell) -> None:
    shell.enter("remind me to feed the cat tomorrow at 9")
    shell.wait("feed the cat.")
    shell.until(lambda: shell.prompt_line() == "›", "no prompt")
    lines = shell.shown()
    at = lines.index("› remind me to feed the cat tomorrow at 9")
    assert lines[at - 1 : at + 5] == [
        "",
        "› remind me to feed the cat tomorrow at 9",
        "  reminders/set",
        "│ I will remind you tomorrow, Tuesday 1 December, at 09:00: feed the cat.",
        "  reminders 0.97 › set 0.93  /right or /wrong?",
        "›",
    ]
    shell.enter("thanks, that was great")
    shell.wait("  heard, nothing to do")


def test_the_decisions_of_a_request_are_corrected_in_a_few_keys(shell, home: Path) -> None:
    shell.enter("remind me to feed the cat tomorrow at 9")
    shell.wait("set 0.93  /right or /wrong?")
    shell.enter("/right")
    shell.wait("  right: reminders, set · /undo takes it back")
    shell.enter("/undo")
    shell.wait("  taken back: category reminders, skill set")
    shell.enter("/wrong")
    shell.wait("? What was wrong?  remind me to feed the cat")
    shell.until(lambda: shell.prompt_line() == "? 1-2 ›", "no answer is asked for")
    shell.enter("2")
    shell.wait("? Which skill handles this request?  not set (0.93)")
    shell.type("li")
    shell.until(lambda: "list" in [line.strip() for line in shell.shown()], "not offered")
    shell.type("\t")
    shell.until(lambda: shell.prompt_line() == "? 0-2 › list", "not completed")
    shell.type("\r")
    shell.wait("? Run it again with reminders/list?")
    shell.until(lambda: shell.prompt_line() == "? yes/no ›", "no answer is asked for")
    shell.enter("y")
    shell.wait("│ again by reminders/list")
    shell.until(lambda: shell.prompt_line() == "›", "the menu is still open")
    labels = read(home / ".sia" / "labels.jsonl").rows
    assert [(label["option"], label["weight"]) for label in labels] == [
        *(("reminders", 3.0), ("set", 3.0), ("reminders", 0.0), ("set", 0.0)),
        ("list", 3.0),
    ]


def test_a_menu_is_left_by_enter_by_ctrl_c_and_by_saying_something_else(shell, home: Path) -> None:
    shell.enter("remind me to feed the cat")
    shell.wait("/right or /wrong?")
    for number, key in enumerate(("\r", "\x03"), start=1):
        shell.enter("/wrong")
        shell.until(lambda: shell.prompt_line() == "? 1-2 ›", "no answer is asked for")
        shell.type(key)
        shell.until(lambda n=number: shell.text().count("  left as it is") == n, "not left")
        shell.until(lambda: shell.prompt_line() == "›", "still asked")
    shell.enter("/wrong")
    shell.until(lambda: shell.prompt_line() == "? 1-2 ›", "no answer is asked for")
    shell.enter("hello you")
    shell.wait("│ heard: hello you")
    assert "Ctrl-C again quits" not in shell.text()
    assert not (home / ".sia" / "labels.jsonl").exists()


def test_only_the_first_sure_decision_says_how_it_is_corrected(shell) -> None:
    shell.enter("remind me to feed the cat")
    shell.wait("reminders 0.97 › set 0.93  /right or /wrong?")
    shell.enter("remind me of that too")
    shell.until(lambda: shell.text().count("set 0.93") == 2, "no second summary")
    assert shell.text().count("/right or /wrong?") == 1


def test_thousands_of_lines_leave_the_typed_line_intact_and_lose_nothing(shell) -> None:
    shell.enter("burst 5000")
    typed = "a line typed while the output runs"
    for character in typed:
        shell.type(character)
        shell.pump(0.02)
    shell.wait("burst over", 60)
    shell.until(lambda: shell.prompt_line() == f"› {typed}", "the line is damaged")
    numbers = [int(n) for n in BURST_LINE.findall(shell.text())]
    assert numbers == list(range(5000))
    shell.type("\r")
    shell.wait(f"│ heard: {typed}")


def test_the_line_is_intact_on_a_terminal_that_does_not_tell_the_cursor(start: Start) -> None:
    shell = start(answers=False, PROMPT_TOOLKIT_NO_CPR="1")
    shell.wait("idle · queue 0")
    shell.enter("burst 300")
    shell.type("typed meanwhile")
    shell.wait("burst over", 60)
    shell.until(lambda: shell.prompt_line() == "› typed meanwhile", "the line is damaged")
    assert shell.screen.display[-1].startswith(" idle")
    numbers = [int(n) for n in BURST_LINE.findall(shell.text())]
    assert numbers == list(range(300))


def test_foreign_escape_sequences_are_shown_not_obeyed(shell) -> None:
    shell.enter("escapes")
    shell.wait("│ plain ␛[31mred␛[0m ␛]0;owned␇ �2J end")
    shell.wait("  plain ␛[31mred␛[0m ␛]0;owned␇ �2J end")
    assert b"\x1b]0;owned" not in shell.raw
    assert b"\x1b[31mred" not in shell.raw
    assert b"\xc2\x9b" not in shell.raw


def test_no_color_means_no_colour(start: Start) -> None:
    shell = start(NO_COLOR="1")
    shell.wait("idle · queue 0")
    shell.enter("fail")
    shell.wait("failed · email/compose")
    codes = re.findall(rb"\x1b\[([\d;]*)m", shell.raw)
    numbers = {int(n) for code in codes for n in code.split(b";") if n}
    assert not numbers & {*range(30, 39), *range(40, 49), *range(90, 108)}


def test_a_failure_says_what_failed_once(shell) -> None:
    shell.enter("fail")
    text = shell.wait("  failed · email/compose")
    assert text.count("connection refused") == 1


def test_a_repeated_message_is_marked(shell) -> None:
    shell.enter("repeated")
    shell.wait("│ (again) Reminder: feed the cat")


def test_an_open_question_turns_the_prompt_into_an_answer(shell) -> None:
    shell.enter("ask yes")
    shell.until(lambda: shell.prompt_line() == "? yes/no ›", "no answer is asked for")
    shell.wait("answer wanted")
    shell.type("y")
    shell.until(lambda: "yes" in [line.strip() for line in shell.shown()], "not offered")
    shell.type("\t")
    shell.until(lambda: shell.prompt_line() == "? yes/no › yes", "not completed")
    shell.type("\r")
    shell.wait("│ You said yes.")
    shell.until(lambda: shell.prompt_line() == "›", "the question is still open")


def test_what_queue_takes_is_completed(shell) -> None:
    shell.type("/queue ra")
    shell.until(lambda: "raise" in [line.strip() for line in shell.shown()], "not offered")
    shell.type("\t")
    shell.until(lambda: shell.prompt_line() == "› /queue raise", "not completed")


def test_an_open_question_is_shown_again_at_the_next_start(start: Start) -> None:
    shell = start()
    shell.wait("idle")
    shell.enter("ask anna")
    shell.wait(" 2  Anna Karenina")
    shell.enter("/quit")
    assert shell.end() == 0
    again = start()
    again.wait("? Which Anna?")
    again.wait(" 1  Anna Berg, girlfriend")
    again.wait("idle")
    assert again.text().count("? Which Anna?") == 1
    again.until(lambda: again.prompt_line() == "? 1-2 ›", "no answer is asked for")


def test_the_typed_line_survives_a_restart(start: Start) -> None:
    shell = start()
    shell.wait("idle")
    shell.enter("restart")
    shell.wait("› restart")
    shell.type("half a thought with ünïcode")
    assert shell.end() == 75
    again = start()
    again.until(
        lambda: again.prompt_line() == "› half a thought with ünïcode", "the line is not back"
    )
    again.type(" goes on\r")
    again.wait("│ heard: half a thought with ünïcode goes on")
    again.enter("/quit")
    assert again.end() == 0
    third = start()
    third.wait("idle")
    assert "half a thought" not in third.prompt_line()


def test_ctrl_c_clears_then_warns_then_quits(shell) -> None:
    shell.type("never mind")
    shell.until(lambda: shell.prompt_line() == "› never mind", "not typed")
    shell.type("\x03")
    shell.until(lambda: "never mind" not in shell.prompt_line(), "not cleared")
    shell.type("\x03")
    shell.wait("Ctrl-C again quits")
    shell.type("\x03")
    assert shell.end() == 0


def test_two_slow_ctrl_c_do_not_quit(shell) -> None:
    shell.type("\x03")
    shell.wait("Ctrl-C again quits")
    time.sleep(2.1)
    shell.type("\x03")
    shell.until(lambda: shell.text().count("Ctrl-C again quits") == 2, "no second warning")
    shell.enter("still here")
    shell.wait("heard: still here")


def test_ctrl_d_quits_on_an_empty_line_only(shell) -> None:
    shell.type("ab\x01\x04")
    shell.until(lambda: shell.prompt_line() == "› b", "Ctrl-D does not delete")
    shell.type("\x03\x04")
    assert shell.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_in_order_and_keeps_the_line(start: Start, home: Path, number: int) -> None:
    shell = start()
    shell.wait("idle")
    shell.type("unfinished")
    shell.until(lambda: shell.prompt_line() == "› unfinished", "not typed")
    shell.process.kill(number)
    assert shell.end() == 130
    store = Store(home / ".sia" / "state.db")
    assert store.meta("typed_line") == "unfinished"
    store.close()


def test_a_terminal_that_goes_away_ends_the_shell_in_order(start: Start, home: Path) -> None:
    shell = start()
    shell.wait("idle")
    shell.type("unfinished")
    shell.until(lambda: shell.prompt_line() == "› unfinished", "not typed")
    shell.process.ptyproc.fileobj.close()
    shell.process.ptyproc.closed = True
    assert shell.process.wait() == 130
    store = Store(home / ".sia" / "state.db")
    assert store.meta("typed_line") == "unfinished"
    store.close()


@pytest.mark.parametrize("last_words", ["/quit", "error", "bug", "restart"])
def test_the_terminal_is_as_before(start: Start, last_words: str) -> None:
    shell = start()
    before = termios.tcgetattr(shell.process.child_fd)
    shell.wait("idle")
    assert termios.tcgetattr(shell.process.child_fd) != before
    shell.enter(last_words)
    shell.end()
    assert termios.tcgetattr(shell.process.child_fd) == before
    assert shell.raw.rindex(b"\x1b[?2004l") > shell.raw.rindex(b"\x1b[?2004h")  # bracketed paste
    assert not shell.screen.cursor.hidden


def test_an_error_is_one_red_line_and_its_exit_code(shell) -> None:
    shell.enter("error")
    assert shell.end() == 78
    assert "sia: sia.toml: unknown key emial; did you mean email?" in shell.text()
    assert "Traceback" not in shell.text()
    assert b"\x1b[31msia: sia.toml" in shell.raw


def test_a_fault_of_the_program_is_not_hidden(shell) -> None:
    shell.enter("bug")
    assert shell.end() == 1
    assert "ZeroDivisionError: a fault of the program" in shell.text()


def test_what_a_library_prints_stands_above_the_prompt(shell) -> None:
    shell.type("print")
    shell.type("\r")
    shell.wait("  printed by a library")
    shell.until(lambda: shell.prompt_line() == "›", "the prompt is damaged")


def test_commands_and_the_nearest_one(shell) -> None:
    shell.enter("/help")
    shell.wait("/context")
    shell.enter("/stauts")
    shell.wait("there is no /stauts; /status is the nearest")
    shell.enter("/status")
    shell.wait("process")
    shell.enter("/dream")
    shell.wait("no dream yet")
    shell.enter("/dream tomorrow")
    shell.wait("/dream takes nothing, or now")
    shell.enter("/etc/hosts is not a command")
    shell.wait("│ heard: /etc/hosts is not a command")


def test_a_script_runs_only_when_the_person_says_yes(shell) -> None:
    shell.enter("script")
    shell.wait("? Run this script?")
    shell.wait("  rm -rf build")
    shell.until(lambda: shell.prompt_line() == "? yes/no ›", "no answer is asked for")
    shell.enter("no")
    shell.wait("│ allowed: False")


def test_quitting_during_a_question_about_a_script_says_no(shell) -> None:
    shell.enter("script")
    shell.wait("? Run this script?")
    shell.enter("/quit")
    assert shell.end() == 0


def test_what_goes_first_ends_a_question_about_a_script(shell) -> None:
    shell.enter("preempted")
    shell.wait("? Run this script?")
    shell.wait("the script was not run: something else goes first")
    shell.wait("│ allowed: False")
    shell.until(lambda: shell.prompt_line() == "›", "an answer is still asked for")


def test_a_script_that_repeats_is_asked_about_once(shell) -> None:
    shell.enter("repeat")
    for command in ("df /", "ls", "ls"):
        shell.wait(f"  {command}")
        shell.until(lambda: shell.prompt_line() == "? yes/no ›", "no answer is asked for")
        shell.enter("yes")
        shell.until(lambda: shell.prompt_line() != "? yes/no ›", "the answer is not taken")
    shell.wait("│ allowed: [True, True, True, True, True]")
    assert shell.text().count("? Run this script?") == 3


def test_input_that_is_not_utf8_is_taken_with_a_mark(shell, home: Path) -> None:
    shell.process.send(b"caf\xe9 time\r")
    shell.wait("│ heard: caf� time")
    assert "caf� time".encode() in (home / ".sia" / "history").read_bytes()


def test_a_pasted_text_of_several_lines_is_one_input(shell) -> None:
    shell.type("\x1b[200~first\nsecond\x1b[201~\r")
    shell.wait("│ heard: first")
    shell.wait("│ second")


def test_the_history_is_kept_for_the_person_alone(start: Start, home: Path) -> None:
    shell = start()
    shell.wait("idle")
    shell.enter("remember this line")
    shell.wait("heard: remember this line")
    shell.enter("/quit")
    shell.end()
    assert stat.S_IMODE((home / ".sia" / "history").stat().st_mode) == 0o600
    again = start()
    again.wait("idle")
    again.type("\x1b[A\x1b[A")  # before /quit
    again.until(lambda: again.prompt_line() == "› remember this line", "not in the history")


def test_a_person_plays_the_generator(start: Start) -> None:
    shell = start("--manual")
    shell.wait("idle")
    shell.enter("play")
    shell.wait("you are the generator")
    shell.wait("single_shot e2")
    shell.enter("a line without a tag is an input")
    shell.enter("<write_stdout>two")
    shell.enter("lines</write_stdout>")
    shell.wait("reply stop: '<write_stdout>two\\nlines</write_stdout>'")
    shell.wait("│ heard: a line without a tag is an input")


def test_a_reply_that_comes_too_late_stays_in_the_line(start: Start) -> None:
    shell = start("--manual")
    shell.wait("idle")
    shell.enter("play late")
    shell.wait("you are the generator")
    reply = "<write_stdout>too late</write_stdout>"
    shell.type(reply)
    shell.until(lambda: shell.prompt_line() == f"› {reply}", "not typed")
    time.sleep(1.2)
    shell.type("\r")
    shell.wait("  not taken: something else goes first")
    shell.until(lambda: shell.prompt_line() == f"› {reply}", "the reply is gone")
    shell.wait("reply cancelled: ''")


def test_a_dumb_terminal_gets_no_escape_at_all(start: Start) -> None:
    shell = start(TERM="dumb")
    shell.wait("Try:")
    shell.enter("remind me to feed the cat")
    shell.wait("│ I will remind you")
    shell.enter("escapes")
    shell.wait("␛[31mred")
    shell.enter("/quit")
    assert shell.end() == 0
    assert b"\x1b" not in shell.raw


def test_a_narrow_terminal_wraps_words(start: Start) -> None:
    shell = start(columns=40)
    shell.wait("idle")
    shell.enter("remind me to feed the cat tomorrow at 9")
    shell.wait("│ I will remind you tomorrow, Tuesday 1\n│ December, at 09:00: feed the cat.")


def test_what_is_typed_before_the_prompt_stands_is_taken(start: Start) -> None:
    shell = start()
    shell.enter("remind me to feed the cat")
    shell.wait("│ I will remind you")
    shell.wait("idle · queue 0")
    assert shell.screen.display[0].startswith(("  SIA keeps", "remind me"))  # nothing scrolled away
    assert shell.text().count("› remind me to feed the cat") == 1
