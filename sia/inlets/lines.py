"""The event socket: each line that another program sends is an event, and is answered by a line."""

from __future__ import annotations

import socketserver
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

from sia.errors import SiaError
from sia.inlets.types import Intake
from sia.intake import INPUT_LIMIT
from sia.sockets import short

LINE_BYTES = 4 * INPUT_LIMIT
CLIENTS = 32  # at a time; one more is hung up on


class Lines:
    """Listens at ``path`` until closed; each client has a thread."""

    def __init__(self, path: Path, intake: Intake) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        with short(path) as name:
            self._server = _Server(name, _Client)
        path.chmod(0o600)
        self._server.intake = intake
        self._server.free = threading.BoundedSemaphore(CLIENTS)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="event socket", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    intake: Intake
    free: threading.BoundedSemaphore

    def verify_request(self, request: object, client_address: object) -> bool:
        return self.free.acquire(blocking=False)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()


class _Client(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(OSError):  # closed while reading: the same as its end
            while line := self.rfile.readline(LINE_BYTES):
                reply = self._answer(line)
                if reply:
                    # Who does not wait for it has sent lines all the same.
                    with suppress(BrokenPipeError, ConnectionResetError):
                        self.wfile.write(f"{reply}\n".encode())

    def _answer(self, line: bytes) -> str:
        if not line.endswith(b"\n"):
            whole = len(line) < LINE_BYTES
            while line and not line.endswith(b"\n"):
                line = self.rfile.readline(LINE_BYTES)
            # Half of a line may mean the opposite of the whole.
            return "refused: the line has no end" if whole else "refused: the line is too long"
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            return f"refused: not UTF-8 at byte {error.start}"
        if not text:
            return ""
        if not self.server.intake.room("event"):
            return "refused: the agent is ending"
        try:
            return f"kept {self.server.intake.submit(text, 'event')}"
        except SiaError as error:
            return f"refused: {error}"
        except sqlite3.ProgrammingError:  # the agent has just closed its store
            return "refused: the agent has ended"
