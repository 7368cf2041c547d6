"""Standard input, read line by line."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable

from sia.intake import INPUT_LIMIT

CHUNK = 65_536
LINE_LIMIT = 4 * INPUT_LIMIT  # bytes


def _nothing(rest: bytes) -> None:
    """Half a line is not kept."""


class Reader:
    """Reads lines of a descriptor on a thread of its own.

    take(text): a line that is not empty. refuse(reason): one that cannot be taken. ended(): there
    are no more. fail(): it cannot go on; ``error`` says why. rest, keep: what was read of a line
    that is not yet whole.
    """

    def __init__(
        self,
        fd: int,
        take: Callable[[str], None],
        refuse: Callable[[str], None],
        ended: Callable[[], None],
        fail: Callable[[], None],
        rest: bytes = b"",
        keep: Callable[[bytes], None] = _nothing,
    ) -> None:
        self._fd, self._take, self._refuse, self._ended = fd, take, refuse, ended
        self._fail, self._rest, self._keep = fail, rest, keep
        self._skipping = False  # the rest of a line that is too long
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more, for good; what was read is taken or kept when this returns."""
        os.eventfd_write(self._wake, 1)
        if self._thread.ident:
            self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        try:
            if self._read():
                self._ended()
        except BaseException as error:  # raised again by whoever ends the program in order
            self.error = error
            self._fail()

    def _read(self) -> bool:
        """Until the end (True) or ``stop``."""
        while True:
            ready, _, _ = select.select([self._fd, self._wake], [], [])
            if self._wake in ready:
                return False
            try:
                data = os.read(self._fd, CHUNK)
            except OSError:
                data = b""  # closed, or a terminal that went away
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line)
            if len(self._rest) > LINE_LIMIT:
                self._skip()
            self._keep(self._rest)
        if self._rest:
            line, self._rest = self._rest, b""
            self._line(line)
            self._keep(b"")
        return True

    def _skip(self) -> None:
        if not self._skipping:
            start = self._rest[:40].decode("utf-8", "replace")
            self._refuse(
                f"a line of more than {LINE_LIMIT:,} bytes was not taken: {start}…; "
                "put it into a file"
            )
        self._skipping, self._rest = True, b""

    def _line(self, line: bytes) -> None:
        if self._skipping:
            self._skipping = False
            return
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            start = line[:40].decode("utf-8", "replace")
            self._refuse(
                f"a line is not UTF-8 at byte {error.start} and was not taken: {start}; "
                "send it as UTF-8"
            )
            return
        if text:
            self._take(text)


def standard_input() -> int | None:
    """The descriptor of standard input, or None when it is closed."""
    try:
        return sys.stdin.fileno() if sys.stdin is not None else None
    except (OSError, ValueError):
        return None
