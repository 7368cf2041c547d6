"""What forgetting makes of each file of a home."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from semif.jsonl import parse, sync_folder, write_whole
from sia.context import ContextError
from sia.forget import stones
from sia.forget.contexts import rewritten
from sia.forget.target import Target
from sia.forget.words import in_json, says
from sia.home import Home

LEARNED = ("decisions.jsonl", "train.jsonl", "held.jsonl", "pairs.jsonl", "feedback.jsonl")
OF_ROWS = ("labels.jsonl", "skipped.jsonl")  # each line names the row it is about
# Sockets and locks; what a person put there on purpose; and the stones themselves.
_NOT = frozenset({"lock", "busy", "socket", "events", "secrets.json", stones.FILE})
_WEIGHTS = (".gguf", ".safetensors", ".npz", ".checkpoint", ".pt")
_PLACES = ("contexts", ".sia", "tasks", "spool")  # the agent's own; the rest is the person's
# The one has its own way; the other is made anew.
_DATABASES = {f"{name}.db{log}" for name in ("state", "history") for log in ("", "-wal", "-shm")}


@dataclass(frozen=True)
class Change:
    """Of one file: its bytes afterwards, None where it goes. ``to``: its new name, when that
    held the text. ``what``: in words."""

    path: Path
    data: bytes | None
    what: str
    to: Path | None = None

    @property
    def late(self) -> bool:
        """Whether it comes after the database."""
        return _order(self)[0] > 0

    def apply(self) -> None:
        """Do it, durably."""
        path = self.path
        if self.data is None:
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
            return
        write_whole(path, self.data)
        if self.to:
            path.rename(self.to)
            sync_folder(path.parent)


class Files:
    """``unread``: contexts that are damaged, so that nothing in them could be told apart."""

    def __init__(self, home: Home, target: Target) -> None:
        self._home, self._target, self._words = home, target, target.words
        self.unread: list[Path] = []

    def changes(self) -> tuple[Change, ...]:
        """In the order in which they can be carried out, so that one that was broken off finds
        what is left of it again: rows after what they led to, iterations after their rows."""
        found = [change for path in self._files() if (change := self._renamed(path))]
        return tuple(sorted(found, key=_order))

    def elsewhere(self) -> Iterator[Path]:
        """The person's own files that hold the text, and what the agent may not rewrite."""
        if not self._words:
            return
        for path in sorted(self._home.folder.iterdir()):
            if path.name in (*_PLACES, ".venv") or path.is_symlink():
                continue
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                if (
                    file.is_file()
                    and not file.is_symlink()
                    and self._words.holds(file.read_bytes())
                ):
                    yield file
        secrets = self._home.state / "secrets.json"
        if secrets.exists() and self._words.holds(secrets.read_bytes()):
            yield secrets

    def _files(self) -> Iterator[Path]:
        for place in _PLACES:
            for root, folders, names in os.walk(self._home.folder / place):
                inside = Path(root)
                folders[:] = sorted(f for f in folders if not self._revisions(inside / f))
                for name in sorted(names):
                    path = inside / name
                    ours = name not in _NOT and not name.endswith(_WEIGHTS)
                    if inside == self._home.state and name in _DATABASES:
                        continue
                    if ours and path.is_file() and not path.is_symlink():
                        yield path

    def _revisions(self, folder: Path) -> bool:
        """Whether it holds what was tuned, which is known by its bytes."""
        home = self._home
        tuned = folder.parent.parent == home.dreams and folder.name == "out"
        return tuned or folder in (home.revisions, home.dreams / "golden")

    def _renamed(self, path: Path) -> Change | None:
        change = self._of(path)
        name, times = self._words.cut(path.name) if self._words else (path.name, 0)
        if not times or (change and change.data is None):
            return change
        data, what = (change.data, change.what) if change else (path.read_bytes(), "its name")
        return Change(path, data, what, path.with_name(name))

    def _of(self, path: Path) -> Change | None:
        """None where it stays as it is."""
        if self._goes(path):
            return Change(path, None, "goes")
        if path.suffix == ".jsonl" and path.name in (*LEARNED, *OF_ROWS, "suggestions.jsonl"):
            return self._lines(path)
        if path.suffix == ".xml" and self._home.contexts in path.parents:
            return self._context(path)
        if self._target.kind == "run":
            return self._of_run(path)
        return self._text(path) if self._words else None

    def _goes(self, path: Path) -> bool:
        """A file of an iteration or a session, of an entry's script, of a run's reminder."""
        inside = path.relative_to(self._home.folder).parts
        target = self._target
        if inside[0] == "contexts" and len(inside) > 2:
            if target.kind == "session":
                return inside[1] == target.value
            if target.kind == "iteration":
                session, _, number = target.value.rpartition("/")
                return inside[1] == session and inside[2].split(".")[0] == f"{int(number):06d}"
            return self._sidecar(inside)
        if inside[:2] == (".sia", "scripts"):
            return len(inside) > 3 and inside[2] in target.entries
        return inside[:2] == ("tasks", "reminders") and path.stem in target.reminders

    def _sidecar(self, inside: tuple[str, ...]) -> bool:
        """Of an entry that goes, or words that a turn of the run itself kept."""
        if len(inside) < 4:
            return False
        number = inside[2].split(".")[0]
        did = number.isdecimal() and f"{inside[1]}/{int(number)}" in self._target.iterations
        return inside[3].split(".")[0] in self._target.entries or did

    def _context(self, path: Path) -> Change | None:
        data = path.read_bytes()
        try:
            new, places = rewritten(data, self._target)
        except ContextError:
            if self._words and self._words.holds(data):
                new, places = self._words.cut(data)
            else:
                self.unread.append(path)
                return None
        return Change(path, new, f"{places} places") if places else None

    # rows

    def _lines(self, path: Path) -> Change | None:
        """Rows go whole; a suggestion stays, without the words."""
        after = _suggestion if path.name == "suggestions.jsonl" else _row
        whole: set[str] = set()
        kept, lost = [], 0
        for line in path.read_bytes().splitlines(keepends=True):
            row = parse(line) if line.strip() else ""
            new = after(self._target, row if isinstance(row, dict) else {}, line, path.name, whole)
            lost += new != line
            kept.append(new)
        return Change(path, b"".join(kept), f"{lost} rows") if lost else None

    # other files

    def _of_run(self, path: Path) -> Change | None:
        """Lines of the log about a run, and its requests in the shell's history."""
        inside = path.relative_to(self._home.folder).parts
        if inside[:2] == (".sia", "log"):
            named = re.compile(rb"""['"]%s['"]""" % self._target.value.encode())
            return _dropped(path, lambda line: bool(named.search(line)))
        if inside == (".sia", "history"):
            said = {f"+{part}" for text in self._target.said for part in text.split("\n")}
            return _dropped(path, lambda line: line.decode("utf-8", "replace").rstrip() in said)
        return None

    def _text(self, path: Path) -> Change | None:
        assert self._words
        data = path.read_bytes()
        if not self._words.holds(data):
            return None
        clean = partial(_cleaned, self._target)
        if data.startswith(b"SQLite format 3\0") or path.name.startswith("state.db."):
            new, times = self._words.mask(data)
        elif path.suffix == ".json":
            new, times = clean(data)
        elif path.suffix == ".jsonl":
            parts = [clean(line) for line in data.splitlines(keepends=True)]
            new, times = b"".join(part for part, _ in parts), sum(n for _, n in parts)
        else:
            head = _head(data)
            new, times = self._words.cut(data[len(head) :])
            new = head + new
        return Change(path, new, f"{times} places") if times else None


