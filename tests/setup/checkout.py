"""A checkout to run restart.sh in: real shell, real Python, a stand-in for the program `sia`."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pexpect

PREAMBLE = """
import os, signal, sys, time
from pathlib import Path

start = int(os.environ["SIA_RESTART"])
trail = Path({trail!r})
with trail.open("a") as file:
    file.write(f"{{time.monotonic()}}\\n")

def turn(line="turn"):
    path = Path(os.environ["SIA_TURN_FILE"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(line + "\\n")

"""


def nothing_left(group: int) -> bool:
    """Whether the process group is empty within two seconds; what is dead but unreaped is not."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        states = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # ended meanwhile
                state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
                states += [state] if int(of_group) == group else []
        if not set(states) - {"Z"}:
            return True
        time.sleep(0.05)
    return False


def end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # nothing is left, as it should be
        os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True)
class Checkout:
    """A checkout that is set up, in a folder with a space in its name."""

    folder: Path
    packages: Path

    def program(self, source: str) -> None:
        """Makes `source` the program; it may use `start` (1, 2, ...) and `turn()`."""
        (self.packages / "sia").mkdir(exist_ok=True)
        head = PREAMBLE.format(trail=str(self.folder / "trail"))
        (self.packages / "sia/__main__.py").write_text(head + source)

    def starts(self) -> list[float]:
        """When the program was started, in seconds."""
        return [float(line) for line in (self.folder / "trail").read_text().split()]

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "SIA_BACKOFF_UNIT": "0.02", **more}

    def run(
        self, *arguments: str, stdin: str = "", cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs restart.sh to its end, after which nothing that it started may be left."""
        command = [self.folder / "restart.sh", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=cwd,
            env=self.environment(**more), start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(stdin, timeout=20)
                assert nothing_left(process.pid)
            finally:
                end_group(process.pid)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def at_a_terminal(self) -> pexpect.spawn:
        script = str(self.folder / "restart.sh")
        return pexpect.spawn("sh", [script], timeout=10, env=self.environment())

    def stamp(self) -> None:
        """Writes what a completed set-up leaves, so that none is started."""
        with (self.folder / "pyproject.toml").open() as file:
            sums = subprocess.run(["cksum"], stdin=file, capture_output=True, check=True, text=True)
        python = (self.folder / ".venv/bin/python").resolve()
        (self.folder / ".venv/sia-stamp").write_text(
            f"{sums.stdout.strip()} {python} {self.folder}\n"
        )


class Running:
    """``restart.sh run --listen`` of a checkout with SIA's own code."""

    def __init__(self, checkout: Checkout, **more: str) -> None:
        self.checkout, self.errors = checkout, checkout.folder / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [checkout.folder / "restart.sh", "run", "--listen"], stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, env=checkout.environment(**more),
                start_new_session=True,
            )  # fmt: skip

    def said(self, text: str) -> int:
        """How often a text stands in the log."""
        log = self.checkout.folder / ".sia/log/sia.log"
        return log.read_text("utf-8", "replace").count(text) if log.exists() else 0

    def until(self, true: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not true():
            ended = self.process.poll() is not None
            assert not ended and time.monotonic() < end, self.errors.read_text()
            time.sleep(0.05)

    def stop(self) -> int:
        """Asked to end; the exit code."""
        self.process.terminate()
        return self.process.wait(20)

    def end(self) -> None:
        end_group(self.process.pid)
        self.process.wait(20)
