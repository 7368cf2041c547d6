"""Says no, and why."""

from __future__ import annotations

from sia.skills.api import Ctx


def decline(ctx: Ctx) -> None:
    busy = ctx.interrupted()
    if busy and ctx.state.get("kept"):
        ctx.say(
            f"Not now: “{busy[0]}” must not be disturbed. I keep “{ctx.request}” and ask you about "
            f"it afterwards; `sia queue drop {ctx.run}` forgets it."
        )
    elif busy:
        ctx.say(f"Not now: I am busy with “{busy[0]}”. Ask me again afterwards.")
    else:
        ctx.say('I will not do that. Ask "what can you do" to see what I can.')
