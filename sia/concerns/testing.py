"""For tests and benchmarks: a clock that is moved by hand, and concerns to look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sia.concerns.values import Concern

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 30, 8, tzinfo=UTC)


class Clock:
    """Shows ``now``."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def concern(**more: Any) -> Concern:
    """A daily one that has not built up yet."""
    given = {"text": "the photo disk", "instruction": "look after it", "rhythm": 24}
    given |= {"kind": "durable", "value": 0, "grown": START}
    return Concern(**{"id": "c1", **given, **more})
