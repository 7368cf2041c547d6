"""Says no, and why."""

from __future__ import annotations

from sia.skills.api import Ctx


def decline(ctx: Ctx) -> None:
    busy = ctx.interrupted()
    if busy:
        ctx.say(f"Not now: I am busy with “{busy[0]}”. Ask me again afterwards.")
    else:
        ctx.say('I will not do that. Ask "what can you do" to see what I can.')
