"""All that brings events in, on threads of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

from sia.config import WatchConfig
from sia.home import Home
from sia.inlets.exits import Exits, Scripts
from sia.inlets.lines import Lines
from sia.inlets.spool import Spool
from sia.inlets.types import Intake
from sia.inlets.watches import Watches
from sia.store import Store

# Changes are looked for this often (ms); a burst of them is handed over after the debounce at the
# latest, and what waits for its time (a file that must rest) is looked at after the timeout.
STEP, DEBOUNCE, TIMEOUT = 300, 1600, 1000


class Inlets:
    """``over``: ids of scripts that are over, put there by whoever watches them. ``tell``: hears of
    what does not come in. ``fail``: is given what ends a thread."""

    def __init__(
        self,
        home: Home,
        intake: Intake,
        store: Store,
        scripts: Scripts,
        over: SimpleQueue[str | None],
        tell: Callable[[str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._home, self._intake, self._tell, self._fail = home, intake, tell, fail
        self._spool = Spool(home.spool, home.spooled, intake, store, tell)
        self._exits, self._over = Exits(scripts, home.scripts, intake, store), over
        self._stop = threading.Event()
        self._lines: Lines | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._lines = Lines(self._home.event_socket, self._intake)
        deep = [watch for watch in self._home.config.watch if watch.recursive]
        flat = [watch for watch in self._home.config.watch if not watch.recursive]
        self._thread("exits", self._tell_exits)
        self._thread("spool", lambda: self._attend(self._watches(flat), False, self._spool))
        if deep:
            self._thread("watches", lambda: self._attend(self._watches(deep), True, None))

    def stop(self) -> None:
        """After the intake's stop, which frees whoever waits for room."""
        self._stop.set()
        self._over.put(None)
        if self._lines:
            self._lines.close()
        for thread in self._threads:
            thread.join()

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._fail(error)  # an agent that hears less than it says must not go on

    def _tell_exits(self) -> None:
        while (id := self._over.get()) is not None and not self._stop.is_set():
            self._exits.tell(id)

    def _watches(self, chosen: Sequence[WatchConfig]) -> Watches:
        home = self._home
        ignored = (home.state, home.contexts, home.spool)
        return Watches(chosen, home.folder, ignored, self._intake, self._tell, time.monotonic)

    def _attend(self, watches: Watches, recursive: bool, spool: Spool | None) -> None:
        from watchfiles import watch

        roots: list[Path] = watches.roots() + ([self._home.spool] if spool else [])
        if not roots:
            return
        try:
            for changes in watch(
                *roots,
                watch_filter=None,
                recursive=recursive,
                stop_event=self._stop,
                step=STEP,
                debounce=DEBOUNCE,
                rust_timeout=TIMEOUT,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                watches.see(changes)
                watches.flush()
                if spool and (changes or spool.pending):
                    spool.scan()
        except (OSError, RuntimeError) as error:
            names = ", ".join(map(str, roots))
            self._tell(f"not watched any more ({error}): {names}; restart to watch them")
