"""Intake: what comes in is kept, then admitted on a thread of its own with its own llama context,
so that it is heard while a script or a generation runs."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from semif.errors import DecisionError
from semif.log import DecisionLog
from sia import queue as queues
from sia.errors import OverLimit
from sia.events import Admitted, Emit, Notice, Routed
from sia.loop import Arrival, Loop
from sia.queue import Queue
from sia.scheduler import Admission, Scheduler
from sia.sources import SOURCES, Limiter
from sia.store import OPEN, Input, Run, Store

INPUT_LIMIT = 100_000  # characters


class Intake:
    """Admits inputs: by source in the order of the table, then the oldest. ``limit``: requests that
    may wait. ``clock``: seconds, for the limits of the sources. ``tell_declined``: tells the person
    that a run must wait, for the request that is being worked."""

    def __init__(
        self,
        store: Store,
        loop: Loop,
        scheduler: Scheduler,
        log: DecisionLog,
        emit: Emit,
        queue: Queue,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        tell_declined: Callable[[Run, str], None] = lambda run, busy: None,
    ) -> None:
        self._store, self._loop, self._scheduler, self._log = store, loop, scheduler, log
        self._emit, self._queue, self._limit = emit, queue, limit
        self._tell_declined = tell_declined
        self._wake = threading.Condition()
        self._inbox: dict[str, deque[Input]] = {name: deque() for name in SOURCES}
        for item in store.inputs():
            self._inbox[item.source].append(item)
        self._limiters = {name: Limiter(source, clock) for name, source in SOURCES.items()}
        self._held: deque[Input] = deque()
        self._closing = self._stopped = False
        self.refused = 0
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, text: str, source: str, within: Callable[[str], None] = lambda run: None
    ) -> str:
        """Keep an input and have it admitted; its run id. On disk when this returns.

        within: called with that id in the same commit, so that its sender can note there that it
        was kept. Raises OverLimit where the source is refused what is over its limit.
        """
        with self._wake:
            refused = SOURCES[source].over == "refused" and not self._limiters[source].take()
            tells = refused and self._limiters[source].tells()
        if refused:
            text = _over(source, "this one was not taken")
            if tells:
                self._emit(Notice(text, "warning"))
            raise OverLimit(text)
        with self._store.transaction():
            item = self._store.add_input(source, text, datetime.now(UTC))
            within(item.run)
        with self._wake:
            self._inbox[source].append(item)
            self._wake.notify_all()
        return item.run

    def room(self, source: str) -> bool:
        """Wait until less of ``source`` is unadmitted than may come at once, so that a flood stays
        where it comes from. False when no more is admitted."""
        with self._wake:
            self._wake.wait_for(
                lambda: self._stopped or len(self._inbox[source]) < SOURCES[source].burst
            )
            return not self._stopped

    def close(self) -> None:
        """No more will be submitted; the loop is told once all is admitted."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()

    def stop(self) -> None:
        """Leave what is not yet admitted for the next start."""
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._thread.join()  # the database and the models are closed next

    def release(self) -> None:
        """The loop is idle: held inputs may be looked at again."""
        with self._wake:
            self._wake.notify_all()

    def _next(self) -> Input | None:
        """The next input to admit; None when stopped. Once nothing more is to be submitted and all
        is admitted the loop is told, but what comes in by the socket is still heard."""
        while True:
            with self._wake:
                if self._stopped:
                    return None
                if self._held and self._loop.idle():
                    return self._held.popleft()
                item = self._heard()
                if item:
                    self._wake.notify_all()  # there is room for another
                    return item
                over = [name for name, inbox in self._inbox.items() if inbox]
                told = [name for name in over if self._limiters[name].tells()]
                if not told:
                    if self._closing and not self._held and not over and not self._loop.finished:
                        self._loop.finish()
                    waits = [self._limiters[name].wait() for name in over]
                    self._wake.wait(min(waits, default=None))
            for name in told:
                self._emit(Notice(_over(name, "the rest waits, and is not lost"), "warning"))

    def _heard(self) -> Input | None:
        """The next input that is within the limit of its source."""
        for name, inbox in self._inbox.items():
            # What may be refused was within the limit when it was taken.
            if inbox and (SOURCES[name].over == "refused" or self._limiters[name].take()):
                return inbox.popleft()
        return None

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._admit(item)
        except BaseException as error:
            self._loop.fail(error)  # an agent that hears nothing any more must not go on

    def _admit(self, item: Input) -> None:
        source = SOURCES[item.source]
        if len(item.text) > INPUT_LIMIT:
            self._refuse(item, f"{len(item.text):,} characters are more than {INPUT_LIMIT:,}")
            return
        situation = self._loop.situation()
        try:
            admission = self._scheduler.admit(item.text, source, situation)
        except DecisionError as error:
            self._refuse(item, str(error))
            return
        if admission.action == "hold" or (
            admission.action in ("run", "queue", "ignore") and self._behind(item)
        ):
            with self._wake:
                self._held.append(item)
            return
        self._keep(item, admission, situation.process.text if situation.process else "")

    def _behind(self, item: Input) -> bool:
        """Whether an earlier one is still held: the process ended while this one was decided."""
        first = self._held[0] if self._held else item
        return SOURCES[item.source].held and int(first.id[1:]) < int(item.id[1:])

    def _refuse(self, item: Input, reason: str) -> None:
        self._store.drop_input(item.id)
        start = " ".join(item.text[:40].split())
        self._reject(item, f"input refused ({start}…): {reason}; put it into a file")

    def _reject(self, item: Input, reason: str) -> None:
        self.refused += 1
        self._emit(Notice(reason, "error"))
        self._emit(Admitted(item.run, "reject", item.text, reason=reason))

    def _keep(self, item: Input, admission: Admission, busy: str) -> None:
        """Rows, then one commit, then the loop hears of it. busy: the request being worked."""
        if admission.answers:
            self._log.append(list(admission.answers), item.run)
        with self._store.transaction():
            admission = self._apply(item, admission)
            if admission.action == "decline":
                queues.decline(self._store, item.run, busy)
            self._store.drop_input(item.id)
        if admission.action == "reject":
            text = f"the queue is full ({self._limit} waiting); not taken: {item.text[:60]}"
            self._reject(item, text)
            return
        to = admission.run
        # Told first, so that whoever answered hears what the answer leads to.
        self._emit(Admitted(item.run, admission.action, item.text, admission.urgency, to))
        if admission.skill:
            answer = admission.answers[-1]
            self._emit(Routed(item.run, admission.skill, answer.probs[answer.selected]))
        self._loop.deliver(Arrival(replace(item, run=to) if to else item, admission))
        if admission.action == "decline":
            self._tell_declined(self._store.run(item.run), busy)

    def _apply(self, item: Input, admission: Admission) -> Admission:
        match admission.action:
            case "queue" | "run" | "preempt" | "decline":
                # What goes first does not wait, so a full queue cannot keep it out.
                exempt = admission.action == "preempt" or SOURCES[item.source].exempt
                if self._queue.depth() >= self._limit and not exempt:
                    return replace(admission, action="reject")
                self._store.save_run(
                    Run(
                        id=item.run,
                        source=item.source,
                        text=item.text,
                        urgency=admission.urgency,
                        arrived=item.time,
                        requeued=item.time,
                        preempts=admission.action == "preempt",
                        skill=admission.skill,
                    )
                )
                if admission.skill:  # found already; a way that its outcome may prove right
                    last = admission.answers[-1]
                    way = [[last.decision.id, last.selected, last.decision.phase]]
                    self._store.set_meta(f"rows_{item.run}", json.dumps(way))
            case "answer":
                return self._answer(admission, item.time)
            case "stdin":
                return self._unread(admission, item)
        return admission

    def _unread(self, admission: Admission, item: Input) -> Admission:
        """Keep it for the process that reads, if it has not come to its end or asked meanwhile."""
        run = self._store.run(admission.run)
        if run is None or run.status not in OPEN:
            return replace(admission, action="ignore", run="")
        if run.open_question.get("method") == "stdin":
            return self._answer(replace(admission, action="answer", text=item.text), item.time)
        self._store.add_stdin(run.id, item.text)
        return admission

    def _answer(self, admission: Admission, time: datetime) -> Admission:
        """Give the answer to the run that asked; it then goes on before the queue."""
        run, text = self._store.run(admission.run), admission.text
        if run is None or run.status != "asking":  # cancelled while this was being decided
            return replace(admission, action="ignore", run="")
        question = run.open_question
        if question.get("method") == "stdin":
            self._store.add_stdin(run.id, text)
        else:
            value = text == "yes" if question["method"] == "confirm" else text
            self._store.save_result(
                run.id, question["action"], question["ordinal"], question["method"], value
            )
        goes_on = replace(run, status="waiting", question="", preempts=True)
        self._store.save_run(replace(goes_on, answered=time.isoformat()))
        return admission


def _over(source: str, fate: str) -> str:
    rate = SOURCES[source].rate
    return f"more than {rate:g} inputs a minute came from the source {source}; {fate}"
