"""Sets a reminder that went off once more, or moves one that still waits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from sia import times, timewords
from sia.skills.api import Ctx, Failed, Finished, Reminder

_MINUTES = 10
_COMMON = frozenset(
    "a about again alarm an and by delay for in it later me minutes more move my of on please "
    "postpone push remind reminder reschedule snooze that the till timer to until".split()
)


def choose(ctx: Ctx) -> None:
    """Which reminder, and until when."""
    row, rang = _meant(ctx)
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    length = timewords.length(ctx.request)
    by = timedelta(minutes=_MINUTES) if length is None else length[1]
    due, timer = ctx.now + by, True
    if not rang and length and not phrase:  # "postpone the dentist by an hour": from its own time
        due, timer = row.due + by, False
    elif phrase:
        due, timer = phrase.due, phrase.elapsed
    if not times.is_after(due, ctx.answered):
        raise Failed(
            f"That time has passed ({times.words(due, ctx.answered)}); nothing is changed.", "text"
        )
    old = "" if rang or row.repeat else row.id
    ctx.state.update(text=row.text, due=due.isoformat(), timer=timer, old=old)


def snooze(ctx: Ctx) -> None:
    state, due = ctx.state, datetime.fromisoformat(ctx.state["due"]).astimezone(ctx.now.tzinfo)
    if state["old"] and not ctx.cancel_reminder(state["old"]):
        ctx.say("It has gone off already.")
        raise Finished
    state["id"] = ctx.remind(due, state["text"], timer=state["timer"])
    end = "" if state["text"][-1:] in ".!?" else "."
    ctx.say(f"I will remind you {times.words(due, ctx.present)}: {state['text']}{end}")


def verify(ctx: Ctx) -> bool | None:
    due = datetime.fromisoformat(ctx.state.get("due", ctx.now.isoformat()))
    if "id" not in ctx.state or not times.is_after(due, ctx.present):
        return None
    return any(row.id == ctx.state["id"] for row in ctx.reminders())


def _meant(ctx: Ctx) -> tuple[Reminder, bool]:
    """The one that the words name, else the last that rang; and whether it rang."""
    rang, waiting = ctx.rung(), ctx.reminders()
    known = {row.id for row in rang}
    rows = [*rang, *(row for row in waiting if row.id not in known)]
    if not rows:
        ctx.say("No reminder has gone off lately, and none is waiting.")
        raise Finished
    near = _named(ctx.request, rows) or rang[:1] or rows
    if len(near) > 1:
        options = {f"{row.text}, {times.words(row.due, ctx.present)}": row for row in near}
        near = [options[ctx.ask("Which reminder do you mean?", list(options))]]
    return near[0], near[0].id in known


def _named(request: str, rows: Sequence[Reminder]) -> list[Reminder]:
    said = _words(request)
    shared = {row.id: len(said & _words(row.text)) for row in rows}
    most = max(shared.values(), default=0)
    return [row for row in rows if most and shared[row.id] == most]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d_]{2,}", text.casefold())) - _COMMON
