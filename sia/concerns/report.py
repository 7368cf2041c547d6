"""What there is to say about concerns, as data that the command line prints as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sia.concerns import dynamics
from sia.concerns.table import Concerns, to_json
from sia.concerns.triage import owed
from sia.concerns.values import Concern
from sia.concerns.words import rhythm


def listed(concerns: Concerns, now: datetime, over: bool = False) -> list[dict[str, Any]]:
    return [_row(concern, now) for concern in concerns.all(over)]


def explained(concerns: Concerns, id: str, now: datetime) -> dict[str, Any]:
    """One in full, with what happened to it. Raises UsageError."""
    concern = concerns.get(id)
    return _row(concern, now) | {"history": concerns.history(id)}


def _row(concern: Concern, now: datetime) -> dict[str, Any]:
    moment = dynamics.candidate(concern)
    return {
        **to_json(concern),
        "activation": dynamics.activation(concern, now) / dynamics.FULL,
        "next": moment.astimezone(now.tzinfo).isoformat() if moment else "",
        "state": "; ".join(filter(None, (_state(concern, moment, now), owed(concern, now)))),
        "every": rhythm(concern),
    }


def _state(concern: Concern, moment: datetime | None, now: datetime) -> str:
    """What it is waiting for."""
    if concern.status != "open":
        return concern.status
    if concern.fire:
        return f"fires now, as {concern.fire}"
    if moment is None:
        return "never fires: it has no instruction"
    when = moment.astimezone(now.tzinfo)
    at = f"{when.day} {when:%b %H:%M}"
    if concern.held and concern.held == moment and moment > now:
        why = {"defer": "put off", "error": "tried again after a failure", "cut": "the rest waits"}
        return f"{why.get(concern.held_for, 'held')}, until {at}"
    return "ready" if moment <= now else f"ready on {at}"
