"""Searches the web by a SearXNG server and shows the first results."""

from __future__ import annotations

import re

from sia import searxng
from sia.skills.api import Ctx, Failed
from sia.web import WebError

_ASKED = re.compile(
    r"(?:(?:please|sia|(?:can|could|would) you|i (?:want|need) to)\b[\s,]*)*"
    r"(?:(?:do|run|make)\s+a\s+(?:web\s+|internet\s+|online\s+)?search\s+(?:for|on|about)"
    r"|(?:search|google|look\s+up|look|find|query)(?:\s+me)?"
    r"(?:\s+(?:on|in)?\s*(?:the\s+)?(?:web|internet|net|google))?(?:\s+online)?"
    r"(?:\s+(?:for|about|up))?|websuche|suche?(?:\s+im\s+(?:netz|internet|web))?(?:\s+nach)?)\s*:?\s+",
    re.IGNORECASE,
)
_WHERE = re.compile(r"\s+(?:on\s+(?:the\s+)?(?:web|internet|net|google)|online)\s*[.?!]?$", re.I)


def search(ctx: Ctx) -> None:
    line = " ".join(ctx.request.split())
    words = _WHERE.sub("", line[match.end() :] if (match := _ASKED.match(line)) else line).strip()
    if not words:
        words = " ".join(ctx.ask("What should I search for?").split())
    if not words:
        raise Failed("There is nothing to search for.", "text")
    try:
        found = searxng.search(ctx.settings["search_url"], words)
    except WebError as error:
        raise Failed(f"The search failed: {error}", "environment") from None
    if not found:
        ctx.say(f"Nothing was found for: {words}")
        return
    lines = []
    for hit in found:
        lines.append(f"- {hit.title}: {hit.url}")
        if hit.text:
            lines.append(f"  {hit.text}")
    ctx.say("\n".join(lines))
