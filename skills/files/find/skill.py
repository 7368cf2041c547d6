"""Looks for files by name, kind, date and size, and shows the newest."""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from sia import places
from sia.skills.api import Ctx, Failed

from .query import Query, parse

_SHOWN = 20


@dataclass(frozen=True, order=True)
class _Hit:
    rank: float  # seconds since 1970, or bytes where the biggest are wanted
    path: str
    size: int
    modified: float


def find(ctx: Ctx) -> None:
    zone = ZoneInfo(ctx.person.timezone)
    query = _query(ctx, ctx.request, zone)
    if not query.anything:
        said = ctx.ask("Which files: what is in their name, or of what kind or date are they?")
        query = _query(ctx, said, zone)
    if not query.root.is_dir():
        raise Failed(f"There is no folder {places.shown(str(query.root))}.", "environment")
    walk = places.Walk(query.root)
    count, hits, partly = _search(query, walk)
    ctx.say(_told(query, walk, zone, count, hits, partly))


def _query(ctx: Ctx, text: str, zone: ZoneInfo) -> Query:
    where = ctx.folders.files
    try:
        return parse(text, ctx.now, zone, where)
    except OSError as error:
        raise Failed(f"{where} cannot be read: {error.strerror}", "environment") from None


def _search(query: Query, walk: places.Walk) -> tuple[int, list[_Hit], bool]:
    """(how many fit, the first of them, whether they have only some of the words)."""
    found: dict[int, list[_Hit]] = {}
    counts: dict[int, int] = {}
    start = len(str(query.root).rstrip("/")) + 1
    for entry in walk.files():
        hits = query.hits(entry.path[start:])
        if query.words and not hits:
            continue
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone since it was listed
        if query.fits(entry.name, stat.st_mtime, stat.st_size):
            counts[hits] = counts.get(hits, 0) + 1
            rank = stat.st_size if query.biggest else stat.st_mtime
            best = found.setdefault(hits, [])
            hit = _Hit(rank, entry.path, stat.st_size, stat.st_mtime)
            heapq.heappush(best, hit) if len(best) < _SHOWN else heapq.heappushpop(best, hit)
    most = max(found, default=0)
    return counts.get(most, 0), sorted(found.get(most, ()), reverse=True), most < len(query.words)


def _told(
    query: Query, walk: places.Walk, zone: ZoneInfo, count: int, hits: list[_Hit], partly: bool
) -> str:
    where = places.shown(str(query.root))
    if not hits:
        lines = [f"I found no such file in {where} ({walk.looked:,} names looked at)."]
    else:
        named = f"{count:,} file{'s' * (count != 1)}"
        which = "biggest" if query.biggest else "newest"
        more = f", the {len(hits)} {which}" if count > len(hits) else ""
        some = "None has all the words; " if partly else ""
        lines = [f"{some}{named} in {where}{more}:"]
        lines += [_line(hit, os.fspath(query.root), zone) for hit in hits]
    if walk.stopped:
        lines.append(f"I stopped {walk.stopped}; there may be more.")
    if walk.unreadable:
        lines.append(f"{walk.unreadable} folder{'s' * (walk.unreadable != 1)} could not be read.")
    return "\n".join(lines)


def _line(hit: _Hit, root: str, zone: ZoneInfo) -> str:
    when = datetime.fromtimestamp(hit.modified, zone)
    name = places.shown(os.path.relpath(hit.path, root))
    return f"- {when:%Y-%m-%d %H:%M}  {places.size_words(hit.size):>9}  {name}"
