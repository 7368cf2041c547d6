"""Plain text in and out: one request a line or one as an argument, replies on standard output,
everything else on standard error. No escape codes, ever."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from sia.agent import Agent
from sia.entries import ILLEGAL
from sia.events import Admitted, Asked, Ended, Event, Notice, Routed, Said
from sia.intake import INPUT_LIMIT

CHUNK = 65_536
LINE_LIMIT = 4 * INPUT_LIMIT  # bytes


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


class Lines:
    """Reads standard input to its end and submits each line, on a thread of its own."""

    def __init__(self, agent: Agent, fd: int, source: str, refuse: Callable[[str], None]) -> None:
        self._agent, self._fd, self._source, self._refuse = agent, fd, source, refuse
        # What a restart cut off in the middle of a line.
        self._rest = agent.store.meta("partial_input").encode("latin-1")
        self._skipping = False  # the rest of a line that is too long
        self._wake, self._stop = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="stdin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more; what was read is submitted or kept when this returns."""
        os.write(self._stop, b"x")
        self._thread.join()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._wake], [], [])
            if self._wake in ready:
                return
            try:
                data = os.read(self._fd, CHUNK)
            except OSError:
                data = b""  # closed, or a terminal that went away
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._submit(line)
            if len(self._rest) > LINE_LIMIT:
                self._skip()
            self._keep_rest()
        if self._rest:
            line, self._rest = self._rest, b""
            self._submit(line)
            self._keep_rest()
        self._agent.close_input()

    def _skip(self) -> None:
        if not self._skipping:
            start = self._rest[:40].decode("utf-8", "replace")
            self._refuse(
                f"a line of more than {LINE_LIMIT:,} bytes was not taken: {start}…; "
                "put it into a file"
            )
        self._skipping, self._rest = True, b""

    def _keep_rest(self) -> None:
        # Bytes as characters: a restart may come in the middle of one.
        store, text = self._agent.store, self._rest.decode("latin-1")
        if text:
            store.set_meta("partial_input", text)
        elif store.meta("partial_input"):
            store.drop_meta("partial_input")

    def _submit(self, line: bytes) -> None:
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
            self._agent.submit(text, self._source)


class OneRequest:
    """Submits one request, answers its questions from a terminal, and closes when it is over."""

    def __init__(self, agent: Agent, text: str, output: PlainOutput, terminal: bool) -> None:
        self._agent, self._text, self._output = agent, text, output
        self._terminal = terminal
        self._run = ""
        agent.listen(self)

    def start(self) -> None:
        """Submit it, unless it was submitted before a restart."""
        store = self._agent.store
        kept = store.meta("one_request")
        if kept and json.loads(kept)[1] == self._text:
            self._run = json.loads(kept)[0]
            run = store.run(self._run)
            if run is not None and run.status in ("done", "failed", "cancelled"):
                self._over()
            return
        self._run = self._agent.submit(self._text, "typed")
        store.set_meta("one_request", json.dumps([self._run, self._text]))

    def __call__(self, event: Event) -> None:
        match event:
            case Ended(run) if run == self._run:
                self._over()
            case Admitted(run, "ignore" | "reject" | "stdin") if run == self._run:
                self._over()
            case Notice(_, "error"):
                self._over()
            case Asked(run, _, _) if run == self._run:
                if self._terminal:
                    threading.Thread(target=self._answer, daemon=True).start()
                else:
                    self._over()

    def _answer(self) -> None:
        try:
            while not (line := input()).strip():
                self._output.note("sia: please answer, or end with Ctrl-D")
        except EOFError:
            self._over()
            return
        self._agent.submit(line, "typed")

    def _over(self) -> None:
        self._agent.store.drop_meta("one_request")
        self._agent.close_input()


def standard_input() -> int | None:
    """The descriptor of standard input, or None when it is closed."""
    try:
        return sys.stdin.fileno() if sys.stdin is not None else None
    except (OSError, ValueError):
        return None
