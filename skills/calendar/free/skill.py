"""Finds free time in the calendar, or says whether a time is free."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sia import agenda, spans, times, timewords
from sia.calendars import busy, gaps
from sia.skills.api import Ctx

_AHEAD = timedelta(days=14)
_HOUR = timedelta(hours=1)
_MOST = 3
_PARTS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 22), "night": (20, 24)}


def show(ctx: Ctx) -> None:
    span = spans.understand(ctx.request, ctx.now, ctx.person.timezone, _HOUR)
    if span and span.phrase.has_time and not span.repeat:
        _whether(ctx, span.start, span.end)
        return
    part = span.phrase.part if span else ""
    start, end, said = agenda.window(ctx, _AHEAD)
    length = timewords.length(ctx.request)
    wanted = length[1] if length else _HOUR
    days = list(_days(ctx, start, end, part, every=bool(said)))
    with agenda.opened(ctx) as found:
        taken = busy(found.between(start, end))
    free = [gap for first, last in days for gap in gaps(taken, first, last, wanted)]
    if not free:
        where = said or "in the next 14 days"
        ctx.say(f"There is no free time of {_long(wanted)} {where}.")
        return
    shown = [f"- {_gap(first, last, ctx.present)}" for first, last in free[:_MOST]]
    ctx.say("\n".join([f"Free for {_long(wanted)}:", *shown]))


def _whether(ctx: Ctx, start: datetime, end: datetime) -> None:
    with agenda.opened(ctx) as found:
        near = [event for event in found.between(start, end) if event.overlaps(start, end)]
    taken = [event for event in near if event.busy]
    when = _gap(start, end, ctx.present)
    if not taken:
        beside = [event.title for event in near]
        also = f" (but it is {', '.join(beside)})" if beside else ""
        ctx.say(f"Yes, you are free {when}{also}.")
        return
    rows = [f"- {agenda.line(event, ctx.present)}" for event in taken]
    ctx.say("\n".join([f"No, you are not free {when}:", *rows]))


def _days(
    ctx: Ctx, start: datetime, end: datetime, part: str, every: bool
) -> Iterator[tuple[datetime, datetime]]:
    """The hours of each day in the window that are looked at, those that are over left out.

    every: weekends too, since days were named.
    """
    zone = ZoneInfo(ctx.person.timezone)
    first, _, last = ctx.settings.get("hours", "09:00-18:00").partition("-")
    opens, closes = _clock(first), _clock(last)
    if part:
        opens = max(opens, _PARTS[part][0] * 60) if part in ("morning", "afternoon") else 0
        opens = opens or _PARTS[part][0] * 60
        closes = _PARTS[part][1] * 60
    day = start.date()
    while day < end.date():
        if every or day.weekday() < 5:
            begin, until = _at(day, opens, zone), _at(day, closes, zone)
            begin = max(begin, _rounded(ctx.present))
            if begin < until:
                yield begin, until
        day += timedelta(1)


def _clock(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _at(day: date, minutes: int, zone: ZoneInfo) -> datetime:
    return times.wall(datetime.combine(day, time()) + timedelta(minutes=minutes), zone)


def _rounded(now: datetime) -> datetime:
    """The next quarter of an hour: nobody meets at 15:07:31."""
    step = timedelta(minutes=15)
    past = timedelta(minutes=now.minute % 15, seconds=now.second, microseconds=now.microsecond)
    return now + (step - past) if past else now


def _gap(first: datetime, last: datetime, now: datetime) -> str:
    return f"{times.day_words(first.date(), now.date())}, {first:%H:%M}–{last:%H:%M}"


def _long(length: timedelta) -> str:
    minutes = round(length.total_seconds() / 60)
    hours, rest = divmod(minutes, 60)
    parts = [(hours, "hour"), (rest, "minute")]
    return " ".join(f"{n} {unit}{'s' * (n != 1)}" for n, unit in parts if n) or "0 minutes"
