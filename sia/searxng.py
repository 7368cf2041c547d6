"""Web search: the JSON of a SearXNG server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from sia import web


@dataclass(frozen=True)
class Hit:
    title: str
    url: str
    text: str  # a few words of the page, may be empty


def search(server: str, words: str, most: int = 5) -> list[Hit]:
    """The first results for ``words``. server: its address, which the person set, so it may be in
    this network. Raises WebError."""
    url = f"{server.rstrip('/')}/search?{urlencode({'q': words, 'format': 'json'})}"
    page = web.fetch(url, typed=[server])
    try:
        rows = json.loads(page.data)["results"]
        return [_hit(row) for row in rows if _usable(row)][:most]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise web.WebError(
            f"{web.shown(server)} gave no JSON: is it SearXNG, with json in search.formats of its "
            "settings.yml?"
        ) from None


def _usable(row: dict) -> bool:
    return urlsplit(row["url"]).scheme in ("http", "https")


def _hit(row: dict) -> Hit:
    title = web.one_line(str(row.get("title") or ""), 100) or web.shown(row["url"])
    return Hit(
        title, web.one_line(row["url"], 300), web.one_line(str(row.get("content") or ""), 160)
    )
