"""The process that runs the actions of a skill: ``python -m sia.skills.worker FD [BYTES]``.

FD is one end of a socketpair, JSON objects on it, one a line:

    -> {"ready": PID}
    <- {"folder": ..., "code": TEXT OF skill.py, "name": ACTION, "payload": {...}}
    -> {"call": 1, "method": "choose", "args": {"ordinal": 1, ...}}
    <- {"reply": 1, "value": ...}  or  {"reply": 1, "error": {"kind": "failed", "message": ...}}
    -> {"end": {"kind": "done", "message": "", "cause": "", "state": {...}, "value": ...}}

An error is of kind failed, unproven or suspend; suspend unwinds the action. BYTES limits the
address space. The process leads its own session and ends with everything in it when the agent's
end closes. Standard library only: this must start fast.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from json import loads
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import ModuleType
from typing import Any

from sia.redact import hide, learn
from sia.skills.api import Failed, Finished, Unproven
from sia.skills.calls import CallCtx, Payload, Suspended, dumps, failure, load_module

MAX_LINE = 16 << 20  # bytes of one message, either way
MAX_MESSAGE = 4000  # characters of why an action ended
MAX_PRINTED = 1 << 20  # bytes one action may print into the log


class Channel:
    """The worker's end. A thread reads, so that the agent's end is noticed in a busy loop too."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._calls = 0
        self.suspended = False
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            with open(self._fd, "rb", closefd=False) as lines:
                for line in lines:
                    self._inbox.put(loads(line))
        finally:
            # The agent is gone, perhaps in the middle of a line, perhaps with something of ours
            # unread (then reading fails): nothing of the skill may live on.
            os.killpg(0, signal.SIGKILL)

    def receive(self) -> dict[str, Any]:
        return self._inbox.get()

    def send(self, message: dict[str, Any], what: str) -> None:
        """Raises TypeError for what is not JSON, ValueError for what is too long."""
        data = dumps(message, what).encode() + b"\n"
        if len(data) > MAX_LINE:
            size, limit = len(data) / 2**20, MAX_LINE >> 20
            raise ValueError(f"{what} has {size:.1f} MiB, over the limit of {limit} MiB")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def call(self, method: str, args: dict[str, Any]) -> Any:
        if self.suspended:  # a finally block of the skill calls on
            raise Suspended
        self._calls += 1
        dumps(args, f"ctx.{method}")  # first alone, so that a complaint names what the skill gave
        self.send({"call": self._calls, "method": method, "args": args}, f"ctx.{method}")
        reply = self.receive()
        error = reply.get("error")
        if error is None:
            return reply["value"]
        if error["kind"] == "suspend":
            self.suspended = True
            raise Suspended
        if error["kind"] == "unproven":
            raise Unproven(error["message"])
        raise Failed(error["message"], error["cause"])


class Log(io.TextIOBase):
    """What a skill prints: to the log, up to MAX_PRINTED bytes an action, never to the screen."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.left = MAX_PRINTED

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            data = hide(text)[: self.left].encode("utf-8", "backslashreplace")[: self.left]
            self.left -= len(data)
            if not self.left:
                data += b"\n[... what else this action printed is left out]\n"
            os.write(self._fd, data)
        return len(text)


def perform(
    order: dict[str, Any], channel: Channel, modules: dict[tuple[str, str], ModuleType]
) -> dict[str, Any]:
    """Runs one function of a skill; the fields of its Outcome."""
    folder, name = Path(order["folder"]), order["name"]
    payload = Payload.from_json(order["payload"])
    learn(secret.value for secret in payload.secrets.values())  # for the log
    ctx = CallCtx(payload, channel.call)
    value, kind, message, cause = None, "done", "", ""
    channel.suspended = False
    try:
        version = (order["folder"], order["code"])
        if version not in modules:
            modules[version] = load_module(folder, order["code"])
        value = getattr(modules[version], name)(ctx)
    except Finished as finished:
        kind, message = "finished", str(finished)
    except Suspended:
        pass
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        import traceback

        trace = hide(traceback.format_exc())[-MAX_PRINTED:]
        os.write(2, trace.encode("utf-8", "backslashreplace"))
        kind, (message, cause) = "failed", failure(error, folder)
    if channel.suspended:  # also where the skill swallowed it
        return {"kind": "suspended", "state": dict(payload.state)}
    kept = value if name in ("observe", "verify") else None
    message = message[:MAX_MESSAGE]
    return {"kind": kind, "message": message, "cause": cause, "state": ctx.state, "value": kept}


def report(end: dict[str, Any], name: str, given: dict[str, Any], channel: Channel) -> None:
    """Sends the end; what cannot be sent makes it a failure with the state it began with."""
    try:
        if not isinstance(end["state"], dict):
            raise TypeError(f"ctx.state after {name} must be a dict, not {end['state']!r:.60}")
        dumps(end["state"], f"ctx.state after {name}")
        dumps(end.get("value"), f"the result of {name}")
        channel.send({"end": end}, f"ctx.state after {name}")
    except (TypeError, ValueError) as error:
        fault = {"kind": "failed", "message": str(error), "cause": "unknown", "state": given}
        channel.send({"end": fault}, name)


def main(argv: list[str]) -> None:
    fd, memory = int(argv[1]), int(argv[2]) if len(argv) > 2 else 0
    os.set_inheritable(fd, False)
    os.environ.pop("PYTHONPATH", None)  # it was for this process alone
    if memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    log = Log(2)
    sys.stdout = sys.stderr = log
    channel = Channel(fd)
    channel.send({"ready": os.getpid()}, "ready")
    modules: dict[tuple[str, str], ModuleType] = {}
    while True:
        order = channel.receive()
        log.left = MAX_PRINTED
        end = perform(order, channel, modules)
        report(end, order["name"], order["payload"]["state"], channel)


if __name__ == "__main__":
    main(sys.argv)
