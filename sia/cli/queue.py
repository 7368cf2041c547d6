"""``sia queue``: what waits and why; one request in full; drop it, or let it go sooner.

Changes are made by the agent that runs in the home, over its socket, or here when none does.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sia import home as homes
from sia import queue as queues
from sia import report
from sia.cli.plain import shown
from sia.errors import DONE, ConfigError, SiaError, Unavailable
from sia.events import Notice
from sia.home import Home
from sia.skills import tree
from sia.store import Store
from sia.wire import GONE, Connection


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    if options.action in ("drop", "raise"):
        words = _change(home, options)
        _print(options, {"done": words}, shown(words))
        return DONE
    return _show(home, options)


def _print(options: argparse.Namespace, data: object, text: str) -> None:
    print(json.dumps(data, ensure_ascii=False) if options.json else text)


def _show(home: Home, options: argparse.Namespace) -> int:
    """Read only, also beside a running agent."""
    store, rate, now = Store.look(home.database), home.config.queue.rate, datetime.now(home.zone)
    found, alive = tree.load(home.skill_roots), homes.locked(home)
    try:
        if options.action == "show":
            one = report.request(store, rate, now, options.run, found, alive)
            _print(options, one, report.render_request(one))
        else:
            rows = report.queue(store, rate, now, found, alive)
            _print(options, rows, report.render_queue(rows))
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{home.database} cannot be read ({error}); a damaged one is set aside by `sia run`"
        ) from None
    finally:
        store.close()
    return DONE


def _change(home: Home, options: argparse.Namespace) -> str:
    """What was done, in words. Raises SiaError."""
    if homes.locked(home):
        return _ask_running(home, options)
    with homes.lock(home):  # so that none starts meanwhile
        store = Store(home.database)
        try:
            if options.action == "drop":
                run = queues.drop(store, options.run)
                _halt(home, store, run.id)
                return queues.dropped(run)
            return queues.raised(queues.raise_urgency(store, options.run, options.urgency))
        finally:
            store.close()


def _halt(home: Home, store: Store, run: str) -> None:
    """End what it has set going; only a home in which that is to be done pays for it."""
    if run not in queues.halting(store):
        return
    from sia.halts import Halts
    from sia.skills.host import WorkerPool, passed_environment

    home.learn_secrets()
    pool = WorkerPool(home.log / "skills.log", passed_environment(os.environ))
    found = tree.load(home.skill_roots)
    try:
        Halts(
            home, store, pool, lambda: found, lambda: datetime.now(home.zone),
            lambda text: print(f"sia: {text}", file=sys.stderr),
        ).halt(run)  # fmt: skip
    finally:
        pool.close()


def _ask_running(home: Home, options: argparse.Namespace) -> str:
    message = {"queue": options.action, "run": options.run}
    if options.action == "raise":
        message["urgency"] = options.urgency
    with closing(Connection(home.socket)) as connection:
        connection.send(**message)
        for event in connection.events():
            if isinstance(event, Notice):
                if event.level == "error":
                    raise SiaError(event.text)
                return event.text
    raise Unavailable(GONE)
