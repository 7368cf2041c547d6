"""Shows the waiting reminders, of one day where a day is named."""

from __future__ import annotations

import re

from sia import repeats, times
from sia.skills.api import Ctx


def show(ctx: Ctx) -> None:
    rows = ctx.reminders()
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    when = ""
    named = "" if phrase is None else " ".join(ctx.request[a:b] for a, b in phrase.spans)
    if phrase and not phrase.has_time and not re.search(r"week|month|year|woche|monat|jahr", named):
        day = phrase.due.date()
        rows = [row for row in rows if row.due.date() == day]
        when = f" {times.day_words(day, ctx.present.date())}"
    if not rows:
        ctx.say(f"No reminders are waiting{when}.")
        return
    one = len(rows) == 1
    lines = [f"{len(rows)} reminder{'' if one else 's'} {'is' if one else 'are'} waiting{when}:"]
    for row in rows:
        again = f" ({repeats.words(row.repeat)})" if row.repeat else ""
        lines.append(f"- {times.words(row.due, ctx.present)}: {row.text}{again}")
    ctx.say("\n".join(lines))
