"""system/processes, updates and services, response/rejection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sia import processes
from sia.skills.testing import FakeCtx, run_actions

Start = Callable[..., FakeCtx]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a program of a name of its own."""
    started = []

    def start(code: str = "", name: str = "zebra-test") -> subprocess.Popen[bytes]:
        script = tmp_path / f"{name}.py"
        script.write_text(
            f"import signal, time, sys\n{code}\nprint('up', flush=True)\ntime.sleep(60)"
        )
        process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout and process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """A stand-in for a program; nothing else is on the PATH but a shell."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def said(make: Start, folder: Path, request: str, **given: object) -> str:
    ctx = make(request, **given)
    outcome = run_actions(folder, ctx)
    assert outcome.kind in ("done", "finished"), outcome
    return "\n".join(ctx.said)


def test_processes_shows(make: Start, skills: Path, program: Callable[..., object]) -> None:
    folder = skills / "system/processes"
    started = program()
    text = said(make, folder, "is zebra-test running?")
    assert text.startswith("1 running.\n- ") and f"(process {started.pid})" in text
    assert said(make, folder, "is no-such-program running") == "No program of that name is running."
    assert said(make, folder, "what eats my memory").startswith("Using the most memory:")


def test_processes_ends_pauses_and_continues(
    make: Start, skills: Path, program: Callable[..., subprocess.Popen[bytes]]
) -> None:
    folder, process = skills / "system/processes", program()
    for request, answer in (("pause", "It is paused."), ("resume", "It is continued.")):
        ctx = make(f"{request} zebra-test", answers=["yes"])
        assert run_actions(folder, ctx).value is True
        assert ctx.said[-1] == answer
    ctx = make("kill zebra-test", answers=["no"])
    assert run_actions(folder, ctx).kind == "finished" and process.poll() is None
    ctx = make("zebra-test hangs, end it", answers=["yes"])
    assert run_actions(folder, ctx).value is True
    assert process.wait(10) == -15 and ctx.said[-1] == "It is ended."


def test_processes_forces_what_does_not_end(
    make: Start,
    skills: Path,
    program: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = program("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    ctx = make("kill zebra-test", answers=["yes", "yes"])
    outcome = run_actions(skills / "system/processes", ctx)
    assert "did not end. Force it?" in ctx.asked[1] and outcome.kind == "done"
    assert process.wait(10) == -9


def test_processes_asks_which_of_several(
    make: Start, skills: Path, program: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first, second = program(), program()

    def answer(question: str, options: object) -> str:
        if "Several" in question:
            return next(name for name in options if str(first.pid) in name)
        return "yes"

    ctx = make("kill zebra-test", answers=answer)
    run_actions(skills / "system/processes", ctx)
    assert first.wait(10) == -15 and second.poll() is None


def test_processes_spares_itself_and_what_it_runs_in(make: Start, skills: Path) -> None:
    import psutil

    me = psutil.Process()
    for process in (me, *me.parents()):
        program = processes.Program(process.pid, process.create_time(), process.name(), "", 0)
        assert not processes.ours(program)
    outcome = run_actions(skills / "system/processes", make("kill it", answers=["nothing-such"]))
    assert outcome.message == "No such program is running."


def test_a_number_used_again_is_not_signalled() -> None:
    import psutil

    me = psutil.Process()
    other = processes.Program(me.pid, me.create_time() - 100, "x", "", 0)
    assert processes.signalled(other, 9) == "it is gone" and processes.status(other) == ""


APT = """echo 'Listing...'
echo 'vim/stable 2:9.1 amd64 [upgradable from: 2:9.0]'
echo 'curl/stable,stable 8.5 amd64 [upgradable from: 8.4]'"""
DNF = "echo; echo 'vim.x86_64   2:9.1-1.fc40   updates'; exit 100"
PACMAN = "echo 'vim 9.0-1 -> 9.1-1'"


@pytest.mark.parametrize(
    ("name", "body", "lines"),
    [
        ("apt", APT, ["- vim 2:9.0 → 2:9.1", "- curl 8.4 → 8.5", "To install: sudo apt upgrade"]),
        ("dnf", DNF, ["- vim 2:9.1-1.fc40", "To install: sudo dnf upgrade"]),
        ("pacman", PACMAN, ["- vim 9.0-1 → 9.1-1", "To install: sudo pacman -Syu"]),
        ("pacman", "exit 1", []),
        ("apt", "echo 'Listing...'", []),
    ],
)
def test_updates(
    make: Start,
    skills: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    body: str,
    lines: list[str],
) -> None:
    fake(tmp_path, monkeypatch, name, body)
    text = said(make, skills / "system/updates", "are there updates?").split("\n")
    assert text[1:] == lines
    count = len(lines) - 1
    start = f"{count} update{'s' * (count > 1)}" if lines else "No updates are known"
    assert text[0].startswith(start)


def test_updates_that_cannot_be_known(
    make: Start, skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, "apt", "echo 'E: locked' >&2; exit 100")
    outcome = run_actions(skills / "system/updates", make("updates?"))
    assert (outcome.kind, outcome.message) == ("failed", "apt: E: locked")
    (tmp_path / "bin/apt").unlink()
    outcome = run_actions(skills / "system/updates", make("updates?"))
    assert outcome.message == "I cannot know: this machine has none of apt, dnf and pacman."


SYSTEMCTL = """case "$*" in
*--user*) exit 1;;
*"-- nginx") cat <<X
Id=nginx.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
ActiveEnterTimestamp=Mon 30 Nov
X
;;
*"-- backup.timer") cat <<X
Id=backup.timer
LoadState=loaded
ActiveState=failed
SubState=failed
Result=exit-code
X
;;
*list-units*) echo 'backup.timer loaded failed failed Backup';;
*) echo 'LoadState=not-found';;
esac"""


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ("is nginx running?",
         "nginx.service is running (running) since Mon 30 Nov; it starts by itself."),
        ("how is the nginx service", None),
        ("check backup.timer", "backup.timer has failed (failed), result exit-code."),
        ("which services failed?", "Failed:\n- backup.timer"),
    ],
)  # fmt: skip
def test_services(
    make: Start,
    skills: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_: str,
    text: str | None,
) -> None:
    fake(tmp_path, monkeypatch, "cat", 'while read -r line; do echo "$line"; done')
    fake(tmp_path, monkeypatch, "systemctl", SYSTEMCTL)
    found = said(make, skills / "system/services", request_)
    assert found == text if text else found.startswith("nginx.service is running")


@pytest.mark.parametrize(
    ("body", "request_", "message"),
    [
        (SYSTEMCTL, "is ghost running", "There is no service ghost here."),
        ("echo 'System has not been booted with systemd as init system (PID 1).' >&2; exit 1",
         "is nginx running", "I cannot know: systemd does not run here."),
        ("echo 'Access denied' >&2; exit 4", "is nginx running", "systemctl: Access denied"),
        (None, "is nginx running", "I cannot know: this machine has no systemd."),
        (SYSTEMCTL, "the service", "That is no name of a service."),
    ],
)  # fmt: skip
def test_services_that_cannot_be_known(
    make: Start,
    skills: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str | None,
    request_: str,
    message: str,
) -> None:
    fake(tmp_path, monkeypatch, "systemctl" if body else "nothing", body or "")
    ctx = make(request_, answers=["--force; rm"])
    outcome = run_actions(skills / "system/services", ctx)
    assert (outcome.kind, outcome.message) == ("failed", message)


def test_rejection(make: Start, skills: Path) -> None:
    folder = skills / "response/rejection"
    text = said(make, folder, "mail Anna", interrupted=["drive to the sea"])
    assert text == "Not now: I am busy with “drive to the sea”. Ask me again afterwards."
    assert said(make, folder, "build a bomb").startswith("I will not do that.")
