"""``sia replay --edit``: a copy of an iteration in an editor, and the turn it would be."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sia import actions, brain, record
from sia.cli import replay as replays
from sia.context import ContextError
from sia.entries import Iteration
from sia.errors import DONE, SOME_FAILED, SiaError, UsageError
from sia.home import Home
from sia.prompt import prompt
from sia.shell.text import clean

EDITOR = "vi"
Again = Callable[[str], bool]


def run(home: Home, options: argparse.Namespace) -> int:
    """1 where the person gave up, or the reply is no action. What was typed stays in its file."""
    if len(options.files) != 1 or options.json:
        raise UsageError("--edit takes one iteration, and no --json")
    copy = copied(home, replays.one(home, options.files[0]))
    print(f"sia: the copy is {copy}", file=sys.stderr)
    iteration = edited(copy, _again)
    if iteration is None:
        print(f"sia: given up; what you wrote is in {copy}", file=sys.stderr)
        return SOME_FAILED
    replays.show(home, options, [copy])
    return _written(home, options, replace(iteration, response=None))


def copied(home: Home, path: Path) -> Path:
    """A file of its own in ``.sia/edits``, so that the record stays as it is."""
    folder = home.state / "edits"
    folder.mkdir(mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(".xml", f"{path.parent.name}-{path.stem}-", folder)
    with os.fdopen(handle, "wb") as file:
        file.write(path.read_bytes())
    return Path(name)


def edited(path: Path, again: Again) -> Iteration | None:
    """What the person made of the file; None when they give up. ``again(problem)``: whether they
    want the editor again. Raises SiaError when there is no editor, or it fails."""
    while True:
        _edit(path)
        try:
            return record.read(path)
        except ContextError as error:
            if not again(str(error)):
                return None


def _edit(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR
    try:
        done = subprocess.run([*shlex.split(command), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"the editor {command!r} does not start ({error}); set $EDITOR") from None
    if done.returncode:
        raise SiaError(f"the editor {command!r} ended with {done.returncode}; your text: {path}")


def _again(problem: str) -> bool:
    print(f"sia: {problem}", file=sys.stderr)
    print("the editor again, or give up? e/g › ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("e", "editor", "again")


def _written(home: Home, options: argparse.Namespace, iteration: Iteration) -> int:
    """Show what the generator answers to the context, as a turn would ask it; nothing is done."""
    weights, revision = brain.pinned(home, getattr(options, "model", None))
    generator = brain.make_generator(home.config, weights, revision)
    ids = [entry.id for entry in iteration.entries]
    try:
        reply = generator.reply(prompt(iteration).parts, ids=ids, cancel=threading.Event())
    finally:
        generator.close()
    print(f"reply by {generator.name}; nothing was done:\n{clean(reply.text)}")
    try:
        actions.parse(reply.text, ids)
    except actions.ActionError as error:
        print(f"sia: line {error.line}, column {error.column}: {error}", file=sys.stderr)
        return SOME_FAILED
    return DONE
