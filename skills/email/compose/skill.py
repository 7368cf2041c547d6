"""Writes an e-mail in the person's words, shows it, and sends it once they agree."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sia import contacts, mailing, wording
from sia.contacts import Contact, Contacts
from sia.skills.api import Ctx, Failed, Finished, Unproven

_TRIES = 3
_NOBODY = "someone else"
_MOST = 60  # contacts that one decision is asked about


def observe(ctx: Ctx) -> dict[str, str]:
    return mailing.observed(ctx)


def recipient(ctx: Ctx) -> None:
    mailing.sender(ctx)  # before anything is asked: without it nothing can be sent
    known = mailing.known(ctx)
    read = wording.read(ctx.request)
    typed = contacts.ADDRESS.findall(read.recipient)
    if typed:
        names = {person.email: person for person in known.people if person.email}
        people = [names[email].name if email in names else "" for email in typed]
        ctx.state.update(to=[list(pair) for pair in zip(people, typed, strict=True)], called=[])
        return
    person = _meant(ctx, read.recipient, known.people)
    if person:
        email = person.email or _address(ctx, f"{person.name} has no e-mail address. Which is it?")
        ctx.state.update(to=[[person.name, email]], called=sorted(person.called))
    else:
        _asked_for(ctx, known)


def write(ctx: Ctx) -> None:
    read = wording.read(ctx.request)
    body, unclear = read.body, read.unclear
    if not body and not unclear:
        called = frozenset(ctx.state["called"]) | contacts.words(" ".join(sum(ctx.state["to"], [])))
        body, unclear = wording.told(ctx.request, called)
    if not body:
        try:
            people = ctx.state["to"]
            called = ", ".join(name or email for name, email in people)
            request = wording.unnamed(ctx.request, people)
            body = ctx.generate("message", {"to": called, "request": request}).strip()
        except Unproven:
            body = ctx.ask(_question(ctx, unclear))
    if not body:
        raise Failed("There is no text to send.", "text")
    subject = " ".join((read.subject or wording.subject_of(body)).split())
    ctx.state.update(body=body, subject=subject, written=ctx.now.isoformat())


def approve(ctx: Ctx) -> None:
    state, to = ctx.state, mailing.shown(ctx.state["to"])
    ctx.say(f"To: {to}\nSubject: {state['subject']}\n\n{state['body']}")
    if not ctx.confirm(f"Send this e-mail to {to}?"):
        ctx.say("All right, it is not sent.")
        raise Finished


def send(ctx: Ctx) -> None:
    mailing.send(ctx)


def verify(ctx: Ctx) -> bool | None:
    return True if ctx.state.get("accepted") else None


def _meant(ctx: Ctx, phrase: str, people: Sequence[Contact]) -> Contact | None:
    """The contact whom the words name; a decision only where they describe someone."""
    near = contacts.matching(people, phrase)
    other = bool(near) and contacts.another(phrase, near[0])
    if len(near) == 1 and not other:
        return near[0]
    if near:  # nothing in the words tells them apart: a decision could only guess
        shown = {
            f"{person.description} <{person.email or 'no address'}>": person for person in near
        }
        return shown.get(ctx.ask("Who is meant?", [*shown, *[_NOBODY] * other]))
    describes = re.match(r"(?:my|our|the|meine?[mnr]?)\s", phrase, re.I)
    if describes and 0 < len(people) <= _MOST:
        options = [(person.id, person.description) for person in people]
        id = ctx.choose("Which contact is meant?", options, none=True)
        ctx.state["chosen"] = id != "none"
        return next((person for person in people if person.id == id), None)
    return None


def _asked_for(ctx: Ctx, known: Contacts) -> None:
    """The person says who: an address, or words that name one contact."""
    problems = "".join(f"\n(Left out of the contacts: {problem})" for problem in known.problems[:3])
    question = f"Who should get it? Name a contact or an e-mail address.{problems}"
    for _ in range(_TRIES):
        answer = ctx.ask(question)
        typed = contacts.ADDRESS.findall(answer)
        near = contacts.matching(known.people, answer)
        if typed:
            ctx.state.update(to=[["", email] for email in typed], called=[])
            return
        if len(near) == 1 and near[0].email:
            called = sorted(near[0].called | contacts.words(answer))
            ctx.state.update(to=[[near[0].name, near[0].email]], called=called)
            return
        why = "Several contacts fit" if len(near) > 1 else "No contact with an address fits"
        question = f"{why} {answer!r}. Who should get it?"
    raise Failed("I do not know who should get the e-mail.", "text")


def _address(ctx: Ctx, question: str) -> str:
    typed = contacts.ADDRESS.findall(ctx.ask(question))
    if len(typed) != 1:
        raise Failed("That is no e-mail address; nothing is sent.", "text")
    return typed[0]


def _question(ctx: Ctx, unclear: str) -> str:
    found = f" I have “{unclear}”; write it as it should be read." if unclear else ""
    return f"What should the message to {mailing.shown(ctx.state['to'])} say?{found}"
