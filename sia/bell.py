"""What goes off by the clock: reminders that are due, and concerns that have built up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sia.concerns.keeper import Keeper
from sia.events import Emit, Said
from sia.loop import Arrival, Loop
from sia.reminders import Alarm, Reminders
from sia.scheduler import Admission
from sia.store import Input, Store


class Bell:
    """Rings on a thread of its own, from ``start`` to ``stop``. What it says is kept first, then
    handed to the context, then shown."""

    def __init__(
        self,
        store: Store,
        reminders: Reminders,
        keeper: Keeper,
        loop: Loop,
        now: Callable[[], datetime],
        emit: Emit,
    ) -> None:
        self._store, self._reminders, self._keeper = store, reminders, keeper
        self._loop, self._now, self._emit = loop, now, emit
        self._alarm = Alarm(self._next, self._ring, loop.fail)
        self._started = False

    def start(self) -> None:
        self._started = True
        self._alarm.start()

    def reset(self) -> None:
        """The next moment may be another one; from any thread."""
        self._alarm.reset()

    def stop(self) -> None:
        if self._started:
            self._alarm.stop()

    def _next(self) -> datetime | None:
        waiting = self._reminders.waiting()
        moments = [waiting[0].due if waiting else None, self._keeper.when()]
        return min((moment for moment in moments if moment), default=None)

    def _ring(self) -> None:
        now = self._now()
        for reminder in self._reminders.due(now):
            with self._store.transaction():
                text = self._reminders.ring(reminder, now)
                if not text:
                    continue
                run = self._store.next_id("r")
                number = self._store.add_message(run, text)
            item = Input(reminder.id, run, "timer", reminder.text, now)
            self._tell(item, text, number)
        self._keeper.ring()

    def say(self, id: str, text: str) -> None:
        """Say something of a concern, beside the process."""
        number = self._store.add_message(id, text)
        self._tell(Input(id, id, "concern", text, self._now()), text, number)

    def _tell(self, item: Input, text: str, number: int) -> None:
        announce(self._loop, item, text)
        self._emit(Said(item.run, text))
        self._store.drop_messages([number])


def announce(loop: Loop, item: Input, text: str) -> None:
    """What is said beside the process becomes part of its context."""
    loop.deliver(Arrival(item, Admission("announce"), text))
