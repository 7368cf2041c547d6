"""``sia forget``: show what would change, ask, and rewrite."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from sia import home as homes
from sia import record
from sia.dream.dream import Dreams
from sia.errors import DONE, SOME_FAILED, UsageError
from sia.forget import stones
from sia.forget.plan import Plan, carry_out, plan
from sia.forget.target import target
from sia.home import Home, login_name
from sia.shell.text import clean
from sia.store import Store

SHOWN = 20


def run(options: argparse.Namespace, folder: Path) -> int:
    """1 where nothing of it is kept here. Unavailable while an agent or a dream runs."""
    home = homes.open_home(folder)
    text = " ".join(options.what)
    with homes.lock(home), Dreams(home.dreams, None, _say).lock():  # type: ignore[arg-type]
        _mend(home)
        wanted = plan(home, target(home, text))
        if options.json:
            print(json.dumps(_json(home.folder, wanted), ensure_ascii=False))
        else:
            _show(home, wanted, text)
        if wanted.empty:
            return SOME_FAILED
        if options.dry_run:
            return DONE
        if not options.yes and not _confirmed():
            _say("nothing was changed")
            return SOME_FAILED
        carry_out(home, wanted, login_name() or "person")
    _say("forgotten; .sia/forgotten.jsonl says when and how much, not what")
    return DONE


def _json(folder: Path, wanted: Plan) -> dict[str, Any]:
    return {
        "kind": wanted.target.kind,
        "files": {str(c.path.relative_to(folder)): c.what for c in wanted.changes},
        "cells": wanted.cells,
        "elsewhere": [str(path.relative_to(folder)) for path in wanted.elsewhere],
        "learned": list(wanted.learned),
        "rows": len(wanted.target.rows),
        "unread": [str(path.relative_to(folder)) for path in wanted.unread],
    }


def _mend(home: Home) -> None:
    """What a crash left in the database only is written first, as at every start."""
    if home.database.exists():
        with closing(Store(home.database)) as store:
            record.reconcile(store, home.contexts)


def _show(home: Home, wanted: Plan, text: str) -> None:
    folder, kind = home.folder, wanted.target.kind
    if wanted.empty:
        when = stones.earlier(home.state, text)
        print(f"no {kind} of that is kept in {folder}" + (f"; forgotten {when}" if when else ""))
    else:
        name = "text" if kind == "text" else f"{kind} {wanted.target.value}"
        places = f" and {wanted.cells} places of state.db" if wanted.cells else ""
        places += " and freed pages of state.db" if wanted.left and not wanted.cells else ""
        print(f"the {name} goes from {len(wanted.changes)} files{places}")
    for change in wanted.changes[:SHOWN]:
        print(f"  {clean(str(change.path.relative_to(folder)))}  {change.what}")
    if len(wanted.changes) > SHOWN:
        print(f"  and {len(wanted.changes) - SHOWN} more")
    if wanted.target.words and wanted.changes:
        mark = wanted.target.words.mark
        print(f"where it stood, {mark} will; rows that a model could learn from go whole")
    for path in wanted.unread:
        print(f"damaged, and left as it is: {path.relative_to(folder)}; forget its session whole")
    for path in wanted.elsewhere:
        print(f"yours, and left as it is: {clean(str(path.relative_to(folder)))}")
    for revision in wanted.learned:
        print(f"revision {revision} was tuned on it and may still show it (sia rollback)")


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("this cannot be undone: confirm it with --yes, or look with --dry-run")
    print("This cannot be undone. Forget it? yes/no › ", end="", flush=True)
    return sys.stdin.readline().strip().casefold() in ("yes", "y")


def _say(line: object) -> None:
    print(f"sia: {line}", file=sys.stderr)
