"""Shows what is ahead in the calendar: of a day, of some days, or what the words name."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from sia import agenda
from sia.skills.api import Ctx

_AHEAD = timedelta(days=60)
_MOST = 30  # lines
_NEXT = 5


def show(ctx: Ctx) -> None:
    start, end, said = agenda.window(ctx, _AHEAD)
    with agenda.opened(ctx) as found:
        # From the start of the day, so that what runs now is there too.
        events = [event for event in found.between(start, end) if event.end > ctx.present]
        problems = found.problems
    named = agenda.named(ctx.request, events)
    if named:
        rows, title = named[:_NEXT], ""
    elif not said:
        one = re.search(r"\bnext\b(?!\s+\d)|nächste[rn]?", ctx.request, re.IGNORECASE)
        many = re.search(r"events|meetings|appointments|termine\b", ctx.request, re.IGNORECASE)
        timed = [event for event in events if not event.all_day] or events
        rows, title = (timed[:1], "") if one and not many else (events[:_NEXT], "")
    else:
        rows, title = events[:_MOST], said
    if not rows:
        ctx.say(f"Nothing is in the calendar {said or 'in the next 60 days'}.")
    else:
        ctx.say("\n".join(_lines(rows, title, len(events), ctx.present)))
    if problems:
        ctx.say(f"Left out, because it cannot be read: {'; '.join(problems[:3])}.")


def _lines(rows: list, title: str, count: int, now: datetime) -> list[str]:
    shown = [agenda.line(event, now) for event in rows]
    if len(shown) == 1 and not title:
        return shown
    head = [f"{title[:1].upper()}{title[1:]}:"] if title else []
    more = [f"… and {count - len(rows)} more"] if title and count > len(rows) else []
    return [*head, *(f"- {line}" for line in shown), *more]
