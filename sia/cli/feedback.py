"""``sia feedback``: what a person says of a response; it becomes what the generator learns."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

from sia import feedback
from sia import home as homes
from sia.errors import DONE, UsageError
from sia.feedback import Feedback, Kind
from sia.home import Home


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    kind: Kind | None = options.kind
    if kind is None and options.edit is not None:
        kind = "edited"
    if options.iteration is None:
        if kind:
            raise UsageError("say which iteration: SESSION/N, as sia history lists them")
        _list(home, options.json)
        return DONE
    if kind is None:
        raise UsageError("say --approve, --reject or --edit FILE")
    row = feedback.give(
        home.feedback,
        home.contexts,
        options.iteration,
        kind,
        home.config.person.name or "person",
        _text(options.edit) if kind == "edited" else None,
    )
    print(json.dumps(msgspec.to_builtins(row)) if options.json else f"{row.iteration}: {row.kind}")
    return DONE


def _text(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}") from None


def _list(home: Home, as_json: bool) -> None:
    rows: list[Feedback] = list(
        feedback.read(home.feedback, lambda problem: print(f"sia: {problem}", file=sys.stderr))
    )
    if as_json:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], ensure_ascii=False))
        return
    for row in rows:
        print(f"{row.time}  {row.iteration}  {row.kind} by {row.by}")
    if not rows:
        print("no response was edited, approved or rejected yet")
