"""The tables of ``state.db``, and the steps that bring an older one up to date."""

from __future__ import annotations

import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inputs (
  id TEXT PRIMARY KEY, run TEXT NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL,
  time TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, source TEXT NOT NULL, text TEXT NOT NULL, urgency REAL NOT NULL,
  arrived TEXT NOT NULL, requeued TEXT NOT NULL, attempt INTEGER NOT NULL,
  status TEXT NOT NULL, skill TEXT NOT NULL, step INTEGER NOT NULL, turns INTEGER NOT NULL,
  state TEXT NOT NULL, question TEXT NOT NULL, preempts INTEGER NOT NULL,
  displaced_by TEXT NOT NULL, outcome TEXT NOT NULL, seconds REAL NOT NULL,
  answered TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_status ON runs (status);
CREATE TABLE IF NOT EXISTS results (
  run TEXT NOT NULL, action TEXT NOT NULL, ordinal INTEGER NOT NULL, method TEXT NOT NULL,
  status TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, action, ordinal)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (
  run TEXT NOT NULL, source TEXT NOT NULL, success INTEGER NOT NULL, decided TEXT NOT NULL,
  PRIMARY KEY (run, source)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS stdin (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
  id TEXT PRIMARY KEY, position INTEGER NOT NULL, xml TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS unfiled (
  session TEXT NOT NULL, n INTEGER NOT NULL, xml BLOB NOT NULL, PRIMARY KEY (session, n));
CREATE TABLE IF NOT EXISTS reminders (
  id TEXT PRIMARY KEY, due TEXT NOT NULL, zone TEXT NOT NULL, text TEXT NOT NULL,
  status TEXT NOT NULL, run TEXT NOT NULL) WITHOUT ROWID;
"""
# From each version to the next, in order; a new database takes all of these steps too.
MIGRATIONS = (
    # 2: what a run has spent of its budget
    "ALTER TABLE runs ADD COLUMN spent TEXT NOT NULL DEFAULT '{}'",
    # 3: repeat rules; timers (boot and seconds since it); when a reminder last went off
    """
ALTER TABLE reminders ADD COLUMN repeat TEXT NOT NULL DEFAULT '';
ALTER TABLE reminders ADD COLUMN timer TEXT NOT NULL DEFAULT '';
ALTER TABLE reminders ADD COLUMN rang TEXT NOT NULL DEFAULT '';
""",
    # 4: concerns, ``due`` in microseconds of the epoch; runs that a limit ended
    """
ALTER TABLE runs ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
CREATE TABLE concerns (
  id TEXT PRIMARY KEY, text TEXT NOT NULL, instruction TEXT NOT NULL, rhythm INTEGER NOT NULL,
  kind TEXT NOT NULL, value INTEGER NOT NULL, grown TEXT NOT NULL, status TEXT NOT NULL,
  fired TEXT NOT NULL, bumped TEXT NOT NULL, held TEXT NOT NULL, held_for TEXT NOT NULL,
  defers INTEGER NOT NULL, note TEXT NOT NULL, said TEXT NOT NULL, fire TEXT NOT NULL,
  skill TEXT NOT NULL, successor_of TEXT NOT NULL, depth INTEGER NOT NULL, owed TEXT NOT NULL,
  until TEXT NOT NULL, mover TEXT NOT NULL, due INTEGER) WITHOUT ROWID;
CREATE INDEX concerns_due ON concerns (due) WHERE due IS NOT NULL;
CREATE INDEX concerns_fire ON concerns (fire) WHERE fire != '';
""",
)
VERSION = str(1 + len(MIGRATIONS))


def migrate(db: sqlite3.Connection) -> str:
    """Take the steps that the database lacks, each whole or not at all; its version then."""
    db.execute("INSERT OR IGNORE INTO meta VALUES ('schema', '1')")
    (found,) = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if not found.isdigit() or not 0 < int(found) < int(VERSION):
        return found
    for version, step in enumerate(MIGRATIONS[int(found) - 1 :], int(found) + 1):
        done = f"UPDATE meta SET value = '{version}' WHERE key = 'schema'"
        try:
            db.executescript(f"BEGIN IMMEDIATE;{step};{done};COMMIT")
        except sqlite3.DatabaseError:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    return VERSION
