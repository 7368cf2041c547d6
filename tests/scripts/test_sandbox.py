"""Attacks from inside the sandbox. Each tries one way out; the honest uses work."""

import socket
import sys
from collections.abc import Callable
from dataclasses import replace

import psutil
import pytest

from sia.scripts import Policy, ScriptState, default_policy

Run = Callable[..., ScriptState]


@pytest.fixture
def furnished(place):
    """A place with things worth stealing."""
    (place.root / ".ssh").mkdir()
    (place.root / ".ssh/id").write_text("treasure")
    (place.root / ".netrc").write_text("treasure")
    (place.root / ".sia/state.db").write_text("treasure")
    (place.root / "letter.txt").write_text("dear diary")
    (place.work / "way").symlink_to("../.sia")
    return place


def test_it_is_the_default_here(sandbox: Policy) -> None:
    assert default_policy(False) == sandbox


def test_honest_work_goes_on(furnished, run: Run, sandbox: Policy) -> None:
    state = run(
        "pwd; echo made > made; echo note > ../tasks/note; cat ../letter.txt; echo t > /tmp/t;"
        "mktemp >/dev/null && seq 3 | sort -r | head -1; exit 3",
        sandbox,
    )
    assert state.stderr.text == ""
    assert state.stdout.text == f"{furnished.work}\ndear diary3\n"
    assert state.exit_code == 3
    assert (furnished.work / "made").read_text() == "made\n"
    assert (furnished.tasks / "note").read_text() == "note\n"


@pytest.mark.parametrize(
    "command",
    [
        "cat ../.sia/state.db",
        "cat way/state.db",
        "cat ../.ssh/id",
        "cat ../.netrc",
        "cat /proc/*/root{root}/.ssh/id",
        "cat /proc/*/cwd/../.sia/state.db",
        "umount {root}/.sia; cat ../.sia/state.db",
        "unshare -Urm sh -c 'umount {root}/.ssh; umount -l {root}/.ssh; cat {root}/.ssh/id'",
        "mkdir b; unshare -Urm sh -c 'mount --bind {root} b; cat b/.ssh/id'",
        "grep -rs treasure {root}",
    ],
)
def test_nothing_hidden_is_read(command: str, furnished, run: Run, sandbox: Policy) -> None:
    state = run(command.replace("{root}", str(furnished.root)), sandbox)
    assert "treasure" not in state.stdout.text
    assert state.exit_code != 0


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../letter.txt",
        "rm ../letter.txt",
        "echo x > {root}/new",
        "mount -o remount,rw / && echo x > ../letter.txt",
        "unshare -Urm sh -c 'mount -o remount,rw,bind /; echo x > {root}/letter.txt'",
        "ln ../letter.txt mine && echo x > mine",
        "exec 3<>/proc/sys/kernel/hostname",
        "unshare -Urmpf --mount-proc sh -c 'exec 3<>/proc/sys/kernel/hostname'",
        "test -e /dev/mem || test -e /dev/sda || test -e /dev/vda",
    ],
)
def test_nothing_outside_is_written(command: str, furnished, run: Run, sandbox: Policy) -> None:
    state = run(command.replace("{root}", str(furnished.root)), sandbox)
    assert state.exit_code != 0
    assert (furnished.root / "letter.txt").read_text() == "dear diary"
    assert not (furnished.root / "new").exists()


def test_a_path_may_be_hidden_or_read_only_besides(furnished, run: Run, sandbox: Policy) -> None:
    (furnished.work / "fixed").mkdir()
    policy = replace(
        sandbox,
        hidden=(furnished.root / "letter.txt",),
        read_only=(furnished.work / "fixed", furnished.work / "missing"),
    )
    state = run("cat ../letter.txt; echo x > fixed/x || echo no", policy)
    assert state.stdout.text == "no\n"


def test_other_processes_are_out_of_sight(furnished, run: Run, sandbox: Policy) -> None:
    with psutil.Popen(["sleep", "60"]) as other:
        state = run(f"kill {other.pid} || echo no; ls -d /proc/[0-9]* | wc -l", sandbox)
        assert other.is_running()
        other.kill()
    assert state.stdout.text.startswith("no\n")
    assert int(state.stdout.text.split()[1]) < 10


def test_the_network_is_reached_only_when_named(furnished, run: Run, sandbox: Policy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        knock = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        assert run(knock, sandbox).exit_code != 0
        assert run(knock, replace(sandbox, network=True)).exit_code == 0


def test_a_socket_of_the_agent_is_out_of_reach(furnished, run: Run, sandbox: Policy) -> None:
    path = furnished.root / ".sia/socket"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
    command = f'{sys.executable} -c "{connect}"'
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert run(command).exit_code == 0
        assert run(command, sandbox).exit_code != 0


@pytest.mark.parametrize("command", ["sleep 60 & echo started", "setsid sleep 60 & echo started"])
def test_a_sandboxed_grandchild(command: str, furnished, run: Run, sandbox: Policy) -> None:
    state = run(command, sandbox, within=1)
    assert (state.status, state.stdout.text) == ("done", "started\n")
    assert "bwrap" in [psutil.Process(pid).name() for pid in state.escaped]
    assert furnished.opened[0].end("e1").escaped == ()
    assert not any(map(psutil.pid_exists, state.escaped))
