"""Where inputs come from, and what each source may do: one table that the code reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """gated: asked whether it is a request. authority: 0 lowest. held: waits unread, in order,
    while a process runs, unless it interrupts."""

    name: str
    gated: bool
    authority: int
    held: bool = False


SOURCES = {
    source.name: source
    for source in (
        Source("typed", gated=True, authority=3),
        Source("piped", gated=True, authority=3, held=True),
        Source("timer", gated=False, authority=2),
        Source("event", gated=True, authority=1),
        Source("skill", gated=False, authority=1),
        Source("concern", gated=False, authority=0),
    )
}
