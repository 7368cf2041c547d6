"""Answers greetings and small talk, the time and the date, and what SIA can do, by code alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from itertools import groupby

from sia import times
from sia.skills.api import Ctx, NotCovered


def reply(ctx: Ctx) -> None:
    words = " ".join(re.findall(r"[\w']+", ctx.request.casefold().replace("’", "'")))
    answers = (answer(ctx) for pattern, answer in _ANSWERS if re.search(pattern, words))
    answer = next(filter(None, answers), "")
    if not answer:
        raise NotCovered(_UNKNOWN)
    ctx.say(answer)


_UNKNOWN = 'I have no skill for that yet. Ask "what can you do" to see what I can.'


def _greeting(ctx: Ctx) -> str:
    hour = ctx.present.hour
    part = "morning" if 4 <= hour < 12 else "afternoon" if 12 <= hour < 18 else "evening"
    name = f", {ctx.person.name.split()[0]}" if ctx.person.name.strip() else ""
    return f"Good {part}{name}. What can I do for you?"


def _skills(ctx: Ctx) -> str:
    lines = []
    rows = [(id.partition("/")[0], text) for id, text in sorted(ctx.skills())]
    for category, skills in groupby(rows, key=lambda row: row[0]):
        lines.append(f"- {category.capitalize()}: {' '.join(text for _, text in skills)}")
    if not lines:
        return "No skills are installed yet."
    return "\n".join(["This is what I can do:", *lines])


def _clock(ctx: Ctx) -> str:
    return f"It is {ctx.present:%H:%M}."


def _date(ctx: Ctx) -> str:
    """Empty for a day that only a calendar knows ("what day is Easter")."""
    if re.search(r"\b(?:it|today|date|datum|heute)\W*$", ctx.request, re.IGNORECASE):
        return f"Today is {_day(ctx.present)}."
    phrase = times.understand(ctx.request, ctx.present, ctx.person.timezone)
    return f"That is {_day(phrase.due)}." if phrase else ""


def _day(moment: datetime) -> str:
    return f"{moment:%A} {moment.day} {moment:%B %Y}"


def _week(ctx: Ctx) -> str:
    return f"It is week {ctx.present.isocalendar().week}."


def _said(text: str) -> Callable[[Ctx], str]:
    return lambda ctx: text


_ANSWERS: tuple[tuple[str, Callable[[Ctx], str]], ...] = (
    (
        r"what (?:all )?(?:can|could|do) you do|your skills|what are you able"
        r"|how (?:can|do) you help|^help(?: me)?$|what can i (?:ask|say)|was kannst du",
        _skills,
    ),
    (
        r"^(?:please |can you )?(?:tell me )?"
        r"(?:what(?:'s| is)? (?:the )?time|what time is it|the time)(?: is it)?"
        r"(?: right)?(?: now)?(?: please)?$|^wie spät ist es$|^wie viel uhr ist es$",
        _clock,
    ),
    (
        r"^(?:what|which) (?:day|date) (?:is|was)\b|^what(?:'s| is) (?:the |today's )(?:date|day)\b"
        r"|^welche[rs] (?:tag|datum) ist",
        _date,
    ),
    (r"^(?:what|which) week is it|^what(?:'s| is) the week number|^welche woche", _week),
    (
        r"^who are you|^what are you$|^what(?:'s| is) your name|^wer bist du",
        _said('I am SIA, an agent on this machine. Ask "what can you do" to see what I can.'),
    ),
    (
        r"^(?:hi |hello |hey )?how (?:are|do) you(?: do| doing)?(?: today)?$|^wie geht",
        _said("All is well here, thank you. What can I do for you?"),
    ),
    (r"^(?:thanks|thank you|thx|cheers|danke)\b", _said("You are welcome.")),
    (r"^(?:good ?bye|bye|see you|good night|tschüss|gute nacht)\b", _said("Good bye.")),
    (
        r"^(?:hi|hello|hey|good (?:morning|afternoon|evening)"
        r"|hallo|moin|guten (?:morgen|tag|abend))(?: (?:sia|there|everyone))?$",
        _greeting,
    ),
)
