"""Puts an event into the calendar: title in the person's words, time computed in code."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from sia import agenda, calendars, repeats, spans, times
from sia.calendars import Event
from sia.dav import Refused, Unknown
from sia.skills.api import Ctx, Failed, Finished

_TRIES = 3
_USUAL = timedelta(hours=1)
_LEAD = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|and|sia|please|bitte|(?:can|could|would|will) you"
    r"|i (?:want|need|would like) (?:you )?to|i(?:['’]ve| have))\b[\s,]*)*"
    r"(?:(?:schedule|add|put|create|make|book|plan|enter|save|note|set up|trag[e]?|plane)\b"
    r"(?:\s+me)?"
    r"|new\b|there is)?[\s,:]*(?:(?:a|an|the|my|einen?|das|den|die)\s+)?(?:new\s+)?"
    r"(?:(?:appointment|meeting|event|entry|termin)\s+(?:called|named|titled|namens)\b|"
    r"(?:appointment|event|entry|termin)\s*:)?[\s,:]*",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"[\s,]*\b(?:(?:in|on|to|into|auf|in den|im)\s+)(?:(?:my|the|our|mein(?:en|em)?|den|dem)\s+)?"
    r"(?P<name>[\w&-]+(?:\s+[\w&-]+)?\s+)??(?:calendar|kalender|agenda|diary)\b(?:\s+ein\b)?",
    re.IGNORECASE,
)
_EMPTY = frozenset({"", "appointment", "event", "entry", "termin", "eintrag", "something"})


def understand(ctx: Ctx) -> None:
    """What, when and in which calendar."""
    where = _WHERE.search(ctx.request)
    text = _WHERE.sub("", ctx.request, count=1) if where else ctx.request
    span = spans.understand(text, ctx.now, ctx.person.timezone, _USUAL)
    title = _title(span.phrase.rest(text) if span else text)
    if title.casefold() in _EMPTY:
        title = _asked(ctx, "What is the event called?")
    question = f"When is it: {title}?"
    for _ in range(_TRIES):
        if span and times.is_after(span.end, ctx.answered):
            break
        said = _asked(ctx, question)
        span = spans.understand(said, ctx.answered, ctx.person.timezone, _USUAL)
        question = 'I need a time to come, for example "friday from 3 to 4". When is it?'
    if not span or not times.is_after(span.end, ctx.answered):
        raise Failed("I did not understand when; nothing is put into the calendar.", "text")
    if "FREQ=HOURLY" in span.repeat or "FREQ=MINUTELY" in span.repeat or "SECONDLY" in span.repeat:
        raise Failed("A calendar repeats by days and more; a reminder can come each hour.", "text")
    ctx.state.update(
        title=title,
        start=span.start.isoformat(),
        end=span.end.isoformat(),
        all_day=span.all_day,
        repeat=span.repeat,
        calendar=_calendar(ctx, (where["name"] or "").strip() if where else ""),
    )


def approve(ctx: Ctx) -> None:
    event = _event(ctx)
    repeat = f", {repeats.words(ctx.state['repeat'])}" if ctx.state["repeat"] else ""
    with agenda.opened(ctx) as found:
        others = [other for other in found.between(event.start, event.end) if other.busy]
    near = [other for other in others if other.overlaps(event.start, event.end)]
    if event.all_day:
        near = []
    overlap = "".join(f"\nIt overlaps: {agenda.line(other, ctx.present)}" for other in near[:3])
    shown = f"{event.title}, {agenda.when(event, ctx.present)}{repeat}"
    if not ctx.confirm(f"Put this into the calendar {event.calendar}? {shown}{overlap}"):
        ctx.say("All right, nothing is put into the calendar.")
        raise Finished


def save(ctx: Ctx) -> None:
    event, server, zone = _event(ctx), agenda.server(ctx), ZoneInfo(ctx.person.timezone)
    rule = ctx.state["repeat"].partition("RRULE:")[2]
    start: date = event.start.date() if event.all_day else event.start
    end: date = event.end.date() if event.all_day else event.end
    moment = ctx.now

    def do(key: str) -> dict[str, str]:
        uid = calendars.uid(server, key, moment)
        try:
            with calendars.opened(server, zone) as found:
                found.add(event.calendar, uid, event.title, start, end, rule)
        except Refused as error:
            return {"refused": str(error)}
        except Unknown as error:
            raise Failed(
                f"{error}; {event.title} may or may not be there.", "environment"
            ) from None
        return {"uid": uid}

    def check(key: str) -> bool | None:
        return agenda.asked(
            server,
            zone,
            lambda found: found.has(event.calendar, calendars.uid(server, key, moment)),
        )

    result = ctx.effect("put event into calendar", do, check)
    if result and result.get("refused"):
        raise Failed(f"Nothing is put into the calendar: {result['refused']}.", "environment")
    ctx.state["uid"] = result["uid"] if result else ""
    ctx.say(f"In the calendar {event.calendar}: {event.title}, {agenda.when(event, ctx.present)}.")


def verify(ctx: Ctx) -> bool | None:
    if not ctx.state.get("uid"):
        return None
    place, uid = ctx.state["calendar"], ctx.state["uid"]
    zone = ZoneInfo(ctx.person.timezone)
    return agenda.asked(agenda.server(ctx), zone, lambda found: found.has(place, uid))


def _event(ctx: Ctx) -> Event:
    state, zone = ctx.state, ctx.now.tzinfo
    start, end = (datetime.fromisoformat(state[name]).astimezone(zone) for name in ("start", "end"))
    return Event(state["calendar"], "", state["title"], start, end, state["all_day"])


def _asked(ctx: Ctx, question: str) -> str:
    answer = ctx.ask(question)
    if not answer or re.fullmatch(
        r"(?:no|never ?mind|cancel|stop|nein|abbrechen)\W*", answer, re.I
    ):
        ctx.say("All right, nothing is put into the calendar.")
        raise Finished
    return answer


def _title(text: str) -> str:
    rest = _LEAD.sub("", " ".join(text.split()), count=1)
    rest = re.sub(r"[\s,]*\b(?:please|bitte|thanks|danke)\b[\s.!]*$", "", rest, flags=re.I)
    rest = re.sub(r"^(?:for|to|about|on|at|an?|the)\s+|\s+(?:for|to|on|at|from|in)$", "", rest)
    rest = rest.strip(" ,;:.!?-\"'“”")
    return rest[:1].upper() + rest[1:]


def _calendar(ctx: Ctx, named: str) -> str:
    """The one that the request names, the one of sia.toml, the only one, else a decision."""
    with agenda.opened(ctx) as found:
        names = found.names
    if not names:
        raise Failed("The server has no calendar to write to.", "environment")
    near = [name for name in names if named and named.casefold() in name.casefold()]
    usual = ctx.settings.get("calendar", "")
    if not near and not named and usual in names:
        near = [usual]
    # Asked with one option too: what is chosen holds when the action is entered again.
    options = [(f"calendar-{names.index(name) + 1}", name) for name in near or names]
    return dict(options)[ctx.choose("Into which calendar does it go?", options)]
