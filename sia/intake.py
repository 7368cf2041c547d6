"""Intake: what comes in is kept, then admitted on a thread of its own with its own llama context,
so that it is heard while a script or a generation runs."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime

from semif.errors import DecisionError
from semif.log import DecisionLog
from sia.events import Admitted, Emit, Notice
from sia.loop import Arrival, Loop
from sia.scheduler import Admission, Scheduler
from sia.sources import SOURCES
from sia.store import Input, Run, Store

INPUT_LIMIT = 100_000  # characters


class Intake:
    """Admits inputs, oldest first. ``limit``: requests that may wait."""

    def __init__(
        self,
        store: Store,
        loop: Loop,
        scheduler: Scheduler,
        log: DecisionLog,
        emit: Emit,
        limit: int,
    ) -> None:
        self._store, self._loop, self._scheduler, self._log = store, loop, scheduler, log
        self._emit, self._limit = emit, limit
        self._wake = threading.Condition()
        self._inbox: deque[Input] = deque(store.inputs())
        self._held: deque[Input] = deque()
        self._closing = self._stopped = False
        self.refused = 0
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, text: str, source: str) -> str:
        """Keep an input and have it admitted; its run id. On disk when this returns."""
        item = self._store.add_input(source, text, datetime.now(UTC))
        with self._wake:
            self._inbox.append(item)
            self._wake.notify()
        return item.run

    def close(self) -> None:
        """No more will be submitted; the loop is told once all is admitted."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def stop(self) -> None:
        """Leave what is not yet admitted for the next start."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()  # the database and the models are closed next

    def release(self) -> None:
        """The loop is idle: held inputs may be looked at again."""
        with self._wake:
            self._wake.notify()

    def _next(self) -> Input | None:
        """The next input to admit; None when stopped. Once nothing more is to be submitted and all
        is admitted the loop is told, but what comes in by the socket is still heard."""
        with self._wake:
            while not self._stopped:
                if self._held and self._loop.idle():
                    return self._held.popleft()
                if self._inbox:
                    return self._inbox.popleft()
                if self._closing and not self._held and not self._loop.finished:
                    self._loop.finish()
                self._wake.wait()
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
        try:
            admission = self._scheduler.admit(item.text, source, self._loop.situation())
        except DecisionError as error:
            self._refuse(item, str(error))
            return
        if admission.action == "hold":
            with self._wake:
                self._held.append(item)
            return
        self._keep(item, admission)

    def _refuse(self, item: Input, reason: str) -> None:
        self._store.drop_input(item.id)
        start = " ".join(item.text[:40].split())
        self._reject(item, f"input refused ({start}…): {reason}; put it into a file")

    def _reject(self, item: Input, reason: str) -> None:
        self.refused += 1
        self._emit(Notice(reason, "error"))
        self._emit(Admitted(item.run, "reject", item.text, reason=reason))

    def _keep(self, item: Input, admission: Admission) -> None:
        """Rows, then one commit, then the loop hears of it."""
        if admission.answers:
            self._log.append(list(admission.answers), item.run)
        with self._store.transaction():
            admission = self._apply(item, admission)
            self._store.drop_input(item.id)
        if admission.action == "reject":
            text = f"the queue is full ({self._limit} waiting); not taken: {item.text[:60]}"
            self._reject(item, text)
            return
        to = admission.run
        # Told first, so that whoever answered hears what the answer leads to.
        self._emit(Admitted(item.run, admission.action, item.text, admission.urgency, to))
        self._loop.deliver(Arrival(replace(item, run=to) if to else item, admission))

    def _apply(self, item: Input, admission: Admission) -> Admission:
        match admission.action:
            case "queue" | "run" | "preempt":
                # What goes first does not wait, so a full queue cannot keep it out.
                full = self._store.waiting_count() >= self._limit
                if full and admission.action != "preempt":
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
                    )
                )
            case "answer":
                return self._answer(admission, item.time)
            case "stdin":
                self._store.add_stdin(admission.run, item.text)
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
