"""The iterations on disk as a list: filtered, and searched by their words.

``.sia/history.db`` holds a row of each file and its words (SQLite FTS5). It is an index and no
record: what asks for the list brings it up to date, reading only files that are new or changed,
and without it all is read again. A turn never writes it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sia import record
from sia.context import ContextError, parse_document
from sia.entries import Iteration, Script
from sia.errors import SiaError
from sia.home import Home
from sia.report import about

VERSION = 1
WAIT = 30.0  # seconds, for another command that brings the index up to date
_SCHEMA = """
CREATE TABLE files (
  number INTEGER PRIMARY KEY, session TEXT NOT NULL, n INTEGER NOT NULL, stamp TEXT NOT NULL,
  time REAL, run TEXT NOT NULL, skill TEXT NOT NULL, edited INTEGER NOT NULL, row TEXT NOT NULL,
  UNIQUE (session, n));
CREATE INDEX files_run ON files (run);
CREATE INDEX files_skill ON files (skill);
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
"""


@dataclass(frozen=True)
class Wanted:
    """Which iterations. skill: its id, or its category. outcome: of the run, ``done``, ``failed``
    or ``cancelled``. text: words that all stand in it. since and until: both included. "" and
    None: any. limit: the newest so many."""

    session: str = ""
    skill: str = ""
    outcome: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    edited: bool = False
    limit: int = 20


def find(
    home: Home, wanted: Wanted, tell: Callable[[int], None] = lambda files: None
) -> list[dict[str, Any]]:
    """The iterations that are wanted, newest last. ``tell``: how many files are about to be read.

    Raises SiaError when the index cannot be written.
    """
    try:
        return _find(home, wanted, tell)
    except sqlite3.OperationalError as error:  # locked, or a full disk: the index is not at fault
        raise SiaError(f"{home.history} cannot be used: {error}") from None
    except sqlite3.DatabaseError:
        drop(home)
        return _find(home, wanted, tell)


def drop(home: Home) -> None:
    """Remove the index; the next list makes it again from the files."""
    for end in ("", "-journal", "-wal", "-shm"):
        home.history.with_name(home.history.name + end).unlink(missing_ok=True)


def row(path: Path) -> dict[str, Any]:
    """A file as the list shows it; ``problem`` says why one cannot be read."""
    try:
        return _row(path, record.read(path))
    except ContextError as error:
        return {**_named(path), "problem": str(error)}


def _find(home: Home, wanted: Wanted, tell: Callable[[int], None]) -> list[dict[str, Any]]:
    with closing(_opened(home)) as index:
        _bring_up(index, home.contexts, tell)
        outcomes = _outcomes(index, home)
        where, values = _where(wanted, outcomes)
        # In this order: the other way each file would be looked up among the words.
        table = "words CROSS JOIN files ON number = words.rowid" if wanted.text.strip() else "files"
        outcome = "(SELECT status FROM runs WHERE id = run)" if outcomes else "NULL"
        order = "ORDER BY session DESC, n DESC"
        chosen = f"SELECT number FROM {table} {where} {order} LIMIT ?"
        query = f"SELECT row, {outcome} FROM files WHERE number IN ({chosen}) {order}"
        found = index.execute(query, (*values, wanted.limit)).fetchall()
    return [{**json.loads(text), "outcome": status or ""} for text, status in reversed(found)]


def _opened(home: Home) -> sqlite3.Connection:
    index = sqlite3.connect(home.history, timeout=WAIT, isolation_level=None)
    try:
        home.history.chmod(0o600)
        (version,) = index.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError("another version's index")
        # What is lost in a crash is read again.
        index.execute("PRAGMA synchronous = OFF")
        if version == 0:
            index.execute("BEGIN IMMEDIATE")
            if index.execute("PRAGMA user_version").fetchone() == (0,):
                for statement in _SCHEMA.split(";\n"):
                    index.execute(statement)
                index.execute(f"PRAGMA user_version = {VERSION}")
            index.execute("COMMIT")
    except BaseException:
        index.close()
        raise
    return index


def _bring_up(index: sqlite3.Connection, contexts: Path, tell: Callable[[int], None]) -> None:
    """Read what is new or changed, and let go what is gone."""
    index.execute("BEGIN IMMEDIATE")
    known = {
        (session, n): (number, stamp)
        for number, session, n, stamp in index.execute(
            "SELECT number, session, n, stamp FROM files"
        )
    }
    fresh, gone = [], []
    for session, n, path, stamp in _files(contexts):
        number, before = known.pop((session, n), (0, ""))
        if before != stamp:
            fresh.append((session, n, path, stamp))
            gone.append(number)
    gone += [number for number, _ in known.values()]
    for table, key in (("files", "number"), ("words", "rowid")):
        index.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(n,) for n in gone if n])
    if fresh:
        tell(len(fresh))
    for session, n, path, stamp in fresh:
        _put(index, session, n, Path(path), stamp)
    index.execute("COMMIT")


def _files(contexts: Path) -> Iterator[tuple[str, int, str, str]]:
    """(session, n, path, stamp) of each iteration's file; a changed file has another stamp."""
    try:
        sessions = sorted(entry.name for entry in os.scandir(contexts) if entry.is_dir())
    except FileNotFoundError:
        return
    for session in sessions:
        with os.scandir(contexts / session) as entries:
            for entry in entries:
                stem, end = os.path.splitext(entry.name)
                if end == ".xml" and stem.isascii() and stem.isdigit():
                    state = entry.stat()
                    stamp = f"{state.st_mtime_ns} {state.st_size} {state.st_ino}"
                    yield session, int(stem), entry.path, stamp


