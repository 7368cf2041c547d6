"""``sia concerns``: what matters to the agent; add, change, drop, and why it did or did not act.

Changes are made by the agent that runs in the home, over its socket, or here when none does.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from sia import home as homes
from sia.cli.plain import shown
from sia.concerns import report, words
from sia.concerns.table import Concerns
from sia.errors import DONE, ConfigError, SiaError, Unavailable
from sia.events import Notice
from sia.home import Home
from sia.shell.concerns import render, render_one
from sia.store import Store
from sia.wire import GONE, Connection

_OPTIONS = ("action", "all", "id", "text", "do", "every", "until", "owed", "mover", "once")


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    if options.action not in words.LOOKS:
        done = _change(home, options)
        print(json.dumps({"done": done}, ensure_ascii=False) if options.json else shown(done))
        return DONE
    try:
        data, text = _shown(home, options)
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{home.database} cannot be read ({error}); a damaged one is set aside by `sia run`"
        ) from None
    print(json.dumps(data, ensure_ascii=False) if options.json else text)
    return DONE


def _shown(home: Home, options: argparse.Namespace) -> tuple[Any, str]:
    """Read only, also beside a running agent."""
    now = datetime.now(home.zone)
    with closing(Store.look(home.database)) as store:
        concerns = Concerns(store, home.autonomy)
        if options.action == "why":
            one = report.explained(concerns, options.id, now)
            return one, render_one(one)
        rows = report.listed(concerns, now, options.all)
        return rows, render(rows, home.config.concerns.autonomy)


def _change(home: Home, options: argparse.Namespace) -> str:
    """What was done, in words. Raises SiaError."""
    if homes.locked(home):
        return _ask_running(home, options)
    with homes.lock(home):  # so that none starts meanwhile
        with closing(Store(home.database)) as store:
            concerns = Concerns(store, home.autonomy)
            concerns.restore()
            return words.change(concerns, options, datetime.now(home.zone))


def _ask_running(home: Home, options: argparse.Namespace) -> str:
    given = {name: getattr(options, name) for name in _OPTIONS if hasattr(options, name)}
    with closing(Connection(home.socket)) as connection:
        connection.send(concerns=given)
        for event in connection.events():
            if isinstance(event, Notice):
                if event.level == "error":
                    raise SiaError(event.text)
                return event.text
    raise Unavailable(GONE)
