"""``state.db``: what must survive a crash. Inputs, runs (and so the queue), stored call results,
the entries of the current session, messages not yet shown, and the last iteration until its file
is on disk.

One connection, used under a lock by the loop's and the intake's threads. Every ``transaction``
ends with one synced commit (WAL, synchronous=FULL).
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sia.errors import ConfigError, SiaError
from sia.schema import SCHEMA, VERSION, migrate

OPEN = ("waiting", "running", "asking")


@dataclass(frozen=True)
class Input:
    """Something that came in. It keeps its ``run`` id through requeue."""

    id: str
    run: str
    source: str
    text: str
    time: datetime  # UTC


@dataclass(frozen=True)
class Run:
    """A request through its whole life: waiting in the queue, worked, done.

    status: waiting | running | asking (a question is open) | done | failed | cancelled.
    skill: "" before navigation, ``category/name``, or ``-`` for one worked by the generator alone.
    step: the index of the next action. turns: turns taken by the generator. question: JSON of
    {action, ordinal, text, options} while asking.
    """

    id: str
    source: str
    text: str
    urgency: float
    arrived: datetime
    requeued: datetime
    attempt: int = 1
    status: str = "waiting"
    skill: str = ""
    step: int = 0
    turns: int = 0
    state: str = "{}"
    question: str = ""
    preempts: bool = False
    displaced_by: str = ""
    outcome: str = ""
    seconds: float = 0.0
    answered: str = ""  # RFC 3339, when the person last answered a question of it
    spent: str = "{}"  # JSON of its Account
    cut: bool = False  # it was ended by a limit before it came to its end

    @property
    def heard(self) -> datetime:
        """When the person last spoke to it: what "in 20 minutes" counts from."""
        return datetime.fromisoformat(self.answered) if self.answered else self.arrived

    @property
    def open_question(self) -> dict[str, Any]:
        return json.loads(self.question) if self.question else {}


@dataclass(frozen=True)
class RunVerdict:
    """Whether a run did what was asked, by ``verified`` or ``assessed``; ``decided``: (row id,
    chosen option, phase) of what led there."""

    run: str
    source: str
    success: bool
    decided: tuple[tuple[str, str, str], ...] = ()


_HALF = re.compile("[\ud800-\udfff]")
_RUN_FIELDS = tuple(field.name for field in fields(Run))
_RUN_INSERT = (
    f"INSERT OR REPLACE INTO runs ({', '.join(_RUN_FIELDS)}) "
    f"VALUES ({', '.join('?' * len(_RUN_FIELDS))})"
)
_RUN_SELECT = f"SELECT {', '.join(_RUN_FIELDS)} FROM runs"


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, str):
        return _whole(value)
    return int(value) if isinstance(value, bool) else value


def _whole(text: str) -> str:
    """``text`` with half characters shown as U+FFFD: a database holds none."""
    return _HALF.sub("�", text)


def _run(row: Sequence[Any]) -> Run:
    run = Run(*row)
    return replace(
        run,
        arrived=datetime.fromisoformat(row[4]),
        requeued=datetime.fromisoformat(row[5]),
        preempts=bool(run.preempts),
        cut=bool(run.cut),
    )


def _open(path: Path, problems: list[str]) -> sqlite3.Connection:
    lost = "Waiting requests are lost; reminders are taken from tasks/reminders"
    if path.is_file() and path.stat().st_size == 0:
        problems.append(f"{path.name} was empty (0 bytes). {lost}")
    try:
        return _connect(path, check=True)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        name = f"{path.name}.broken-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        for suffix in ("", "-wal", "-shm"):  # sqlite may yet read what the log holds
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(path.with_name(name + suffix))
        problems.append(f"{path.name} was damaged ({error}); it is set aside as {name}. {lost}")
        return _connect(path, check=False)


def _connect(path: Path, check: bool) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        if check and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("quick_check failed")
        db.executescript(SCHEMA)
        found = migrate(db)
    except BaseException:
        db.close()
        raise
    if found != VERSION:
        db.close()
        raise ConfigError(f"{path} has schema {found}, this program knows {VERSION}: upgrade")
    path.chmod(0o600)
    return db


class Store:
    """The open database of one home."""

    def __init__(self, path: Path, problems: list[str] | None = None) -> None:
        """Open or create. With ``problems`` the whole file is checked, and a damaged one set aside
        and named there; without, damage is a ConfigError."""
        self._lock = threading.RLock()
        self._depth = 0
        try:
            self._db = _connect(path, check=False) if problems is None else _open(path, problems)
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} cannot be opened: {error}") from None

    @classmethod
    def look(cls, path: Path) -> Store:
        """The database as it stands, read only; an empty one where there is none.

        Raises ConfigError for a damaged file.
        """
        store = cls.__new__(cls)
        store._lock, store._depth = threading.RLock(), 0
        if not path.exists() or path.stat().st_size == 0:
            store._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            store._db.executescript(SCHEMA)
            migrate(store._db)
            return store
        uri = f"{path.resolve().as_uri()}?mode=ro"
        store._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        try:
            if store.meta("schema") != VERSION:  # of an older program, and not ours to change here
                old, store._db = (
                    store._db,
                    sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False),
                )
                with closing(old):
                    old.backup(store._db)
                migrate(store._db)
        except sqlite3.DatabaseError as error:
            store._db.close()
            raise ConfigError(
                f"{path} is damaged ({error}); `sia run` sets it aside and goes on"
            ) from None
        return store

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One synced commit; nested uses join the outer one. An error rolls all of it back."""
        with self._lock:
            if self._depth:
                yield self._db
                return
            self._depth = 1
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise SiaError(f"state.db cannot be written: {error}; is the disk full?") from error
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._depth = 0

    def _rows(self, sql: str, *values: Any) -> list[tuple]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def read(self, sql: str, values: dict[str, Any]) -> list[tuple]:
        """The rows of a query by who keeps an index of its own on this connection."""
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    # meta and ids

    def meta(self, key: str, default: str = "") -> str:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return rows[0][0] if rows else default

    def set_meta(self, key: str, value: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM meta WHERE key = ?", (key,))

    def next_id(self, prefix: str) -> str:
        """A new id such as ``r118``; durable with the transaction it is drawn in."""
        with self.transaction() as db:
            number = int(self.meta(f"last_{prefix}", "0")) + 1
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"last_{prefix}", str(number)))
        return f"{prefix}{number}"

    # inputs

    def add_input(self, source: str, text: str, time: datetime) -> Input:
        """Keep an input before anything is decided about it."""
        text = _whole(text)
        with self.transaction() as db:
            item = Input(self.next_id("i"), self.next_id("r"), source, text, time)
            db.execute(
                "INSERT INTO inputs (id, run, source, text, time) VALUES (?, ?, ?, ?, ?)",
                (item.id, item.run, source, text, _encode(time)),
            )
        return item

    def inputs(self) -> list[Input]:
        """Inputs not yet admitted, oldest first."""
        rows = self._rows("SELECT id, run, source, text, time FROM inputs")
        items = [Input(*row[:4], datetime.fromisoformat(row[4])) for row in rows]
        return sorted(items, key=lambda item: int(item.id[1:]))

    def drop_input(self, id: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM inputs WHERE id = ?", (id,))

    # runs

    def save_run(self, run: Run) -> None:
        with self.transaction() as db:
            db.execute(_RUN_INSERT, [_encode(getattr(run, name)) for name in _RUN_FIELDS])

    def run(self, id: str) -> Run | None:
        rows = self._rows(f"{_RUN_SELECT} WHERE id = ?", id)
        return _run(rows[0]) if rows else None

    def runs(self, *statuses: str) -> list[Run]:
        """Runs with one of ``statuses`` (default: the open ones), by arrival."""
        wanted = statuses or OPEN
        marks = ", ".join("?" * len(wanted))
        rows = self._rows(f"{_RUN_SELECT} WHERE status IN ({marks})", *wanted)
        return sorted((_run(row) for row in rows), key=lambda run: (run.arrived, int(run.id[1:])))

    def runs_after(self, moment: datetime) -> list[Run]:
        """Open runs that arrived later than ``moment``."""
        rows = self._rows(
            f"{_RUN_SELECT} WHERE status IN (?, ?, ?) AND arrived > ?", *OPEN, _encode(moment)
        )
        return [_run(row) for row in rows]

    def waiting_count(self) -> int:
        return self._rows("SELECT count(*) FROM runs WHERE status = 'waiting'")[0][0]

    # stored results of a skill's calls

    def result(self, run: str, action: str, ordinal: int) -> tuple[str, str, Any] | None:
        """(method, status, value) of a call made before, or None."""
        rows = self._rows(
            "SELECT method, status, value FROM results "
            "WHERE run = ? AND action = ? AND ordinal = ?",
            run,
            action,
            ordinal,
        )
        return (rows[0][0], rows[0][1], json.loads(rows[0][2])) if rows else None

    def save_result(
        self, run: str, action: str, ordinal: int, method: str, value: Any, status: str = "done"
    ) -> None:
        with self.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)",
                # ASCII: a file name that is no UTF-8 has lone surrogates, which sqlite refuses.
                (run, action, ordinal, method, status, json.dumps(value)),
            )

    def confirmed(self, run: str) -> bool:
        """Whether the person said yes to a question of ``run``."""
        sql = "SELECT 1 FROM results WHERE run = ? AND method = 'confirm' AND value = 'true'"
        return bool(self._rows(sql, run))

    def results(self, run: str) -> list[tuple[str, int, str, str, Any]]:
        """(action, ordinal, method, status, value) of all calls of a run, in no order of time."""
        rows = self._rows(
            "SELECT action, ordinal, method, status, value FROM results WHERE run = ? "
            "ORDER BY action, ordinal",
            run,
        )
        return [(*row[:4], json.loads(row[4])) for row in rows]

    def drop_results(self, run: str, action: str | None = None) -> None:
        """Of one action, or all of the run."""
        with self.transaction() as db:
            if action is None:
                db.execute("DELETE FROM results WHERE run = ?", (run,))
            else:
                db.execute("DELETE FROM results WHERE run = ? AND action = ?", (run, action))

    # how runs were judged

    def add_verdict(self, verdict: RunVerdict) -> None:
        with self.transaction() as db:
            decided, success = json.dumps(verdict.decided), int(verdict.success)
            values = (verdict.run, verdict.source, success, decided)
            db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", values)

    def verdicts(self) -> list[RunVerdict]:
        rows = self._rows("SELECT run, source, success, decided FROM verdicts")
        return [
            RunVerdict(run, source, bool(success), tuple(map(tuple, json.loads(decided))))
            for run, source, success, decided in rows
        ]

    # standard input of a process

    def add_stdin(self, run: str, text: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT INTO stdin (run, text) VALUES (?, ?)", (run, text))

    def stdin_count(self, run: str) -> int:
        return self._rows("SELECT count(*) FROM stdin WHERE run = ?", run)[0][0]

    def oldest_stdin(self, run: str) -> tuple[int, str] | None:
        """(number, text) of the oldest unread input of a process."""
        rows = self._rows("SELECT id, text FROM stdin WHERE run = ? ORDER BY id LIMIT 1", run)
        return rows[0] if rows else None

    def drop_taken(self, numbers: Sequence[int]) -> None:
        if numbers:
            with self.transaction() as db:
                db.executemany("DELETE FROM stdin WHERE id = ?", [(n,) for n in numbers])

    # entries of the session

    def save_entries(self, changed: Sequence[tuple[str, int, str]], deleted: Sequence[str]) -> None:
        with self.transaction() as db:
            db.executemany("DELETE FROM entries WHERE id = ?", [(id,) for id in deleted])
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", changed)

    def entries(self) -> list[tuple[int, str]]:
        return self._rows("SELECT position, xml FROM entries ORDER BY position, id")

    def clear_entries(self) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM entries")

    # messages to the person

    def add_message(self, run: str, text: str) -> int:
        with self.transaction() as db:
            values = (run, _whole(text))
            return db.execute("INSERT INTO outbox (run, text) VALUES (?, ?)", values).lastrowid

    def messages(self) -> list[tuple[int, str, str]]:
        """(id, run, text) of messages not yet known to have been shown."""
        return self._rows("SELECT id, run, text FROM outbox ORDER BY id")

    def drop_messages(self, ids: Sequence[int]) -> None:
        if ids:
            with self.transaction() as db:
                db.executemany("DELETE FROM outbox WHERE id = ?", [(id,) for id in ids])

    # the last iteration, until its file is known to be on disk

    def save_unfiled(self, session: str, n: int, xml: bytes) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM unfiled")
            db.execute("INSERT INTO unfiled VALUES (?, ?, ?)", (session, n, xml))

    def unfiled(self) -> list[tuple[str, int, bytes]]:
        return self._rows("SELECT session, n, xml FROM unfiled ORDER BY session, n")
