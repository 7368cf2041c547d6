"""Sets a reminder, an alarm or a timer: what in the person's words, when computed in code."""

from __future__ import annotations

import re
from datetime import datetime

from sia import repeats, times
from sia.skills.api import Ctx, Failed, Finished

_TRIES = 3
_LEAD = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|and|sia|please|bitte|(?:can|could|would|will) you"
    r"|i (?:want|need) you to)\b[\s,]*)*"
    r"(?:(?:remind me|(?:set|make|add|create|start)(?: me)?(?: up)?(?: an?| the)?(?: new)?"
    r" (?:reminder|alarm|timer)|(?:new )?(?:reminder|alarm|timer|countdown)\b|remember"
    r"|(?:don['’]?t|do not) (?:let me )?forget|wake me(?: up)?|erinner[en]? mich|wecke? mich)"
    r"(?!\w)(?:[\s,:]*\b(?:please|bitte)\b)?[\s,:]*"
    r"(?:(?:to|about|that|of|for|daran|dass|an|zu)\b[\s,:]*)?)?",
    re.IGNORECASE,
)
_TAIL = re.compile(r"[\s,.]*(?:\b(?:please|bitte|thanks|thank you|danke)\b[\s,.!]*)*$", re.I)
_NEVER_MIND = re.compile(r"(?:no|never ?mind|forget it|cancel|stop|nein|abbrechen|egal)\W*", re.I)


def understand(ctx: Ctx) -> None:
    phrase = times.understand(ctx.request, ctx.now, ctx.person.timezone)
    # What first: it hangs on the request alone, so a later entry makes the same calls.
    what = _what(ctx.request, phrase) or _asked(ctx, "What should I remind you of?")
    question = f"When should I remind you: {what}?"
    tries = 0
    while phrase is None or not times.is_after(phrase.due, ctx.answered):
        if tries == _TRIES:
            raise Failed("I did not understand when; no reminder is set.", "text")
        tries += 1
        if phrase:
            words = times.words(phrase.due, ctx.answered)
            question = f"That time has passed ({words}). When instead?"
        answer = _asked(ctx, question)
        phrase = times.understand(answer, ctx.answered, ctx.person.timezone)
        question = 'I did not understand the time. When, for example "tomorrow at 9"?'
    ctx.state.update(
        due=phrase.due.isoformat(),
        what=what,
        repeat=phrase.repeat,
        timer=phrase.elapsed,
        note=_note(phrase),
    )


def save(ctx: Ctx) -> None:
    state, due = ctx.state, datetime.fromisoformat(ctx.state["due"]).astimezone(ctx.now.tzinfo)
    what, when = state["what"], times.words(due, ctx.answered)
    state["id"] = ctx.remind(due, what, state["repeat"], state["timer"])
    if state["repeat"]:
        when = f"{repeats.words(state['repeat'])}, first {when}"
    end = "" if what[-1] in ".!?" else "."
    ctx.say(f"I will remind you {when}: {what}{end}{state['note']}")


def verify(ctx: Ctx) -> bool | None:
    if "id" not in ctx.state:
        return None
    due = datetime.fromisoformat(ctx.state["due"])
    if not times.is_after(due, ctx.present):
        return None  # it may have rung already
    due = due.astimezone(ctx.now.tzinfo)
    return any(row.id == ctx.state["id"] and _near(row.due, due) for row in ctx.reminders())


def _near(one: datetime, other: datetime) -> bool:
    """A timer is told anew from the stopwatch, to the second."""
    return abs((one - other).total_seconds()) < 2


def _asked(ctx: Ctx, question: str) -> str:
    answer = ctx.ask(question)
    if not answer or _NEVER_MIND.fullmatch(answer):
        ctx.say("All right, no reminder is set.")
        raise Finished
    return answer


def _what(request: str, phrase: times.TimePhrase | None) -> str:
    """The person's words without the time and without "remind me to"; "" where nothing is left."""
    text = phrase.rest(request) if phrase else request
    asked = text.endswith("?")
    text = _TAIL.sub("", _LEAD.sub("", text.rstrip("?") if asked else text, count=1)).strip(" ,;:-")
    if text:
        return text
    if re.search(r"\b(?:wake|weck)", request, re.IGNORECASE):
        return "wake up"
    named = re.search(r"\b(alarm|timer|countdown)\b", request, re.IGNORECASE)
    if not named:
        return ""
    spans = phrase.spans if phrase else ()
    length = re.search(r"\d+[\s-]?\w+", " ".join(request[start:end] for start, end in spans))
    if named[1].lower() == "alarm" or length is None:
        return named[1].lower()
    return f"{named[1].lower()}, {length[0].replace('-', ' ')}"


def _note(phrase: times.TimePhrase) -> str:
    note = ""
    if not phrase.has_time:
        note += f" You named no hour, so I took {phrase.due:%H:%M}."
    if phrase.moved:
        note += " The clock skips the hour you named that night, so it is later by as much."
    return note
