"""How a concern builds up and is relieved: pure functions of a concern and a moment.

Activation is a closed form of (value, time) in whole millionths, value + 0.60 x hours / rhythm, at
most 1. So it does not matter how often it is looked at, nothing is rounded twice, and the moment at
which it crosses the threshold is known in advance.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sia.concerns.values import MICROSECOND, Concern

FULL = 1_000_000  # activation 1.0
GROWTH = 600_000  # in one rhythm
THRESHOLD = 700_000
BUMP = 150_000
SERVED = 600_000  # after a fire that came to its end, and after a reset
CUT = 250_000  # after one that was cut off
DEFERS = 6  # in a row: the last of them fires anyway
_HOUR = timedelta(hours=1)


def _rhythm(concern: Concern) -> int:
    """Microseconds."""
    return concern.rhythm * _HOUR // MICROSECOND


def activation(concern: Concern, now: datetime) -> int:
    """Millionths, 0..FULL. An obligation is at FULL from the moment that it is due."""
    due = concern.until
    if due is not None and concern.grown < due <= now:
        return FULL
    # A clock that was set back takes nothing away.
    passed = max(0, (now - concern.grown) // MICROSECOND)
    return min(FULL, concern.value + GROWTH * passed // _rhythm(concern))


def crossing(concern: Concern) -> datetime:
    """The first moment at which its activation is THRESHOLD, when nothing else happens."""
    missing = max(0, THRESHOLD - concern.value)
    moment = concern.grown + -(-missing * _rhythm(concern) // GROWTH) * MICROSECOND
    due = concern.until
    return min(moment, due) if due is not None and concern.grown < due else moment


def candidate(concern: Concern) -> datetime | None:
    """When it may be looked at; None where it never is: without an instruction, over, or while a
    fire of it is not over."""
    if concern.status != "open" or not concern.instruction or concern.fire:
        return None
    moment = crossing(concern)
    return max(moment, concern.held) if concern.held else moment


def backoff(concern: Concern) -> timedelta:
    """An eighth of its rhythm, at least 1 hour and at most 24."""
    return min(max(concern.rhythm * _HOUR / 8, _HOUR), 24 * _HOUR)


def overdue(concern: Concern, now: datetime) -> bool:
    return concern.status == "open" and concern.until is not None and concern.until < now


def moved(concern: Concern, now: datetime, by: int) -> Concern:
    """With its activation as it is now, and ``by`` millionths more."""
    value = min(FULL, max(0, activation(concern, now) + by))
    return replace(concern, value=value, grown=now)


def bumped(concern: Concern, now: datetime) -> Concern:
    """A person touched it: a verdict that was made before is no longer heeded."""
    concern = replace(moved(concern, now, BUMP), bumped=now)
    return _released(concern) if concern.held_for == "defer" else concern


def fired(concern: Concern, now: datetime, run: str) -> Concern:
    return replace(_released(concern), fired=now, fire=run, defers=0)


def served(concern: Concern, now: datetime) -> Concern:
    """Its fire came to its end. What was to be done once is done; an obligation is not, until it is
    discharged."""
    over = "done" if concern.kind == "one_shot" else concern.status
    return replace(moved(concern, now, -SERVED), fire="", status=over)


def failed(concern: Concern, now: datetime) -> Concern:
    return _held(replace(concern, fire=""), now, "error")


def cut(concern: Concern, now: datetime) -> Concern:
    """Its fire was ended by a limit. The rest of what was to be done once is its successor's."""
    over = "done" if concern.kind == "one_shot" else concern.status
    return _held(replace(moved(concern, now, -CUT), fire="", status=over), now, "cut")


def reset(concern: Concern, now: datetime) -> Concern:
    """Nothing was to be done."""
    return replace(_released(moved(concern, now, -SERVED)), defers=0)


def deferred(concern: Concern, now: datetime) -> Concern:
    """The verdict holds for so long and no longer, whatever it was made for."""
    return _held(replace(concern, defers=concern.defers + 1), now, "defer")


def _held(concern: Concern, now: datetime, why: str) -> Concern:
    return replace(concern, held=now + backoff(concern), held_for=why)


def _released(concern: Concern) -> Concern:
    return replace(concern, held=None, held_for="")
