"""Fetches a page and shows its text."""

from __future__ import annotations

import re

from sia import web
from sia.skills.api import Ctx, Failed, Finished, Unproven

_SHOWN = 2_000  # characters
_READ = 4_000  # of a text that is summed up
_SHORT = re.compile(r"\b(?:summar|sum up|in short|gist|tl;?dr|what is .* about|fasse?)", re.I)
_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml+xml", "+xml", "+json")


def fetch(ctx: Ctx) -> None:
    url, typed = _address(ctx)
    try:
        page = web.fetch(url, typed=typed)
    except web.WebError as error:
        raise Failed(str(error), "environment") from None
    if page.kind and not any(page.kind.startswith(k) or page.kind.endswith(k) for k in _TEXTS):
        raise Failed(f"{web.shown(page.url)} is no text but {page.kind}.", "environment")
    title, text = _read(page)
    if not text:
        raise Failed(f"{web.shown(page.url)} has no text that can be read here.", "environment")
    if _SHORT.search(ctx.request):
        try:
            text = ctx.generate("summarise", {"lines": text[:_READ]}).strip()
        except Unproven:
            pass
    head = "" if title and text.startswith(title) else f"{title or web.shown(page.url)}\n\n"
    more = ""
    if len(text) > _SHOWN:
        more = f"\n(The first {_SHOWN:,} of {len(text):,} characters.)"
        text = text[:_SHOWN].rsplit(None, 1)[0] + " …"
    ctx.say(f"{head}{text}{more}")


def _address(ctx: Ctx) -> tuple[str, list[str]]:
    """(the address, all that were typed)."""
    typed = web.addresses(ctx.request)
    if not typed:
        said = ctx.ask("Which page: what is its address?")
        typed = web.addresses(said)
    if not typed:
        raise Failed("That is no web address.", "text")
    if len(set(typed)) == 1:
        return typed[0], typed
    pairs = [(f"p{n}", web.shown(url)) for n, url in enumerate(typed, 1)]
    chosen = ctx.choose("Which page is meant?", pairs, none=True)
    if chosen == "none":
        ctx.say("All right, no page is fetched.")
        raise Finished
    return dict(zip((id for id, _ in pairs), typed, strict=True))[chosen], typed


def _read(page: web.Page) -> tuple[str, str]:
    """(title, main text)."""
    text = page.text
    if "html" not in page.kind and not re.match(r"\s*<(?:!doctype html|html)\b", text, re.I):
        return "", web.plain(text)
    from trafilatura import bare_extraction

    # The extraction drops what is not the main text; of a page that has none, all text is shown.
    found = bare_extraction(text, url=page.url, with_metadata=True)
    main = (found.text if found else "") or _all(text)
    title = (found.title if found else "") or ""
    return web.one_line(title), web.plain(main or "")


def _all(text: str) -> str:
    from html_text import extract_text
    from lxml.etree import ParserError

    try:
        return extract_text(text)
    except ParserError:  # nothing but comments
        return ""
