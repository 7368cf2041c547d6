"""From the agent's threads to the screen: in order, nothing lost, many events at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOBase

from sia.events import Event, Notice

BURST = 0.05  # seconds: what comes within is written at once
BATCH = 500  # items written before the keyboard is looked at again

# An event, or what makes a block of text on the screen's thread.
Item = Event | Callable[[], str]


class Feed:
    """``put`` may be called on any thread; ``take`` is called on the screen's, in ``start``'s
    loop."""

    def __init__(self, take: Callable[[Sequence[Item]], None]) -> None:
        self._take = take
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver what was put so far, and from now on."""
        with self._lock:
            self._loop, self._scheduled = loop, True
        self._later()

    def put(self, item: Item) -> None:
        with self._lock:
            self._items.append(item)
            loop = None if self._scheduled else self._loop
            self._scheduled |= loop is not None
        if loop:
            with suppress(RuntimeError):  # it was closed meanwhile: the last flush takes it
                loop.call_soon_threadsafe(self._later)

    def _later(self, seconds: float = BURST) -> None:
        asyncio.get_running_loop().call_later(seconds, self._burst)

    def _burst(self) -> None:
        with self._lock:
            items = [self._items.popleft() for _ in range(min(BATCH, len(self._items)))]
            more = self._scheduled = bool(self._items)
        self._take(items)
        if more:
            self._later(0.0)

    def flush(self) -> None:
        """Deliver everything now; on the screen's thread."""
        with self._lock:
            items, self._items = list(self._items), deque()
        if items:
            self._take(items)


class Stray(TextIOBase):
    """Stands in for standard output and error: what a library prints becomes a notice."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._feed.put(Notice(line))
        return len(text)
