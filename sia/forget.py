"""Forgetting: the one thing that rewrites what was kept. What was forgotten leaves a tombstone that
says when, what kind and how much, and never what.

A text goes wherever its bytes stand, in the ways that JSON and XML write it; rows that a model
could learn it from go whole. A row, a run, an iteration and a session go by their id.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from semif.jsonl import append, iter_rows, parse, write_whole
from semif.log import timestamp
from sia import history, record
from sia.context import to_xml
from sia.entries import Entry, Iteration, Response, Script, Text
from sia.errors import SiaError, UsageError
from sia.home import Home
from sia.scripts.shown import Output

Kind = Literal["text", "row", "run", "iteration", "session"]
MARK = "[forgotten]"
LEAST = 3  # characters: less stands everywhere
LEARNED = ("decisions.jsonl", "train.jsonl", "held.jsonl", "pairs.jsonl", "feedback.jsonl")
LABELS = "labels.jsonl"
KEPT = frozenset({"lock", "busy", "socket", "events", "forgotten.jsonl"})
_ROW, _RUN = re.compile(r"d[0-9a-f]{12}"), re.compile(r"r\d+")
_PLACES = ("contexts", ".sia", "tasks", "spool")  # the agent's own; the rest is the person's


@dataclass(frozen=True)
class Target:
    """What is to be forgotten. rows: ids of decisions that go with it."""

    kind: Kind
    value: str
    rows: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Change:
    """Of one file: its bytes afterwards, None where it goes. ``what``: in words."""

    path: Path
    data: bytes | None
    what: str


@dataclass(frozen=True)
class Plan:
    """changes: of files. cells: values of the database that change. elsewhere: files of the
    person's own that hold the text; they stay. learned: revisions that were tuned on it."""

    target: Target
    changes: tuple[Change, ...]
    cells: int
    elsewhere: tuple[Path, ...] = ()
    learned: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.changes and not self.cells


def target(home: Home, text: str) -> Target:
    """What a person means: an id that is there, else a text. Raises UsageError."""
    session, _, number = text.rpartition("/")
    if session and session == Path(session).name and number.isdecimal():
        path = record.path_of(home.contexts, session, int(number))
        if path.is_file():
            return Target("iteration", text, _rows_of([path]))
    if text == Path(text).name and (home.contexts / text).is_dir():
        return Target("session", text, _rows_of(sorted((home.contexts / text).glob("*.xml"))))
    rows = list(iter_rows(home.decisions, lambda problem: None))
    if _ROW.fullmatch(text) and any(row.get("id") == text for row in rows):
        return Target("row", text, frozenset({text}))
    of_run = [str(row["id"]) for row in rows if row.get("run") == text]
    if _RUN.fullmatch(text) and (of_run or _known_run(home, text)):
        return Target("run", text, frozenset(of_run))
    if len(text.strip()) < LEAST:
        raise UsageError(f"{text!r} is no id here, and too short for a text to be forgotten")
    return Target("text", text)


def plan(home: Home, target: Target) -> Plan:
    """What would change; nothing does. Raises SiaError for a context that cannot be read."""
    change = _Changes(home, target)
    changes = tuple(found for path in _files(home) if (found := change.of(path)))
    cells = _database(home, target, change.ways, dry=True) if home.database.exists() else 0
    return Plan(target, changes, cells, tuple(change.elsewhere()), tuple(_learned(home, changes)))


def carry_out(home: Home, wanted: Plan, by: str) -> None:
    """Rewrite, and leave the tombstone. Hold the home: nobody may write meanwhile."""
    history.drop(home)  # its words stand there too; it is made again from what stays
    for change in wanted.changes:
        if change.data is not None:
            write_whole(change.path, change.data)
        elif change.path.is_dir():
            shutil.rmtree(change.path)
        else:
            change.path.unlink()
    if wanted.cells:
        _database(home, wanted.target, _ways(wanted.target), dry=False)
    stone = {
        "time": timestamp(datetime.now(UTC)),
        "by": by,
        "kind": wanted.target.kind,
        "id": "" if wanted.target.kind == "text" else wanted.target.value,
        "files": len(wanted.changes),
        "cells": wanted.cells,
        "rows": sorted(wanted.target.rows),
        "learned": list(wanted.learned),
    }
    append(home.state / "forgotten.jsonl", [stone])


