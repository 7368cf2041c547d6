"""``sia forget``: show what would change, ask, and rewrite."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sia import home as homes
from sia.dream.dream import Dreams
from sia.errors import DONE, SOME_FAILED, UsageError
from sia.forget import MARK, Plan, carry_out, plan, target
from sia.home import login_name

SHOWN = 20


def run(options: argparse.Namespace, folder: Path) -> int:
    """1 where nothing of it is kept here. Unavailable while an agent or a dream runs."""
    home = homes.open_home(folder)
    text = " ".join(options.what)
    with homes.lock(home), Dreams(home.dreams, None, _say).lock():  # type: ignore[arg-type]
        wanted = plan(home, target(home, text))
        if options.json:
            print(json.dumps(_json(home.folder, wanted), ensure_ascii=False))
        else:
            _show(home.folder, wanted)
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
    }


def _show(folder: Path, wanted: Plan) -> None:
    if wanted.empty:
        print(f"no {wanted.target.kind} of that is kept in {folder}")
    else:
        print(
            f"the {wanted.target.kind} goes from {len(wanted.changes)} files"
            + (f" and {wanted.cells} places of state.db" if wanted.cells else "")
        )
    for change in wanted.changes[:SHOWN]:
        print(f"  {change.path.relative_to(folder)}  {change.what}")
    if len(wanted.changes) > SHOWN:
        print(f"  and {len(wanted.changes) - SHOWN} more")
    if wanted.target.kind == "text" and wanted.changes:
        print(f"where it stood, {MARK} will; rows that a model could learn from go whole")
    for path in wanted.elsewhere:
        print(f"yours, and left as it is: {path.relative_to(folder)}")
    for revision in wanted.learned:
        print(f"revision {revision} was tuned on it and may still show it (sia rollback)")


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("this cannot be undone: confirm it with --yes, or look with --dry-run")
    print("This cannot be undone. Forget it? yes/no › ", end="", flush=True)
    return sys.stdin.readline().strip().casefold() in ("yes", "y")


def _say(line: object) -> None:
    print(f"sia: {line}", file=sys.stderr)