def _order(change: Change) -> tuple[int, Path]:
    """Others, then rows, decisions last of them, then iterations that go."""
    rank = 3 if change.data is None and change.path.suffix == ".xml" else 0
    if not rank and change.path.name in (*LEARNED, *OF_ROWS):
        rank = 2 if change.path.name == LEARNED[0] else 1
    return rank, change.path


def _row(target: Target, row: dict[str, Any], line: bytes, name: str, whole: set[str]) -> bytes:
    if name in OF_ROWS:
        return b"" if row.get("row") in target.rows else line
    of = str(row.get("iteration", ""))
    gone = row.get("id") in target.rows or of in target.iterations
    if target.kind == "session" and of.startswith(f"{target.value}/"):
        gone = True
    if target.words:
        gone = gone or (says(row, target.words) if row else target.words.holds(line))
    return b"" if gone else line


def _suggestion(
    target: Target, row: dict[str, Any], line: bytes, name: str, whole: set[str]
) -> bytes:
    """Without the run: what first came from it goes with all that was noted of it since."""
    if target.words:
        return _cleaned(target, line)[0]
    request = row.get("request")
    if target.kind == "run" and isinstance(request, dict) and request.get("id") == target.value:
        if row.get("event") == "suggested":
            whole.add(str(row.get("id")))
        return b""
    return b"" if str(row.get("id")) in whole else line


def _cleaned(target: Target, data: bytes) -> tuple[bytes, int]:
    """JSON without the words; what is none, byte by byte."""
    assert target.words
    if not target.words.holds(data):
        return data, 0
    try:
        text, times = in_json(data.decode(), target.words)
        return text.encode(), times
    except (ValueError, json.JSONDecodeError):
        return target.words.cut(data)


def _dropped(path: Path, goes: Any) -> Change | None:
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if not goes(line)]
    lost = len(lines) - len(kept)
    return Change(path, b"".join(kept), f"{lost} lines") if lost else None


def _head(data: bytes) -> bytes:
    """The values before a note's text, which the program reads."""
    found = re.match(rb"---\n.*?\n---\n", data, re.DOTALL)
    return found[0] if found else b""
