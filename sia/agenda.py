"""What the skills of the calendar share: its server, events for people, and which one is meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sia import calendars, times, timewords
from sia.calendars import Calendars, Event
from sia.dav import DavServer, Refused
from sia.skills.api import Ctx, Failed

_COMMON = frozenset(
    "a about all am an and any appointment appointments are at be by calendar change coming day do "
    "event events first for from have i in is it later meeting meetings move my next of on our "
    "please postpone push put reschedule shift show tell that the there this time to tomorrow "
    "today upcoming up we week what when which with until us schedule der die das den mein "
    "meine meinen termin termine kalender wann ist was zum auf um am verschiebe".split()
)


def server(ctx: Ctx) -> DavServer:
    return DavServer.of(ctx.settings, ctx.secret)


@contextmanager
def opened(ctx: Ctx) -> Iterator[Calendars]:
    """The person's calendars; what the server refuses is Failed."""
    try:
        with calendars.opened(server(ctx), ZoneInfo(ctx.person.timezone)) as found:
            yield found
    except Refused as error:
        raise Failed(f"The calendar cannot be reached: {error}.", "environment") from None


def asked(server: DavServer, zone: ZoneInfo, question: Callable[[Calendars], bool]) -> bool | None:
    """What the server says; None where it says nothing."""
    try:
        with calendars.opened(server, zone) as found:
            return question(found)
    except Refused:
        return None


def when(event: Event, now: datetime) -> str:
    """ "tomorrow, Tuesday 1 December, 15:00–16:00"."""
    first = times.day_words(event.start.date(), now.date())
    last = (event.end - timedelta(microseconds=1)).date() if event.end > event.start else None
    until = ""
    if last and last != event.start.date():
        until = f" to {times.day_words(last, now.date()).removeprefix('on ')}"
    if event.all_day:
        return f"{first}{until}, all day"
    if until:
        return f"{first}, {event.start:%H:%M}{until}, {event.end:%H:%M}"
    end = f"–{event.end:%H:%M}" if event.end > event.start else ""
    return f"{first}, {event.start:%H:%M}{end}"


def line(event: Event, now: datetime) -> str:
    place = f", {event.place}" if event.place else ""
    words = when(event, now)
    return f"{words[:1].upper()}{words[1:]}: {event.title}{place}"


def words(text: str) -> frozenset[str]:
    """What of a text may name an event."""
    return frozenset(re.findall(r"[^\W\d_]{2,}", text.casefold())) - _COMMON


def named(text: str, events: Sequence[Event]) -> list[Event]:
    """Those whose titles share most words with ``text``; none where none does."""
    said = words(text)
    shared = {id(event): len(said & words(f"{event.title} {event.place}")) for event in events}
    most = max(shared.values(), default=0)
    return [event for event in events if most and shared[id(event)] == most]


def first_of_each(events: Sequence[Event]) -> list[Event]:
    """Of a series only its first time."""
    found: dict[tuple[str, str], Event] = {}
    for event in sorted(events, key=lambda event: event.start.astimezone(UTC)):
        found.setdefault((event.calendar, event.uid), event)
    return list(found.values())


def window(ctx: Ctx, ahead: timedelta) -> tuple[datetime, datetime, str]:
    """(start, end, in words) of the days that a request names; "" and from today on where none."""
    zone, today = ZoneInfo(ctx.person.timezone), ctx.now.date()
    first, last, said = today, today + ahead, ""
    period = re.search(
        r"\b(?P<next>next|coming|nächste[nrs]?|kommende[nrs]?)?\s*"
        r"(?P<what>week(?:end)?|month|woche(?:nende)?|monat)\b",
        ctx.request,
        re.IGNORECASE,
    )
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    if period:
        first, last, said = _period(today, period["what"].lower(), bool(period["next"]))
    elif phrase and phrase.has_day and not phrase.repeat:
        first, last = phrase.due.date(), phrase.due.date() + timedelta(1)
        said = times.day_words(first, today)
    start, end = (times.wall(datetime.combine(day, time()), zone) for day in (first, last))
    return start, end, said


def _period(today: date, what: str, following: bool) -> tuple[date, date, str]:
    """This week is what is left of it; on a weekend day this weekend is that."""
    monday = today - timedelta(today.weekday()) + timedelta(7 * following)
    if "end" in what:
        return monday + timedelta(5), monday + timedelta(7), "at the weekend"
    if what.startswith("w"):
        return max(monday, today), monday + timedelta(7), f"{'next' if following else 'this'} week"
    start = timewords.add_months(today.replace(day=1), int(following))
    end = timewords.add_months(start, 1)
    return max(start, today), end, f"{'next' if following else 'this'} month"
