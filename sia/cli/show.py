"""The commands that only look: status, skills, suggestions, context, history, config."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from sia import config, history, report
from sia import home as homes
from sia.cli import replay as replays
from sia.errors import DONE, ConfigError, SiaError, UsageError
from sia.home import Home
from sia.shell.text import clean
from sia.skills import tree
from sia.store import Store

MANY = 2_000  # files that take some seconds to read


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    data, text = _views(options, home)
    if options.json:
        print(json.dumps(data, ensure_ascii=False, default=str))
    else:
        print(text)
    return DONE


def _views(options: argparse.Namespace, home: Home) -> tuple[Any, str]:
    match options.command:
        case "config":
            rows = config.origins(home.folder / "sia.toml")
            data = [{"key": key, "value": value, "from": origin} for key, value, origin in rows]
            width = max(len(key) for key, _, _ in rows)
            lines = [f"{key:<{width}}  {_toml(value)}  ({origin})" for key, value, origin in rows]
            return data, "\n".join(lines)
        case "skills":
            found = tree.load(home.skill_roots)
            for problem in found.problems:
                print(f"sia: {problem}", file=sys.stderr)
            data = report.skills(found, home.setting)
            return data, report.render_skills(data)
        case "suggestions":
            data = report.suggestions(home, lambda line: print(f"sia: {line}", file=sys.stderr))
            return data, report.render_suggestions(data)
        case "context":
            data = report.context(home)
            return data, report.render_context(data)
        case "history":
            return _history(options, home)
    store = Store.look(home.database)
    try:
        data = report.status(home, store)
        return data, report.render_status(data)
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{home.database} cannot be read ({error}); a damaged one is set aside by `sia run`"
        ) from None
    finally:
        store.close()


def _history(options: argparse.Namespace, home: Home) -> tuple[Any, str]:
    if options.action == "show":
        if not options.iteration:
            raise UsageError("say which iteration: sia history show SESSION/N")
        path = replays.one(home, options.iteration)
        row = history.row(path)
        if row["problem"]:
            raise SiaError(row["problem"])
        xml = path.read_text("utf-8")
        return {**row, "xml": xml}, f"{report.render_history([row])}\n\n{clean(xml.rstrip())}"
    wanted = history.Wanted(
        session=options.session or "",
        skill=options.skill or "",
        outcome=options.outcome or "",
        text=options.text or "",
        since=_moment(options.since, home, time.min),
        until=_moment(options.until, home, time.max),
        edited=options.edited,
        limit=options.limit,
    )
    rows = history.find(home, wanted, _tell)
    chosen = replace(wanted, limit=0) != history.Wanted(limit=0)
    none = "  no iteration is like that" if chosen else report.render_history(rows)
    return rows, report.render_history(rows) if rows else none


def _moment(text: str | None, home: Home, of_day: time) -> datetime | None:
    """A day, its first or last moment, or a time; the person's zone where it names none."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        if len(text) == len("2026-12-01"):
            found = datetime.combine(date.fromisoformat(text), of_day)
    except ValueError:
        raise UsageError(f"{text!r} is no date: write 2026-12-01 or 2026-12-01T14:30") from None
    return found if found.tzinfo else found.replace(tzinfo=home.zone)


def _tell(files: int) -> None:
    if files >= MANY:
        print(f"sia: reading {files:,} iterations into .sia/history.db", file=sys.stderr)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value is not None else "-"