def _files(home: Home) -> Iterator[Path]:
    for place in _PLACES:
        for root, folders, names in os.walk(home.folder / place):
            folders.sort()
            for name in sorted(names):
                path = Path(root) / name
                ours = not name.startswith(("state.db", "history.db")) and name not in KEPT
                if ours and path.is_file() and not path.is_symlink():
                    yield path


def _rows_of(paths: Iterable[Path]) -> frozenset[str]:
    return frozenset(view.id for path in paths for view in record.read(path).decisions)


def _known_run(home: Home, run: str) -> bool:
    if not home.database.exists():
        return False
    with closing(sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)) as database:
        found = database.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone()
    return found is not None


def _ways(target: Target) -> tuple[bytes, ...]:
    """The bytes that a text may stand as, longest first; none for an id."""
    if target.kind != "text":
        return ()
    text = target.value
    ways = {text, html.escape(text), html.escape(text, quote=False)}
    for _ in range(2):  # JSON stands within JSON
        ways |= {json.dumps(way, ensure_ascii=a)[1:-1] for way in ways for a in (True, False)}
    found = {way.encode("utf-8", "surrogatepass") for way in ways}
    return tuple(sorted(found, key=len, reverse=True))


class _Changes:
    """What forgetting makes of each file."""

    def __init__(self, home: Home, target: Target) -> None:
        self._home, self._target = home, target
        self.ways = _ways(target)
        self._gone = set(target.rows)  # rows that go; their labels go too

    def of(self, path: Path) -> Change | None:
        """None where it stays as it is. Decisions are met before labels, as they are sorted."""
        if change := self._whole(path):
            return change
        data = path.read_bytes()
        if path.name in LEARNED or path.name == LABELS:
            kept, lost = self._rows(path, data)
            return Change(path, kept, f"{lost} rows") if lost else None
        if self.ways:
            changed, times = _without(data, self.ways)
            return Change(path, changed, f"{times} places") if times else None
        if path.suffix == ".xml" and self._home.contexts in path.parents:
            return self._context(path, data)
        return None

    def elsewhere(self) -> Iterator[Path]:
        """The person's own files that hold the text."""
        for path in sorted(self._home.folder.iterdir()) if self.ways else []:
            if path.name in _PLACES or path.is_symlink() or path.name == ".venv":
                continue
            files = [path] if path.is_file() else path.rglob("*")
            yield from (
                file for file in files
                if file.is_file() and not file.is_symlink() and _holds(file, self.ways)
            )  # fmt: skip

    def _whole(self, path: Path) -> Change | None:
        """An iteration or a session that goes, with its sidecars."""
        inside = path.relative_to(self._home.folder).parts
        if inside[0] != "contexts" or len(inside) < 3:
            return None
        if self._target.kind == "session" and inside[1] == self._target.value:
            return Change(path, None, "goes")
        if self._target.kind == "iteration":
            session, _, number = self._target.value.rpartition("/")
            if inside[1] == session and inside[2].split(".")[0] == f"{int(number):06d}":
                return Change(path, None, "goes")
        return None

    def _rows(self, path: Path, data: bytes) -> tuple[bytes, int]:
        """(the rows that stay, how many go)."""
        kept, lost = [], 0
        for line in data.splitlines(keepends=True):
            row = parse(line) if line.strip() else ""
            if self._goes(row if isinstance(row, dict) else {}, line, path.name):
                lost += 1
            else:
                kept.append(line)
        return b"".join(kept), lost

    def _goes(self, row: dict[str, Any], line: bytes, name: str) -> bool:
        if name == LABELS:
            return row.get("row") in self._gone
        if any(way in line for way in self.ways):
            self._gone.add(str(row.get("id", "")))
            return True
        kind, value = self._target.kind, self._target.value
        if name == "feedback.jsonl":
            of = str(row.get("iteration", ""))
            return (kind == "iteration" and of == value) or (
                kind == "session" and of.startswith(f"{value}/")
            )
        return row.get("id") in self._gone

    def _context(self, path: Path, data: bytes) -> Change | None:
        """Without what belongs to a row or a run."""
        iteration = record.read(path)
        run = self._target.value if self._target.kind == "run" else ""
        changed = _stripped(iteration, self._target.rows, run)
        if changed == iteration:
            return None
        return Change(path, to_xml(changed), "entries of it")


