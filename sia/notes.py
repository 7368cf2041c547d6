"""The person's notes: any folder of Markdown, an Obsidian vault too; hidden folders are left alone.

A note is called by its file's name or one of the ``aliases`` of its front matter, in any case.
Nothing here writes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sia.places import Walk

MOST_BYTES, MOST_FILES, SECONDS = 1_000_000, 50_000, 10.0
MOST_HEAD = 20_000  # characters of front matter
_HEAD = re.compile(r"\A\ufeff?---[ \t]*\n(?P<head>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)


@dataclass(frozen=True)
class Note:
    file: Path
    text: str  # without its front matter
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    modified: float = 0.0  # seconds since 1970

    @property
    def title(self) -> str:
        return self.file.stem

    @property
    def names(self) -> tuple[str, ...]:
        return (self.title, *self.aliases)


def files(folder: Path) -> Iterator[tuple[Path, float]]:
    """(file, modified) of each note; links are not followed."""
    for entry in Walk(folder, SECONDS, MOST_FILES).files():
        if entry.name.lower().endswith((".md", ".markdown")):
            try:
                yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime
            except OSError:
                continue  # gone since it was listed


def load(folder: Path) -> list[Note]:
    """All notes, newest first; what cannot be read, or is over MOST_BYTES, is left out."""
    notes = []
    for file, modified in files(folder):
        note = read(file, modified)
        if note:
            notes.append(note)
    return sorted(notes, key=lambda note: -note.modified)


def read(file: Path, modified: float = 0.0) -> Note | None:
    try:
        with file.open("rb") as data:
            raw = data.read(MOST_BYTES + 1)
    except OSError:
        return None
    if len(raw) > MOST_BYTES:
        return None
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    match = _HEAD.match(text)
    head = _front(match["head"]) if match else {}
    return Note(
        file,
        text[match.end() :] if match else text,
        _words(head.get("aliases") or head.get("alias")),
        _words(head.get("tags") or head.get("tag")),
        modified,
    )


def called(folder: Path, name: str) -> Path | None:
    """The note of that name: by its file before an alias, the one that lies highest first."""
    wanted, found = key(name), []
    for file, _ in files(folder):
        depth = len(file.relative_to(folder).parts)
        if key(file.stem) == wanted:
            found.append((0, depth, file))
        elif wanted and _has_alias(file, wanted):
            found.append((1, depth, file))
    return min(found)[2] if found else None


def key(name: str) -> str:
    """A name for comparing."""
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def hits(note: Note, words: Collection[str]) -> tuple[int, int]:
    """(words in its names and tags, words anywhere in it); words as ``key`` makes them."""
    names = key(" ".join((*note.names, *note.tags)))
    text = key(note.text)
    return (
        sum(word in names for word in words),
        sum(word in names or word in text for word in words),
    )


def line_with(note: Note, words: Collection[str]) -> str:
    """The first line that has one of the words; else the first that says something."""
    lines = [line.strip() for line in note.text.splitlines() if line.strip(" #-*>\t")]
    for line in lines:
        folded = key(line)
        if any(word in folded for word in words):
            return line
    return lines[0] if lines else ""


def _has_alias(file: Path, wanted: str) -> bool:
    """Looked for in the front matter alone; most notes have none."""
    try:
        with file.open("rb") as data:
            if data.read(6).lstrip(b"\xef\xbb\xbf")[:3] != b"---":
                return False
    except OSError:
        return False
    note = read(file)
    return note is not None and any(key(alias) == wanted for alias in note.aliases)


def _front(text: str) -> dict[str, Any]:
    """Front matter as a mapping; empty where it is none."""
    import yaml

    if len(text) > MOST_HEAD:
        return {}
    try:
        head = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return head if isinstance(head, dict) else {}


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = re.split(r",\s*", value)
    if not isinstance(value, list):
        return ()
    return tuple(str(item)[:200] for item in value[:100] if isinstance(item, str | int))
