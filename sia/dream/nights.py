"""The agent dreams by itself: when it is due, in a child process that makes way for requests."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from semif.export import read_labels
from sia import feedback
from sia.dream import status
from sia.dream.child import command
from sia.dream.pause import Busy
from sia.dream.schedule import AGAIN, Conditions, Facts, Verdict, look
from sia.errors import UsageError
from sia.events import Emit, Notice, Traced
from sia.home import Home
from sia.machine import on_mains

NOT_PASSED = ("SIA_TURN_FILE", "SIA_RESTART", "SIA_AGAIN")  # of restart.sh, about this process


class Nights:
    """The dreams of a running agent. ``clock``: now, in the person's zone. ``arguments``: further
    ones of ``sia dream``. ``proposes``: whether there is somebody to be told that one would pay."""

    def __init__(
        self,
        home: Home,
        emit: Emit,
        clock: Callable[[], datetime],
        arguments: Sequence[str] = (),
        proposes: bool = False,
        mains: Callable[[], bool] = on_mains,
    ) -> None:
        chosen = home.config.dream
        self._home, self._emit, self._clock, self._mains = home, emit, clock, mains
        self._arguments, self._proposes = tuple(arguments), proposes
        self._schedule = chosen.schedule
        self._conditions = Conditions(
            timedelta(minutes=chosen.idle_minutes), chosen.mains, chosen.rows
        )
        self._busy = Busy(home.dreams / "busy")
        self._active = clock()
        self._wake = threading.Condition()
        self._asked = self._stopped = False
        self._child: subprocess.Popen[str] | None = None
        self._proposed: datetime | None = None
        self._thread = threading.Thread(target=self._run, name="nights", daemon=True)

    # the agent's side

    def start(self) -> None:
        if status.last(self._home.dreams) is None:
            status.keep_last(self._home.dreams, status.Last(datetime.now(UTC), "none"))
        self._thread.start()

    def stop(self) -> None:
        """End what runs; it is gone on with when a dream is next due."""
        with self._wake:
            self._stopped = True
            if self._child:
                self._child.kill()
            self._wake.notify_all()
        if self._thread.ident:
            self._thread.join()
        self._busy.release()

    def working(self) -> None:
        """Somebody asked for something: a dream makes way."""
        self._active = self._clock()
        self._busy.hold()

    def rested(self) -> None:
        """Nothing is left to do."""
        self._busy.release()

    def now(self) -> str:
        """Dream as soon as nothing is left to do; what comes of it, in words. Raises UsageError."""
        with self._wake:
            if self._child or self._asked:
                raise UsageError("a dream is under way already; /dream says how far it is")
            self._asked = True
            self._wake.notify_all()
        return "dreaming; what is asked meanwhile goes first, and the toolbar says how far it is"

    def words(self) -> str:
        """How far the dream is that runs in this home, "" when none does."""
        found = status.running(self._home.dreams)
        return found.words() if found else ""

    # on the thread

    def _run(self) -> None:
        while (due := self._next()) is not None:
            if due:
                self._dream()

    def _next(self) -> bool | None:
        """Wait until a dream is due or it is time to look again; None when stopped."""
        with self._wake:
            if self._stopped:
                return None
            if self._asked:
                return True
        verdict = self._look()
        with self._wake:
            if not verdict.due and not self._asked and not self._stopped:
                left = (verdict.again - self._clock()) if verdict.again else AGAIN
                # No longer than that: a clock does not run while the machine sleeps.
                self._wake.wait(max(0.0, min(left, AGAIN).total_seconds()))
        return verdict.due and not self._stopped

    def _look(self) -> Verdict:
        last = status.last(self._home.dreams)
        begun = last.ended if last else self._clock()
        rows = self._new_labels(begun)
        gathered = max(rows, self._new_responses(begun))
        facts = Facts(self._clock(), self._active, begun, self._mains(), gathered)
        self._propose(begun, rows)
        return look(self._schedule, self._conditions, facts)

    def _new_labels(self, since: datetime) -> int:
        """Decisions that have had a label of weight since then."""
        labels = read_labels(self._home.labels, lambda problem: None)
        return len(
            {
                label.row
                for label in labels
                if label.weight > 0 and datetime.fromisoformat(label.time) > since
            }
        )

    def _new_responses(self, since: datetime) -> int:
        """Responses that somebody approved or edited since then."""
        said = feedback.read(self._home.feedback, lambda problem: None)
        return len(
            {
                row.iteration
                for row in said
                if row.kind != "rejected" and datetime.fromisoformat(row.time) > since
            }
        )

    def _propose(self, since: datetime, rows: int) -> None:
        """Say once that enough has gathered to learn from, and to prove it."""
        if not self._proposes or rows < self._conditions.rows or self._proposed == since:
            return
        from sia.dream.dataset import collect
        from sia.dream.proof import HELD_ROWS

        dataset = collect([self._home.folder], lambda problem: None)
        if len(dataset.held) < HELD_ROWS:
            return
        self._proposed = since
        self._emit(
            Notice(
                f"{rows} decisions were judged since the last dream; /dream now learns from them"
            )
        )

    def _dream(self) -> None:
        """One dream, to its end or that of the agent."""
        environment = {k: v for k, v in os.environ.items() if k not in NOT_PASSED}
        arguments = ["-m", "sia", "dream", "--now", "--json", "--home", str(self._home.folder)]
        with self._wake:
            self._asked = False
            if self._stopped:
                return
            self._child = subprocess.Popen(
                command([*arguments, *self._arguments]),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, errors="replace", env=environment, start_new_session=True,
            )  # fmt: skip
        child, line = self._child, ""
        assert child.stdout is not None and child.stderr is not None
        with child:
            for line in child.stderr:
                self._emit(Traced(f"dream: {line.strip()}"))
            printed = child.stdout.read()
        with self._wake:
            self._child = None
            if self._stopped:
                return
        self._emit(self._told(child.returncode, printed, line))

    def _told(self, code: int, printed: str, line: str) -> Notice:
        try:
            outcome = json.loads(printed)
        except ValueError:
            text = line.strip().removeprefix("sia: ")
            if code < 0:  # killed: nothing is kept of it, and it would be due again at once
                text = text or f"ended by signal {-code}"
                last = status.Last(datetime.now(UTC), "failed", text)
                status.keep_last(self._home.dreams, last)
            return Notice(f"the dream came to nothing: {text}", "warning")
        level = "info" if outcome["status"] != "rejected" else "warning"
        return Notice(f"dreamed; {outcome['status']}: {outcome['text']}", level)
