"""Plain text in and out: one request a line or one as an argument, replies on standard output,
everything else on standard error. No escape codes, ever."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import TextIO

from sia.agent import Agent
from sia.cli.aside import Aside
from sia.cli.reader import Reader
from sia.entries import ILLEGAL
from sia.errors import SOME_FAILED
from sia.events import Admitted, Asked, Ended, Event, Notice, Routed, Said
from sia.store import OPEN, Store

# In the store, for the process that goes on for this one: half a line; the request and its run.
PARTIAL, ONE_REQUEST = "partial_input", "one_request"


def shown(text: str) -> str:
    """Text with control characters replaced: nothing foreign may drive a terminal."""
    return ILLEGAL.sub("�", text).replace("\r", "�")


class PlainOutput:
    """Prints events. ``gone``: whoever read them is."""

    def __init__(self, out: TextIO | None, err: TextIO | None) -> None:
        self._out, self._err = out, err
        self._lock = threading.Lock()
        self.gone = False

    def _print(self, text: str, stream: TextIO | None) -> None:
        if stream is None:
            return
        with self._lock:
            try:
                print(shown(text), file=stream, flush=True)
            except BrokenPipeError:
                self.gone = True  # what was said is on record
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    def say(self, text: str) -> None:
        self._print(text, self._out)

    def note(self, text: str) -> None:
        self._print(text, self._err)

    def __call__(self, event: Event) -> None:
        match event:
            case Said(_, text, again):
                self.say(f"(again) {text}" if again else text)
            case Asked(_, text, options):
                self.say(f"{text} ({'/'.join(options)})" if options else text)
            case Admitted(_, "ignore", text):
                self.note(f"sia: heard, nothing to do: {text}")
            case Admitted(_, "preempt", text):
                self.note(f"sia: interrupting for: {text}")
            case Routed(_, skill, p) if skill != "-":
                self.note(f"sia: {skill} ({p:.2f})")
            case Notice(text, level):
                self.note(f"sia: {text}" if level == "info" else f"sia: {level}: {text}")


class Lines(Reader):
    """Submits each line of standard input but corrections; the agent ends after the last."""

    def __init__(
        self,
        agent: Agent,
        fd: int,
        source: str,
        note: Callable[[str], None],
        refuse: Callable[[str], None],
    ) -> None:
        self._store = agent.store
        self._aside = Aside(
            agent.home,
            agent.store,
            lambda: agent.holder.tree,
            note,
            lambda text: agent.submit(text, source),
            agent.again,
        )
        agent.listen(self._aside)
        super().__init__(
            fd,
            self._aside.take,
            refuse,
            agent.close_input,
            lambda: agent.stop(SOME_FAILED),
            # Bytes as characters: a restart may come in the middle of one.
            agent.store.meta(PARTIAL).encode("latin-1"),
            self._keep_rest,
        )

    def stop(self) -> None:
        self._aside.stop()
        super().stop()

    def _keep_rest(self, rest: bytes) -> None:
        if rest:
            self._store.set_meta(PARTIAL, rest.decode("latin-1"))
        elif self._store.meta(PARTIAL):
            self._store.drop_meta(PARTIAL)


class OneRequest:
    """Submits one request, and ends the agent's input when it is over. terminal: the descriptor
    that its questions are answered at, from the first one on; None when nobody is there."""

    def __init__(self, agent: Agent, text: str, output: PlainOutput, terminal: int | None) -> None:
        self._agent, self._text, self._output = agent, text, output
        self._terminal = terminal
        # Held while an id is drawn, so that what is heard of it is known to be about it.
        self._lock = threading.Lock()
        self._run = self._answer = ""
        self._question: Asked | None = None
        self._reader: Reader | None = None
        agent.listen(self)

    @property
    def error(self) -> BaseException | None:
        return self._reader.error if self._reader else None

    def start(self) -> None:
        """Submit it, unless it was submitted before a restart."""
        kept = self._agent.store.meta(ONE_REQUEST)
        if kept and json.loads(kept)[1] == self._text:
            self._follow(json.loads(kept)[0])
            return
        with self._lock:
            self._follow(self._agent.submit(self._text, "typed"))

    def stop(self) -> None:
        if self._reader:
            self._reader.stop()

    def _follow(self, run: str) -> None:
        """The request is over when ``run`` is."""
        store = self._agent.store
        self._run = run
        store.set_meta(ONE_REQUEST, json.dumps([run, self._text]))
        # The inputs are looked at first: one may be admitted, and even be over, just now.
        if run not in {item.run for item in store.inputs()}:
            found = store.run(run)
            if found is None or found.status not in OPEN:
                self._over()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Admitted | Asked | Ended):
            with self._lock:
                self._hear(event)

    def _hear(self, event: Admitted | Asked | Ended) -> None:
        match event:
            case Ended(run) if run == self._run:
                self._over()
            case Admitted(run, "answer", to=to) if run == self._run:
                self._follow(to)  # it answered a question of an earlier session
            case Admitted(run, "ignore" | "reject" | "stdin") if run == self._run:
                self._over()
            case Admitted(run, "answer", to=to) if run == self._answer:
                self._question = None if to == self._run else self._question
            case Admitted(run, action) if run == self._answer and action != "preempt":
                if self._question:
                    self._output(self._question)
            case Asked(run, _, _) if run == self._run:
                self._ask(event)

    def _ask(self, question: Asked) -> None:
        if self._terminal is None:
            self._agent.close_input()  # the question is given up
            return
        self._question = question
        if not self._reader:
            self._reader = Reader(
                self._terminal,
                self._submit,
                lambda reason: self._output(Notice(reason, "error")),
                self._agent.close_input,
                lambda: self._agent.stop(SOME_FAILED),
            )
            self._reader.start()

    def _submit(self, text: str) -> None:
        with self._lock:
            self._answer = self._agent.submit(text, "typed")

    def _over(self) -> None:
        self._agent.store.drop_meta(ONE_REQUEST)
        self._agent.close_input()


def forget(store: Store) -> None:
    """Drop what only the process that goes on for an earlier one may take up."""
    store.drop_meta(ONE_REQUEST)
    store.drop_meta(PARTIAL)
