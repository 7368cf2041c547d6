"""The spool: a folder that other programs drop text files into, each of them an event.

A file is taken by rename, once nobody has it open for writing, and lies in ``.sia/spool`` until its
input is kept. The commit that keeps it names it, so that a crash before the file is deleted does
not take it twice. All of this on one thread.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from semif.jsonl import sync_folder
from sia.errors import SiaError
from sia.inlets.types import Intake, unfinished
from sia.intake import INPUT_LIMIT
from sia.store import Store

KEPT = "spool_kept"  # in the store: the file whose input was kept last
REFUSED = "refused"  # in the spool: what is no text
QUIET = 2.0  # seconds, where a file system cannot tell who writes


class _Unfit(SiaError):
    """A file that is no input, and why."""


class Spool:
    """``folder``: where files are dropped. ``taken``: where they lie until they are kept, on the
    same file system. ``tell``: hears of what is not taken, in one line."""

    def __init__(
        self, folder: Path, taken: Path, intake: Intake, store: Store, tell: Callable[[str], None]
    ) -> None:
        self._folder, self._taken = folder, taken
        self._intake, self._store, self._tell = intake, store, tell
        self._told: set[str] = set()
        self.pending = True  # something may lie there that no change will tell of

    def scan(self) -> None:
        """Take what lies there and is whole, the oldest first."""
        self.pending = False
        for path in sorted(self._taken.iterdir()):  # an earlier agent was killed here
            self._hand_on(path)
        for path in sorted(self._folder.iterdir(), key=_age):
            if path.name != REFUSED and not unfinished(path.name):
                self._look(path)

    def _look(self, path: Path) -> None:
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                self._refuse(path, path.name, "it is no file")
            elif settled(path):
                self._hand_on(self._take(path))
            else:
                self.pending = True
        except FileNotFoundError:
            return  # its writer took it back
        except OSError as error:
            if path.name not in self._told:
                self._told.add(path.name)
                self._tell(f"spool/{_shown(path.name)} cannot be taken: {error.strerror}")

    def _take(self, path: Path) -> Path:
        """Out of reach of its writer. Never a name that was used before, see KEPT."""
        name = f"{time.time_ns():020d}-{secrets.token_hex(4)}-{_shown(path.name)[:100]}"
        taken = self._taken / name
        path.rename(taken)
        # Else a power cut could leave it here as well as its input in the database.
        sync_folder(self._taken)
        sync_folder(self._folder)
        return taken

    def _hand_on(self, path: Path) -> None:
        if self._store.meta(KEPT) != path.name:
            if not settled(path):  # opened again just before it was taken
                self.pending = True
                return
            if not self._intake.room("event"):
                return
            try:
                text = _read(path)
            except _Unfit as reason:
                self._refuse(path, path.name.split("-", 2)[-1], str(reason))
                return
            if text:
                self._intake.submit(
                    text, "event", lambda run: self._store.set_meta(KEPT, path.name)
                )
        path.unlink()
        sync_folder(self._taken)

    def _refuse(self, path: Path, name: str, reason: str) -> None:
        aside = self._folder / REFUSED
        aside.mkdir(mode=0o700, exist_ok=True)
        place = aside / name
        if os.path.lexists(place):
            place = aside / f"{secrets.token_hex(4)}-{name}"
        path.rename(place)
        self._tell(f"spool/{_shown(name)} is refused: {reason}; it lies in spool/{REFUSED} now")


def settled(path: Path) -> bool:
    """Whether nobody has ``path`` open for writing: only then the kernel gives a read lease."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Who opens it meanwhile is told of to us by a signal, by default one that kills.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True
    except BlockingIOError:
        return False
    except OSError:  # another's file, or a file system without leases
        return time.time() - os.fstat(handle).st_mtime > QUIET
    finally:
        os.close(handle)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(4 * INPUT_LIMIT + 1)
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        if len(data) <= 4 * INPUT_LIMIT:
            raise _Unfit(f"it is not UTF-8 at byte {error.start}") from None
        text = "x" * len(data)
    if len(text) > INPUT_LIMIT:
        raise _Unfit(f"it has more than {INPUT_LIMIT:,} characters")
    return text


def _age(path: Path) -> tuple[int, str]:
    with suppress(OSError):
        return path.lstat().st_mtime_ns, path.name
    return 0, path.name


def _shown(name: str) -> str:
    return re.sub(r"[^\w. -]", "_", name.encode("utf-8", "replace").decode())
