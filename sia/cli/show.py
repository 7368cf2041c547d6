"""The commands that only look: status, skills, suggestions, context, history, config."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

from sia import config, report
from sia import home as homes
from sia.errors import DONE, ConfigError
from sia.home import Home
from sia.skills import tree
from sia.store import Store


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
            data = report.history(home, options.limit, options.session)
            return data, report.render_history(data)
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


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value is not None else "-"
