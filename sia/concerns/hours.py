"""When nothing is begun unasked: in quiet hours, and once enough was said in a day."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

_CLOCK = r"([01]\d|2[0-3]):([0-5]\d)"
_RANGE = re.compile(rf"{_CLOCK}-{_CLOCK}")


def parsed(text: str) -> tuple[time, time] | None:
    """The two ends of ``22:00-07:00``; None for an empty text. Raises ValueError."""
    if not text:
        return None
    found = _RANGE.fullmatch(text)
    if not found:
        raise ValueError("two times of day, e.g. 22:00-07:00, or empty for none")
    start, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    if start == end:
        raise ValueError("two different times; set concerns.autonomy = false for never")
    return start, end


def opens(quiet: str, now: datetime) -> datetime:
    """``now``, or in quiet hours their end. By the wall clock of ``now``'s zone."""
    hours = parsed(quiet)
    if hours is None:
        return now
    start, end = hours
    clock = now.time()
    inside = start <= clock < end if start < end else clock >= start or clock < end
    if not inside:
        return now
    day = now.date() + timedelta(days=clock >= end)
    return datetime.combine(day, end, now.tzinfo)


def midnight(now: datetime) -> datetime:
    """The next one, in ``now``'s zone."""
    return datetime.combine(now.date() + timedelta(days=1), time(0), now.tzinfo)
