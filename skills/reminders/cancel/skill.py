"""Cancels a waiting reminder: found by its words or its time, else by a decision; confirmed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sia import repeats, times
from sia.redact import redact
from sia.skills.api import Ctx, Failed, Finished, Reminder

_MOST = 40  # options a decision or a person is shown
_COMMON = frozenset(
    "a about alarm an and cancel clear delete for forget i it my of on please reminder reminders "
    "remove stop that the timer to".split()
)


def choose(ctx: Ctx) -> None:
    rows = ctx.reminders()
    if not rows:
        ctx.say("No reminders are waiting.")
        raise Finished
    every = re.search(r"\b(?:all|every|everything|alle)\b", ctx.request, re.IGNORECASE)
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    if every and not (phrase and phrase.repeat):  # "cancel the one of every monday" names one
        ctx.state["ids"] = [row.id for row in rows]
        return
    near = _near(ctx, rows)
    if len(near) == 1:
        ctx.state["ids"] = [near[0].id]
        return
    options = {_option(row, place): row for place, row in enumerate(near or rows)}
    if len(options) > _MOST:
        raise Failed("Too many reminders could be meant; name it by its words or time.", "text")
    shown = [(id, f"{row.text}, {_when(ctx, row)}") for id, row in options.items()]
    # Where words or time fit several alike, no decision can know which: the person is asked.
    id = "none" if near else ctx.choose("Which reminder is meant?", shown, none=True)
    if id == "none":
        answer = ctx.ask("Which reminder do you mean?", [text for _, text in shown])
        id = next(id for id, text in shown if text == answer)
    ctx.state["ids"] = [options[id].id]


def cancel(ctx: Ctx) -> None:
    ids = ctx.state["ids"]
    rows = [row for row in ctx.reminders() if row.id in ids]
    lines = [f"- {_when(ctx, row)}: {row.text}" for row in rows]
    if not rows:
        ctx.say("It has gone off already; nothing is left to cancel.")
        raise Finished
    many = f"these {len(rows)} reminders" if len(rows) > 1 else "this reminder"
    if not ctx.confirm("\n".join([f"Cancel {many}?", *lines])):
        ctx.say("All right, nothing is cancelled.")
        ctx.state["ids"] = []
        raise Finished
    done = [row.text for row in rows if ctx.cancel_reminder(row.id)]
    ctx.say(f"Cancelled: {'; '.join(done)}." if done else "It has gone off already.")


def verify(ctx: Ctx) -> bool | None:
    ids = ctx.state.get("ids")
    return None if not ids else not any(row.id in ids for row in ctx.reminders())


def _when(ctx: Ctx, row: Reminder) -> str:
    """A repeating one is cancelled for good, so its rule is what is shown."""
    return repeats.words(row.repeat) if row.repeat else times.words(row.due, ctx.present)


def _near(ctx: Ctx, rows: Sequence[Reminder]) -> list[Reminder]:
    """Those that fit the time named, and of them those that share most words with the request."""
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    fitting = list(rows)
    if phrase:
        day = [row for row in rows if row.due.date() == phrase.due.date()]
        if phrase.repeat:
            day = [row for row in rows if _same_rule(row.repeat, phrase.repeat)] or day
        hour = [row for row in rows if row.due.time() == phrase.due.time()]
        both = [row for row in day if row in hour]
        fitting = (both or hour if phrase.has_time else day) or fitting
    said = _words(phrase.rest(ctx.request) if phrase else ctx.request)
    shared = {row.id: len(said & (_words(row.text) | _hours(row))) for row in fitting}
    most = max(shared.values())
    if most:
        return [row for row in fitting if shared[row.id] == most]
    return fitting if len(fitting) < len(rows) else []


def _same_rule(one: str, other: str) -> bool:
    """Whether both come on the same days; the hour is compared beside this."""
    return one.partition("\n")[2] == other.partition("\n")[2]


def _words(text: str) -> frozenset[str]:
    joined = re.sub(r"(?<=\d)\s*(?=[ap]m\b|o['’]?clock)", "", text.casefold())
    return frozenset(re.findall(r"\d\d?:\d\d(?:[ap]m)?|\d+o(?=['’]?clock)|\w+", joined)) - _COMMON


def _hours(row: Reminder) -> frozenset[str]:
    """What its hour may be called in "my 5 pm reminder", "the 9 o'clock one"."""
    due = row.due
    hour, half = due.hour % 12 or 12, "pm" if due.hour > 11 else "am"
    exact = {f"{due:%H:%M}", f"{hour}:{due:%M}", f"{hour}:{due:%M}{half}"}
    return frozenset(exact | ({f"{hour}{half}", f"{hour}o"} if due.minute == 0 else set()))


def _option(row: Reminder, place: int) -> str:
    """An id that reads like the reminder: the decision looks at it too."""
    words = re.findall(r"[a-z0-9]+", redact(row.text).lower())[:4]
    return "-".join([*words, str(place + 1)])
