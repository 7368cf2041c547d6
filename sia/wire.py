"""The running agent's socket: a JSON object a line, over a Unix socket in ``.sia/``.

A client sends ``{"input": text}`` and hears the events of that run, or ``{"attach": true}`` and
hears everything. Events are ``{"event": name, ...fields}``.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

from sia.errors import Unavailable
from sia.events import Admitted, Event

if TYPE_CHECKING:
    from sia.agent import Agent

LINE_LIMIT = 1 << 20  # bytes


def to_json(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for ``path`` that fits into the 108 bytes a socket address has."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Server:
    """Listens until closed; each client has a thread."""

    def __init__(self, agent: Agent, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        with _short(path) as name:
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
        events: Queue[Event | None] = Queue()
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
                        runs.add(agent.submit(item["input"], "typed"))
                elif everything or getattr(item, "run", None) in runs:
                    self.wfile.write(to_json(item))
                    if isinstance(item, Admitted) and item.to:
                        runs.add(item.to)  # what comes of an answer is for who gave it
        except (BrokenPipeError, ConnectionResetError):
            return  # the client went away; the agent goes on
        finally:
            quiet()

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
            with _short(path) as name:
                self._socket.connect(name)
        except OSError as error:
            self._socket.close()
            raise Unavailable(
                f"the running agent does not answer on {path} ({error.strerror}); "
                "it may still be starting: try again"
            ) from None
        self._file = self._socket.makefile("rb")

    def send(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def events(self) -> Iterator[dict[str, Any]]:
        """Until the agent ends."""
        for line in self._file:
            yield json.loads(line)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for events
        self._socket.close()
