"""Where inputs come from, and what each source may do: one table that the code reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """gated: asked whether it is a request. held: waits unread, in order, while a process runs,
    unless it interrupts."""

    name: str
    gated: bool
    held: bool = False


SOURCES = {
    source.name: source
    for source in (
        Source("typed", gated=True),
        Source("piped", gated=True, held=True),
        # A reminder is said when it is due and asked nothing (see Agent._ring).
        Source("timer", gated=False),
    )
}
