"""The loop. One iteration: rebuild the context, take a step, record it, then let it have effects.

Inputs are admitted on the intake's own thread and arrive here through ``deliver``; the loop sleeps
until something happens and never polls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sia import queue as queues
from sia.entries import InputEntry, Iteration, ProcessView, QueuedView, Text, WriteStdout
from sia.errors import RESTART
from sia.events import Emit, Said, TurnEnded
from sia.queue import Queue
from sia.recorder import Recorder
from sia.redact import redact
from sia.scheduler import Admission, Preemption, Situation
from sia.scripts import Cancel
from sia.session import Session
from sia.sources import SOURCES
from sia.steps import Steps
from sia.store import Input, Run, Store
from sia.turn import Turn

QUEUE_SHOWN = 5


@dataclass(frozen=True)
class Arrival:
    """An input and what was decided about it; ``message`` was said to the person at once."""

    input: Input
    admission: Admission
    message: str = ""


class Loop:
    """Works one process at a time. ``clock``: the present moment in the person's zone.
    ``finished``: no more input can come, so the loop ends when nothing is left to do."""

    def __init__(
        self,
        store: Store,
        session: Session,
        steps: Steps,
        recorder: Recorder,
        emit: Emit,
        clock: Callable[[], datetime],
        queue: Queue,
    ) -> None:
        self._store, self._session, self._steps, self._recorder = store, session, steps, recorder
        self._emit, self._clock, self._queue = emit, clock, queue
        self._wake = threading.Condition()
        self._arrivals: list[Arrival] = []
        self._current: Run | None = None
        self._preemptor: Arrival | None = None
        self._shown: list[int] = []
        self._finished = False
        self._exit: int | None = None
        self._fault: BaseException | None = None
        self.cancel = Cancel()
        self.failed = 0

    def run(self) -> int:
        """Iterate until told to stop or, when finished, until nothing is left; the exit code."""
        while self._wait():
            self.iterate()
        self._store.drop_messages(self._shown)
        return self._exit or 0

    def iterate(self) -> None:
        """One turn."""
        turn = Turn(run=self._take_process())
        arrivals = self._take_arrivals(turn)
        iteration = self._rebuild(turn, arrivals)
        self._steps.step(turn, iteration, self.cancel)
        self._record(turn, iteration, arrivals)
        self._follow(turn)

    def probe(self) -> None:
        """A turn without a process: the context is rebuilt and recorded, and nothing is done."""
        turn = Turn(run=None)
        self._record(turn, self._rebuild(turn, []), [])
        self._follow(turn)

    # before the turn

    def _wait(self) -> bool:
        with self._wake:
            while self._exit is None:
                if self._fault:
                    raise self._fault
                if self._current or self._arrivals or self._queue.depth():
                    return True
                self._flush()
                if self._steps.wants_turn():
                    return True
                if self._finished and self._steps.give_up_questions():
                    continue
                if self._finished:
                    return False
                self._wake.wait()
        return False

    def _flush(self) -> None:
        """Before sleeping: what was shown is known to have been shown."""
        self._store.drop_messages(self._shown)
        self._shown = []

    def _take_process(self) -> Run | None:
        """The process of this turn: the current one, unless preempted, else the queue's head."""
        with self._wake:
            preemptor, self._preemptor = self._preemptor, None
            if self._exit is None:
                self.cancel.clear()
        # The one that goes first may have been taken from the queue before it was told of here.
        if preemptor and self._current and self._yields(self._current, preemptor):
            self._displace(self._current, preemptor.input.run)
            self._current = None
        with self._wake:  # what is taken cannot be dropped from the queue meanwhile
            if self._current is None:
                head = self._queue.head(self._clock())
                self._set_current(replace(head, status="running") if head else None)
        return self._current

    def _displace(self, run: Run, by: str) -> None:
        requeued = replace(run, status="waiting", requeued=self._clock(), displaced_by=by)
        self._store.save_run(replace(requeued, attempt=run.attempt + 1, preempts=False))

    def _yields(self, current: Run, arrival: Arrival) -> bool:
        """Whether ``current`` makes way. It may not be what ran when the input was admitted."""
        item, admission = arrival.input, arrival.admission
        return current.id != item.run and self._steps.preemption(current).yields(
            SOURCES[item.source], admission.interrupt, admission.skill
        )

    def _set_current(self, run: Run | None) -> None:
        with self._wake:
            self._current = run
            self._wake.notify_all()

    def _take_arrivals(self, turn: Turn) -> list[Arrival]:
        with self._wake:
            arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            self._enter(arrival, turn)
        turn.heard = len(turn.decided)
        return arrivals

    def _enter(self, arrival: Arrival, turn: Turn) -> None:
        """What came in becomes part of the context; its decisions name the entry."""
        item = arrival.input
        source = item.id
        if arrival.message:
            text = Text.of(redact(arrival.message))
            self._session.add(lambda id: WriteStdout(id, item.run, text))
        elif arrival.admission.action != "stdin":
            text = self._recorder.keep(item.text, f"{item.id}.input")
            source = self._session.add(
                lambda id: InputEntry(id, item.source, item.run, text)
            ).id
        turn.decided += [(answer, source) for answer in arrival.admission.answers]

    def _rebuild(self, turn: Turn, arrivals: list[Arrival]) -> Iteration:
        now = self._clock()
        run = turn.run
        own = run.id if run else ""  # until it is recorded it stands in the queue too
        rate = self._queue.rate
        view = tuple(
            QueuedView(other.id, queues.effective(other, rate, now), other.source, other.text)
            for other in self._queue.first(QUEUE_SHOWN, now, own)
        )
        process = self._view(run) if run else None
        return self._steps.context(run, process, view, self._queue.depth(own), now, self.cancel)

    @staticmethod
    def _view(run: Run) -> ProcessView:
        return ProcessView(run.skill, run.step + 1, run.id, run.text)

    # after the step

    def _record(self, turn: Turn, iteration: Iteration, arrivals: list[Arrival]) -> None:
        logged = {id(answer) for arrival in arrivals for answer in arrival.admission.answers}
        messages = self._recorder.record(turn, iteration, logged, self._shown)
        self._shown = []
        self._set_current(turn.run if turn.run and turn.run.status == "running" else None)
        for event in turn.before:
            self._emit(event)
        for number, run, text in messages:
            self._emit(Said(run, text))
            self._shown.append(number)

    def _follow(self, turn: Turn) -> None:
        """Effects that follow the record."""
        self._steps.follow(turn)
        for event in turn.after:
            self._emit(event)
        if turn.run and turn.run.status == "failed":
            self.failed += 1
        self._emit(TurnEnded(self._session.n))
        if turn.exit_code is not None:
            self.stop(turn.exit_code)

    # from other threads

    def situation(self) -> Situation:
        """What an input meets now."""
        with self._wake:
            # One that was admitted just now is not yet taken.
            current = self._current or self._queue.head(self._clock())
        # The question asked last: whoever answers has that one before them.
        asking = max(self._store.runs("asking"), key=lambda run: run.requeued, default=None)
        question = asking.open_question if asking else {}
        return Situation(
            process=self._view(current) if current else None,
            preemption=self._steps.preemption(current) if current else Preemption(),
            asking=asking.id if asking else "",
            question=question.get("text") or (asking.text if asking else ""),
            options=tuple(question.get("options") or ()),
            literal=bool(question.get("literal")),
            reads=bool(current) and self._steps.reads(current),
        )

    def deliver(self, arrival: Arrival) -> None:
        """An input was admitted; what must last about it is in the database already."""
        with self._wake:
            self._arrivals.append(arrival)
            current = self._current
            preempts = arrival.admission.action == "preempt"
            # Else it goes first once the current one has ended.
            if preempts and (current is None or self._yields(current, arrival)):
                self._preemptor = arrival
                self.cancel.set()
            self._wake.notify_all()

    def drop(self, id: str) -> Run:
        """Cancel a request that waits, and end what it has set going. Raises SiaError."""
        with self._wake:
            run = queues.drop(self._store, id, self._current.id if self._current else "")
            self._wake.notify_all()
        self._steps.end_work(id)
        return run

    def raise_urgency(self, id: str, urgency: float) -> Run:
        """Raises SiaError."""
        with self._wake:
            current = self._current.id if self._current else ""
            return queues.raise_urgency(self._store, id, urgency, current)

    def nudge(self) -> None:
        """Look whether there is something to do: skills changed."""
        with self._wake:
            self._wake.notify_all()

    def idle(self) -> bool:
        """Nothing runs and nothing waits."""
        with self._wake:
            return not (self._current or self._arrivals or self._queue.depth())

    def finish(self) -> None:
        """No more input will come."""
        with self._wake:
            self._finished = True
            self._wake.notify_all()

    @property
    def finished(self) -> bool:
        return self._finished

    def stop(self, code: int, cut: bool = True) -> None:
        """End after the running turn. ``cut``: what is running is cut off, and goes on at the next
        start; otherwise the turn is finished first."""
        with self._wake:
            if self._exit in (None, RESTART):  # who ends it means more than a restart
                self._exit = code
            if cut:
                self.cancel.set()
            self._wake.notify_all()

    def fail(self, error: BaseException) -> None:
        """Another thread cannot go on: raise its error from ``run``."""
        with self._wake:
            self._fault = error
            self.cancel.set()
            self._wake.notify_all()

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self._exit is not None

    @property
    def current(self) -> Run | None:
        return self._current
