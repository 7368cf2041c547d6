"""Slows the vehicle down, or stops it, at once."""

from __future__ import annotations

import re
from time import monotonic, sleep
from typing import Any

from sia import vehicle
from sia.skills.api import Ctx, Failed

_LOOK, _LONGEST = 0.1, 20.0  # seconds between looks, and of looking
_TO = re.compile(
    r"\b(?:to|at|auf)\s+(?P<speed>\d{1,3})\b|\b(?P<unit>\d{1,3})\s*(?:km/?h|kph)\b", re.I
)
_BIT = re.compile(r"\b(?:a (?:bit|little)|slightly|gently|ease off|etwas|ein bisschen)\b", re.I)
_LESS = re.compile(r"\b(?:slow(?:er)?(?: down)?|decelerate|langsamer)\b", re.I)
_HALT = re.compile(r"\b(?:stop|halt|brakes?|emergency|now|stopp|anhalten)\b|!", re.I)


def observe(ctx: Ctx) -> dict[str, Any]:
    status = _tell(ctx, "status")
    return {"state": status.state, "speed": status.speed}


def slow(ctx: Ctx) -> None:
    """The brake first: nothing is asked, looked up or said before it."""
    target = ctx.effect("brake", lambda key: _brake(ctx))
    ctx.state["target"] = target
    ctx.say("Braking." if target == 0 else f"Slowing down to {target:.0f} km/h.")


def watch(ctx: Ctx) -> None:
    """Says what has come of it."""
    end, target = monotonic() + _LONGEST, ctx.state["target"]
    while (status := _tell(ctx, "status")).speed > target and monotonic() < end:
        sleep(_LOOK)
    if status.speed > target:
        raise Failed(f"The vehicle still goes at {status.speed:.0f} km/h.", "environment")
    ctx.say("We have stopped." if status.speed == 0 else f"We go at {status.speed:.0f} km/h.")


def verify(ctx: Ctx) -> bool | None:
    return _tell(ctx, "status").speed <= ctx.state["target"]


def _brake(ctx: Ctx) -> float:
    """The speed to come down to, in km/h."""
    words, named = ctx.request, _TO.search(ctx.request)
    if named:
        target = float(named["speed"] or named["unit"])
    elif not _HALT.search(words) and (_BIT.search(words) or _LESS.search(words)):
        speed = _tell(ctx, "status").speed
        target = float(int(speed * (0.8 if _BIT.search(words) else 0.5)))
    else:
        target = 0.0
    _tell(ctx, f"target {target:.0f}" if target else "halt")
    return target


def _tell(ctx: Ctx, command: str) -> vehicle.Status:
    try:
        return vehicle.tell(ctx.settings["socket"], command)
    except vehicle.VehicleError as error:
        raise Failed(f"{str(error)[:1].upper()}{str(error)[1:]}.", "environment") from None
