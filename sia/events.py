"""What the agent tells its front ends, from whichever thread it happens on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """Words for the person. ``again``: they may have been shown before a crash."""

    run: str
    text: str
    again: bool = False


@dataclass(frozen=True)
class Asked:
    run: str
    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """An input of a client is on disk, as this run; the client alone hears it."""

    run: str


@dataclass(frozen=True)
class Admitted:
    """action: ignore | queue | decline | preempt | run | answer | stdin | reject. ``run`` is the
    input's own; ``to`` is the run that was given an answer or an input to read; ``reason`` says why
    one was rejected. What was declined waits, and the person is told why."""

    run: str
    action: str
    text: str
    urgency: float = 0.0
    to: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Routed:
    """A request found its skill; ``p`` is the probability of the last choice, ``skill`` may be
    ``-`` when none covers it."""

    run: str
    skill: str
    p: float


@dataclass(frozen=True)
class Ended:
    """A run is over: done | failed | cancelled."""

    run: str
    status: str
    text: str = ""


@dataclass(frozen=True)
class Notice:
    """One line about the agent itself. level: info | warning | error."""

    text: str
    level: str = "info"


@dataclass(frozen=True)
class Traced:
    """One line for ``.sia/log/sia.log``; nobody is shown it."""

    text: str


@dataclass(frozen=True)
class Ready:
    """The models are loaded."""

    revision: str


@dataclass(frozen=True)
class TurnEnded:
    n: int


Event = Said | Asked | Kept | Admitted | Routed | Ended | Notice | Traced | Ready | TurnEnded
Emit = Callable[[Event], None]
