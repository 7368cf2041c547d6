"""Scripts as people write them: grandchildren, odd bytes, floods of output, questions."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sia.scripts import Cancel, Output, ScriptState

Run = Callable[..., ScriptState]


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo started",
        "setsid sleep 60 & echo started",
        "(sleep 60 >/dev/null &) ; echo started",
        "(setsid sleep 60 2>/dev/null &) ; echo started",
        "nohup setsid sleep 60 >/dev/null 2>&1 & echo started",
    ],
)
def test_a_grandchild_does_not_hold_the_turn(command: str, place, run: Run) -> None:
    state = run(command, within=1)
    assert (state.status, state.exit_code, state.stdout.text) == ("done", 0, "started\n")
    (escaped,) = state.escaped
    deadline = time.monotonic() + 5
    while psutil.Process(escaped).cmdline() != ["sleep", "60"]:  # it was a setsid a moment ago
        assert time.monotonic() < deadline
    ended = place.opened[0].end("e1")
    assert (ended.status, ended.exit_code, ended.escaped) == ("done", 0, ())
    assert not psutil.pid_exists(escaped)


def test_what_a_grandchild_writes_later_is_kept(place, run: Run) -> None:
    state = run("(until [ -e gate ]; do sleep 0.05; done; echo late) & echo started")
    assert state.stdout.text == "started\n"
    (place.work / "gate").touch()
    psutil.wait_procs([psutil.Process(pid) for pid in state.escaped], timeout=5)
    deadline = time.monotonic() + 5
    while place.opened[0].state("e1").stdout.text != "started\nlate\n":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_grandchild_that_never_stops_writing_does_not_hold_the_turn(run: Run) -> None:
    state = run("yes & echo started >&2", within=1)
    assert (state.status, state.stderr.text) == ("done", "started\n")


@pytest.mark.parametrize(
    ("command", "data", "text"),
    [
        (r"printf '\xf0'", b"\xf0", "\ufffd"),
        (r"printf '\033[31mred\033[0m\000\013'", b"\x1b[31mred\x1b[0m\0\x0b", None),
        (r"printf '\xed\xa0\x80|\xef\xbf\xbe'", b"\xed\xa0\x80|\xef\xbf\xbe", None),
        (r"touch $'na\xffme' && ls", b"na\xffme\n", "na\ufffdme\n"),
        ("head -c 300 /bin/ls", Path("/bin/ls").read_bytes()[:300], None),
    ],
)
def test_bytes_that_cannot_be_shown_are_kept_exactly(
    command: str, data: bytes, text: str | None, place, run: Run
) -> None:
    output = run(command).stdout
    assert output.lossy and "\ufffd" in output.text and output.bytes == len(data)
    assert output.file == "scripts/e1/stdout"
    assert (place.root / ".sia" / output.file).read_bytes() == data
    assert text is None or output.text == text


def test_a_tarball_on_stdout_is_the_tarball(place, run: Run) -> None:
    output = run("echo hello > a && tar cz a").stdout
    assert output.lossy
    archive = place.root / ".sia" / output.file
    assert subprocess.check_output(["tar", "xzO", "-f", archive]) == b"hello\n"


def test_a_hundred_thousand_lines(place, run: Run) -> None:
    state = run("seq 100000")
    text, whole = state.stdout.text, "".join(f"{i}\n" for i in range(1, 100_001)).encode()
    assert (place.root / ".sia/scripts/e1/stdout").read_bytes() == whole
    assert len(text.encode()) < 16_384 + 100
    assert text.startswith("1\n2\n3\n") and text.endswith("\n99999\n100000\n")
    assert "bytes left out; all of it is in scripts/e1/stdout ...]\n" in text


def test_one_line_of_fifty_megabytes(run: Run) -> None:
    output = run("head -c 50000000 /dev/zero | tr '\\0' x").stdout
    assert output.bytes == 50_000_000 and len(output.text) < 16_384 + 100


def test_two_hundred_megabytes_in_the_background(place) -> None:
    scripts = place.scripts()
    me = psutil.Process()
    before = me.memory_info().rss
    scripts.start("e7", "background", "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end")
    # Another test's child may have ended and not be waited for yet.
    alive = [p for p in me.children() if p.status() != psutil.STATUS_ZOMBIE]
    (runner,) = (p for p in alive if "runner.py" in " ".join(p.cmdline()))
    most = 0
    while scripts.running():
        assert scripts.state("e7").stdout.lossy or scripts.state("e7").stdout.bytes <= 16_384
        most = max(most, runner.memory_info().rss)
        scripts.wait(["e7"], _soon(0.1))
    output = scripts.state("e7").stdout
    assert output.bytes == (place.folder / "e7/stdout").stat().st_size == 200_000_005
    assert output.text.endswith("xxx\nend\n") and len(output.text) < 16_384 + 100
    assert me.memory_info().rss - before < 20_000_000
    assert most < 40_000_000


def _soon(seconds: float) -> Cancel:
    cancel = Cancel()
    threading.Timer(seconds, cancel.set).start()
    return cancel


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        ("read x; echo $?", 0, "1\n", ""),
        ("cat", 0, "", ""),
        (f"{sys.executable} -c 'input()'", 1, "", "EOFError: EOF when reading a line\n"),
        ("sh -c ': </dev/tty'", 2, "", "No such device or address\n"),
        ("tty", 1, "not a tty\n", ""),
    ],
)
def test_a_script_that_asks_gets_end_of_file(
    command: str, code: int, stdout: str, stderr: str, run: Run
) -> None:
    state = run(command, within=1)
    assert (state.exit_code, state.stdout.text) == (code, stdout)
    assert state.stderr.text.endswith(stderr) and bool(state.stderr.text) == bool(stderr)


ON_A_TERMINAL = """
import os, sys
from pathlib import Path
from sia.scripts import *
root = Path(sys.argv[1])
os.close(os.open("/dev/tty", os.O_RDWR))  # the agent itself has a terminal
scripts = Scripts(root / ".sia/scripts", limits=ScriptLimits(), policy=Policy("allow"),
    work=root, tasks=root, environment=os.environ, on_change=print)
scripts.start("e1", "single_shot", "(: </dev/tty) 2>/dev/null && echo terminal || echo none")
scripts.wait(["e1"], Cancel())
(root / "seen").write_text(scripts.state("e1").stdout.text)
"""


def test_the_agents_terminal_is_not_the_scripts(tmp_path: Path) -> None:
    spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
    command = [sys.executable, "-c", spawn, sys.executable, "-c", ON_A_TERMINAL, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(
        command, check=True, timeout=20, stdin=subprocess.DEVNULL, capture_output=True,
        env=environment,
    )  # fmt: skip
    assert (tmp_path / "seen").read_text() == "none\n"


def test_writing_to_dev_stdout_and_dev_stderr_loses_nothing(run: Run) -> None:
    state = run("echo a; echo b >/dev/stdout; echo c; echo x >&2; echo y >/dev/stderr")
    assert (state.stdout, state.stderr) == (Output("a\nb\nc\n", bytes=6), Output("x\ny\n", bytes=4))
