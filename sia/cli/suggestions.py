"""``sia suggestions run|drop ID``: ask again for what no skill covered, or want it no more."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sia import home as homes
from sia.errors import DONE, UsageError
from sia.store import Store
from sia.suggestions import Suggestions

if TYPE_CHECKING:
    from sia.shell import Make


def work(options: argparse.Namespace, folder: Path, make: Make | None = None) -> int:
    """make: builds the agent (one without a model in tests)."""
    if not options.id:
        raise UsageError(f"sia suggestions {options.action} needs an ID; `sia suggestions` lists")
    home = homes.open_home(folder)
    suggestions = Suggestions(home.suggestions)
    item = suggestions.get(options.id)
    if options.action == "drop":
        suggestions.mark(item.id, "dropped")
        return DONE
    from sia.cli.run import run

    store = Store.look(home.database)
    try:
        text = item.text(store)
    finally:
        store.close()
    request = {"command": "run", "text": [text], "llm": None, "yes": False, "listen": False}
    request["autonomy"] = False
    return run(argparse.Namespace(**{**vars(options), **request}), folder, make)
