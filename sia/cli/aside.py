"""Corrections among the lines of a pipe or of ``sia attach``: what they say goes to standard error,
and they wait until the lines before them are done with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from sia.events import Admitted, Asked, Ended, Event, Kept
from sia.home import Home
from sia.shell.menu import COMMANDS, Menu
from sia.shell.text import plain
from sia.skills.tree import Tree
from sia.store import Store
from sia.turn import Again

WIDTH = 100  # cells of a line
T = TypeVar("T")


class Aside:
    """Takes ``/right``, ``/wrong``, ``/undo`` and the answers to their questions; everything else
    goes to ``submit``, and what is to be worked anew to ``again``; both give the run's id, or None
    where ``Kept`` will tell it."""

    def __init__(
        self,
        home: Home,
        store: Store,
        tree: Callable[[], Tree],
        note: Callable[[str], None],
        submit: Callable[[str], str | None],
        again: Callable[[Again], str | None],
    ) -> None:
        self._menu = Menu(
            home, store, tree, lambda wanted: self._sent(again, wanted), plain, lambda: WIDTH
        )
        self._note, self._submit = note, submit
        self._settled = threading.Condition()
        self._open: set[str] = set()
        self._unnamed = 0
        self._stopped = False

    def take(self, text: str) -> None:
        """A line; on the thread that reads them."""
        command, *words = text.split()
        if command in COMMANDS:
            if self._wait():
                self._note(self._menu.start(command, words))
            return
        shown = self._menu.answer(text)
        if shown is None:
            self._sent(self._submit, text)
        elif shown:
            self._note(shown)

    def _sent(self, send: Callable[[T], str | None], what: T) -> None:
        # Held while an id is drawn, so that what is heard of it is known to be about it.
        with self._settled:
            run = send(what)
            if run is None:
                self._unnamed += 1
            else:
                self._open.add(run)

    def _wait(self) -> bool:
        """Until nothing that was sent is worked any more; False when stopped."""
        with self._settled:
            while not self._stopped and (self._open or self._unnamed):
                self._settled.wait()
            return not self._stopped

    def stop(self) -> None:
        """Wait for nothing any more."""
        with self._settled:
            self._stopped = True
            self._settled.notify_all()

    def __call__(self, event: Event) -> None:
        """An event of the agent; on any thread."""
        with self._settled:
            self._menu.hear(event)
            match event:
                case Kept(run):
                    self._unnamed -= self._unnamed > 0
                    self._open.add(run)
                case Admitted(run, "answer", to=to) if run in self._open:
                    self._open = (self._open - {run}) | {to}
                case (
                    Admitted(run, "ignore" | "reject" | "stdin" | "decline")
                    | Ended(run)
                    | Asked(run)
                ):
                    self._open.discard(run)
                    if not run:  # it could not be kept, and so has no run
                        self._unnamed -= self._unnamed > 0
            self._settled.notify_all()