def _stripped(iteration: Iteration, rows: frozenset[str], run: str) -> Iteration:
    decisions = tuple(view for view in iteration.decisions if view.id not in rows)
    iteration = replace(iteration, decisions=decisions)
    if not run:
        return iteration
    entries = tuple(
        _blank(entry) if getattr(entry, "run", "") == run else entry for entry in iteration.entries
    )
    queue = tuple(replace(item, text=MARK) if item.id == run else item for item in iteration.queue)
    process, response = iteration.process, iteration.response
    if process and process.run == run:
        process = replace(process, text=MARK)
    if response and iteration.run == run:
        response = Response(MARK, "code")
    return replace(iteration, entries=entries, queue=queue, process=process, response=response)


def _blank(entry: Entry) -> Entry:
    if isinstance(entry, Script):
        return replace(entry, command=Text(MARK), stdout=Output(), stderr=Output())
    return replace(entry, text=Text(MARK))


def _without(data: bytes, ways: Iterable[bytes]) -> tuple[bytes, int]:
    """(the bytes with the mark in place of each way, how often)."""
    times = 0
    for way in ways:
        times += data.count(way)
        data = data.replace(way, MARK.encode())
    return data, times


def _holds(path: Path, ways: Iterable[bytes]) -> bool:
    data = path.read_bytes()
    return any(way in data for way in ways)


def _database(home: Home, target: Target, ways: tuple[bytes, ...], dry: bool) -> int:
    """Change the values that hold a text, delete the rows of a run; how many."""
    try:
        with closing(sqlite3.connect(home.database, isolation_level=None)) as database:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("BEGIN IMMEDIATE")
            count = sum(
                _table(database, name, target, ways)
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                ).fetchall()
            )
            database.execute("ROLLBACK" if dry else "COMMIT")
            if not dry:
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return count
    except sqlite3.DatabaseError as error:
        raise SiaError(f"{home.database} cannot be rewritten: {error}") from None


def _table(database: sqlite3.Connection, name: str, target: Target, ways: tuple[bytes, ...]) -> int:
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
    if target.kind == "run":
        key = "id" if name == "runs" else "run"
        found = 0
        if key in columns:
            done = database.execute(f'DELETE FROM "{name}" WHERE "{key}" = ?', (target.value,))
            found += done.rowcount
        if name == "entries":
            part = f'%run="{target.value}"%'
            found += database.execute("DELETE FROM entries WHERE xml LIKE ?", (part,)).rowcount
        return found
    if target.kind in ("iteration", "session") and name == "unfiled":
        session = target.value.split("/")[0]
        return database.execute("DELETE FROM unfiled WHERE session = ?", (session,)).rowcount
    return sum(_column(database, name, column, ways) for column in columns if ways)


def _column(database: sqlite3.Connection, table: str, column: str, ways: tuple[bytes, ...]) -> int:
    changed = 0
    for (value,) in database.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall():
        if isinstance(value, str):
            new, times = _without(value.encode("utf-8", "surrogatepass"), ways)
            after: str | bytes = new.decode("utf-8", "surrogatepass")
        elif isinstance(value, bytes):
            after, times = _without(value, ways)
        else:
            continue
        if times:
            done = database.execute(
                f'UPDATE OR REPLACE "{table}" SET "{column}" = ? WHERE "{column}" = ?',
                (after, value),
            )
            changed += done.rowcount
    return changed


def _learned(home: Home, changes: Iterable[Change]) -> Iterator[str]:
    """Candidates of dreams whose rows change."""
    for folder in sorted({change.path.parent for change in changes}):
        if folder.parent == home.dreams and (folder / "proof.json").exists():
            yield str(json.loads((folder / "proof.json").read_bytes()).get("candidate", ""))
