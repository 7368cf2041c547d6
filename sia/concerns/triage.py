"""Whether a concern that has built up is acted on now: a decision over what is so at this moment.

An earlier verdict, and the reason of one, are never among what it sees: a verdict must not outlive
what it was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from semif.types import Answer
from sia.concerns import dynamics
from sia.concerns.values import Concern
from sia.questions import View
from sia.store import Store

Verdict = Literal["fire", "defer", "reset"]
SOON = timedelta(hours=12)  # reminders that stand in the facts
_DAY = timedelta(days=1)


def view(concern: Concern, facts: str, now: datetime) -> View:
    """What the decision looks at."""
    fields = {
        "instruction": concern.instruction,
        "activation": f"{dynamics.activation(concern, now) / dynamics.FULL:.2f}",
        "last_fired": ago(concern.fired, now),
        "note": " ".join(concern.note.split()) or "none",
        "facts": "; ".join(filter(None, (facts, owed(concern, now)))),
    }
    return View(concern.text, concern=tuple(fields.items()))


def verdict(answer: Answer, threshold: float) -> Verdict:
    """What follows: to fire takes ``threshold``; a doubtful one is put off, and looked at anew."""
    p = answer.probs
    if p["fire"] >= threshold:
        return "fire"
    return "defer" if p["defer"] >= p["reset"] or answer.selected == "fire" else "reset"


def ago(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    passed = max(timedelta(0), now - moment)
    for unit, length in (("day", _DAY), ("hour", _DAY / 24), ("minute", _DAY / 1440)):
        if passed >= length:
            number = passed // length
            return f"{number} {unit}{'s' * (number != 1)} ago"
    return "just now"


def owed(concern: Concern, now: datetime) -> str:
    """Of an obligation: who must move, and until when; "" for any other."""
    if concern.until is None:
        return ""
    until = concern.until.astimezone(now.tzinfo)
    who = f"owed to {concern.owed}" if concern.mover == "me" else f"{concern.owed} must move"
    words = f"{who}, until {until.day} {until:%b %H:%M}"
    if dynamics.overdue(concern, now):
        words += f", overdue since {ago(until, now).removesuffix(' ago')}"
    return words


@dataclass(frozen=True)
class Facts:
    """Measures what is so now. ``heard``: when a person last said something to this agent. mains:
    whether the machine has all the power it wants."""

    store: Store
    reminders: Callable[[], list[tuple[datetime, str]]]
    heard: Callable[[], datetime | None]
    mains: Callable[[], bool]

    def words(self, now: datetime) -> str:
        heard = self.heard()
        found = [
            f"{now:%A} {now:%H:%M}",
            f"last word from the person {ago(heard, now)}" if heard else "nobody at the keyboard",
            "mains power" if self.mains() else "on battery",
        ]
        asking = self.store.runs("asking")
        if asking:
            found.append(f"{len(asking)} open question{'s' * (len(asking) != 1)} to the person")
        found += [
            f"reminder at {due.astimezone(now.tzinfo):%H:%M}: {text}"
            for due, text in self.reminders()
            if now <= due <= now + SOON
        ][:3]
        return ", ".join(found)
