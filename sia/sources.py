"""Where inputs come from, and what each source may do: one table that the code reads.

``docs/intake.md`` shows it as ``table`` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MINUTE = 60.0  # seconds


@dataclass(frozen=True)
class Source:
    """gated: asked whether it is a request, how urgent it is, and whether it interrupts; what is
    not asked has ``urgency``. held: waits unread, in order, while a process runs, unless it
    interrupts. interrupts: the sources whose requests its own may displace. answers: what it says
    may answer, and so confirm, what the person was asked; and is unread input of a process.
    confirmed: its request for an effect outside is word enough; else the person is asked first.
    rate: inputs a minute, ``burst`` of them at once; what is over it is held or refused.
    exempt: taken also when the queue is full, for it has no sender who
    could send it again."""

    name: str
    what: str
    gated: bool
    rate: float = math.inf
    burst: int = 0
    over: Literal["held", "refused"] = "held"
    held: bool = False
    urgency: float = 0.5
    interrupts: tuple[str, ...] = ()
    answers: bool = False
    confirmed: bool = False
    exempt: bool = False

    @property
    def told(self) -> bool:
        """Whether a person sits behind it who hears at once what is said about it."""
        return self.answers and not self.held


_ALL = ("typed", "piped", "timer", "skill", "event", "concern")

# In this order they are heard: no flood of events keeps a person's "stop!" waiting.
SOURCES = {
    source.name: source
    for source in (
        Source(
            "typed",
            "what a person types: in the shell, as `sia TEXT`, in `sia attach`",
            gated=True,
            rate=240,
            burst=120,
            interrupts=_ALL,
            answers=True,
            confirmed=True,
        ),
        Source(
            "piped",
            "a line of standard input",
            gated=True,
            rate=1200,
            burst=1200,
            held=True,
            interrupts=_ALL,
            answers=True,
            confirmed=True,
        ),
        # Said when it is due, and asked nothing (see Agent._ring).
        Source("timer", "a reminder that is due", gated=False, exempt=True),
        # A skill hands over what it knows to be a request. Its words may come from anywhere.
        Source(
            "skill",
            "what a skill hands over as a request of its own",
            gated=False,
            rate=30,
            burst=30,
            over="refused",
            urgency=0.4,
        ),
        Source(
            "event",
            "a watched file, a file in the spool, a line of the event socket, the end of a "
            "background script",
            gated=True,
            rate=60,
            burst=60,
            interrupts=("event", "concern"),
        ),
        Source(
            "concern",
            "what the agent itself is concerned with",
            gated=False,
            rate=6,
            burst=3,
            over="refused",
            urgency=0.1,
        ),
    )
}

HEAD = (
    "source", "what comes in", "asked", "may interrupt", "may answer a question",
    "effects outside", "a minute (at once)", "over it",
)  # fmt: skip


def table() -> str:
    """The sources as a Markdown table."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_row, SOURCES.values())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(source: Source) -> tuple[str, ...]:
    asked = "request? interrupts? how urgent?" if source.gated else "nothing"
    if not source.gated:
        asked += f"; urgency {source.urgency:g}"
    if source.held:
        asked += "; waits in its order"
    names = ", ".join(source.interrupts)
    limited = math.isfinite(source.rate)
    return (
        source.name,
        source.what,
        asked,
        "all" if source.interrupts == _ALL else names or "nothing",
        "yes" if source.answers else "no",
        "as the skill asks" if source.confirmed else "the person is asked first",
        f"{source.rate:g} ({source.burst})" if limited else "no limit",
        source.over if limited else "-",
    )


class Limiter:
    """A token bucket: ``burst`` at once, ``rate`` a minute. ``clock``: seconds, never backwards.
    Not for two threads at once."""

    def __init__(self, source: Source, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = source.rate / MINUTE, source.burst, clock
        self._tokens, self._at = float(source.burst), clock()
        self._told = -math.inf

    def wait(self) -> float:
        """Seconds until one more is within the limit; 0 when it is now."""
        if math.isinf(self._rate):
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
        self._at = now
        # A wait rounded down would be slept, and the token then not quite there.
        return 0.0 if self._tokens >= 1 - 1e-6 else (1 - self._tokens) / self._rate

    def take(self) -> bool:
        """Count one more; False, and not counted, when that is over the limit."""
        if self.wait():
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def tells(self) -> bool:
        """Whether to say now that the limit is reached: once a minute."""
        now = self._clock()
        if now - self._told < MINUTE:
            return False
        self._told = now
        return True
