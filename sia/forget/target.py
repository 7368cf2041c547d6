"""What is to be forgotten: an id that is here with all that belongs to it, else a text."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lxml import etree

from semif.jsonl import iter_rows
from semif.rows import MAIN
from sia import record
from sia.context import ContextError, parse_document, parse_entry
from sia.entries import DecisionView, Entry, InputEntry, Iteration
from sia.errors import UsageError
from sia.forget.words import Words, says
from sia.home import Home

Kind = Literal["text", "row", "run", "entry", "iteration", "session"]
LEAST = 3  # characters: less stands everywhere
_ROW, _RUN, _ENTRY = re.compile(r"d[0-9a-f]{12}"), re.compile(r"r\d+"), re.compile(r"e\d+")


@dataclass(frozen=True)
class Target:
    """value: the text, or the id. rows: of decisions that go with it; entries: ids of those that
    go; iterations: ``SESSION/N`` of those that did it; reminders: its ids; said: the requests of a
    run; words: of a text."""

    kind: Kind
    value: str
    rows: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()
    iterations: frozenset[str] = frozenset()
    reminders: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()
    words: Words | None = None


def target(home: Home, text: str) -> Target:
    """What a person means. Raises UsageError for a text that is too short."""
    if path := record.named(home.contexts, text):
        name = f"{path.parent.name}/{int(path.stem)}"
        return Target("iteration", name, _rows_of([path]), iterations=frozenset({name}))
    if text and text == Path(text).name and (home.contexts / text).is_dir():
        return Target("session", text, _rows_of_session(home, text))
    if _ROW.fullmatch(text) and any(row.get("id") == text for row in _logged(home)):
        return Target("row", text, frozenset({text}))
    if _RUN.fullmatch(text) and (found := _run(home, text)):
        return found
    if _ENTRY.fullmatch(text) and (found := _entry(home, text)):
        return found
    if len(text.strip()) < LEAST:
        raise UsageError(f"{text!r} is no id here, and too short for a text to be forgotten")
    words = Words(text)
    return Target("text", text, frozenset(_saying(home, words)), words=words)


def _logged(home: Home) -> Iterator[dict[str, Any]]:
    return iter_rows(home.decisions, lambda problem: None)


def _saying(home: Home, words: Words) -> Iterator[str]:
    """Rows of the log, and those that only an iteration still knows."""
    yield from (str(row["id"]) for row in _logged(home) if "id" in row and says(row, words))
    for one in _iterations(home):
        yield from (view.id for view in one.decisions if saw(view, words))


def saw(view: DecisionView, words: Words) -> bool:
    """Whether a decision has the words in its state, its question or its options."""
    parts = (view.state, view.question, *(part for one in view.options for part in one[:2]))
    return any(words.holds(part) for part in parts)


def _rows_of(paths: Iterable[Path]) -> frozenset[str]:
    return frozenset(view.id for one in _read(paths) for view in one.decisions)


def _rows_of_session(home: Home, session: str) -> frozenset[str]:
    """Those of its iterations, and what was decided for its runs that none of them shows."""
    found = list(_read(sorted((home.contexts / session).glob("*.xml"))))
    runs = {one.run for one in found if one.run} | {
        entry.run for one in found for entry in one.entries if isinstance(entry, InputEntry)
    }
    logged = {str(row["id"]) for row in _logged(home) if "id" in row and row.get("run") in runs}
    return frozenset(logged | {view.id for one in found for view in one.decisions})


def _read(paths: Iterable[Path]) -> Iterator[Iteration]:
    """Iterations; one that is damaged has nothing that could be told apart."""
    for path in paths:
        with suppress(ContextError):
            yield record.read(path)


def _iterations(home: Home) -> list[Iteration]:
    return list(_read(sorted(home.contexts.glob("*/*.xml"))))


def _entry(home: Home, id: str) -> Target | None:
    """None where none is here. An input that began a run stands for the run."""
    met = [(one, entry) for one in _iterations(home) for entry in one.entries if entry.id == id]
    if not met:
        return None
    run = next((entry.run for _, entry in met if isinstance(entry, InputEntry)), "")
    if run and (found := _run(home, run)):
        return found
    rows = (view.id for one, _ in met for view in one.decisions if view.source == id)
    return Target("entry", id, frozenset(rows), frozenset({id}))


def _run(home: Home, run: str) -> Target | None:
    rows = {str(row["id"]) for row in _logged(home) if row.get("run") == run and "id" in row}
    kept = _in_database(home, run)
    whole = _iterations(home)
    entries, said = set(kept.entries), set(kept.said)
    for one, after in zip(whole, [*whole[1:], None], strict=True):
        rows |= {view.id for view in one.decisions if one.run == run}
        for entry in one.entries:
            if getattr(entry, "run", "") == run:
                entries.add(entry.id)
                if isinstance(entry, InputEntry):
                    said.add(entry.text.text)
        if one.run == run and after and after.session == one.session:
            entries |= _own(one.entries, after.entries)
    last = whole[-1] if whole else None
    if last and last.run == run and kept.session == last.session:
        entries |= _own(last.entries, kept.now)
    rows |= set(_beside(home, whole, said))
    did = frozenset(f"{one.session}/{one.n}" for one in whole if one.run == run)
    if not (rows or entries or did or kept.known):
        return None
    return Target(
        "run", run, frozenset(rows), frozenset(entries), did, frozenset(kept.reminders),
        frozenset(said),
    )  # fmt: skip


def _beside(home: Home, whole: Sequence[Iteration], said: set[str]) -> Iterator[str]:
    """Decisions that saw a request of the run: of other runs, as what went on then, and of none,
    such as those that ask whether a new skill covers it."""

    def saw_it(state: object, whole: bool = False) -> bool:
        return isinstance(state, dict) and any(
            value in said for key, value in state.items() if whole or key not in MAIN
        )

    for row in _logged(home):
        if "id" in row and saw_it(row.get("state"), whole=not row.get("run")):
            yield str(row["id"])
    for one in whole:
        for view in one.decisions:
            with suppress(ValueError):
                if saw_it(json.loads(view.state)):
                    yield view.id


def _own(before: Sequence[Entry], after: Sequence[Entry]) -> set[str]:
    """What the turn between added that names no run: its own thoughts, errors and what it read."""
    old = {entry.id for entry in before}
    return {entry.id for entry in after if entry.id not in old and not hasattr(entry, "run")}


@dataclass(frozen=True)
class _Kept:
    """What the database knows of a run. now: entries of the session it holds."""

    known: bool = False
    session: str = ""
    entries: tuple[str, ...] = ()
    now: tuple[Entry, ...] = ()
    said: tuple[str, ...] = ()
    reminders: tuple[str, ...] = ()


def _in_database(home: Home, run: str) -> _Kept:
    if not home.database.exists():
        return _Kept()
    uri = f"{home.database.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:

        def ask(sql: str, *values: str) -> list[str]:
            return [row[0] for row in database.execute(sql, values)]

        said = [
            text
            for table, key in (("runs", "id"), ("inputs", "run"))
            for text in ask(f"SELECT text FROM {table} WHERE {key} = ?", run)
        ]
        now = tuple(_entries(ask("SELECT xml FROM entries")))
        return _Kept(
            known=bool(said),
            session=next(iter(ask("SELECT value FROM meta WHERE key = 'session'")), ""),
            entries=tuple(entry.id for entry in now if getattr(entry, "run", "") == run),
            now=now,
            said=tuple(said),
            reminders=tuple(ask("SELECT id FROM reminders WHERE run = ?", run)),
        )


def _entries(texts: Iterable[str]) -> Iterator[Entry]:
    for text in texts:
        with suppress(ContextError, etree.XMLSyntaxError):
            yield parse_entry(parse_document(text.encode()))
