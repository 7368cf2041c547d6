"""Moves an appointment: found by its words or its time, else by a decision; shown; saved."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from sia import agenda, calendars, spans, times, timewords
from sia.calendars import Event
from sia.dav import Refused, Unknown
from sia.redact import redact
from sia.skills.api import Ctx, Failed, Finished

_AHEAD = timedelta(days=60)
_MOST = 40  # options a decision or a person is shown
_HOUR = timedelta(hours=1)
_TO = re.compile(r"\s(?:to|until|till|for|auf|nach|zu[mr]?)\s+", re.IGNORECASE)
_WHOLE = re.compile(r"\b(?:all|every|each|series|whole|always|alle|jede[nrs]?|serie)\b", re.I)


def choose(ctx: Ctx) -> None:
    """Which event, and when instead."""
    which, when = _halves(ctx)
    with agenda.opened(ctx) as found:
        events = found.between(ctx.now, ctx.now + _AHEAD)
    if not events:
        ctx.say("Nothing is in the calendar in the next 60 days.")
        raise Finished
    event = _meant(ctx, which, events)
    span = _target(ctx, event, when)
    if span is None:
        answer = ctx.ask(f"When instead: {agenda.line(event, ctx.present)}?")
        span = _target(ctx, event, answer)
    if span is None:
        raise Failed("I did not understand when; nothing is moved.", "text")
    if span == (event.start, event.end):
        ctx.say(f"It is there already: {agenda.line(event, ctx.present)}.")
        raise Finished
    ctx.state.update(
        event={**asdict(event), "start": event.start.isoformat(), "end": event.end.isoformat()},
        start=span[0].isoformat(),
        end=span[1].isoformat(),
        whole=bool(event.recurrence and _WHOLE.search(which)),
    )


def approve(ctx: Ctx) -> None:
    event, moved = _events(ctx)
    what = event.title
    if event.recurrence:
        what = f"all times of {what}" if ctx.state["whole"] else f"{what} (this time only)"
    before, after = (agenda.when(e, ctx.present).removeprefix("on ") for e in (event, moved))
    if not ctx.confirm(f"Move {what} from {before} to {after}?"):
        ctx.say("All right, nothing is moved.")
        raise Finished


def save(ctx: Ctx) -> None:
    event, moved = _events(ctx)
    server, zone, whole = agenda.server(ctx), ZoneInfo(ctx.person.timezone), ctx.state["whole"]

    def do(key: str) -> dict[str, str]:
        try:
            with calendars.opened(server, zone) as found:
                found.move(event, moved.start, moved.end, whole)
        except Refused as error:
            return {"refused": str(error)}
        except Unknown as error:
            raise Failed(
                f"{error}; {event.title} may or may not be moved.", "environment"
            ) from None
        return {"moved": moved.start.isoformat()}

    def check(key: str) -> bool | None:
        # A whole series can be told only by a time that is not on its own.
        return None if whole else _is_there(ctx, event, moved)

    result = ctx.effect("move event", do, check)
    if result and result.get("refused"):
        raise Failed(f"Nothing is moved: {result['refused']}.", "environment")
    ctx.state["moved"] = bool(result)
    ctx.say(f"Moved: {event.title}, {agenda.when(moved, ctx.present)}.")


def verify(ctx: Ctx) -> bool | None:
    if not ctx.state.get("moved") or ctx.state["whole"]:
        return None
    return _is_there(ctx, *_events(ctx))


def _is_there(ctx: Ctx, event: Event, moved: Event) -> bool | None:
    def question(found: calendars.Calendars) -> bool:
        now = found.event(event)
        return now is not None and now.start == moved.start and now.end == moved.end

    return agenda.asked(agenda.server(ctx), ZoneInfo(ctx.person.timezone), question)


def _events(ctx: Ctx) -> tuple[Event, Event]:
    """As it was, and as it is to be."""
    zone, state = ctx.now.tzinfo, ctx.state

    def at(text: str) -> datetime:
        return datetime.fromisoformat(text).astimezone(zone)

    old = state["event"]
    event = Event(**{**old, "start": at(old["start"]), "end": at(old["end"])})
    start, end = at(state["start"]), at(state["end"])
    all_day = event.all_day and start.hour == start.minute == 0
    moved = {**asdict(event), "start": start, "end": end, "all_day": all_day}
    return event, Event(**moved)


def _halves(ctx: Ctx) -> tuple[str, str]:
    """What names the event, and what names the new time: behind the last "to" that leads one."""
    text, zone = " ".join(ctx.request.split()), ctx.person.timezone
    clocks = spans.clock_range(text)
    for match in reversed(list(_TO.finditer(text))):
        if clocks and clocks.start() < match.start() < clocks.end():
            continue  # the "to" of "from 12 to 13"
        if spans.understand(text[match.end() :], ctx.now, zone, _HOUR):
            return text[: match.start()], text[match.end() :]
    if length := timewords.length(text):
        return text[: length[0][0]] + text[length[0][1] :], text[length[0][0] :]
    return text, ""


def _meant(ctx: Ctx, which: str, events: list[Event]) -> Event:
    phrase = times.understand(which, ctx.now, ctx.person.timezone)
    fitting = events
    if phrase:
        day = [event for event in events if event.start.date() == phrase.due.date()]
        hour = [event for event in events if event.start.time() == phrase.due.time()]
        both = [event for event in day if event in hour]
        fitting = (both or (day if phrase.has_day else hour) if phrase.has_time else day) or events
    near = agenda.named(phrase.rest(which) if phrase else which, fitting)
    near = near or (fitting if fitting is not events else [])
    rows = agenda.first_of_each(near or events)[:_MOST]
    options = {_option(event): event for event in rows}
    shown = [(id, agenda.line(event, ctx.present)) for id, event in options.items()]
    # Where words or time fit several alike, no decision can know which: the person is asked.
    id = "none"
    if len(near) < 2 or len(rows) == 1:
        id = ctx.choose("Which event is meant?", shown, none=len(rows) > 1)
    if id == "none":
        answer = ctx.ask("Which event do you mean?", [text for _, text in shown])
        id = next((id for id, text in shown if text == answer), "")
    if id not in options:  # entered again, and the calendar is another one by now
        raise Failed("The calendar has changed meanwhile; say it again.", "environment")
    return options[id]


def _option(event: Event) -> str:
    """An id that reads like the event and stays its own."""
    words = re.findall(r"[a-z0-9]+", redact(event.title).lower())[:4]
    return "-".join([*words, sha256(f"{event.uid} {event.recurrence}".encode()).hexdigest()[:4]])


def _target(ctx: Ctx, event: Event, when: str) -> tuple[datetime, datetime] | None:
    """The new span: of what is not said (day, hour, length) the event keeps its own."""
    zone = ZoneInfo(ctx.person.timezone)
    length = event.end.astimezone(UTC) - event.start.astimezone(UTC)
    by = timewords.length(when)
    span = spans.understand(when, ctx.answered, ctx.person.timezone, _HOUR)
    if by and not (span and (span.phrase.has_time or span.has_day) and by[0][0] > 0):
        back = re.search(r"\b(?:earlier|forward|früher)\b", ctx.request, re.IGNORECASE)
        start = (event.start.astimezone(UTC) + (-by[1] if back else by[1])).astimezone(zone)
        return start, (start.astimezone(UTC) + length).astimezone(zone)
    if span is None:
        return None
    if not span.has_day:  # "to 11": on the day of the event, by day
        midnight = times.wall(event.start.replace(tzinfo=None, hour=0, minute=0), zone)
        span = spans.understand(when, midnight, ctx.person.timezone, _HOUR) or span
    start = span.start
    if span.all_day and not event.all_day:
        start = times.wall(start.replace(tzinfo=None) + _clock(event), zone)
    if event.all_day and span.all_day:
        days = event.end.date() - event.start.date()
        return start, times.wall(start.replace(tzinfo=None) + days, zone)
    if span.has_length and not span.all_day:
        return start, span.end
    length = _HOUR if event.all_day else length
    return start, (start.astimezone(UTC) + length).astimezone(zone)


def _clock(event: Event) -> timedelta:
    return timedelta(hours=event.start.hour, minutes=event.start.minute)
