"""Says in short what one e-mail, or what is new in the inbox, says."""

from __future__ import annotations

from sia import imap, mailing, mailtext, mailwords
from sia.imap import Envelope
from sia.skills.api import Ctx, Failed, Finished, Unproven

_AT_ONCE = 8  # messages
_GIVEN = 2400  # characters for the generator
_FIRST = 200  # characters said of each where nothing is summarised


def which(ctx: Ctx) -> None:
    words = mailwords.read(ctx.request, ctx.now.date())
    with mailing.inbox(ctx) as box:
        if words.many and not words.newest:
            found, count = imap.search(box, mailing.wanted(ctx, words), _AT_ONCE)
            if not found:
                ctx.say(f"I find no {mailing.said(words)}.")
                raise Finished
            ctx.state["older"] = count - len(found)
        else:
            found = [mailing.which(ctx, box, words, "summarise")]
    ctx.state["mails"] = [one.uid for one in found]


def summarize(ctx: Ctx) -> None:
    with mailing.inbox(ctx) as box:
        found = imap.envelopes(box, ctx.state["mails"])
        texts = [mailtext.own_words(mailing.content(box, one).text) for one in found]
    if not found:
        raise Failed("That e-mail is no longer there.", "environment")
    older = f" {ctx.state['older']:,} older ones are left out." if ctx.state.get("older") else ""
    if len(found) == 1:
        lines = f"{found[0].who}: {found[0].subject}\n{texts[0]}"[:_GIVEN]
    else:
        each = _GIVEN // len(found)
        lines = "\n".join(
            f"{one.who}: {one.subject}. {mailtext.one_line(text, each)}"[:each]
            for one, text in zip(found, texts, strict=True)
        )
    try:
        ctx.say(ctx.generate("summarise", {"lines": lines}).strip() + older)
    except Unproven as error:
        shown = "\n\n".join(map(_first, [ctx] * len(found), found, texts))
        ctx.say(f"Not summarised ({error}). This is how it begins:\n\n{shown}{older}")


def _first(ctx: Ctx, one: Envelope, text: str) -> str:
    begins = mailtext.one_line(text, _FIRST) or "(no text in it)"
    return f"{mailing.described(ctx, one)}\n{begins}"
