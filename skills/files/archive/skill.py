"""Packs a folder, or the old files in it, into an archive; shown first."""

from __future__ import annotations

import os
import re
import shutil
from datetime import datetime
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sia import archives, places
from sia.archives import ArchiveError
from sia.skills.api import Ctx, Failed, Finished
from sia.timewords import add_months

_TRIES, _SHOWN = 3, 3
_OLD = re.compile(
    r"(?:older\s+than|not\s+(?:touched|changed|modified|used)\s+(?:for|in)|over|älter\s+als)\s+"
    r"(?:the\s+last\s+)?(?P<n>\d{1,4}|an?|one|two|three|six|half\s+a)\s*"
    r"(?P<unit>day|week|month|year|tag|woche|monat|jahr)\w*",
    re.IGNORECASE,
)
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "six": 6}
_UNITS = {"tag": "day", "woche": "week", "monat": "month", "jahr": "year"}
_DELETE = re.compile(r"\b(?:delete|remove|move|clear|get rid|lösch\w*|verschieb\w*)\b", re.I)
_KEEP = re.compile(r"\b(?:do not|don['’]?t|without|never|no)\s+(?:delet|remov|mov|clear)\w*", re.I)
_TAR = re.compile(r"\btar\b|\btgz\b|\.tar\b|\bgzip\b|tarball", re.I)


def observe(ctx: Ctx) -> dict[str, str]:
    """The folder and what is to be packed, until it is; then the archive."""
    if "files" not in ctx.state:
        return {"folder": "not yet chosen"}
    folder, target, _ = _named(ctx)
    names = [_back(name) for name in ctx.state["files"]]
    if "sums" in ctx.state:
        return {"archive": "there" if target.exists() else "gone"}
    there = sum(os.path.lexists(folder / name) for name in names)
    size = sum(os.lstat(folder / name).st_size for name in names if os.path.lexists(folder / name))
    return {
        "folder": "there" if folder.is_dir() else "gone",
        "files": f"{there} of {len(names)}",
        "archive": "name is taken" if os.path.lexists(target) else "name is free",
        "disk": "room enough" if shutil.disk_usage(target.parent).free > size else "too full",
    }


def plan(ctx: Ctx) -> None:
    folder, kind = _folder(ctx), "tar.gz" if _TAR.search(ctx.request) else "zip"
    before, age = _before(ctx)
    try:
        found = archives.find(folder, before)
    except ArchiveError as error:
        raise Failed(f"{error}; name a smaller folder.", "environment") from None
    shown = places.shown(str(folder))
    if not found.files:
        ctx.say(f"Nothing to pack: {shown} has no files{f' older than {age}' if age else ''}.")
        raise Finished
    target = _free(folder, kind, ctx.now.strftime("%Y-%m-%d"))
    names = ", ".join(places.shown(name) for name in found.files[:_SHOWN])
    more = ", …" if len(found.files) > _SHOWN else ""
    lines = [
        f"I would pack {_files(len(found.files))} ({places.size_words(found.bytes)}) of {shown}"
        f"{f' older than {age}' if age else ''} into {places.shown(target.name)} beside it: "
        f"{names}{more}"
    ]
    if found.links and kind == "zip":
        lines.append(f"{len(found.links)} link{'s' * (len(found.links) > 1)} would be left out.")
    if found.unreadable:
        lines.append(f"{found.unreadable} cannot be read and would be left out.")
    ctx.say("\n".join(lines))
    if not ctx.confirm("Pack them?" if len(found.files) > 1 else "Pack it?"):
        ctx.say("All right, nothing is packed.")
        raise Finished
    ctx.state.update(
        folder=_kept(str(folder)),
        target=_kept(str(target)),
        kind=kind,
        files=[_kept(name) for name in found.files],
        links=[_kept(name) for name in found.links],
        delete=bool(_DELETE.search(ctx.request)) and not _KEEP.search(ctx.request),
    )


def pack(ctx: Ctx) -> None:
    folder, target, kind = _named(ctx)
    files, links = ([_back(n) for n in ctx.state[key]] for key in ("files", "links"))

    def do(key: str) -> int:
        return len(archives.pack(folder, target, kind, files, links if kind != "zip" else ()))

    def done(key: str) -> bool:
        return target.exists()  # it takes its name only when it is whole

    try:
        ctx.effect("write archive", do, done)
        sums = archives.verified(folder, target, kind)
    except ArchiveError as error:
        raise Failed(f"Nothing was deleted: {error}.", "environment") from None
    ctx.state["sums"] = sums if ctx.state["delete"] else {}
    ctx.state["count"] = len(sums)
    left = len(files) - len(sums)
    size = places.size_words(target.stat().st_size)
    gone = f" {_files(left)} could not be read." if left > 0 else ""
    ctx.say(f"Packed {_files(len(sums))} into {places.shown(str(target))} ({size}).{gone}")


