"""What the e-mail skills share: the servers of ``sia.toml``, which mail is meant, and sending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from imap_tools import BaseMailBox

from sia import contacts, imap, mail, mailtext, times
from sia.contacts import Contacts
from sia.imap import Envelope, Wanted
from sia.mail import Answering, MailServer
from sia.mailwords import MailWords
from sia.skills.api import Ctx, Failed, Finished

EFFECT = "send e-mail"
REACH_SECONDS = 3.0


def sender(ctx: Ctx) -> str:
    address = ctx.settings.get("sender") or ctx.person.email
    if not address:
        raise Failed("Set person.email in sia.toml: who sends it?", "environment")
    return address


def smtp(ctx: Ctx) -> MailServer:
    given = ctx.settings
    user = given.get("user", "")
    return MailServer(
        host=given["host"],
        port=given.get("port", 587),
        tls=given.get("tls", "starttls"),
        user=user,
        password=ctx.secret("password") if user else "",
    )


def mailbox(ctx: Ctx) -> MailServer | None:
    """Where mail is read; None where none is set up."""
    given = ctx.settings
    if not given.get("imap_host"):
        return None
    return MailServer(
        host=given["imap_host"],
        port=given.get("imap_port", 993),
        tls=given.get("imap_tls", "tls"),
        user=given.get("user", ""),
        password=ctx.secret("password"),
    )


def known(ctx: Ctx) -> Contacts:
    """The person's contacts. Raises Failed."""
    place = ctx.folders.home / Path(ctx.settings.get("contacts") or "contacts").expanduser()
    try:
        return contacts.load(place)
    except OSError as error:
        raise Failed(f"The contacts cannot be read: {error}", "environment") from None


@contextmanager
def inbox(ctx: Ctx) -> Iterator[BaseMailBox]:
    """The inbox, to look into. Raises Failed where it cannot be reached."""
    server = mailbox(ctx)
    if server is None:
        raise Failed("No mailbox is set up: run `sia setup email`.", "environment")
    try:
        with imap.opened(server) as box:
            yield box
    except mail.Refused as error:
        raise Failed(f"I could not look into your mail: {error}.", "environment") from None


def wanted(ctx: Ctx, words: MailWords) -> Wanted:
    """The search for what the words say; a contact is looked for by name and by address."""
    near = contacts.matching(known(ctx).people, words.sender) if words.sender else []
    senders = [text for one in near for text in (*(to for _, to in one.emails), one.name) if text]
    called = frozenset[str]().union(*(one.called for one in near))
    # A contact who shares a word of "Deutsche Bank" need not be meant by it.
    if words.sender and (not near or contacts.names(words.sender) - called):
        senders.append(words.sender)
    return Wanted(tuple(senders), words.words, words.since, words.until, words.unread)


def said(words: MailWords) -> str:
    """What was looked for: "unread e-mail from Anna about contract"."""
    parts = [
        "unread e-mail" if words.unread else "e-mail",
        f"from {words.sender}" if words.sender else "",
        f"about {' '.join(words.words)}" if words.words else "",
        "of that time" if words.since or words.until else "",
    ]
    return " ".join(filter(None, parts))


def which(ctx: Ctx, box: BaseMailBox, words: MailWords, verb: str) -> Envelope:
    """The one message that is meant. verb: what is to be done with it. Raises Failed, Finished."""
    found, _ = imap.search(box, wanted(ctx, words))
    if not found:
        ctx.say(f"I find no {said(words)}.")
        raise Finished
    if words.newest:
        return found[0]
    options = [(f"m{one.uid}", described(ctx, one)) for one in found]
    chosen = ctx.choose("Which e-mail is meant?", options, none=len(options) > 1)
    if chosen == "none":
        # A number before each, for two may look the same.
        shown = {f"{n}. {text}": id for n, (id, text) in enumerate(options, 1)}
        chosen = shown[ctx.ask(f"Which one shall I {verb}?", list(shown))]
    uid = chosen[1:]
    # Entered again, the choice of before holds, and other messages may be the newest by now.
    again = [one for one in found if one.uid == uid] or imap.envelopes(box, [uid])
    if not again:
        raise Failed("That e-mail is no longer there.", "environment")
    return again[0]


