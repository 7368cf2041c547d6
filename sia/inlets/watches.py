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
class _Watch:
    """known: the files that are there, as far as was told. seen: when what may have been changed
    was first and last touched."""

    config: WatchConfig
    path: Path
    folder: bool
    known: set[Path] = field(default_factory=set)
    seen: dict[Path, tuple[float, float]] = field(default_factory=dict)
    more: int = 0

    def change(self, path: Path) -> str:
        """What was done to ``path`` since it was last told of; "" for what came and went.

        A file may be written anew by a rename, so what the system calls it says little.
        """
        was, now = path in self.known, os.path.lexists(path)
        (self.known.add if now else self.known.discard)(path)
        return {(False, True): "added", (True, True): "changed", (True, False): "removed"}.get(
            (was, now), ""
        )

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
            watch.known = _there(watch)
            self._watches.append(watch)

    def roots(self) -> list[Path]:
        """The folders to look at."""
        return sorted({_root(watch) for watch in self._watches})

    def see(self, changes: Iterable[tuple[Change, str]]) -> None:
        """Note what was done."""
        now = self._clock()
        for _, name in changes:
            path = Path(name)
            if any(path.is_relative_to(folder) for folder in self._ignored):
                continue
            for watch in self._watches:
                if watch.covers(path):
                    self._note(watch, path, now)

    def _note(self, watch: _Watch, path: Path, now: float) -> None:
        if path in watch.seen or len(watch.seen) < MOST:
            watch.seen[path] = watch.seen.get(path, (now, now))[0], now
        else:
            watch.more += 1
            watch.change(path)

    def flush(self) -> None:
        """Hand on what has been left alone for long enough."""
        now = self._clock()
        for watch in self._watches:
            seconds = watch.config.seconds
            for path, (first, last) in list(watch.seen.items()):
                if now - last < seconds and now - first < LONGEST * seconds:
                    continue
                del watch.seen[path]
                change = "" if path.is_dir() else watch.change(path)
                if change and not self._submit(watch, path, change):
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


def _there(watch: _Watch) -> set[Path]:
    """The files of a watch as they are now."""
    if not watch.folder:
        return {watch.path} if os.path.lexists(watch.path) else set()
    found: set[Path] = set()
    for folder, _, names in os.walk(watch.path):
        found |= {Path(folder, name) for name in names}
        if not watch.config.recursive:
            break
    return found
