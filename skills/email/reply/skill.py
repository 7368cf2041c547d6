"""Answers an e-mail in the person's words, with the mail quoted, once they agree."""

from __future__ import annotations

import re

from sia import mailing, mailtext, mailwords, wording
from sia.imap import Envelope
from sia.skills.api import Ctx, Failed, Finished, Unproven

_QUOTED = 10_000  # characters of the mail that are quoted
_ALL = re.compile(  # "reply to all", not "answer the mail about all tickets"
    r"\b(?:to|an|reply|respond|answer|antworte)[\s-]+(?:all|everyone|everybody|allen?)\b",
    re.IGNORECASE,
)


def observe(ctx: Ctx) -> dict[str, str]:
    return mailing.observed(ctx)


def which(ctx: Ctx) -> None:
    own = mailing.sender(ctx)  # before anything is asked: without it nothing can be sent
    head, _, _ = mailwords.answer(ctx.request)
    with mailing.inbox(ctx) as box:
        one = mailing.which(ctx, box, mailwords.read(head, ctx.now.date()), "answer")
        text = mailing.content(box, one).text
    to = list(one.reply_to or ([one.sender] if one.sender[1] else []))
    if _ALL.search(head):
        to += [pair for pair in one.others if pair not in to]
    to = [pair for pair in to if pair[1].casefold() != own.casefold()] or to
    if not to:
        raise Failed("That e-mail names no address to answer to.", "environment")
    ctx.state.update(
        uid=one.uid,
        to=[list(pair) for pair in to],
        sender=list(one.sender),
        about=mailing.described(ctx, one),
        subject=_subject(one.subject),
        answering=[one.message_id, list(one.references)],
        quoted=_quote(ctx, one, text),
    )


def write(ctx: Ctx) -> None:
    _, body, unclear = mailwords.answer(ctx.request)
    to = ctx.state["to"]
    if not body:
        try:
            called = ", ".join(name or email for name, email in to)
            request = wording.unnamed(ctx.request, to)
            body = ctx.generate("message", {"to": called, "request": request}).strip()
        except Unproven:
            found = f" I have “{unclear}”; write it as it should be read." if unclear else ""
            body = ctx.ask(f"What should the answer to {ctx.state['about']} say?{found}")
    if not body:
        raise Failed("There is no text to send.", "text")
    ctx.state.update(body=body, written=ctx.now.isoformat())


def approve(ctx: Ctx) -> None:
    state, to = ctx.state, mailing.shown(ctx.state["to"])
    lines = state["quoted"].count("\n>")
    note = f"\n\n(followed by the {lines} lines of the mail, quoted)" if lines else ""
    ctx.say(f"To: {to}\nSubject: {state['subject']}\n\n{state['body']}{note}")
    elsewhere = state["sender"][1] and state["sender"][1] not in [email for _, email in state["to"]]
    warning = f"It does not go to its sender, {state['sender'][1]}. " if elsewhere else ""
    if not ctx.confirm(f"{warning}Send this answer to {to}?"):
        ctx.say("All right, it is not sent.")
        raise Finished


def send(ctx: Ctx) -> None:
    mailing.send(ctx)


def verify(ctx: Ctx) -> bool | None:
    return True if ctx.state.get("accepted") else None


def _subject(subject: str) -> str:
    bare = re.sub(r"^(?:\s*(?:re|aw|antw|sv)\s*:)+", "", subject, flags=re.IGNORECASE).strip()
    return f"Re: {bare}"


def _quote(ctx: Ctx, one: Envelope, text: str) -> str:
    if not text:
        return ""
    arrived = one.arrived.astimezone(ctx.now.tzinfo)
    day = f"{arrived:%A} {arrived.day} {arrived:%B %Y} at {arrived:%H:%M}"
    cut = text if len(text) <= _QUOTED else f"{text[:_QUOTED].rsplit(None, 1)[0]}\n[…]"
    lines = "".join(f"\n> {line}".rstrip(" ") for line in cut.splitlines())
    return f"\n\nOn {day}, {mailtext.one_line(one.who, 60)} wrote:{lines}\n"
