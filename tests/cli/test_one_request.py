"""One request as an argument: questions at the terminal, restarts, answers of a later session."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sia.cli.guard import restarted
from sia.store import Store


def runs(home: Path) -> dict[str, str]:
    store = Store(home / ".sia" / "state.db")
    try:
        statuses = ("waiting", "running", "asking", "done", "failed", "cancelled")
        return {run.id: run.status for run in store.runs(*statuses)}
    finally:
        store.close()


def meta(home: Path, key: str) -> str:
    if not (home / ".sia" / "state.db").exists():
        return ""
    store = Store(home / ".sia" / "state.db")
    try:
        return store.meta(key)
    finally:
        store.close()


def test_a_question_is_asked_until_it_is_answered(cli) -> None:
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    os.write(terminal.child_fd, b"tw\xff\n")
    terminal.expect_exact("a line is not UTF-8 at byte 2 and was not taken: tw�")
    terminal.sendline("thanks, what?")
    terminal.expect_exact("heard, nothing to do: thanks, what?")
    terminal.expect_exact("How many? (one/two)")
    terminal.sendline("two")
    terminal.expect_exact("So two")
    code, text = cli.ended(terminal)
    assert (code, text.strip()) == (0, "")


def test_ctrl_d_gives_the_question_up(cli) -> None:
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    terminal.sendeof()
    code, text = cli.ended(terminal)
    assert code == 1 and "nobody is there to answer: How many?" in text


def test_a_later_session_answers_and_hears_what_comes_of_it(cli, home: Path) -> None:
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    terminal.kill(signal.SIGKILL)
    terminal.wait()
    result = cli.run("two")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "So two"
    assert runs(home) == {"r1": "done"}


def test_a_request_goes_on_over_a_restart_without_restart_sh(cli, home: Path) -> None:
    (home / "replies").write_text("<stop/>\n<write_stdout>back</write_stdout>")
    result = cli.run("free: reload")
    assert (result.returncode, result.stdout) == (0, "back\n"), result.stderr
    assert runs(home) == {"r1": "done"}


@pytest.mark.parametrize(("number", "wanted"), [("1", ["r1", "r2"]), ("2", ["r1"])])
def test_only_a_restart_takes_a_request_for_the_one_before(
    cli, home: Path, number: str, wanted: list[str]
) -> None:
    terminal = cli.terminal("ask", "me")
    terminal.expect_exact("How many? (one/two)")
    terminal.kill(signal.SIGKILL)
    terminal.wait()
    cli.run("ask", "me", SIA_RESTART=number)
    assert sorted(runs(home)) == wanted


def test_half_a_line_is_for_a_restart_alone(cli, home: Path) -> None:
    for number, wanted in (("2", "did echo one\n"), ("1", "did echo\n")):
        agent = cli.begin("run")
        agent.stdin.write(b"echo o" if number == "2" else b"remind")
        agent.stdin.flush()
        cli.until(lambda: meta(home, "partial_input"))
        agent.kill()
        agent.wait()
        rest = b"ne\n" if number == "2" else b"echo\n"
        assert cli.run("run", input=rest, SIA_RESTART=number).stdout == wanted


def test_a_child_is_no_restart() -> None:
    environment = {"SIA_AGAIN": "1"}
    assert restarted(environment) and environment == {}
    assert not restarted(environment)
    assert restarted({"SIA_RESTART": "3"}) and not restarted({"SIA_RESTART": "1"})


def test_sigterm_keeps_the_session_and_its_background_script(cli, home: Path) -> None:
    (home / "replies").write_text(
        "<background>echo $$ >pid; sleep 60</background>\n<write_stdout>begun</write_stdout>"
    )
    agent = cli.agent()
    assert cli.run("free: begin").stdout == "begun\n"
    cli.until((home / "work" / "pid").exists)
    pid = int((home / "work" / "pid").read_text())
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 130
    os.kill(pid, 0)
    session = meta(home, "session")
    # The next one takes it up, and ends it when it ends as it should.
    result = cli.run("echo", "again")
    assert (result.returncode, result.stdout) == (0, "did echo again\n"), result.stderr
    assert meta(home, "session") == session
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
