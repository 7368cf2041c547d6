"""To the agent that runs in this home already: one request, or all that is typed."""

from __future__ import annotations

import shlex
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from sia import home as homes
from sia.cli.aside import Aside
from sia.cli.plain import PlainOutput
from sia.cli.reader import Reader, standard_input
from sia.errors import DONE, SOME_FAILED, UNAVAILABLE, Unavailable, UsageError
from sia.events import Admitted, Asked, Ended, Event, Kept, Notice, Said
from sia.home import Home
from sia.skills import tree
from sia.store import Store
from sia.wire import GONE, Connection


class Request:
    """Hands one request over, prints what comes of it, and answers its questions from a terminal.

    terminal: its descriptor; None when nobody is there.
    """

    def __init__(self, home: Home, text: str, output: PlainOutput, terminal: int | None) -> None:
        self._text, self._output, self._terminal = text, output, terminal
        self._connection = Connection(home.socket)
        self._run = self._answer = ""
        self._question: Asked | None = None
        self._reader: Reader | None = None
        self._declined = False

    def work(self) -> int:
        """Until it is over, or waits for an answer that nobody gives; the exit code."""
        try:
            self._connection.send(input=self._text)
            for event in self._connection.events():
                code = self._hear(event)
                if code is not None:
                    return code
        finally:
            if self._reader:
                self._reader.stop()
            self._connection.close()
        if self._question and self._terminal is None:
            return self._unanswered(self._question)
        what = "the request is kept and is worked at its next start"
        self._output.note(f"sia: the agent ended; {what if self._run else 'ask again'}")
        return UNAVAILABLE

    def _hear(self, event: Event) -> int | None:
        """The exit code, when this is the end."""
        match event:
            case Kept(run):
                self._run, self._answer = self._run or run, run
            case Said(run):
                self._output(event)
                if self._declined and run == self._run:  # why, and what becomes of it
                    return SOME_FAILED
            case Admitted(run, "decline") if run == self._run:
                self._declined = True
            case Asked(run):
                self._output(event)
                if run == self._run:
                    return self._ask(event)
            case Ended(run, status) if run == self._run:
                return DONE if status == "done" else SOME_FAILED
            case Admitted(run, "answer" | "stdin", to=to) if run == self._run:
                self._run = to
            case Admitted(run, "ignore") if run == self._run:
                self._output(event)
                return DONE
            case Admitted(run, "reject") if run == self._run:
                self._output.note(f"sia: {event.reason}")
                return SOME_FAILED
            case Admitted(run) if run in (self._answer, ""):
                self._answered(event)
        return None

    def _ask(self, question: Asked) -> int | None:
        self._question = question
        if self._terminal is None:
            return self._unanswered(question)
        if not self._reader:
            self._reader = Reader(
                self._terminal,
                lambda text: self._connection.send(input=text),
                lambda reason: self._output(Notice(reason, "error")),
                self._gone,
                self._connection.leave,
            )
            self._reader.start()
        return None

    def _answered(self, event: Admitted) -> None:
        """What was typed is decided: unless it was the answer, that is still wanted."""
        if event.action == "answer" and event.to == self._run:
            self._question = None
        elif event.action == "reject":
            self._output.note(f"sia: {event.reason}")
        if self._question and event.action != "preempt":
            self._output(self._question)

    def _gone(self) -> None:
        """Nobody answers any more."""
        self._terminal = None
        if self._question:
            self._connection.leave()

    def _unanswered(self, question: Asked) -> int:
        answer = shlex.quote(question.options[0]) if question.options else '"your answer"'
        self._output.note(
            f"sia: the question stays open; answer it with: sia {answer}, or with sia attach"
        )
        return SOME_FAILED


class _Attached:
    """What was sent, until the agent has decided about each: one that is refused is told."""

    def __init__(self, connection: Connection, output: PlainOutput) -> None:
        self._connection, self._output = connection, output
        self._lock = threading.Lock()
        self._own: set[str] = set()
        self.undecided, self.ended, self.refused = 0, False, False

    def send(self, **message: Any) -> None:
        with self._lock:
            self.undecided += 1
        self._connection.send(**message)

    def refuse(self, reason: str) -> None:
        self.refused = True
        self._output(Notice(reason, "error"))

    def end(self) -> None:
        """No more will be sent."""
        with self._lock:
            self.ended = True
        self._leave()

    def hear(self, event: Event) -> None:
        self._output(event)
        match event:
            case Kept(run):
                self._own.add(run)
                return
            case Admitted("", "reject", reason=reason):
                self.refuse(reason)  # it could not be kept, and so has no run
            case Admitted(run, action) if run in self._own:
                self._own.remove(run)
                self.refused = self.refused or action == "reject"
            case _:
                return
        with self._lock:
            self.undecided -= 1
        self._leave()

    def _leave(self) -> None:
        if self.ended and not self.undecided:
            self._connection.leave()


def attach(folder: Path) -> int:
    """Lines typed here go to the running agent; all it says is shown. Ends with Ctrl-D, once it is
    decided what becomes of each line."""
    home = homes.open_home(folder)
    output = PlainOutput(sys.stdout, sys.stderr)
    fd = standard_input()
    if fd is None:
        raise UsageError("sia attach needs a standard input")
    with (
        closing(Connection(home.socket)) as connection,
        closing(Store.look(home.database)) as store,
    ):
        connection.send(attach=True)
        attached = _Attached(connection, output)
        aside = Aside(
            home,
            store,
            lambda: tree.load(home.skill_roots),
            output.note,
            lambda text: attached.send(input=text),
            lambda wanted: attached.send(again=msgspec.to_builtins(wanted)),
        )
        reader = Reader(fd, aside.take, attached.refuse, attached.end, connection.leave)
        reader.start()
        for event in connection.events():
            attached.hear(event)
            aside(event)
            if output.gone:
                break
        aside.stop()
        reader.stop()
    if output.gone or (attached.ended and not attached.undecided):
        return SOME_FAILED if attached.refused else DONE
    kept = "; what was sent is kept and is worked at its next start" if attached.undecided else ""
    raise Unavailable(GONE + kept)