def clear(ctx: Ctx) -> None:
    if not ctx.state["delete"]:
        return
    folder, _, _ = _named(ctx)
    sums = ctx.state["sums"]
    question = f"Delete the {_files(len(sums))} that are in the archive now?"
    if not ctx.confirm(question):
        ctx.say("All right, they stay where they are too.")
        raise Finished

    def do(key: str) -> list[list[str]]:
        found = [(_back(name), archives.name_in(_back(name))) for name in ctx.state["files"]]
        stay = [
            [_kept(n), why] for n, e in found if (why := archives.remove(folder, n, sums.get(e)))
        ]
        archives.remove_empty(folder)
        return stay

    stay = ctx.effect("delete packed files", do) or []
    lines = [f"Deleted {_files(len(ctx.state['files']) - len(stay))}."]
    if stay:
        lines.append(f"{_files(len(stay))} stayed:")
        lines += [f"- {places.shown(_back(name))} {why}" for name, why in stay[:10]]
    ctx.say("\n".join(lines))


def verify(ctx: Ctx) -> bool | None:
    if "count" not in ctx.state:
        return None
    folder, target, kind = _named(ctx)
    try:
        return len(archives.verified(folder, target, kind)) == ctx.state["count"]
    except ArchiveError:
        return False


def _folder(ctx: Ctx) -> Path:
    text, question = ctx.request, "Which folder should I pack: its name or path?"
    for _ in range(_TRIES):
        try:
            place = places.named_folder(text, ctx.folders.files)
        except OSError as error:
            raise Failed(f"{ctx.folders.files}: {error.strerror}", "environment") from None
        direct = ctx.folders.files / text.strip() if text != ctx.request else None
        folder = place.folder if place else direct
        if folder and folder.is_dir():
            whole = folder.resolve()
            if whole in (Path("/"), Path.home().resolve()) or ctx.folders.home.is_relative_to(
                whole
            ):
                raise Failed(f"{whole} as a whole is not packed; name a folder in it.", "which")
            return whole
        if folder:
            question = f"There is no folder {places.shown(str(folder))}. Which one should I pack?"
        text = ctx.ask(question)
    raise Failed("I do not know which folder to pack.", "which")


def _before(ctx: Ctx) -> tuple[float, str]:
    """(seconds since 1970, the age in words); everything where no age is said."""
    match = _OLD.search(ctx.request)
    if not match:
        if re.search(r"\b(?:old|alte)\b", ctx.request, re.I):
            return _months_ago(ctx, 12), "a year"
        return float("inf"), ""
    said, unit = " ".join(match["n"].lower().split()), match["unit"].lower()
    unit = _UNITS.get(unit, unit)
    if said == "half a":
        count, unit, words = 6, "month", "half a year"
    else:
        count = _COUNTS.get(said) or int(said)
        words = f"{count} {unit}{'s' * (count != 1)}"
    if unit in ("month", "year"):
        return _months_ago(ctx, count * (12 if unit == "year" else 1)), words
    return ctx.now.timestamp() - count * 86400 * (7 if unit == "week" else 1), words


def _months_ago(ctx: Ctx, months: int) -> float:
    try:
        return datetime.combine(add_months(ctx.now.date(), -months), ctx.now.timetz()).timestamp()
    except (ValueError, OverflowError):
        raise Failed("No file can be that old.", "text") from None


def _free(folder: Path, kind: str, day: str) -> Path:
    """A name beside the folder that nothing has yet."""
    for number in range(1, 1000):
        tail = f" {number}" if number > 1 else ""
        target = folder.with_name(f"{folder.name} {day}{tail}{archives.FORMATS[kind]}")
        if not os.path.lexists(target):
            if not os.access(folder.parent, os.W_OK | os.X_OK):
                raise Failed(f"{folder.parent} is read-only for you.", "environment")
            return target
    raise Failed(f"{folder.parent} is full of archives of this day.", "environment")


def _named(ctx: Ctx) -> tuple[Path, Path, str]:
    return Path(_back(ctx.state["folder"])), Path(_back(ctx.state["target"])), ctx.state["kind"]


def _kept(name: str) -> str:
    return quote_from_bytes(os.fsencode(name))


def _back(name: str) -> str:
    return os.fsdecode(unquote_to_bytes(name))


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"
