"""How far a long piece of work is, told to a person."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

Say = Callable[[str], None]
_EVERY = 15.0  # seconds from line to line where no bar can be drawn


class Progress:
    """How far a part of the work is: a bar at a terminal, else a line now and then.

    `bar` is False in all processes but the first.
    """

    def __init__(
        self, what: str, unit: str, total: int, say: Say, done: int = 0, bar: bool = True
    ) -> None:
        from tqdm import tqdm  # type: ignore[import-untyped]

        self._what, self._unit, self._total, self._say = what, unit, total, say
        self._done = self._first = done
        self._began = self._spoke = time.monotonic()
        hidden = not (bar and sys.stderr.isatty())
        self._bar = tqdm(total=total, initial=done, desc=what, unit=unit, disable=hidden)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def reach(self, done: int, note: str = "") -> None:
        """So many are done now."""
        if not self._bar.disable:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._done)
        self._done = done
        now = time.monotonic()
        if self._bar.disable and (now - self._spoke >= _EVERY or done == self._total):
            each = (now - self._began) / max(1, done - self._first)
            left = each * (self._total - done) / 60
            note = f", {note}" if note else ""
            self._say(f"{self._what}: {done}/{self._total} {self._unit}{note}, {left:.1f} min left")
            self._spoke = now


def silent(_: str) -> None:
    """What all processes but the first say."""


def beside_bars(say: Say) -> Say:
    """The same, clear of any bar that is drawn."""
    from tqdm import tqdm

    def clear(line: str) -> None:
        with tqdm.external_write_mode(file=sys.stderr):
            say(line)

    return clear
