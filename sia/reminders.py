"""Reminders: kept in state.db, mirrored as plain files, fired by the wall clock.

The alarm sleeps on a timer of the system's real-time clock, so it also wakes when the machine was
asleep over the due time or when the clock is set.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import yaml

from semif.jsonl import write_whole
from sia.skills.api import Reminder
from sia.store import Store

WAITING, FIRED, CANCELLED = "waiting", "fired", "cancelled"


class Reminders:
    """The reminders of one home. ``folder``: tasks/reminders. ``zone``: the person's, IANA."""

    def __init__(self, store: Store, folder: Path, zone: str, changed: Callable[[], None]) -> None:
        self._store, self._folder, self._zone = store, folder, zone
        self._changed = changed

    def add(self, due: datetime, text: str, run: str) -> str:
        """Keep a reminder; its id. Committed before it returns."""
        with self._store.transaction() as db:
            id = self._store.next_id("m")
            db.execute(
                "INSERT INTO reminders VALUES (?, ?, ?, ?, ?, ?)",
                (id, due.astimezone(UTC).isoformat(), self._zone, text, WAITING, run),
            )
        self._mirror(self._get(id))
        self._changed()
        return id

    def _rows(self, where: str, *values: str) -> list[Reminder]:
        rows = self._store._rows(f"SELECT id, due, text, status FROM reminders {where}", *values)
        zone = ZoneInfo(self._zone)
        found = [
            Reminder(id, datetime.fromisoformat(due).astimezone(zone), text, status)
            for id, due, text, status in rows
        ]
        return sorted(found, key=lambda reminder: (reminder.due, int(reminder.id[1:])))

    def _get(self, id: str) -> Reminder:
        return self._rows("WHERE id = ?", id)[0]

    def waiting(self) -> list[Reminder]:
        """By due time."""
        return self._rows("WHERE status = 'waiting'")

    def due(self, now: datetime) -> list[Reminder]:
        return [reminder for reminder in self.waiting() if reminder.due <= now]

    def set_status(self, id: str, status: str) -> bool:
        """Move a waiting reminder to ``status``; False when there is none of that id."""
        with self._store.transaction() as db:
            cursor = db.execute(
                "UPDATE reminders SET status = ? WHERE id = ? AND status = 'waiting'", (status, id)
            )
            if not cursor.rowcount:
                return False
        self._mirror(self._get(id))
        self._changed()
        return True

    def _mirror(self, reminder: Reminder) -> None:
        head = yaml.safe_dump(
            {"due": reminder.due.isoformat(), "zone": self._zone, "status": reminder.status},
            sort_keys=False,
        )
        text = f"---\n{head}---\n{reminder.text}\n"
        write_whole(self._folder / f"{reminder.id}.md", text.encode("utf-8", "replace"))

    def restore(self) -> int:
        """Take waiting reminders that only the files know (a lost state.db); how many."""
        known = {id for (id,) in self._store._rows("SELECT id FROM reminders")}
        found = 0
        with self._store.transaction() as db:
            for path in self._folder.glob("m*.md"):
                row = None if path.stem in known else _read_mirror(path)
                if row is None:
                    continue
                due, zone, status, text = row
                db.execute(
                    "INSERT INTO reminders VALUES (?, ?, ?, ?, ?, '')",
                    (path.stem, due.astimezone(UTC).isoformat(), zone, text, status),
                )
                last = max(int(self._store.meta("last_m", "0")), int(path.stem[1:]))
                self._store.set_meta("last_m", str(last))
                found += status == WAITING
        return found


def _read_mirror(path: Path) -> tuple[datetime, str, str, str] | None:
    if not path.stem[1:].isdigit():
        return None
    try:
        _, head, text = path.read_text("utf-8").split("---\n", 2)
        values = yaml.safe_load(head)
        due = datetime.fromisoformat(str(values["due"]))
        return due, str(values["zone"]), str(values["status"]), text.strip()
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None


_CLOCK_REALTIME = 0
_ABSTIME, _CANCEL_ON_SET = 1, 2


class _Timer:
    """Linux ``timerfd`` on the real-time clock (this Python's os module has no call for it)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(_CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, moment: datetime | None) -> None:
        """Become readable at ``moment``, or when the clock is set; never for None."""
        stamp = max(moment.timestamp(), 1.0) if moment else 0.0
        seconds, nanos = int(stamp), int((stamp % 1) * 1e9)
        spec = struct.pack("@llll", 0, 0, seconds, nanos)
        if self._libc.timerfd_settime(self.fd, _ABSTIME | _CANCEL_ON_SET, spec, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        try:
            os.read(self.fd, 8)
        except (BlockingIOError, OSError):
            return  # nothing to clear, or the clock was set (ECANCELED)

    def close(self) -> None:
        os.close(self.fd)


class Alarm:
    """Calls ``ring()`` on its own thread whenever the moment that ``when()`` gives has come; what
    either raises ends the thread and is given to ``fail``."""

    def __init__(
        self,
        when: Callable[[], datetime | None],
        ring: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._when, self._ring, self._fail = when, ring, fail
        self._timer = _Timer()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="alarm", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def reset(self) -> None:
        """Ask ``when()`` anew; from any thread."""
        os.write(self._write, b"x")

    def stop(self) -> None:
        self._stopped = True
        self.reset()
        self._thread.join()
        self._timer.close()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        try:
            self._attend()
        except BaseException as error:
            self._fail(error)

    def _attend(self) -> None:
        while not self._stopped:
            self._timer.set(self._when())
            ready, _, _ = select.select([self._timer.fd, self._read], [], [])
            if self._read in ready:
                os.read(self._read, 4096)
            self._timer.clear()
            if not self._stopped:
                self._ring()
