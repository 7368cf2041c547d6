"""Looks up a person: number, e-mail, address, birthday, or all that is on the card."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sia import contacts, people
from sia.contacts import Contact
from sia.skills.api import Ctx, Finished

_MOST = 60  # contacts that one decision is asked about
_SHOWN = 5
_ASKED = (
    (r"number|phone|call|mobile|cell|nummer|telefon|handy", "phones"),
    (r"e-?mails?\b|mail address|mailadresse", "emails"),
    (r"birthday|born|geburtstag", "birthday"),
    (r"\blives?\b|\baddress\b|street|adresse|wohnt", "address"),
)
_KINDS = ("cell", "home", "work", "fax")
_WORDS = re.compile(
    r"\b(?:numbers?|phone|mobile|cell|e-?mails?|mail|address|addresses|birthday|contacts?|details?|"
    r"find|look|up|show|give|tell|get|me|what|what['’]?s|when|when['’]?s|where|who|whose|is|does|"
    r"live|lives|was|born|do|you|have|for|from|in|know|call|can|i|how|nummer|telefonnummer|adresse|"
    r"geburtstag|von|wie|ist|die|der|das|wann|hat|wo|wohnt|please|bitte|home|work)\b|['’]s\b",
    re.IGNORECASE,
)


def find(ctx: Ctx) -> None:
    known, stale = people.known(ctx)
    if not known.people:
        ctx.say("There are no contacts yet: `sia setup contacts` tells me where they are.")
        raise Finished
    found = _meant(ctx, known.people)
    if not found:
        ctx.say("No contact fits that.")
    text = ctx.request.casefold()
    asked = next((what for words, what in _ASKED if re.search(words, text)), "")
    kind = next((kind for kind in _KINDS if re.search(rf"\b{kind}\b", text)), "")
    kind = "cell" if re.search(r"mobile|handy", text) else kind
    lines = [line for person in found[:_SHOWN] for line in _lines(person, asked, kind)]
    if len(found) > _SHOWN:
        lines.append(f"… and {len(found) - _SHOWN} more")
    for line in (*([chr(10).join(lines)] if lines else []), *([stale] if stale else [])):
        ctx.say(line)
    if known.problems and not found:
        ctx.say(f"Left out, because it cannot be read: {'; '.join(known.problems[:3])}.")


def _meant(ctx: Ctx, rows: Sequence[Contact]) -> list[Contact]:
    """Those whom the words name; a decision only where they describe someone."""
    phrase = _WORDS.sub(" ", ctx.request)
    near = contacts.matching(rows, phrase)
    described = re.search(r"\b(?:my|our|the|meine?[mnrs]?|unser\w*)\s", ctx.request, re.IGNORECASE)
    if near or not described or len(rows) > _MOST:
        return near
    options = [(person.id, person.description) for person in rows]
    id = ctx.choose("Which contact is meant?", options, none=True)
    return [person for person in rows if person.id == id]


def _lines(person: Contact, asked: str, kind: str) -> list[str]:
    have = {
        "phones": [_kind(*phone) for phone in person.phones if not kind or phone[0] == kind],
        "emails": [_kind(*email) for email in person.emails],
        "address": [person.address] if person.address else [],
        "birthday": [f"born {person.birthday}"] if person.birthday else [],
    }
    if asked == "phones" and kind and not have["phones"]:
        have["phones"] = [_kind(*phone) for phone in person.phones]
    if asked and not have[asked]:
        what = {"phones": "number", "emails": "e-mail address"}.get(asked, asked)
        return [f"{person.description} has no {what} on the card."]
    values = have[asked] if asked else [value for values in have.values() for value in values]
    return [f"{person.description}: {', '.join(values) or 'nothing more is on the card'}"]


def _kind(kind: str, value: str) -> str:
    return f"{value} ({kind})" if kind else value
