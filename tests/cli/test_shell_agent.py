"""The interactive shell over a real agent, at a terminal without cursor movement."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest


@pytest.fixture
def asking(home: Path) -> Path:
    """The person is asked about each script."""
    (home / "sia.toml").write_text('[scripts]\npolicy = "ask"\n')
    return home


def test_a_script_of_each_turn_is_asked_about_once(cli, asking: Path) -> None:
    (asking / "replies").write_text(
        "<repeat>echo ran >>runs</repeat>\n<reasoning>hm</reasoning>\n"
        "<reasoning>so</reasoning>\n<write_stdout>that was it</write_stdout>"
    )
    shell = cli.terminal()
    shell.expect_exact("Try:")
    shell.sendline("free: watch")
    shell.expect_exact("Run this script?")
    shell.sendline("yes")
    shell.expect_exact("that was it")
    assert "Run this script?" not in shell.before
    assert len((asking / "work" / "runs").read_text().splitlines()) >= 3
    shell.sendline("/quit")
    assert cli.ended(shell)[0] == 0


def test_what_goes_first_does_not_wait_for_the_answer_about_a_script(cli, asking: Path) -> None:
    (asking / "replies").write_text(
        "<single_shot>touch ran</single_shot>\n<write_stdout>that was it</write_stdout>"
    )
    shell = cli.terminal()
    shell.expect_exact("Try:")
    shell.sendline("free: once")
    shell.expect_exact("Run this script?")
    begun = time.monotonic()
    shell.sendline("now echo")
    shell.expect_exact("the script was not run")
    shell.expect_exact("did now echo")
    assert time.monotonic() - begun < 2
    shell.expect_exact("that was it")
    assert not (asking / "work" / "ran").exists()
    shell.sendline("/quit")
    assert cli.ended(shell)[0] == 0


def test_an_open_question_is_shown_once_at_the_next_start(cli) -> None:
    shell = cli.terminal()
    shell.expect_exact("Try:")
    shell.sendline("ask me")
    shell.expect_exact("? How many?")
    shell.kill(signal.SIGKILL)
    shell.wait()
    again = cli.terminal()
    again.expect_exact("? How many?")
    again.sendline("two")
    again.expect_exact("So two")
    assert "How many?" not in again.before
    again.sendline("/quit")
    code, text = cli.ended(again)
    assert code == 0 and "How many?" not in text
