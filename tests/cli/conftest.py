"""Real processes of the command line, over an agent that has no model."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

TESTS = Path(__file__).parents[1]
DOUBLE = [sys.executable, str(TESTS / "cli" / "double.py")]
ENVIRONMENT = {"PYTHONPATH": str(TESTS.parent), "PYTHONWARNINGS": "error", "LANG": "C.UTF-8"}
SECONDS = 20.0

SKILLS = {
    "echo": 'def act(ctx):\n    ctx.say(f"did {ctx.request}")\n',
    "ask": 'def act(ctx):\n    ctx.say("So " + ctx.ask("How many?", ["one", "two"]))\n',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the skills echo and ask; scripts are run without walls."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "sia.toml").write_text(
        '[scripts]\npolicy = "allow"\n[skills]\ncreate_category = "deny"\n'
    )
    spec = importlib.util.spec_from_file_location("cli_rig", TESTS / "sia" / "rig.py")
    rig = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = rig  # dataclasses look it up
    spec.loader.exec_module(rig)
    for name, code in SKILLS.items():
        rig.write_skill(folder, name, code)
    return folder


class Cli:
    """Starts ``sia`` with the double's agent in one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._processes: list[subprocess.Popen | pexpect.spawn] = []

    def _argv(self, arguments: tuple[str, ...]) -> list[str]:
        return [*DOUBLE, "--home", str(self.home), *arguments]

    def run(
        self, *arguments: str, input: bytes = b"", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._argv(arguments),
            input=input,
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, **ENVIRONMENT, **environment},
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._argv(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT},
        )
        self._processes.append(process)
        return process

    def agent(self, *arguments: str) -> subprocess.Popen[bytes]:
        """An agent that works in the home, once it is ready."""
        log = self.home / ".sia" / "log" / "sia.log"
        before = log.read_text().count("Ready(") if log.exists() else 0
        process = self.begin("run", *(arguments or ("--listen",)))
        self.until(lambda: log.exists() and log.read_text().count("Ready(") > before)
        return process

    def terminal(self, *arguments: str) -> pexpect.spawn:
        command, *rest = self._argv(arguments)
        environment = {**os.environ, **ENVIRONMENT, "TERM": "dumb"}
        process = pexpect.spawn(
            command, rest, env=environment, timeout=SECONDS, echo=False, encoding="utf-8"
        )
        process.delaybeforesend = None
        self._processes.append(process)
        return process

    @staticmethod
    def ended(process: pexpect.spawn) -> tuple[int, str]:
        """Exit code of a program at a terminal, and what it wrote since it was last looked at."""
        process.expect(pexpect.EOF)
        process.wait()
        return process.exitstatus, process.before

    @staticmethod
    def until(true: Callable[[], object]) -> None:
        end = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < end, "it does not come to that"
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._processes:
            if isinstance(process, pexpect.spawn):
                process.close(force=True)
                continue
            process.kill()
            process.communicate()


@pytest.fixture
def cli(home: Path) -> Iterator[Cli]:
    cli = Cli(home)
    yield cli
    cli.close()
