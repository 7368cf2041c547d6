"""A dream makes way while the agent works for somebody.

The agent holds a lock on a file while it works. It is let go when the agent ends, however that
comes about, so that nothing stays paused for ever. The dream looks at the lock several times a
second, which costs nothing beside training.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from sia import locks

LOOK = 0.2  # seconds
WEIGH = 5.0  # seconds between looks at the memory that is taken


class Busy:
    """The agent's side. Holding and releasing may be repeated, from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._fd: int | None = None

    def hold(self) -> None:
        with self._guard:
            if self._fd is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                # Shared: only the dream's look, which takes it for an instant, wants it alone.
                fcntl.flock(fd, fcntl.LOCK_SH)
                self._fd = fd

    def release(self) -> None:
        with self._guard:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


class MakesWay:
    """The dream's side, on a thread of its own: stops and continues the trainer ``child`` while one
    is set, and has ``wait`` hold up what this process does itself. ``memory``: bytes that the
    child and its children may take together; over it they are killed and ``too_big`` says so.
    ``told``: hears True on a pause, False after it."""

    def __init__(self, path: Path, memory: int, told: Callable[[bool], None]) -> None:
        self._path, self._memory, self._told = path, memory, told
        self._free = threading.Event()
        self._free.set()
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._child: psutil.Process | None = None
        self.too_big = False
        self._thread = threading.Thread(target=self._run, name="makes way", daemon=True)

    def __enter__(self) -> MakesWay:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._signal(signal.SIGCONT)

    def train(self, pid: int | None) -> None:
        """The trainer that is running now, None when it has ended."""
        with self._guard:
            self._child = psutil.Process(pid) if pid else None
        if pid and not self._free.is_set():
            self._signal(signal.SIGSTOP)

    def wait(self, *_: object) -> None:
        """Return when nobody is waiting for the agent."""
        self._free.wait()

    def _run(self) -> None:
        looks = 0
        while not self._over.wait(LOOK):
            looks += 1
            now = locks.held(self._path, shared=True)
            if now == self._free.is_set():
                self._switch(now)
            if looks * LOOK >= WEIGH:
                looks = 0
                self._weigh()
        self._free.set()

    def _switch(self, pause: bool) -> None:
        self._signal(signal.SIGSTOP if pause else signal.SIGCONT)
        if pause:
            self._free.clear()
        else:
            self._free.set()
        self._told(pause)

    def _family(self) -> list[psutil.Process]:
        with self._guard:
            child = self._child
        if child is None:
            return []
        try:
            return [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _signal(self, number: int) -> None:
        for process in self._family():
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def _weigh(self) -> None:
        taken = 0
        for process in self._family():
            try:
                taken += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        if self._memory and taken > self._memory:
            self.too_big = True
            self._signal(signal.SIGKILL)