def _put(index: sqlite3.Connection, session: str, n: int, path: Path, stamp: str) -> None:
    time, run, edited, words = None, "", False, ""
    try:
        iteration = record.read(path)
    except FileNotFoundError:  # forgotten meanwhile
        return
    except ContextError as error:
        shown = {**_named(path), "problem": str(error)}
    else:
        shown = _row(path, iteration)
        time, run = iteration.figures.time.timestamp(), iteration.run
        edited, words = shown["edited"], _words(iteration)
    added = index.execute(
        "INSERT INTO files (session, n, stamp, time, run, skill, edited, row) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (session, n, stamp, time, run, shown.get("skill", ""), edited,
         json.dumps(shown, ensure_ascii=False)),
    )  # fmt: skip
    index.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, words))


def _outcomes(index: sqlite3.Connection, home: Home) -> bool:
    """Have the runs' ends at hand as ``runs``; False where there is no database."""
    if not home.database.exists():
        return False
    index.execute("CREATE TEMP TABLE runs (id TEXT PRIMARY KEY, status TEXT) WITHOUT ROWID")
    uri = f"{home.database.as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=WAIT)) as database:
            ends = database.execute(
                "SELECT id, status FROM runs WHERE status IN ('done', 'failed', 'cancelled')"
            ).fetchall()
    except sqlite3.DatabaseError as error:
        raise SiaError(
            f"{home.database} cannot be read ({error}); a damaged one is set aside by `sia run`"
        ) from None
    index.executemany("INSERT INTO runs VALUES (?, ?)", ends)
    return True


def _where(wanted: Wanted, outcomes: bool) -> tuple[str, list[Any]]:
    parts: list[tuple[str, list[Any]]] = []
    if wanted.session:
        parts.append(("session = ?", [wanted.session]))
    if wanted.skill:
        category = wanted.skill.rstrip("/") + "/"
        parts.append(
            ("(skill = ? OR substr(skill, 1, ?) = ?)", [wanted.skill, len(category), category])
        )
    if wanted.outcome:
        ends = "run IN (SELECT id FROM runs WHERE status = ?)" if outcomes else "? IS NULL"
        parts.append((ends, [wanted.outcome]))
    if wanted.since:
        parts.append(("time >= ?", [wanted.since.timestamp()]))
    if wanted.until:
        parts.append(("time <= ?", [wanted.until.timestamp()]))
    if wanted.edited:
        parts.append(("edited", []))
    if wanted.text.strip():
        parts.append(("words MATCH ?", [_match(wanted.text)]))
    where = " AND ".join(part for part, _ in parts)
    return (f"WHERE {where}" if where else ""), [value for _, values in parts for value in values]


def _match(text: str) -> str:
    """An FTS5 query of all the words: quoted, for a person's text is no query language."""
    words = text.replace("\0", " ").split()
    return " ".join('"' + word.replace('"', '""') + '"' for word in words)


# what the list shows of a file


def _named(path: Path) -> dict[str, Any]:
    return {"session": path.parent.name, "n": int(path.stem), "problem": ""}


def _row(path: Path, iteration: Iteration) -> dict[str, Any]:
    response = iteration.response
    return {
        **_named(path),
        "time": iteration.figures.time.isoformat(timespec="seconds"),
        "run": iteration.run,
        "request": _request(iteration),
        "skill": _skill(iteration),
        "edited": bool(response and response.edited),
        "decisions": [
            {
                "phase": decision.phase,
                "selected": decision.selected,
                "p": next((p for id, _, p in decision.options if id == decision.selected), 0.0),
            }
            for decision in iteration.decisions
        ],
        "response": _first_line(iteration),
    }


def _request(iteration: Iteration) -> str:
    if iteration.process:
        return iteration.process.text
    return about(iteration.decisions[0].state) if iteration.decisions else ""


def _skill(iteration: Iteration) -> str:
    """The skill as it was when the turn ended: navigation is itself a turn."""
    chosen = {decision.phase: decision.selected for decision in iteration.decisions}
    if "navigate_category" not in chosen:
        return iteration.process.skill if iteration.process else ""
    skill = chosen.get("navigate_skill", "")
    if not skill or skill.startswith("create_"):
        return "-"
    return f"{chosen['navigate_category']}/{skill}"


def _first_line(iteration: Iteration) -> str:
    if iteration.response is None:
        return ""
    text = iteration.response.text
    try:
        element = parse_document(text.encode("utf-8", "replace"))
    except ContextError:
        return text.strip().split("\n")[0]
    words = (element.text or "").strip().split("\n")[0]
    return words if element.tag == "write_stdout" else f"<{element.tag}> {words}".strip()


def _words(iteration: Iteration) -> str:
    """What an iteration is about: its request, what was decided about, the entries of its run, and
    the response. What else its context shows is another iteration's."""
    texts = [_request(iteration), *(about(view.state) for view in iteration.decisions)]
    for entry in iteration.entries:
        if not iteration.run or getattr(entry, "run", "") != iteration.run:
            continue
        if isinstance(entry, Script):
            texts += [entry.command.text, entry.stdout.text, entry.stderr.text]
        else:
            texts.append(entry.text.text)
    if iteration.response:
        texts.append(iteration.response.text)
    return "\n".join(dict.fromkeys(filter(None, texts)))
