"""Waiting without polling: one thread that sleeps until a descriptor has something to say."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class Cancel(threading.Event):
    """An event that wakes at once whoever waits for scripts, and that can be called: is it set?"""

    def __init__(self) -> None:
        super().__init__()
        self._wakers: set[Callable[[], None]] = set()

    def __call__(self) -> bool:
        return self.is_set()

    def set(self) -> None:
        super().set()
        for wake in tuple(self._wakers):
            wake()

    def add(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever the event is set."""
        self._wakers.add(wake)

    def remove(self, wake: Callable[[], None]) -> None:
        self._wakers.discard(wake)


class Until(Cancel):
    """Inside its ``with``: set when ``cancel`` is, and after ``seconds``."""

    def __init__(self, cancel: Cancel, seconds: float) -> None:
        super().__init__()
        self._cancel = cancel
        endless = seconds > threading.TIMEOUT_MAX
        self._timer = None if endless else threading.Timer(max(0.0, seconds), self.set)

    def __enter__(self) -> Until:
        self._cancel.add(self.set)
        if self._cancel.is_set():  # before it was listened to
            self.set()
        if self._timer:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.remove(self.set)
        if self._timer:
            self._timer.cancel()


class Watcher:
    """Calls back, once and from its own thread, when a watched descriptor becomes ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._stop, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="scripts", daemon=True)
        self._thread.start()

    def add(self, handle: int, call: Callable[[], None]) -> None:
        """Watch ``handle``, which is closed before ``call`` is called, or by ``close``."""
        self._calls[handle] = call
        self._epoll.register(handle, select.EPOLLIN)

    def close(self) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        for handle in (*self._calls, self._stop):
            os.close(handle)
        self._epoll.close()

    def _run(self) -> None:
        while True:
            for handle, _ in self._epoll.poll():
                if handle == self._stop:
                    return
                call = self._calls.pop(handle)
                self._epoll.unregister(handle)
                os.close(handle)
                call()
