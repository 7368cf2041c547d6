"""Plain text in and out: one request a line or one as an argument, replies on standard output,
everything else on standard error. No escape codes, ever."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import TextIO

from sia.agent import Agent
from sia.entries import ILLEGAL
from sia.errors import SOME_FAILED
from sia.events import Admitted, Asked, Ended, Event, Notice, Routed, Said
from sia.intake import INPUT_LIMIT
from sia.store import Store

CHUNK = 65_536
LINE_LIMIT = 4 * INPUT_LIMIT  # bytes
AGAIN = "SIA_AGAIN"  # in the environment of a process that goes on for itself
# In the store, for the process that goes on for this one: half a line; the request and its run.
PARTIAL, ONE_REQUEST = "partial_input", "one_request"


def shown(text: str) -> str:
    """Text with control characters replaced: nothing foreign may drive a terminal."""
    return ILLEGAL.sub("�", text).replace("\r", "�")


class PlainOutput:
    """Prints events."""

    def __init__(self, out: TextIO | None, err: TextIO | None) -> None:
        self._out, self._err = out, err
        self._lock = threading.Lock()

    def _print(self, text: str, stream: TextIO | None) -> None:
        if stream is None:
            return
        with self._lock:
            try:
                print(shown(text), file=stream, flush=True)
            except BrokenPipeError:
                # Whoever read us is gone; what was said is on record.
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
                self.note(f"sia: noted, nothing to do: {text}")
            case Admitted(_, "preempt", text):
                self.note(f"sia: interrupting for: {text}")
            case Routed(_, skill, p) if skill != "-":
                self.note(f"sia: {skill} ({p:.2f})")
            case Notice(text, level):
                self.note(f"sia: {text}" if level == "info" else f"sia: {level}: {text}")


class Reader:
    """Reads lines of a descriptor on a thread of its own.

    take(text): a line that is not empty. refuse(reason): one that cannot be taken. ended(): there
    are no more. fail(error): what kept it from going on; ``error`` then holds it. rest, keep: what
    was read of a line that is not yet whole.
    """

    def __init__(
        self,
        fd: int,
        take: Callable[[str], None],
        refuse: Callable[[str], None],
        ended: Callable[[], None],
        fail: Callable[[BaseException], None],
        rest: bytes = b"",
        keep: Callable[[bytes], None] = lambda rest: None,
    ) -> None:
        self._fd, self._take, self._refuse, self._ended = fd, take, refuse, ended
        self._fail, self._rest, self._keep = fail, rest, keep
        self._skipping = False  # the rest of a line that is too long
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more, for good; what was read is taken or kept when this returns."""
        os.eventfd_write(self._wake, 1)
        if self._thread.ident:
            self._thread.join()
        os.close(self._wake)

    def _run(self) -> None:
        try:
            if self._read():
                self._ended()
        except BaseException as error:  # told to whoever can end the program in order
            self.error = error
            self._fail(error)

    def _read(self) -> bool:
        """Until the end (True) or ``stop``."""
        while True:
            ready, _, _ = select.select([self._fd, self._wake], [], [])
            if self._wake in ready:
                return False
            try:
                data = os.read(self._fd, CHUNK)
            except OSError:
                data = b""  # closed, or a terminal that went away
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line)
            if len(self._rest) > LINE_LIMIT:
                self._skip()
            self._keep(self._rest)
        if self._rest:
            line, self._rest = self._rest, b""
            self._line(line)
            self._keep(b"")
        return True

    def _skip(self) -> None:
        if not self._skipping:
            start = self._rest[:40].decode("utf-8", "replace")
            self._refuse(
                f"a line of more than {LINE_LIMIT:,} bytes was not taken: {start}…; "
                "put it into a file"
            )
        self._skipping, self._rest = True, b""

    def _line(self, line: bytes) -> None:
        if self._skipping:
            self._skipping = False
            return
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            start = line[:40].decode("utf-8", "replace")
            self._refuse(
                f"a line is not UTF-8 at byte {error.start} and was not taken: {start}; "
                "send it as UTF-8"
            )
            return
        if text:
            self._take(text)


class Lines(Reader):
    """Submits each line of standard input; the agent ends after the last."""

    def __init__(self, agent: Agent, fd: int, source: str, refuse: Callable[[str], None]) -> None:
        self._store = agent.store
        super().__init__(
            fd,
            lambda text: agent.submit(text, source),
            refuse,
            agent.close_input,
            lambda error: agent.stop(SOME_FAILED),
            # Bytes as characters: a restart may come in the middle of one.
            agent.store.meta(PARTIAL).encode("latin-1"),
            self._keep_rest,
        )

    def _keep_rest(self, rest: bytes) -> None:
        if rest:
            self._store.set_meta(PARTIAL, rest.decode("latin-1"))
        elif self._store.meta(PARTIAL):
            self._store.drop_meta(PARTIAL)


class OneRequest:
    """Submits one request, and ends the agent's input when it is over. terminal: the descriptor
    that its questions are answered at, from the first one on; None when nobody is there."""

    def __init__(
        self, agent: Agent, text: str, output: PlainOutput, terminal: int | None
    ) -> None:
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
        found = store.run(run)
        if found is not None and found.status in ("done", "failed", "cancelled"):
            self._over()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case Ended(run) if run == self._run:
                self._over()
            case Admitted(run, "answer", to=to) if run == self._run:
                self._follow(to)  # it answered a question of an earlier session
            case Admitted(run, "ignore" | "reject" | "stdin") if run == self._run:
                self._over()
            case Admitted(run, "answer") if run == self._answer:
                self._question = None
            case Admitted(run, action) if run == self._answer and action != "preempt":
                if self._question:
                    self._output(self._question)
            case Asked(run, _, _) if run == self._run:
                self._ask(event)

    def _ask(self, question: Asked) -> None:
        if self._terminal is None:
            self._over()
            return
        self._question = question
        if not self._reader:
            self._reader = Reader(
                self._terminal,
                self._submit,
                lambda reason: self._output(Notice(reason, "error")),
                self._over,
                lambda error: self._agent.stop(SOME_FAILED),
            )
            self._reader.start()

    def _submit(self, text: str) -> None:
        with self._lock:
            self._answer = self._agent.submit(text, "typed")

    def _over(self) -> None:
        self._agent.store.drop_meta(ONE_REQUEST)
        self._agent.close_input()


def restarted(environment: MutableMapping[str, str]) -> bool:
    """Whether this process goes on for one that asked for a restart, or was ended by a crash.

    What says so of a start without restart.sh is removed: it holds for no child.
    """
    again = environment.pop(AGAIN, "")
    number = environment.get("SIA_RESTART", "")
    return bool(again) or (number.isdecimal() and int(number) > 1)


def forget(store: Store) -> None:
    """Drop what only the process that goes on for an earlier one may take up."""
    store.drop_meta(ONE_REQUEST)
    store.drop_meta(PARTIAL)


def standard_input() -> int | None:
    """The descriptor of standard input, or None when it is closed."""
    try:
        return sys.stdin.fileno() if sys.stdin is not None else None
    except (OSError, ValueError):
        return None
