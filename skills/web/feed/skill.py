"""Reads feeds and says what is new in them since the last time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sia import feeds, web
from sia.skills.api import Ctx, Failed, Finished

_SHOWN = 10  # entries of one feed
_LEAVE = re.compile(
    r"\b(?:unsubscribe|unfollow|unwatch|(?:stop|quit|no longer)\s+(?:watching|following|reading)"
    r"|(?:remove|delete|drop|forget)\b)", re.I,
)  # fmt: skip
_WATCH = re.compile(r"\b(?:watch|follow|subscribe|subscription|add|abonnier\w*)\b", re.I)
_LIST = re.compile(r"\b(?:which|what|list|show)\b[^?]*\b(?:feeds?|subscriptions?)\b", re.I)
_NEW = re.compile(r"\b(?:new|news|unread|latest|check|read|updates?)\b", re.I)


def choose(ctx: Ctx) -> None:
    """Which feeds are meant, and whether they are to be watched from now on."""
    folder, words = _folder(ctx), ctx.request
    typed, known = web.addresses(words), feeds.watched(folder)
    if _LEAVE.search(words):
        _leave(ctx, folder, known, typed)
    if not typed and _LIST.search(words) and not _NEW.search(words):
        named = "\n".join(f"- {feed.title or feed.url}: {feed.url}" for feed in known)
        ctx.say(f"You watch:\n{named}" if known else "You watch no feed yet.")
        raise Finished
    if typed:
        ctx.state.update(urls=typed, watch=bool(_WATCH.search(words)), typed=typed)
        return
    chosen = feeds.named(known, words) or known
    if not chosen:
        typed = web.addresses(ctx.ask("You watch no feed yet. What is the address of one?"))
        if not typed:
            raise Failed("That is no web address.", "text")
        ctx.state.update(urls=typed, watch=True, typed=typed)
        return
    ctx.state.update(urls=[feed.url for feed in chosen], watch=True, typed=[])


def read(ctx: Ctx) -> None:
    folder, state = _folder(ctx), ctx.state
    typed = state["typed"] or [feed.url for feed in feeds.watched(folder)]
    now = ctx.present.isoformat(timespec="seconds")
    lines, failed = [], 0
    for url in state["urls"]:
        told = ctx.effect(
            "read feed",
            lambda key, url=url: _read(folder, url, typed, state["watch"], now, key),
        )
        failed += bool(told.get("problem"))
        lines += _lines(told)
    if failed == len(state["urls"]):
        raise Failed("\n".join(lines), "environment")
    ctx.say("\n".join(lines))


def _folder(ctx: Ctx) -> Path:
    return ctx.folders.home / ".sia" / "feeds"


def _read(
    folder: Path, url: str, typed: list[str], watch: bool, now: str, key: str
) -> dict[str, Any]:
    try:
        return feeds.read(folder, url, typed=typed, watch=watch, now=now, key=key)
    except (web.WebError, OSError) as error:
        return {"title": "", "url": url, "new": [], "problem": str(error)}


def _lines(told: dict[str, Any]) -> list[str]:
    name = told["title"] or web.shown(told["url"])
    if told["problem"]:
        return [told["problem"]]
    new = told["new"]
    if not new:
        return [f"{name}: nothing new."]
    count = (
        f"{len(new)} new" if told["before"] else f"{len(new)} entr{'ies' if len(new) > 1 else 'y'}"
    )
    more = f", the newest {_SHOWN}" if len(new) > _SHOWN else ""
    begun = f"From now on I watch {name}" if told["begun"] else name
    rows = [f"- {title}{f': {link}' if link else ''}" for title, link in new[:_SHOWN]]
    return [f"{begun}: {count}{more}:", *rows]


def _leave(ctx: Ctx, folder: Path, known: list[feeds.Feed], typed: list[str]) -> None:
    meant = [feed for feed in known if feed.url in typed] or feeds.named(known, ctx.request)
    if not known or (typed and not meant):
        ctx.say("You do not watch that feed." if known else "You watch no feed yet.")
        raise Finished
    if len(meant) != 1:
        shown = {f"{feed.title or feed.url}": feed for feed in meant or known}
        meant = [shown[ctx.ask("Which feed should I no longer watch?", list(shown))]]
    ctx.effect("leave feed", lambda key: feeds.leave(folder, meant[0]))
    ctx.say(f"I no longer watch {meant[0].title or meant[0].url}.")
    raise Finished
