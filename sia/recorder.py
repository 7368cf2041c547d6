"""Writes a turn down: decision rows, labels, database, iteration file, in this order, each synced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from semif.log import DecisionLog, append_labels
from semif.types import Answer
from sia import record
from sia.context import state_text, to_xml
from sia.entries import DecisionView, Iteration, Text
from sia.events import Asked
from sia.home import Home
from sia.prompt import VERSION, prompt
from sia.queue import to_halt
from sia.session import Session
from sia.store import Run, Store
from sia.turn import BROKEN_OFF, Turn

Message = tuple[str, str]  # run, text


def decision_view(answer: Answer, source: str) -> DecisionView:
    decision = answer.decision
    return DecisionView(
        id=decision.id,
        phase=decision.phase,
        source=source,
        selected=answer.selected,
        question=decision.question,
        state=state_text(decision.state),
        options=tuple(
            (option.id, option.description, answer.probs[option.id]) for option in decision.options
        ),
    )


class Recorder:
    """The record of one home and session. ``tells``: those of (run, text) that reach the person."""

    def __init__(
        self,
        home: Home,
        store: Store,
        session: Session,
        decisions: DecisionLog,
        tells: Callable[[Sequence[Message]], Sequence[Message]] = lambda messages: messages,
    ) -> None:
        self._home, self._store, self._session = home, store, session
        self._decisions, self._tells = decisions, tells

    def keep(self, text: str, name: str) -> Text:
        """``text`` for an entry of the coming iteration; what XML cannot hold also as a file."""
        folder = self._home.contexts / self._session.name / f"{self._session.n + 1:06d}.d"
        return record.keep_text(text, name, folder)

    def record(
        self, turn: Turn, iteration: Iteration, logged: set[int], shown: Sequence[int]
    ) -> list[tuple[int, str, str]]:
        """Make the turn last; the messages now to be shown, as (number, run, text).

        logged: answers (by id()) whose rows the intake has written already. shown: messages that
        earlier turns showed.
        """
        iteration = self._complete(turn, iteration)
        fresh = [(answer, source) for answer, source in turn.decided if id(answer) not in logged]
        self._decisions.append([answer for answer, _ in fresh], turn.run.id if turn.run else "")
        # With the commit the run is over, and says nothing of its decisions any more.
        append_labels(self._home.labels, turn.labels)
        xml = to_xml(iteration)
        session, store = self._session, self._store
        session.n = iteration.n
        with store.transaction():
            told = self._tells(turn.messages)
            messages = [(store.add_message(run, text), run, text) for run, text in told]
            store.drop_messages(shown)
            if turn.run:
                self._heard_meanwhile(turn, turn.run)
                store.save_run(turn.run)
                if turn.run.status in BROKEN_OFF:
                    to_halt(store, turn.run)
                self._save_results(turn)
                store.drop_taken(turn.taken)
                self._remember_rows(turn)
            for verdict in turn.verdicts:
                store.add_verdict(verdict)
            session.save(store)
            store.save_unfiled(session.name, iteration.n, xml)
        session.saved(iteration.entries)
        record.write_iteration(self._home.contexts, session.name, iteration.n, xml)
        return messages

    def _complete(self, turn: Turn, iteration: Iteration) -> Iteration:
        text = prompt(iteration)
        return replace(
            iteration,
            decisions=tuple(decision_view(answer, source) for answer, source in turn.decided),
            # Where a server began or ceased to answer in this turn, who did so last.
            decision_revision=(
                turn.decided[-1][0].revision if turn.decided else iteration.decision_revision
            ),
            response=turn.response,
            run=turn.run.id if turn.run else "",
            generator=turn.generator,
            prompt_version=VERSION,
            system_sha256=text.system_sha256,
            prompt_sha256=text.sha256,
        )

    def _heard_meanwhile(self, turn: Turn, run: Run) -> None:
        """Input that came since the turn found none to read: there is nothing to ask for."""
        asks = run.status == "asking" and run.open_question.get("method") == "stdin"
        if asks and self._store.stdin_count(run.id):
            turn.run = replace(run, status="running", question="")
            turn.after = [event for event in turn.after if not isinstance(event, Asked)]

    def _save_results(self, turn: Turn) -> None:
        if turn.anew:
            self._store.drop_results(turn.run.id)
            return
        for item in turn.results:
            self._store.save_result(
                turn.run.id, item.action, item.ordinal, item.method, item.value
            )

    def _remember_rows(self, turn: Turn) -> None:
        """Which rows led to the run's outcome, for its labels; forgotten when it ends."""
        run = turn.run
        key = f"rows_{run.id}"
        # What finds its skill anew is judged by its new way.
        if run.status in ("done", "failed", "cancelled") or (turn.anew and not run.skill):
            self._store.drop_meta(key)
            return
        rows = json.loads(self._store.meta(key, "[]"))
        found = turn.way()
        if found:
            self._store.set_meta(key, json.dumps(rows + found))