def described(ctx: Ctx, one: Envelope) -> str:
    """ "Anna Berg: Dinner (Monday 30 November at 14:02)"."""
    return (
        f"{mailtext.one_line(one.who, 60)}: {mailtext.one_line(one.subject, 80)} ({when(ctx, one)})"
    )


def when(ctx: Ctx, one: Envelope) -> str:
    return times.words(one.arrived.astimezone(ctx.now.tzinfo), ctx.now)


def content(box: BaseMailBox, one: Envelope) -> mailtext.Content:
    """What stands in it. Raises Failed where it is gone."""
    raw = imap.message(box, one.uid)
    if raw is None:
        raise Failed("That e-mail is no longer there.", "environment")
    return mailtext.content(raw)


# sending: ctx.state holds to, subject, body, written, and of a reply answering and uid


def shown(people: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} <{email}>" if name else email for name, email in people)


def observed(ctx: Ctx) -> dict[str, str]:
    """What sending rests on: the server and, once it is known who it goes to, their addresses."""
    server = MailServer(ctx.settings["host"], ctx.settings.get("port", 587))
    seen = {"server": "reachable" if mail.reachable(server, REACH_SECONDS) else "does not answer"}
    if to := ctx.state.get("to"):
        listed = {email for person in known(ctx).people for _, email in person.emails}
        where = {True: "in the address book", False: "as it was typed"}
        seen["recipient"] = ", ".join(f"{email} {where[email in listed]}" for _, email in to)
    return seen


def send(ctx: Ctx) -> None:
    """Hand over the message of ``ctx.state`` once, keep a copy in Sent, and say what became of it.

    Raises Failed.
    """
    state, server, box = ctx.state, smtp(ctx), mailbox(ctx)
    address, folder = sender(ctx), ctx.settings.get("sent", "")
    written = datetime.fromisoformat(state["written"])

    def do(key: str) -> dict[str, str]:
        try:
            message = mail.build(
                (ctx.person.name, address),
                [(name, email) for name, email in state["to"]],
                state["subject"],
                state["body"] + state.get("quoted", ""),
                written,
                key,
                Answering(*state.get("answering", ())),
            )
            partly = mail.send(server, message)
        except ValueError as error:
            return {"refused": f"it cannot be written as an e-mail: {error}"}
        except mail.Refused as error:
            nobody = "yes" if isinstance(error, mail.NoSuchRecipient) else ""
            return {"refused": str(error), "nobody": nobody}
        except mail.Unknown as error:
            raise Failed(f"{error}; it may or may not have been sent.", "environment") from None
        id = str(message["Message-ID"])
        return {"id": id, "partly": partly, "copy": _kept(box, message, folder, state)}

    def check(key: str) -> dict[str, str] | None:
        id = mail.message_id(key, address, written)
        if box is None or not imap.sent(box, id, folder):
            return None
        return {"id": id, "partly": "", "copy": "", "found": "yes"}

    result: Mapping[str, Any] | None = ctx.effect(EFFECT, do, check)
    if result is None:
        ctx.say("I cannot tell whether the e-mail left, so I did not send it again.")
        return
    if result.get("refused"):
        # Whom a decision chose and nobody knows was the wrong one; who was named may have moved.
        wrong = bool(result.get("nobody")) and state.get("chosen")
        cause = "which" if wrong else "environment"
        raise Failed(f"The e-mail was not sent: {result['refused']}.", cause)
    state["accepted"] = result["id"]
    notes = [f" But {note}." for note in (result["partly"], result["copy"]) if note]
    found = " I was cut off, but it is in your Sent folder." if result.get("found") else ""
    ctx.say(f"Sent to {shown(state['to'])}.{''.join(notes)}{found}")


def _kept(box: MailServer | None, message: Any, folder: str, state: Mapping[str, Any]) -> str:
    """Keep a copy and mark what was answered: "", or why not. The message has left already."""
    if box is None:
        return ""
    try:
        imap.keep_copy(box, message, folder)
        if state.get("uid"):
            imap.flag(box, state["uid"], "\\Answered")
    except mail.Refused as error:
        return f"no copy of it is in your Sent folder: {error}"
    return ""
