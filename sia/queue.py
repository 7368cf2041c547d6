"""The order of the queue: urgency that grows with waiting, so that nothing waits for ever.

effective = min(1, urgency + rate x hours since first arrival), compared at 0.01; then the earlier
arrival; then the later requeue. The wait is bounded by (1 - urgency) / rate hours plus the work
then ahead: from there on only earlier arrivals at 1.0 go first. Only a preempt jumps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sia.store import Run


def effective(run: Run, rate: float, now: datetime) -> float:
    """Urgency of ``run`` at ``now``, 0..1; ``rate`` in urgency per hour."""
    hours = max(0.0, (now - run.arrived).total_seconds() / 3600)
    return min(1.0, run.urgency + rate * hours)


def key(run: Run, rate: float, now: datetime) -> tuple:
    """Sort key: the smallest runs next."""
    level = int(effective(run, rate, now) * 100 + 1e-9)
    return (not run.preempts, -level, run.arrived, -run.requeued.timestamp(), int(run.id[1:]))


def ordered(runs: Iterable[Run], rate: float, now: datetime) -> list[Run]:
    return sorted(runs, key=lambda run: key(run, rate, now))


def latest(run: Run, rate: float) -> datetime:
    """When ``run`` reaches 1.0: from then on only what arrived before it goes first."""
    return run.arrived + timedelta(hours=(1.0 - min(run.urgency, 1.0)) / rate)
