"""Lists the e-mails of the inbox that fit the request; the server searches."""

from __future__ import annotations

from sia import imap, mailing, mailwords
from sia.skills.api import Ctx

_SHOWN = 10


def search(ctx: Ctx) -> None:
    words = mailwords.read(ctx.request, ctx.now.date())
    with mailing.inbox(ctx) as box:
        found, count = imap.search(box, mailing.wanted(ctx, words), _SHOWN)
    if not found:
        ctx.say(f"I find no {mailing.said(words)}.")
        return
    lines = [
        f"{n}. {mailing.described(ctx, one)}{'' if one.seen else ', unread'}"
        for n, one in enumerate(found, 1)
    ]
    more = count - len(found)
    rest = f"\nand {more:,} older." if more else ""
    ctx.say(f"{count:,} {'fits' if count == 1 else 'fit'}:\n" + "\n".join(lines) + rest)
