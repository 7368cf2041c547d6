"""A vehicle on a Unix socket: one command a line, one line in answer.

Commands: ``status``; ``drive PLACE``; ``target KM/H``; ``halt`` (brake to 0 and stay there);
``go N`` (drive on after the Nth halt, where there was none since); ``wait`` (answered when the
vehicle is no longer driving). Answers: ``ok state=STATE speed=KM/H halts=N`` with STATE ``idle |
driving | halted | arrived`` and N the halts so far; or ``error WORDS``. Between two lines it is
on its own and must be safe without us.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

MOST_ANSWER = 4096  # bytes
SECONDS = 2.0  # for an answer to anything but ``wait``
_STATUS = re.compile(
    r"ok state=(?P<state>idle|driving|halted|arrived) speed=(?P<speed>\d{1,3}(?:\.\d+)?)"
    r" halts=(?P<halts>\d{1,9})"
)


class VehicleError(Exception):
    """The vehicle did not do it: one line that says why."""


@dataclass(frozen=True)
class Status:
    state: str  # idle | driving | halted | arrived
    speed: float  # km/h
    halts: int


def tell(path: str, command: str) -> Status:
    """Send one command; how the vehicle stands then. Raises VehicleError."""
    command = " ".join(command.split())  # one line, whatever the person typed
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(SECONDS)
            line.connect(path)
            line.sendall(command.encode("utf-8", "replace") + b"\n")
            if command == "wait":
                line.settimeout(None)
            answer = _line(line)
    except TimeoutError:
        raise VehicleError("the vehicle does not answer") from None
    except OSError as error:
        raise VehicleError(f"no vehicle at {path}: {error.strerror or error}") from None
    match = _STATUS.fullmatch(answer)
    if match:
        return Status(match["state"], float(match["speed"]), int(match["halts"]))
    refused = answer.removeprefix("error ")
    raise VehicleError(
        f"the vehicle says: {refused[:200]}"
        if refused != answer
        else f"the vehicle does not speak the protocol: {answer[:80]!r}"
    )


def _line(line: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n") and len(data) < MOST_ANSWER:
        part = line.recv(MOST_ANSWER)
        if not part:
            break
        data += part
    return data.decode("utf-8", "replace").strip()
