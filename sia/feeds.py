"""RSS and Atom feeds: what they hold, what of it was seen before, which of them are watched.

One file a feed in ``.sia/feeds/``, written whole: ``url title etag modified watched seen told``.
``told`` is what the last reading gave, with the key it was asked under, so that a reading that was
cut off before its answer was kept gives the same answer again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from semif.jsonl import write_whole
from sia import web

BYTES = 2_000_000
MOST_SEEN = 5_000  # entries remembered of one feed
MOST_ENTRIES = 500  # looked at in one reading
_COMMON = frozenset(
    "a an and any feed feeds from in is my new news of on rss the there what".split()
)


@dataclass(frozen=True)
class Feed:
    url: str
    title: str = ""
    etag: str = ""
    modified: str = ""
    watched: bool = False
    seen: tuple[str, ...] = ()  # newest last
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    id: str
    title: str
    link: str


def watched(folder: Path) -> list[Feed]:
    """The feeds that are watched, by title."""
    feeds = [_load(file) for file in sorted(folder.glob("*.json"))]
    return sorted((feed for feed in feeds if feed and feed.watched), key=lambda feed: feed.title)


def named(feeds: Sequence[Feed], text: str) -> list[Feed]:
    """Those of whose title or address a word is in ``text``."""
    said = set(re.findall(r"\w+", text.casefold())) - _COMMON
    return [
        feed
        for feed in feeds
        if said & (set(re.findall(r"\w+", feed.title.casefold())) - _COMMON)
        or any(word in feed.url.casefold() for word in said if len(word) > 4)
    ]


def read(
    folder: Path, url: str, *, typed: Collection[str], watch: bool, now: str, key: str
) -> dict[str, Any]:
    """Read a feed and keep what was seen: {title, url, new: [[title, link]], before, begun,
    problem}, newest first. before: whether it was read earlier; begun: it is watched from now on.

    Asked twice under one key it answers the same. Raises WebError, OSError, FileError.
    """
    feed = _load(_file(folder, url)) or Feed(url)
    if feed.told.get("key") == key:
        return feed.told["answer"]
    held = {"If-None-Match": feed.etag, "If-Modified-Since": feed.modified}
    page = web.fetch(url, typed=typed, headers={k: v for k, v in held.items() if v}, most=BYTES)
    entries: list[Entry] = []
    title = feed.title
    if page.status != 304:
        title, entries, page = _entries(page, typed)
    seen = set(feed.seen)
    new = [entry for entry in entries if entry.id not in seen]
    answer = {
        "title": title,
        "url": url,
        "new": [[entry.title, entry.link] for entry in new],
        "before": bool(feed.seen),
        "begun": watch and not feed.watched,
        "problem": "",
    }
    # Only what the feed no longer holds may be forgotten.
    kept = [id for id in feed.seen if id not in {e.id for e in entries}]
    ids = dict.fromkeys(entry.id for entry in reversed(entries))
    changed = replace(
        feed,
        title=title,
        etag=page.headers.get("etag", feed.etag),
        modified=page.headers.get("last-modified", feed.modified),
        watched=feed.watched or watch,
        seen=tuple([*kept, *ids][-MOST_SEEN:]),
        told={"key": key, "time": now, "answer": answer},
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(_file(folder, url), json.dumps(asdict(changed)).encode())
    return answer


def leave(folder: Path, feed: Feed) -> None:
    _file(folder, feed.url).unlink(missing_ok=True)


def _file(folder: Path, url: str) -> Path:
    return folder / f"{hashlib.sha256(url.encode()).hexdigest()[:24]}.json"


def _load(file: Path) -> Feed | None:
    """None where there is none, or it is damaged: then it is read anew."""
    try:
        data = json.loads(file.read_bytes())
        return Feed(**{**data, "seen": tuple(data["seen"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _entries(page: web.Page, typed: Collection[str]) -> tuple[str, list[Entry], web.Page]:
    """Title and entries of a page; where it is no feed but names one, of that."""
    title, entries = _parsed(page)
    if entries is not None:
        return title, entries, page
    for link in _links(page):
        other = web.fetch(link, typed=typed, most=BYTES)
        title, entries = _parsed(other)
        if entries is not None:
            # Its marks are not those of the page that is asked for the next time.
            return title, entries, replace(other, headers={})
    raise web.WebError(f"{web.shown(page.url)} is no feed and names none.")


def _parsed(page: web.Page) -> tuple[str, list[Entry] | None]:
    import feedparser

    if re.search(rb"<!ENTITY", page.data, re.IGNORECASE):  # those that grow, those that read files
        raise web.WebError(
            f"{web.shown(page.url)} declares entities, as no feed does that means well."
        )
    # A file, never the bytes: those could be read as an address or a path.
    found = feedparser.parse(
        BytesIO(page.data),
        response_headers={
            "content-type": f"{page.kind or 'application/xml'}"
            + (f"; charset={page.charset}" if page.charset else ""),
            "content-location": page.url,
        },
    )
    if not found.get("version"):
        return "", None
    entries = []
    for row in found.entries[:MOST_ENTRIES]:
        link = str(row.get("link") or "")
        link = web.one_line(link, 300) if re.match(r"https?://", link) else ""
        text = web.one_line(_text(row.get("title") or row.get("summary") or ""), 140)
        id = str(row.get("id") or link or text)
        if id:
            hashed = hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()[:24]
            entries.append(Entry(hashed, text or link or "(no title)", link))
    return web.one_line(_text(found.feed.get("title") or ""), 80), entries


def _text(markup: str) -> str:
    """What a title says, which may hold markup."""
    if "<" not in markup and "&" not in markup:
        return markup
    from html_text import extract_text
    from lxml.etree import ParserError

    try:
        return extract_text(markup[:10_000])
    except ParserError:
        return ""


def _links(page: web.Page) -> list[str]:
    """The feeds that a page of HTML names, at most three."""
    from lxml import html
    from lxml.etree import ParserError

    try:
        tree = html.fromstring(
            page.text.encode("utf-8", "replace"), parser=html.HTMLParser(encoding="utf-8")
        )
    except (ParserError, ValueError):
        return []
    kinds = ("application/rss+xml", "application/atom+xml")
    found = [
        link.get("href", "")
        for link in tree.iter("link")
        if "alternate" in (link.get("rel") or "").lower()
        and (link.get("type") or "").lower() in kinds
    ]
    return [urljoin(page.url, href) for href in found if href][:3]
