"""A terminal for tests: a program on a pseudo-terminal, and a screen that understands its escapes
and answers where the cursor is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

ROOT = Path(__file__).parents[2]
DOUBLE = Path(__file__).with_name("double.py")


class Screen(pyte.HistoryScreen):
    """Keeps all lines; ``answer`` is given what the terminal replies to the program."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None] | None) -> None:
        self._answer = answer
        super().__init__(columns, lines, history=100_000, ratio=0.5)

    def write_process_input(self, data: str) -> None:
        if self._answer:
            self._answer(data)

    def set_margins(self, *args: int, **private: bool) -> None:
        super().set_margins(*args)  # xterm's "CSI > m" and "CSI ? r" are none of these


class Terminal:
    def __init__(
        self,
        home: Path,
        *arguments: str,
        columns: int = 80,
        lines: int = 24,
        answers: bool = True,
        **environment: str,
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        self.process = pexpect.spawn(
            sys.executable,
            [str(DOUBLE), str(home), *arguments],
            env={
                **clean,
                "TERM": "xterm-256color",
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(ROOT),
                **environment,
            },
            dimensions=(lines, columns),
            timeout=10,
        )
        self.process.delaybeforesend = None
        self.raw = b""
        self.screen = Screen(columns, lines, self.process.send if answers else None)
        self._stream = pyte.ByteStream(self.screen)

    def pump(self, seconds: float = 0.05) -> bool:
        """Take what the program wrote; False at its end."""
        try:
            data = self.process.read_nonblocking(1 << 16, seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def shown(self) -> list[str]:
        """Every line from the first to the bottom of the screen, without white space at ends."""
        above = [
            "".join(row[x].data for x in range(self.screen.columns))
            for row in self.screen.history.top
        ]
        return [line.rstrip() for line in [*above, *self.screen.display]]

    def text(self) -> str:
        return "\n".join(self.shown())

    def wait(self, words: str, seconds: float = 15) -> str:
        """Until ``words`` are on the screen or above it; all text."""
        return self.until(lambda: words in self.text(), f"{words!r} is not shown", seconds)

    def until(self, true: Callable[[], bool], problem: str, seconds: float = 15) -> str:
        end = time.monotonic() + seconds
        while not true():
            alive = self.pump()
            if not true() and (not alive or time.monotonic() > end):
                pytest.fail(f"{problem}\n{self.text()}")
        return self.text()

    def type(self, text: str) -> None:
        self.process.send(text)

    def enter(self, text: str) -> None:
        self.process.send(text + "\r")

    def end(self, seconds: float = 15) -> int:
        """Until the program ends; its exit code."""
        end = time.monotonic() + seconds
        while self.pump(0.2):
            assert time.monotonic() < end, f"does not end\n{self.text()}"
        self.process.wait()
        return self.process.exitstatus

    def prompt_line(self) -> str:
        """The line with the prompt, the last one but the toolbar's."""
        lines = [line for line in self.screen.display if line.startswith(("›", "?"))]
        return lines[-1].rstrip() if lines else ""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def begin(*arguments: str, **options: object) -> Terminal:
        terminals.append(Terminal(home, *arguments, **options))
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.process.close(force=True)


@pytest.fixture
def shell(start: Callable[..., Terminal]) -> Terminal:
    """A shell whose prompt stands and whose agent is there."""
    terminal = start()
    terminal.wait("idle · queue 0")
    return terminal
