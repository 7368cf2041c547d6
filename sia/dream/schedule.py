"""When the agent dreams by itself: the times of a cron expression, and what must hold besides.

A time that passed while the machine was off, busy or on its battery is made up for as soon as all
holds; several of them by one dream.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

AGAIN = timedelta(minutes=10)  # how soon to look again for what nobody tells of


@dataclass(frozen=True)
class Conditions:
    """idle: how long nobody must have asked for anything. mains: not on the battery. rows: labels
    that are new since the last dream."""

    idle: timedelta
    mains: bool
    rows: int


@dataclass(frozen=True)
class Facts:
    """active: when somebody last asked for something. begun: when a dream last began, or when the
    agent first looked. All times with their zone."""

    now: datetime
    active: datetime
    begun: datetime
    mains: bool
    rows: int


@dataclass(frozen=True)
class Verdict:
    """Whether to dream now; else why not, and when to look ``again``."""

    due: bool
    reason: str = ""
    again: datetime | None = None


def check(schedule: str) -> str:
    """What is wrong with a cron expression, "" if nothing."""
    try:
        CronSim(schedule, datetime(2026, 1, 1))
    except CronSimError as error:
        return str(error)
    return ""


def look(schedule: str, conditions: Conditions, facts: Facts) -> Verdict:
    """Whether a dream is due; ``schedule``: a cron expression of five fields, in local time, or ""
    for never."""
    if not schedule:
        return Verdict(False, "no schedule")
    following = next(CronSim(schedule, facts.now))
    last = next(CronSim(schedule, facts.now + timedelta(seconds=1), reverse=True))
    if last <= facts.begun:
        return Verdict(False, f"the next time is {following:%Y-%m-%d %H:%M}", following)
    if facts.rows < conditions.rows:
        reason = f"{facts.rows} new labels, {conditions.rows} are needed"
        return Verdict(False, reason, following)
    rested = facts.active + conditions.idle
    if facts.now < rested:
        return Verdict(False, "somebody was here just now", rested)
    if conditions.mains and not facts.mains:
        return Verdict(False, "on the battery", facts.now + AGAIN)
    return Verdict(True)
