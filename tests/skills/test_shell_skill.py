"""shell/run: the person's own words, shown and confirmed, run once by the scripts' own runner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sia import commands
from sia.scripts.policy import sandbox_problem
from sia.skills.api import Folders
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Start = Callable[..., FakeCtx]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "here").mkdir()
    return {"policy": "allow", "seconds": 30.0, "folder": str(tmp_path / "here")}


@pytest.mark.parametrize(
    ("request_", "command", "marked"),
    [
        ("run `ls -l | wc -l`", "ls -l | wc -l", True),
        ("$ echo hi", "echo hi", True),
        ("run: echo 'a: b'", "echo 'a: b'", True),
        ("please execute this command: git status", "git status", True),
        ('run "df -h"', "df -h", True),
        ("run\n```sh\necho 1\necho 2\n```", "echo 1\necho 2", True),
        ("could you please run git log -3 in the terminal", "git log -3", False),
        ("run the command uname -a please", "uname -a", False),
        ("execute make test", "make test", False),
        ("is the terminal open", "", False),
    ],
)
def test_what_the_command_is(skills: Path, request_: str, command: str, marked: bool) -> None:
    from sia.skills.calls import load_module
    from sia.skills.manifest import parse_skill

    folder = skills / "shell/run"
    assert load_module(folder, parse_skill(folder).code)._read(request_) == (command, marked)


def test_it_is_shown_confirmed_and_run(
    make: Start, skills: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    ctx = make("run `pwd; echo oops >&2`", settings=settings, answers=["yes"])
    assert run_actions(skills / "shell/run", ctx).value is True
    assert ctx.said == [
        f"$ pwd; echo oops >&2\n(in {tmp_path}/here)",
        f"{tmp_path}/here\noops",
    ]
    assert ctx.asked == ["Run it?"]


def test_nothing_is_run_without_a_yes(
    make: Start, skills: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    ctx = make("run `touch gone`", settings=settings, answers=["no"])
    assert run_actions(skills / "shell/run", ctx).kind == "finished"
    assert ctx.said[-1] == "All right, nothing is run."
    assert not list((tmp_path / "here").iterdir())


def test_yes_in_advance_confirms_only_what_was_marked(
    make: Start, skills: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    run_actions(skills / "shell/run", make("run `touch a`", settings=settings, yes=True))
    assert (tmp_path / "here/a").exists()
    ctx = make("run touch b for me", settings=settings, yes=True, answers=["no"])
    assert run_actions(skills / "shell/run", ctx).kind == "finished"
    assert ctx.asked == ["Run it?"] and not (tmp_path / "here/b").exists()


def test_output_is_cut_to_head_and_tail_and_exit_codes_are_told(
    make: Start, skills: Path, settings: dict[str, Any]
) -> None:
    ctx = make("run `seq 1 20000; exit 3`", settings=settings, answers=["yes"])
    assert run_actions(skills / "shell/run", ctx).value is None
    text = ctx.said[1]
    assert text.startswith("1\n2\n") and "bytes left out; all of it is in shell/" in text
    assert text.endswith("20000\nIt ended with exit code 3.") and len(text) < 3_500
    ctx = make("run `true`", settings=settings, answers=["yes"])
    run_actions(skills / "shell/run", ctx)
    assert ctx.said[1] == "Done; it said nothing."


def test_a_limit_ends_it(make: Start, skills: Path, settings: dict[str, Any]) -> None:
    ctx = make("run `sleep 60`", settings={**settings, "seconds": 0.3}, answers=["yes"])
    assert run_actions(skills / "shell/run", ctx).kind == "done"
    assert "0.3" in ctx.said[1]


def test_cut_off_it_is_run_once_and_its_output_found_again(
    make: Start, skills: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    ctx, outcome = run_interrupted(
        skills / "shell/run",
        lambda: make("run `echo x | tee -a log`", settings=settings, answers=["yes"]),
        lose=["run echo x | tee -a log"],
    )
    assert outcome.value is True
    assert (tmp_path / "here/log").read_text() == "x\n"
    assert ctx.said[1] == "x" and ctx.asked == ["Run it?"]


def test_policies(
    make: Start, skills: Path, settings: dict[str, Any], folders: Folders, tmp_path: Path
) -> None:
    ctx = make("run `id`", settings={**settings, "policy": "deny"})
    outcome = run_actions(skills / "shell/run", ctx)
    assert outcome.message == "Commands are not run here: policy is deny under [shell]."
    if sandbox_problem():
        pytest.skip(sandbox_problem())
    (folders.home / "work").mkdir()
    command = f"run `touch {tmp_path}/here/no; touch yes; ls`"
    ctx = make(command, settings={**settings, "policy": "sandbox"}, answers=["yes"])
    run_actions(skills / "shell/run", ctx)
    assert "cannot touch" in ctx.said[1] and "yes" in ctx.said[1]
    assert not list((tmp_path / "here").iterdir())


def test_a_cancelled_run_ends_its_command(
    make: Start, skills: Path, settings: dict[str, Any], folders: Folders, tmp_path: Path
) -> None:
    ctx = make("run `echo x > begun; sleep 60`", settings=settings, answers=["yes"])
    thread = threading.Thread(target=run_actions, args=(skills / "shell/run", ctx))
    thread.start()
    while not (tmp_path / "here/begun").exists():
        time.sleep(0.01)
    commands.end(folders.home, "r2")  # another's
    assert thread.is_alive()
    commands.end(folders.home, ctx.run)
    thread.join(20)
    assert not thread.is_alive() and "cancelled" in ctx.said[1]


@pytest.mark.parametrize("command", ["a\0b", "x" * 140_000])
def test_what_cannot_be_a_command(
    make: Start, skills: Path, settings: dict[str, Any], command: str
) -> None:
    ctx = make(f"run: {command}", settings=settings, answers=["yes"])
    outcome = run_actions(skills / "shell/run", ctx)
    assert outcome.kind == "failed" and outcome.message.startswith("Not run: the command h")


def test_a_folder_that_is_not_there(make: Start, skills: Path, settings: dict[str, Any]) -> None:
    ctx = make("run `ls`", settings={**settings, "folder": "/no/such"})
    outcome = run_actions(skills / "shell/run", ctx)
    assert outcome.message == "There is no folder /no/such to run commands in."
