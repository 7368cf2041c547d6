"""Drives to a place and is over when the vehicle has arrived."""

from __future__ import annotations

import re
from typing import Any

from sia import vehicle
from sia.skills.api import Ctx, Failed, Finished

_PLACE = re.compile(r"\b(?:to|towards|nach|zum|zur)\s+(?P<place>.+?)[\s.!?]*$", re.IGNORECASE)
_HOME = re.compile(r"\b(?:drive|take|bring|go)\b.*\b(?P<place>home|there)\b", re.IGNORECASE)


def observe(ctx: Ctx) -> dict[str, Any]:
    """The drive alone: halts are asked about by ``go``, and the speed changes by itself."""
    status = _tell(ctx, "status")
    if "place" not in ctx.state:
        return {"vehicle": "ready" if status.state != "driving" else "driving somewhere else"}
    return {"vehicle": "answers"}


def start(ctx: Ctx) -> None:
    match = _PLACE.search(ctx.request) or _HOME.search(ctx.request)
    place = match["place"] if match else ctx.ask("Where should I drive to?")
    if not place:
        ctx.say("All right, we stay.")
        raise Finished
    ctx.state["place"] = place
    # Halts from here on are this drive's.
    ctx.state["halts"] = ctx.effect("start driving", lambda key: _tell(ctx, f"drive {place}").halts)
    ctx.say(f"Driving to {place}.")


def go(ctx: Ctx) -> None:
    """Entered again after whatever interrupted it; each halt is asked about once, in its order."""
    place, halts = ctx.state["place"], ctx.state["halts"]
    status = _tell(ctx, "status")
    while status.state != "arrived":
        if status.state == "idle" or (status.state == "halted" and status.halts <= halts):
            raise Failed(f"The drive to {place} was ended by somebody else.", "environment")
        while halts < status.halts:
            halts += 1
            if ctx.ask(f"The vehicle was stopped. Drive on to {place}?", ["yes", "no"]) == "no":
                ctx.say("All right, we stay here.")
                raise Finished
            # Not where it was stopped once more meanwhile: that is asked about next.
            ctx.effect("drive on", lambda key, seen=halts: _tell(ctx, f"go {seen}").state)
        status = _tell(ctx, "wait")
    ctx.say(f"We have arrived: {place}.")


def verify(ctx: Ctx) -> bool | None:
    return _tell(ctx, "status").state == "arrived" or None


def halt(ctx: Ctx) -> None:
    """A drive that is ended does not drive on."""
    if _tell(ctx, "status").state == "driving":
        _tell(ctx, "halt")


def _tell(ctx: Ctx, command: str) -> vehicle.Status:
    try:
        return vehicle.tell(ctx.settings["socket"], command)
    except vehicle.VehicleError as error:
        raise Failed(f"{str(error)[:1].upper()}{str(error)[1:]}.", "environment") from None
