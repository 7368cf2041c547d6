"""Watched files and folders: what is done to them, gathered until they are left alone, as events.

What happened while SIA was not running is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from watchfiles import Change

from sia.config import WatchConfig
from sia.inlets.types import Intake, unfinished

MOST = 100  # files of one watch that are told one by one; what is more is told as one
LONGEST = 10  # times ``seconds``: a file that never rests is told of all the same


@dataclass
class _Seen:
    first: float
    last: float
    kinds: set[Change] = field(default_factory=set)


@dataclass
class _Watch:
    config: WatchConfig
    path: Path
    folder: bool
    seen: dict[Path, _Seen] = field(default_factory=dict)
    more: int = 0

    def covers(self, path: Path) -> bool:
        if not self.folder:
            return path == self.path
        inside = path.is_relative_to(self.path) if self.config.recursive else (
            path.parent == self.path
        )  # fmt: skip
        if not inside or any(map(unfinished, path.relative_to(self.path).parts)):
            return False
        return fnmatch(path.name, self.config.pattern)


class Watches:
    """``home``: what paths are relative to. ``ignored``: folders in which SIA itself writes all the
    time. ``clock``: seconds. Used by one thread."""

    def __init__(
        self,
        watches: Sequence[WatchConfig],
        home: Path,
        ignored: Sequence[Path],
        intake: Intake,
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._ignored, self._intake, self._tell, self._clock = ignored, intake, tell, clock
        self._watches: list[_Watch] = []
        for config in watches:
            path = Path(os.path.abspath(home / Path(config.path).expanduser()))
            watch = _Watch(config, path, path.is_dir())
            if not _root(watch).is_dir():
                tell(f"watch {config.path}: there is no folder {_root(watch)}; make it and restart")
                continue
            self._watches.append(watch)

    def roots(self) -> list[Path]:
        """The folders to look at."""
        return sorted({_root(watch) for watch in self._watches})

    def see(self, changes: Iterable[tuple[Change, str]]) -> None:
        """Note what was done."""
        now = self._clock()
        for change, name in changes:
            path = Path(name)
            if any(path.is_relative_to(folder) for folder in self._ignored):
                continue
            for watch in self._watches:
                if watch.covers(path):
                    self._note(watch, path, change, now)

    def _note(self, watch: _Watch, path: Path, change: Change, now: float) -> None:
        if path not in watch.seen and len(watch.seen) >= MOST:
            watch.more += 1
            return
        seen = watch.seen.setdefault(path, _Seen(now, now))
        seen.last = now
        seen.kinds.add(change)

    def flush(self) -> None:
        """Hand on what has been left alone for long enough."""
        now = self._clock()
        for watch in self._watches:
            seconds = watch.config.seconds
            for path, seen in list(watch.seen.items()):
                if now - seen.last < seconds and now - seen.first < LONGEST * seconds:
                    continue
                del watch.seen[path]
                change = _change(path, seen.kinds)
                if change and not path.is_dir() and not self._submit(watch, path, change):
                    return
            if watch.more and not watch.seen:
                more, watch.more = watch.more, 0
                self._tell(f"watch {watch.config.path}: {more:,} more changes are told as one")
                if not self._submit(watch, watch.path, "changed"):
                    return

    def _submit(self, watch: _Watch, path: Path, change: str) -> bool:
        if not self._intake.room("event"):
            return False
        text = watch.config.text.format(path=path, name=path.name, change=change)
        self._intake.submit(text, "event")
        return True


def _root(watch: _Watch) -> Path:
    # A file that is written anew is another file: its folder is what stays.
    return watch.path if watch.folder else watch.path.parent


def _change(path: Path, kinds: set[Change]) -> str:
    """In a word; "" for what came and went. The kinds have no order."""
    if not os.path.lexists(path):
        return "" if Change.added in kinds else "removed"
    return "added" if Change.added in kinds and Change.deleted not in kinds else "changed"
