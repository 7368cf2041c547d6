"""Writes the person's words into a Markdown file of the notes folder, new or at its end."""

from __future__ import annotations

import os
import re
from pathlib import Path

from semif.jsonl import sync_folder
from sia import notes
from sia.skills.api import Ctx, Failed, Finished

_I = re.IGNORECASE | re.DOTALL
_POLITE = re.compile(r"(?:(?:please|bitte|sia|(?:can|could|would|will) you)\b[\s,]*)*", re.I)
_TO_LIST = re.compile(
    r"(?:add|put|write|append|note|setze?|schreibe?)\s+(?P<text>.+?)\s+"
    r"(?:to|on|onto|in|into|auf)\s+(?:(?:my|the|our|die|meine|unsere)\s+)?"
    r"(?P<title>[^,.:;]*?(?:list|notes?|liste))\W*",
    _I,
)
# "append X to the note (called) Y", "add to my note Y: X": the note is named outright.
_TO_NOTE = re.compile(
    r"(?:add|append|put|write)\s+(?:(?P<text>.+?)\s+)?(?:to|in|into)\s+(?:(?:my|the|our)\s+)?note\s+"
    r"(?:(?:called|named|titled|about|on)\s+)?(?:[\"“](?P<quoted>[^\"”]+)[\"”]|(?P<title>[^:\"“”]+?))"
    r"(?:\s*:\s*(?P<after>.+))?\W*",
    _I,
)
_NAMED = re.compile(
    r"(?:(?:make|create|write|start|add|take)\s+)?(?:me\s+)?(?:an?|the)?\s*(?:new\s+)?"
    r"(?:(?P<list>(?:[\w-]+\s+){0,3}list)|note)\s*"
    r"(?:(?:called|named|titled|about)\s+(?:[\"“](?P<quoted>[^\"”]+)[\"”]|(?P<title>[^:\"”]+?)))?"
    r"(?:\s*:\s*|,?\s+(?:that says|saying|with)\s+)(?P<text>.+)",
    _I,
)
_PLAIN = re.compile(
    r"(?:(?:make|take|write|add|leave)\s+(?:me\s+)?(?:a|the)\s+(?:new\s+)?note|note\s+to\s+(?:my)?self"
    r"|(?:note|write|jot)\s+(?:this\s+|that\s+|it\s+)?down|remember|note|notiere?|schreibe?\s+auf)\b"
    r"[\s,:]*(?:(?:that|of|about|this|dass)\b[\s,:]*)?(?P<text>.*)",
    _I,
)


def understand(ctx: Ctx) -> None:
    title, text, listed = _read(ctx.request)
    if not text:
        text = " ".join(ctx.ask("What should I write down?").split())
    if not text:
        ctx.say("All right, nothing is written down.")
        raise Finished
    title = title or " ".join(text.split()[:6])
    file = _file(ctx.folders.notes, title)
    size, ended = _end(file)
    lines = [f"- {item}\n" for item in _items(text)] if listed else [f"{text}\n"]
    start = f"# {file.stem}\n\n" if size == 0 else "" if listed else "\n"
    added = ("" if ended else "\n") + start + "".join(lines)
    ctx.state.update(
        file=str(file.relative_to(ctx.folders.notes)), size=size, added=added, text=text
    )


def save(ctx: Ctx) -> None:
    file = ctx.folders.notes / ctx.state["file"]
    added, size = ctx.state["added"].encode(), ctx.state["size"]

    def do(key: str) -> int:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as out:
                out.write(added)
                out.flush()
                os.fsync(out.fileno())
            sync_folder(file.parent)
        except OSError as error:
            raise Failed(f"{file} cannot be written: {error.strerror}", "environment") from None
        return len(added)

    ctx.effect("write note", do, lambda key: added in _data(file)[size:])
    text = ctx.state["text"]
    where = "" if file.stem.casefold() == text.rstrip(".!").casefold() else f" in {file.stem}"
    ctx.say(f"Noted{where}: {text}")


def verify(ctx: Ctx) -> bool | None:
    if "added" not in ctx.state:
        return None
    return ctx.state["added"].encode() in _data(ctx.folders.notes / ctx.state["file"])


def _read(request: str) -> tuple[str, str, bool]:
    """(title, text, whether it goes on a list); what the request does not say is empty."""
    line = " ".join(request.split())
    line = line[_POLITE.match(line).end() :]
    for pattern in (_TO_NOTE, _TO_LIST, _NAMED, _PLAIN):
        match = pattern.fullmatch(line)
        if match:
            found = match.groupdict()
            names = (found.get(name) for name in ("quoted", "title", "list"))
            title = next(filter(None, names), "").strip()
            listed = bool(re.search(r"list[es]?$", title, re.IGNORECASE))
            text = " ".join(filter(None, (found.get("text"), found.get("after"))))
            return title[:1].upper() + title[1:], text.strip(" ,"), listed
    return "", line, False


def _items(text: str) -> list[str]:
    """Items parted by commas; a lone "and" may belong to one item ("mac and cheese")."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1:
        parts[-1:] = re.split(r"\s+(?:and|und)\s+|^(?:and|und)\s+", parts[-1])
    return [part for part in parts if part]


def _file(folder: Path, title: str) -> Path:
    """The note of that title, in any case and however deep it lies, or the path of a new one."""
    stem = re.sub(r"[\x00-\x1f\x7f/\\:*?\"<>|]+", " ", title)
    stem = " ".join(stem.split()).strip(" .").encode()[:120].decode("utf-8", "ignore").strip()
    stem = stem[:1].upper() + stem[1:] or "Note"
    there = notes.called(folder, stem) if folder.is_dir() else None
    return there or folder / f"{stem}.md"


def _end(file: Path) -> tuple[int, bool]:
    """(bytes, whether the last line is ended)."""
    data = _data(file)
    return len(data), not data or data.endswith(b"\n")


def _data(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise Failed(f"{file} cannot be read: {error.strerror}", "environment") from None
