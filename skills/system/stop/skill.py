"""Ends for good what was running when the person said stop."""

from __future__ import annotations

from sia.skills.api import Ctx


def stop(ctx: Ctx) -> None:
    stopped = ctx.cancel_interrupted()
    if stopped:
        ctx.say(f"Stopped: {'; '.join(stopped)}.")
    else:
        ctx.say("Nothing was running.")
