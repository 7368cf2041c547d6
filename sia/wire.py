"""The running agent's socket: a JSON object a line, over a Unix socket in ``.sia/``.

A client sends ``{"input": text}`` and hears ``Kept`` and the events of that run, or
``{"attach": true}`` and hears everything; ``{"queue": "drop", "run": id}`` or ``{"queue": "raise",
"run": id, "urgency": 0.9}`` is answered by one ``Notice``, of level error when it was refused.
``{"concerns": {...}}`` changes a concern and is answered so too (see ``sia.concerns.words``).
``{"again": {...}}`` has a request worked anew (see ``sia.turn.Again``). Events are
``{"event": name, ...fields}``.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from sia.concerns import words
from sia.errors import SiaError, Unavailable
from sia.events import Admitted, Ended, Event, Kept, Notice
from sia.sockets import short
from sia.store import OPEN
from sia.turn import Again

if TYPE_CHECKING:
    from sia.agent import Agent

LINE_LIMIT = 1 << 20  # bytes
GONE = "the agent has ended"


def to_json(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


def from_json(line: bytes) -> Event | None:
    """None for an event that this program does not know."""
    fields = json.loads(line)
    kinds = {kind.__name__: kind for kind in get_args(Event)}
    kind = kinds.get(fields.pop("event"))
    if kind is None:
        return None
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


class Server:
    """Listens until closed; each client has a thread."""

    def __init__(self, agent: Agent, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        with short(path) as name:
            self._server = _Server(name, _Client)
        path.chmod(0o600)
        self._server.agent = agent
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="socket", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    agent: Agent


class _Client(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        agent = self.server.agent
        events: Queue[Event | dict[str, Any] | None] = Queue()
        runs: set[str] = set()
        everything = False
        quiet = agent.listen(events.put)
        reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        reader.start()
        try:
            while (item := events.get()) is not None:
                if isinstance(item, dict):
                    everything = everything or bool(item.get("attach"))
                    if isinstance(item.get("input"), str):
                        self._submit(item["input"], runs)
                    if "queue" in item:
                        self._tell(self._change_queue(item))
                    if isinstance(item.get("concerns"), dict):
                        self._tell(self._change_concern(item["concerns"]))
                    if "again" in item:
                        self._again(item["again"], runs)
                elif everything or getattr(item, "run", None) in runs:
                    self._tell(item)
                    if isinstance(item, Admitted) and item.to and not everything:
                        self._follow(item.to, runs)
        except sqlite3.ProgrammingError:
            return  # the agent has just closed its store
        finally:
            quiet()

    def _submit(self, text: str, runs: set[str]) -> None:
        try:
            run = self.server.agent.submit(text, "typed")
        except SiaError as error:  # it could not be kept, and so has no run
            self._tell(Admitted("", "reject", text, reason=str(error)))
            return
        runs.add(run)
        self._tell(Kept(run))

    def _change_queue(self, item: dict[str, Any]) -> Notice:
        agent = self.server.agent
        try:
            match item:
                case {"queue": "drop", "run": str(run)}:
                    return Notice(agent.drop(run))
                case {"queue": "raise", "run": str(run), "urgency": int() | float() as urgency}:
                    return Notice(agent.raise_urgency(run, urgency))
        except SiaError as error:
            return Notice(str(error), "error")
        return Notice('expected {"queue": "drop" or "raise", "run": id, "urgency": n}', "error")

    def _change_concern(self, given: dict[str, Any]) -> Notice:
        try:
            return Notice(self.server.agent.change_concern(words.given(given)))
        except SiaError as error:
            return Notice(str(error), "error")

    def _again(self, value: object, runs: set[str]) -> None:
        try:
            run = self.server.agent.again(msgspec.convert(value, Again))
        except (SiaError, msgspec.ValidationError) as error:
            self._tell(Admitted("", "reject", "", reason=f"not run again: {error}"))
            return
        runs.add(run)
        self._tell(Kept(run))

    def _tell(self, event: Event) -> None:
        # A client that went away may have sent inputs before, which are still to be taken.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(to_json(event))

    def _follow(self, run: str, runs: set[str]) -> None:
        """What comes of an answer is for who gave it, also when it came before this was known."""
        runs.add(run)
        found = self.server.agent.store.run(run)
        if found is not None and found.status not in OPEN:
            self._tell(Ended(run, found.status, found.outcome))

    def _read(self, events: Queue[Any]) -> None:
        try:
            while line := self.rfile.readline(LINE_LIMIT):
                try:
                    item = json.loads(line)
                except ValueError:
                    break
                if isinstance(item, dict):
                    events.put(item)
        except OSError:
            pass  # closed while reading: the same as its end
        events.put(None)


class Connection:
    """A client's end."""

    def __init__(self, path: Path) -> None:
        """Raises Unavailable when nobody listens."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short(path) as name:
                self._socket.connect(name)
        except OSError as error:
            self._socket.close()
            raise Unavailable(
                f"the running agent does not answer on {path} ({error.strerror}); "
                "it may still be starting: try again"
            ) from None
        self._file = self._socket.makefile("rb")

    def send(self, **message: Any) -> None:
        """Raises Unavailable when the agent has ended."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise Unavailable(GONE) from None

    def events(self) -> Iterator[Event]:
        """Until the agent ends, or ``leave``."""
        with suppress(ConnectionResetError):
            for line in self._file:
                whole = line.endswith(b"\n")  # or it was killed in the middle
                if whole and (event := from_json(line)):
                    yield event

    def leave(self) -> None:
        """Say and hear no more; on any thread."""
        with suppress(OSError):  # the agent has closed its end
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """After the last use of ``events``."""
        self.leave()
        self._file.close()
        self._socket.close()
