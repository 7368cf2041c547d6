"""What code of a skill is given, and which of its calls leave the world as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sia.home import Home
from sia.skills.api import Failed
from sia.skills.calls import Payload
from sia.store import Run, Store

LOOKS = frozenset({"reminders", "rung", "skills", "interrupted"})  # the calls that change nothing
# What the run keeps of itself by these methods changes nothing either; the rest are effects.
OWN = frozenset({"observe", "predict", "assess", "declined", "route"})
HARMLESS = LOOKS | OWN | {"say", "ask", "confirm", "choose", "generate"}

Answer = Callable[[str, dict[str, Any]], Any]


def payload(home: Home, run: Run, now: datetime) -> Payload:
    """What an action of ``run`` is given. now: in the person's zone."""
    zone, category = now.tzinfo, run.skill.split("/")[0]
    return Payload(
        request=run.text,
        run=run.id,
        now=run.arrived.astimezone(zone),
        answered=run.heard.astimezone(zone),
        present=now,
        person=home.person,
        folders=home.folders,
        settings=home.settings(category),
        state=json.loads(run.state),
        secrets=home.secrets(category),
    )


def looking(name: str, answer: Answer) -> Answer:
    """``answer`` for the function ``name`` of a skill, which may only look."""

    def only(method: str, args: dict[str, Any]) -> Any:
        if method not in LOOKS:
            raise Failed(f"{name} may only look: ctx.{method} belongs into an action")
        return answer(method, args)

    return only


def touched(store: Store, run: str) -> bool:
    """Whether ``run`` has done something to the world, or may have."""
    return any(
        method not in HARMLESS or status != "done" for _, _, method, status, _ in store.results(run)
    )
