"""Speaking to the agent that runs in the home already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("option", [["--yes"], ["--model", "x.gguf"], ["--llm", "manual"]])
def test_what_the_running_agent_cannot_take_is_refused(cli, option: list[str]) -> None:
    cli.agent()
    result = cli.run("run", *option, "echo", "me")
    assert result.returncode == 2
    assert f"takes no {option[0]} from here; stop it first" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_question_that_nobody_answers_stays_open_for_the_next_one(cli) -> None:
    cli.agent()
    result = cli.run("ask", "me")
    assert (result.returncode, result.stdout) == (1, "How many? (one/two)\n")
    assert result.stderr == (
        "sia: the question stays open; answer it with: sia one, or with sia attach\n"
    )
    result = cli.run("two")
    assert (result.returncode, result.stdout) == (0, "So two\n"), result.stderr


def test_a_mistyped_answer_is_asked_for_again(cli) -> None:
    cli.agent()
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    os.write(terminal.child_fd, b"tw\xff\n")
    terminal.expect_exact("a line is not UTF-8 at byte 2 and was not taken: tw�")
    terminal.sendline("thanks, what?")
    terminal.expect_exact("How many? (one/two)")
    terminal.sendline("2")
    terminal.expect_exact("So two")
    assert cli.ended(terminal)[0] == 0


def test_ctrl_d_leaves_the_question_open(cli) -> None:
    cli.agent()
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    terminal.sendeof()
    code, text = cli.ended(terminal)
    assert code == 1
    assert text.strip() == (
        "sia: the question stays open; answer it with: sia one, or with sia attach"
    )


def test_what_is_refused_says_why(cli) -> None:
    cli.agent()
    result = cli.run("x" * 100_001)
    assert result.returncode == 1
    assert result.stderr.startswith("sia: input refused (xxx")
    assert "100,001 characters are more than 100,000" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_agent_that_ends_keeps_the_request(cli) -> None:
    agent = cli.agent()
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    agent.kill()
    code, text = cli.ended(terminal)
    assert code == 69
    assert text.strip() == (
        "sia: the agent ended; the request is kept and is worked at its next start"
    )


def test_attached_all_is_heard_until_the_agent_ends(cli) -> None:
    agent = cli.agent()
    attached = cli.begin("attach")
    attached.stdin.write(b"echo me\n")
    attached.stdin.flush()
    assert attached.stdout.readline() == b"did echo me\n"
    agent.kill()
    assert attached.wait(20) == 69
    assert attached.stderr.read().splitlines()[-1] == b"sia: the agent has ended"


def test_attached_nothing_sent_is_lost_and_bad_bytes_are_refused(cli) -> None:
    cli.agent()
    result = cli.run("attach", input=b"echo \xff\necho one\necho two")
    assert result.returncode == 1
    assert "a line is not UTF-8 at byte 5 and was not taken" in result.stderr
    heard = cli.run("echo", "three")
    assert heard.stdout == "did echo three\n"
    log = (cli.home / ".sia" / "log" / "sia.log").read_text()
    assert "did echo one" in log and "did echo two" in log


def test_attached_with_nobody_to_read_it_ends(cli) -> None:
    cli.agent()
    attached = cli.begin("attach")
    attached.stdin.write(b"echo me\n")
    attached.stdin.flush()
    attached.stdout.readline()
    attached.stdout.close()
    attached.stdin.write(b"echo you\n")
    attached.stdin.flush()
    assert attached.wait(20) == 0
    assert b"Traceback" not in attached.stderr.read()


def test_nobody_runs(cli, home: Path) -> None:
    result = cli.run("attach")
    assert result.returncode == 69 and "does not answer" in result.stderr


def test_more_input_is_a_question_too(cli, home: Path) -> None:
    (home / "replies").write_text("<read_stdin/>\n<read_stdin/>\n<write_stdout>ok</write_stdout>")
    cli.agent()
    result = cli.run("free: read")
    assert (result.returncode, result.stdout) == (1, "More input is wanted for: free: read\n")
    assert 'answer it with: sia "your answer", or with sia attach' in result.stderr
    result = cli.run("here it is, thanks")
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr
