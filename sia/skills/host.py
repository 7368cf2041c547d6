"""The agent's side of the worker processes: a limit or a cancel ends the worker, never the agent.

Covered: endless loops, crashes, ``os._exit``, output of any size, talk that is not the protocol,
children in the worker's process group, the agent's own death. Not covered: children of a skill
that start a session of their own, and what a skill may read or write as the person's own process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import sia
from sia.errors import SiaError
from sia.redact import hide, hide_in
from sia.skills.api import Failed, Unproven
from sia.skills.calls import CallCtx, Outcome, Payload, Suspended, dumps
from sia.skills.manifest import Manifest
from sia.skills.worker import MAX_LINE

# fmt: off
PASSED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "DISPLAY",
    "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR",
))
# fmt: on
PASSED_PREFIXES = ("LC_", "XDG_")
METHODS = frozenset(
    {name for name in vars(CallCtx) if not name.startswith("_")} - {"effect", "secret"}
    | {"effect_begin", "effect_unknown", "effect_end"}
)
ENDS = ("done", "finished", "failed", "suspended")
READY_SECONDS = 30.0  # a cold disk, a busy machine
MAX_LOG = 1 << 20  # bytes, then the log is set aside as <name>.1
TICK = 0.05  # s; a threading.Event cannot be polled together with a socket

Handle = Callable[[str, dict[str, Any]], Any]


class WorkerError(SiaError):
    """A worker process could not be started."""


class _Ended(Exception):
    """The action is over before its time: (kind, message)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def passed_environment(source: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """What of ``source`` a worker gets: no secrets, unless ``extra`` names them."""
    names = PASSED.union(extra)
    return {k: v for k, v in source.items() if k in names or k.startswith(PASSED_PREFIXES)}


class Worker:
    """One child process; one action at a time. Dead after a limit, a cancel or a crash."""

    def __init__(self, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        self._process = process
        self._socket = end
        self._buffer = bytearray()
        self._poller = select.poll()
        self._closed = False

    @classmethod
    def spawn(cls, log: Path, environment: Mapping[str, str], memory: int = 0) -> Worker:
        """Starts a worker and waits until it is ready.

        log: what skills print, and their tracebacks. environment: all that the worker gets.
        memory: limit of its address space in bytes, 0 for none. Raises WorkerError.
        """
        ours, theirs = socket.socketpair()
        with theirs, _opened(log) as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "sia.skills.worker",
                    str(theirs.fileno()),
                    str(memory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**environment, "PYTHONPATH": str(Path(sia.__file__).parents[1])},
            )
        ours.setblocking(False)
        worker = cls(process, ours)
        try:
            worker._read(time.monotonic() + READY_SECONDS, threading.Event())
        except _Ended as end:
            worker.close()
            raise WorkerError(f"no worker for skills could start ({end}); see {log}") from None
        return worker

    @property
    def ready(self) -> bool:
        """Alive, and silent: what a thread of an ended action still says is not for the next."""
        if self._closed or self._buffer:
            return False
        self._poller.register(self._socket, select.POLLIN)
        return not self._poller.poll(0)

    def run(
        self,
        skill: Manifest,
        action: str,
        payload: Payload,
        handle: Handle,
        seconds: float,
        cancel: threading.Event,
    ) -> Outcome:
        """Runs one function of the skill (an action, ``observe`` or ``verify``).

        handle: answers each call (method, args with ``ordinal``) with JSON, in this thread; may
        raise Failed and Unproven, which the skill sees, and Suspended, which ends the action as
        suspended. Anything else it raises kills the worker and comes out here. seconds: wall
        clock, the time in handle included. A limit or cancel takes effect within 0.1 s.
        """
        begun = time.monotonic()
        deadline = begun + seconds
        order = {
            "folder": str(skill.folder),
            "code": skill.code,
            "name": action,
            "payload": payload.to_json(),
        }
        try:
            self._write(dumps(order, "the payload"), deadline, cancel)
            outcome = self._attend(handle, deadline, cancel)
        except _Ended as end:
            self.close()
            message = {
                "limit": f"{action} took longer than {seconds:.3g} s and was ended",
                "cancelled": f"{action} was cancelled",
            }.get(end.kind, f"{action} broke off: {end}")
            cause = "" if end.kind == "cancelled" else "unknown"
            outcome = Outcome(end.kind, message, cause, dict(payload.state))
        except BaseException:
            self.close()
            raise
        return replace(outcome, seconds=time.monotonic() - begun)

    def close(self) -> None:
        """Kills the worker and its process group; may be called again."""
        if self._closed:
            return
        self._closed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # not yet reaped: the pid is still its own
        self._process.kill()  # a skill can leave its group
        self._process.wait()
        self._socket.close()

    def _attend(self, handle: Handle, deadline: float, cancel: threading.Event) -> Outcome:
        while True:
            message = self._read(deadline, cancel)
            if "end" in message:
                return Outcome(**message["end"])
            if "method" not in message:
                raise _Ended("crashed", f"the worker spoke out of turn: {message}")
            method = message["method"]
            reply: dict[str, Any] = {"reply": message["call"]}
            try:
                reply["value"] = handle(method, message["args"])
            except Suspended:
                reply["error"] = {"kind": "suspend", "message": ""}
            except Unproven as error:
                reply["error"] = {"kind": "unproven", "message": str(error)}
            except Failed as error:
                reply["error"] = {"kind": "failed", "message": str(error), "cause": error.cause}
            self._write(dumps(reply, f"the answer to ctx.{method}"), deadline, cancel)

    def _wait(self, events: int, deadline: float, cancel: threading.Event) -> None:
        self._poller.register(self._socket, events)
        while True:
            left = deadline - time.monotonic()
            if cancel.is_set():
                raise _Ended("cancelled", "")
            if left <= 0:
                raise _Ended("limit", "")
            if self._poller.poll(1000 * min(left, TICK)):
                return

    def _read(self, deadline: float, cancel: threading.Event) -> dict[str, Any]:
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > MAX_LINE:
                raise _Ended("crashed", "the worker sent a line without end")
            self._wait(select.POLLIN, deadline, cancel)
            try:
                data = self._socket.recv(1 << 18)
            except ConnectionError:
                data = b""
            if not data:
                raise _Ended("crashed", self._death())
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        message = _message(line)
        if message is None:
            said = hide(repr(line))[:80]
            raise _Ended("crashed", f"the worker did not speak the protocol: {said}")
        return message

    def _write(self, text: str, deadline: float, cancel: threading.Event) -> None:
        rest = memoryview(text.encode() + b"\n")
        while rest:
            self._wait(select.POLLOUT, deadline, cancel)
            try:
                rest = rest[self._socket.send(rest) :]
            except ConnectionError:
                raise _Ended("crashed", self._death()) from None

    def _death(self) -> str:
        self.close()
        code = self._process.returncode
        if code >= 0:
            return f"the worker ended with exit code {code}"
        return f"the worker was ended by signal {-code} ({signal.strsignal(-code)})"


class WorkerPool:
    """Workers by skill: one warm spare for the next skill, a few kept for the last ones.

    A worker is reused for the same version of a skill only and closed when its files changed.
    keep: how many idle workers stay with their skill loaded (10 to 60 MB each). Thread-safe.
    """

    def __init__(
        self, log: Path, environment: Mapping[str, str], memory: int = 0, keep: int = 2
    ) -> None:
        self._spawn = lambda: Worker.spawn(log, environment, memory)
        self._lock = threading.Lock()
        self._idle: OrderedDict[Path, tuple[object, Worker]] = OrderedDict()
        self._spare: Future[Worker] | None = None
        self._starter = ThreadPoolExecutor(1, "spare-worker")
        self._keep = keep
        self._closed = False

    def warm(self) -> None:
        """Starts the spare worker in the background, unless there is one."""
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare = self._starter.submit(self._spawn)

    def run(
        self,
        skill: Manifest,
        action: str,
        payload: Payload,
        handle: Handle,
        seconds: float,
        cancel: threading.Event,
    ) -> Outcome:
        """``Worker.run`` in a worker of this skill's present version."""
        folder, version = skill.folder, (skill.code, _files(skill.folder))
        worker = self._take(folder, version)
        try:
            return worker.run(skill, action, payload, handle, seconds, cancel)
        finally:
            self._give(folder, version, worker)
            self.warm()  # only now: its start would take the processor from the action

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers = [worker for _, worker in self._idle.values()]
            self._idle.clear()
            spare, self._spare = self._spare, None
        self._starter.shutdown()
        if spare and not spare.exception():
            workers.append(spare.result())
        for worker in workers:
            worker.close()

    def _take(self, folder: Path, version: object) -> Worker:
        with self._lock:
            known, worker = self._idle.pop(folder, (None, None))
            if worker and known == version and worker.ready:
                return worker
            spare, self._spare = self._spare, None
        if worker:
            worker.close()
        fresh = spare.result() if spare else self._spawn()
        if fresh.ready:
            return fresh
        fresh.close()
        return self._spawn()

    def _give(self, folder: Path, version: object, worker: Worker) -> None:
        surplus = [worker]
        with self._lock:
            if worker.ready and not self._closed:
                replaced = self._idle.pop(folder, None)
                self._idle[folder] = (version, worker)
                surplus = [replaced[1]] if replaced else []
                while len(self._idle) > self._keep:
                    surplus.append(self._idle.popitem(last=False)[1][1])
        for old in surplus:
            old.close()


def _message(line: bytes) -> dict[str, Any] | None:
    """What the worker sent; None when it is no message, for a skill can reach the socket too."""
    try:
        # Once, for all that leaves a skill: a server's complaint may hold the password it got.
        message = hide_in(json.loads(line))
    except (ValueError, RecursionError):
        return None
    match message:
        case {"ready": int()}:
            return message
        case {"call": int(), "method": str(method), "args": {"ordinal": int()}}:
            return message if method in METHODS else None
        case {"end": {"kind": str(kind), "state": dict(), **rest}}:
            known = kind in ENDS and rest.keys() <= {"message", "cause", "value"}
            return message if known else None
    return None


def _files(folder: Path) -> frozenset[tuple[str, int, int, int]]:
    """Changes with any file of the skill, also those that its skill.py imports."""
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(place, name)
            try:
                stat = os.lstat(path)
            except FileNotFoundError:
                continue  # an editor's temporary file
            files.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return frozenset(files)


def _opened(log: Path) -> Any:
    """The log for appending, for the person's eyes only, set aside when it has grown large."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MAX_LOG:
        log.replace(log.with_name(f"{log.name}.1"))
    return open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))
