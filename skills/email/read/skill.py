"""Says an e-mail as plain text and marks it as read."""

from __future__ import annotations

from sia import imap, mail, mailing, mailwords
from sia.imap import Envelope
from sia.mailtext import Content
from sia.skills.api import Ctx, Failed, Finished

_AT_ONCE = 5  # messages
_SHOWN = 6000  # characters of all of them


def which(ctx: Ctx) -> None:
    words = mailwords.read(ctx.request, ctx.now.date())
    with mailing.inbox(ctx) as box:
        if words.many and words.unread and not words.newest:
            found, count = imap.search(box, mailing.wanted(ctx, words), _AT_ONCE)
            if not found:
                ctx.say(f"I find no {mailing.said(words)}.")
                raise Finished
            if count > len(found):
                ctx.say(f"{count:,} are unread; these are the newest {len(found)}.")
            found.reverse()
        else:
            found = [mailing.which(ctx, box, words, "read")]
    ctx.state["mails"] = [[one.uid, one.message_id] for one in found]


def read(ctx: Ctx) -> None:
    mails = ctx.state["mails"]
    with mailing.inbox(ctx) as box:
        for uid, message_id in mails:
            [one] = imap.envelopes(box, [uid]) or [None]
            if one is None or one.message_id != message_id:
                raise Failed("That e-mail is no longer there.", "environment")
            ctx.say(_said(ctx, one, mailing.content(box, one), _SHOWN // len(mails)))


def mark(ctx: Ctx) -> None:
    server = mailing.mailbox(ctx)

    def do(key: str) -> str:
        try:
            for uid, _ in ctx.state["mails"]:
                imap.flag(server, uid, "\\Seen")
        except mail.Refused as error:
            return str(error)
        return ""

    problem = ctx.effect("mark as read", do)
    if problem:
        ctx.say(f"It stays marked as unread: {problem}.")


def _said(ctx: Ctx, one: Envelope, content: Content, most: int) -> str:
    name, email = one.sender
    who = f"{name} <{email}>" if name and email else one.who
    text = content.text or "(no text in it)"
    if len(text) > most:
        text = f"{text[:most].rsplit(None, 1)[0]}\n[cut: this is the first {most:,} characters]"
    elif one.size > imap.MESSAGE_BYTES:
        text += f"\n[cut: the e-mail has {one.size / 1e6:.1f} MB, of which the beginning was read]"
    attached = f"\n\nAttached: {', '.join(content.attached)}" if content.attached else ""
    return f"From: {who}, {mailing.when(ctx, one)}\nSubject: {one.subject}\n\n{text}{attached}"
