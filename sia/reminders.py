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
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import yaml

from semif.jsonl import write_whole
from sia import repeats, times
from sia.skills.api import Reminder
from sia.store import Store

WAITING, FIRED, CANCELLED = "waiting", "fired", "cancelled"
LATE_SECONDS = 120
_COLUMNS = "id, due, zone, text, status, repeat, timer, rang"
_DRIFT = 1.0  # seconds by which a clock may be corrected without having been set


def uptime() -> tuple[str, float]:
    """(name of this boot, seconds since it, sleep included): what no setting of the clock moves."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return boot, time.clock_gettime(time.CLOCK_BOOTTIME)


def utc_now() -> datetime:
    return datetime.now(UTC)


class Reminders:
    """The reminders of one home. ``folder``: tasks/reminders. ``zone``: the person's, IANA.
    ``clock``: the present moment, aware; ``uptime``: see there."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        zone: str,
        changed: Callable[[], None],
        clock: Callable[[], datetime] = utc_now,
        uptime: Callable[[], tuple[str, float]] = uptime,
    ) -> None:
        self._store, self._folder, self._zone = store, folder, zone
        self._changed, self._clock, self._uptime = changed, clock, uptime

    def add(self, due: datetime, text: str, run: str, repeat: str = "", timer: bool = False) -> str:
        """Keep a reminder; its id. Committed before it returns.

        repeat: a rule of ``sia.repeats``, whose next time is ``due``. timer: it goes off after so
        much time, however the clock is set meanwhile (while the machine stays up).
        """
        at = ""
        if timer:
            boot, seconds = self._uptime()
            at = f"{boot} {seconds + (due - self._clock()).total_seconds()}"
        with self._store.transaction() as db:
            id = self._store.next_id("m")
            db.execute(
                "INSERT INTO reminders (id, due, zone, text, status, run, repeat, timer) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (id, _stored(due), self._zone, text, WAITING, run, repeat, at),
            )
        self._mirror(id)
        self._changed()
        return id

    def _rows(self, where: str, *values: str) -> list[Reminder]:
        rows = self._store._rows(f"SELECT {_COLUMNS} FROM reminders {where}", *values)
        here = ZoneInfo(self._zone)
        found = [
            Reminder(
                id,
                self._moved(datetime.fromisoformat(due), timer).astimezone(here),
                text,
                status,
                repeat,
                datetime.fromisoformat(rang).astimezone(here) if rang else None,
            )
            for id, due, _, text, status, repeat, timer, rang in rows
        ]
        return sorted(found, key=lambda reminder: (reminder.due, int(reminder.id[1:])))

    def _moved(self, due: datetime, timer: str) -> datetime:
        """When a timer goes off by the clock as it stands now."""
        boot, _, at = timer.partition(" ")
        if not at:
            return due
        now, seconds = self._uptime()
        if boot != now:
            return due
        moved = self._clock() + timedelta(seconds=float(at) - seconds)
        return moved if abs((moved - due).total_seconds()) > _DRIFT else due

    def _get(self, id: str) -> Reminder:
        return self._rows("WHERE id = ?", id)[0]

    def _zone_of(self, id: str) -> str:
        """The zone it was set in, whose wall clock its rule follows."""
        return str(self._store._rows("SELECT zone FROM reminders WHERE id = ?", id)[0][0])

    def waiting(self) -> list[Reminder]:
        """By due time."""
        return self._rows("WHERE status = 'waiting'")

    def due(self, now: datetime) -> list[Reminder]:
        return [reminder for reminder in self.waiting() if reminder.due <= now]

    def rung(self, since: datetime) -> list[Reminder]:
        """Those that went off after ``since``, the latest first."""
        rows = self._rows("WHERE rang != '' AND status != 'cancelled'")
        rang = [(row.rang, row) for row in rows if row.rang and row.rang > since]
        return [row for _, row in sorted(rang, key=lambda pair: pair[0], reverse=True)]

    def ring(self, reminder: Reminder, now: datetime) -> str:
        """What to say of one that is due; it then waits for its next time, if it has one. "" when
        it waits no more. Times that were missed are named and not rung one by one."""
        following, missed = None, 0
        if reminder.repeat:
            zone = ZoneInfo(self._zone_of(reminder.id))
            following = repeats.first_after(reminder.repeat, zone, now)
            missed = repeats.count(reminder.repeat, zone, reminder.due, now)
        status = WAITING if following else FIRED
        due = following or reminder.due
        with self._store.transaction() as db:
            cursor = db.execute(
                "UPDATE reminders SET status = ?, due = ?, rang = ? "
                "WHERE id = ? AND status = 'waiting'",
                (status, _stored(due), _stored(now), reminder.id),
            )
            if not cursor.rowcount:
                return ""
        self._mirror(reminder.id)
        return f"Reminder: {reminder.text}{_late(reminder.due, now, missed)}"

    def set_status(self, id: str, status: str) -> bool:
        """Move a waiting reminder to ``status``; False when there is none of that id."""
        with self._store.transaction() as db:
            cursor = db.execute(
                "UPDATE reminders SET status = ? WHERE id = ? AND status = 'waiting'", (status, id)
            )
            if not cursor.rowcount:
                return False
        self._mirror(id)
        self._changed()
        return True

    def _mirror(self, id: str) -> None:
        reminder = self._get(id)
        values = {
            "due": reminder.due.isoformat(),
            "zone": self._zone_of(id),
            "status": reminder.status,
        }
        if reminder.repeat:
            values["repeat"] = reminder.repeat
        head = yaml.safe_dump(values, sort_keys=False)
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
                due, zone, status, text, repeat = row
                db.execute(
                    "INSERT INTO reminders (id, due, zone, text, status, run, repeat) "
                    "VALUES (?, ?, ?, ?, ?, '', ?)",
                    (path.stem, _stored(due), zone, text, status, repeat),
                )
                last = max(int(self._store.meta("last_m", "0")), int(path.stem[1:]))
                self._store.set_meta("last_m", str(last))
                found += status == WAITING
        return found


def _stored(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _late(due: datetime, now: datetime, missed: int) -> str:
    """What is said of one that was missed: once, also where its rule came more than once."""
    if (now - due).total_seconds() <= LATE_SECONDS and not missed:
        return ""
    more = f", and {missed} more time{'s' * (missed != 1)} since" if missed else ""
    return f" (it was due {times.words(due, now.astimezone(due.tzinfo))}{more})"


def _read_mirror(path: Path) -> tuple[datetime, str, str, str, str] | None:
    if not path.stem[1:].isdigit():
        return None
    try:
        _, head, text = path.read_text("utf-8").split("---\n", 2)
        values = yaml.safe_load(head)
        due = datetime.fromisoformat(str(values["due"])).astimezone(UTC)
        repeat = repeats.check(str(values["repeat"])) if values.get("repeat") else ""
        zone = str(ZoneInfo(str(values["zone"])))
        return due, zone, str(values["status"]), text.strip(), repeat
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
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
