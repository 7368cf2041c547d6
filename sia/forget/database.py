"""Forgetting in ``state.db``: values change, rows go, and no byte of either stays in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sia.context import ContextError
from sia.errors import SiaError
from sia.forget.contexts import rewritten
from sia.forget.target import Target
from sia.forget.words import OURS, Words, in_json, in_xml
from sia.queue import HALT

_KEPT = OURS | {"key", "due", "zone", "arrived", "requeued", "answered", "repeat", "skill"}
# What the program counts and names a session by.
_COUNTED = "key LIKE 'session%' OR key LIKE 'last!_%' ESCAPE '!' OR key IN ('schema', 'ended')"


@dataclass(frozen=True)
class Found:
    """cells: values or rows that change. left: whether freed pages still hold the text."""

    cells: int
    left: bool = False


def change(path: Path, target: Target, dry: bool) -> Found:
    """Do it, or say only what it would come to. Nobody else may have the database open."""
    if not path.exists():
        return Found(0)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("BEGIN IMMEDIATE")
            cells = sum(_steps(database, target))
            database.execute("ROLLBACK" if dry else "COMMIT")
            if not dry:  # what was freed at any time before, too
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError as error:
        raise SiaError(f"{path} cannot be rewritten: {error}") from None
    return Found(cells, bool(target.words) and _left(path, target.words))


def _left(path: Path, words: Words | None) -> bool:
    parts = (path.with_name(path.name + suffix) for suffix in ("", "-wal"))
    return any(words is not None and part.exists() and words.holds(part.read_bytes())
               for part in parts)  # fmt: skip


def _steps(database: sqlite3.Connection, target: Target) -> Iterator[int]:
    def done(sql: str, *values: str) -> int:
        return database.execute(sql, values).rowcount

    for id in sorted(target.entries):
        yield done("DELETE FROM entries WHERE id = ?", id)
    yield from _unfiled(database, target)
    match target.kind:
        case "text":
            assert target.words
            tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
            for (table,) in database.execute(tables).fetchall():
                for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                    if column not in _KEPT and table != "unfiled":
                        yield _column(database, table, column, target.words)
        case "run":
            yield done("DELETE FROM runs WHERE id = ?", target.value)
            for table in ("inputs", "results", "verdicts", "stdin", "outbox", "reminders"):
                yield done(f"DELETE FROM {table} WHERE run = ?", target.value)
            for key in (f"rows_{target.value}", f"{HALT}{target.value}"):
                yield done("DELETE FROM meta WHERE key = ?", key)
            first = "CASE WHEN json_valid(value) THEN json_extract(value, '$[0]') END"
            yield done(f"DELETE FROM meta WHERE {first} = ?", target.value)
        case "session":
            now = "SELECT 1 FROM meta WHERE key = 'session' AND value = ?"
            if database.execute(now, (target.value,)).fetchone():
                yield done("DELETE FROM entries")  # the next start begins anew
                done("INSERT OR REPLACE INTO meta VALUES ('ended', '1')")


def _unfiled(database: sqlite3.Connection, target: Target) -> Iterator[int]:
    """The copy of the last iteration, from which a start would write its file again."""
    for session, n, xml in database.execute("SELECT session, n, xml FROM unfiled").fetchall():
        if target.kind == "session" and session == target.value:
            new: bytes | None = None
        elif target.kind == "iteration" and f"{session}/{n}" == target.value:
            new = None
        else:
            new = _iteration(xml, target)
        if new is None:
            sql, values = "DELETE FROM unfiled WHERE session = ? AND n = ?", (session, n)
            yield database.execute(sql, values).rowcount
        elif new != xml:
            sql = "UPDATE unfiled SET xml = ? WHERE session = ? AND n = ?"
            yield database.execute(sql, (new, session, n)).rowcount


def _iteration(xml: bytes, target: Target) -> bytes:
    try:
        return rewritten(xml, target)[0]
    except ContextError:
        return target.words.cut(xml)[0] if target.words else xml


def _column(database: sqlite3.Connection, table: str, column: str, words: Words) -> int:
    changed = 0
    where = f"NOT ({_COUNTED})" if table == "meta" else "1"
    sql = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE {where}'
    values = database.execute(sql).fetchall()
    for (value,) in values:
        if not isinstance(value, (str, bytes)) or not words.holds(value):
            continue
        after = words.cut(value)[0] if isinstance(value, bytes) else _text(column, value, words)
        if after != value:
            changed += database.execute(
                f'UPDATE OR REPLACE "{table}" SET "{column}" = ? WHERE "{column}" = ? AND {where}',
                (after, value),
            ).rowcount
    return changed


def _text(column: str, value: str, words: Words) -> str:
    """A cell: an entry, JSON of the program's, or plain words."""
    try:
        if column == "xml":
            return in_xml(value.encode(), words)[0].decode()
        if column != "text":
            return in_json(value, words)[0]
    except (ValueError, ContextError):
        pass
    return words.cut(value)[0]
