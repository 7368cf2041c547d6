"""How far the dream is that runs now, in a file beside the dreams: for whoever asks."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from semif.jsonl import write_whole
from sia import locks

FILE = "status.json"
LAST = "last.json"
# As semif's progress says it: "training: 25/1924 steps, loss 0.597, 57.2 min left".
_STEPS = re.compile(r"(?P<what>[\w ]+): (?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+)")
_LEFT = re.compile(r"(?P<minutes>\d+(?:\.\d+)?) min left")


@dataclass(frozen=True)
class Status:
    """``done`` of ``total``, both 0 where it is not counted; ``minutes`` that are left, None where
    that is not known."""

    pid: int
    begun: str  # RFC 3339, UTC
    text: str = "reading what was logged"
    done: int = 0
    total: int = 0
    minutes: float | None = None
    paused: bool = False

    def words(self) -> str:
        """One short line."""
        if self.paused:
            return "paused"
        if not self.total:
            return self.text
        left = f", {self.minutes:.0f} min left" if self.minutes is not None else ""
        return f"{self.text} {100 * self.done // self.total} %{left}"


@dataclass(frozen=True)
class Last:
    """The last dream that came to an end. status: none (there was none yet) | nothing | rejected |
    proven | failed."""

    ended: datetime
    status: str
    text: str = ""


class Writer:
    """Keeps the file true while this process dreams."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.status = Status(os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        self._write()

    def hear(self, line: str) -> None:
        """A line about what is done now."""
        if found := _STEPS.match(line):
            left = _LEFT.search(line)
            self._set(
                text=found["what"],
                done=int(found["done"]),
                total=int(found["total"]),
                minutes=float(left["minutes"]) if left else None,
            )
        else:
            self._set(text=line, done=0, total=0, minutes=None)

    def paused(self, now: bool) -> None:
        self._set(paused=now)

    def _set(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)
        self._write()

    def _write(self) -> None:
        write_whole(self._path, json.dumps(asdict(self.status)).encode() + b"\n")


def running(folder: Path) -> Status | None:
    """The dream that runs now, in whichever process; None when none does."""
    return _read(folder) if locks.held(folder / "lock") else None


def told(folder: Path) -> str:
    """How far the dream is that runs, else what the last came to, in words."""
    now, ended = running(folder), last(folder)
    if now:
        return f"dreaming since {now.begun}: {now.words()}"
    if ended is None or ended.status == "none":
        return "no dream yet"
    when = f"{ended.ended:%Y-%m-%d %H:%M} UTC"
    return f"no dream runs; the last ended {when}, {ended.status}: {ended.text}"


def _read(folder: Path) -> Status | None:
    try:
        return Status(**json.loads((folder / FILE).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # it has only begun, or is of another version


def keep_last(folder: Path, last: Last) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    value = {**asdict(last), "ended": last.ended.isoformat(timespec="seconds")}
    write_whole(folder / LAST, json.dumps(value).encode() + b"\n")


def last(folder: Path) -> Last | None:
    """None where no dream has come to an end, or the file is damaged."""
    try:
        value = json.loads((folder / LAST).read_bytes())
        ended = datetime.fromisoformat(value["ended"])
        return Last(ended.astimezone(UTC), value["status"], value["text"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
