"""``sia replay`` and ``sia diff``: iterations run again, and two of them side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from semif.errors import ModelError
from semif.measuring.verify import Revisions
from sia import feedback, record
from sia import home as homes
from sia.brain import threads
from sia.compare import Change, Comparison, Moved, compare
from sia.context import ContextError
from sia.errors import DONE, SOME_FAILED, UsageError
from sia.home import Home
from sia.replay import Replay, Replayed, replay
from sia.shell.text import clean, columns, shorten

WIDTH = 100


def run(options: argparse.Namespace, folder: Path) -> int:
    """1 where a decision differs, or a file could not be run again."""
    home = homes.open_home(folder)
    if options.edit:
        from sia.cli import edit

        return edit.run(home, options)
    return show(home, options, [path for name in options.files for path in found(home, name)])


def show(home: Home, options: argparse.Namespace, paths: Sequence[Path]) -> int:
    """Run files again and print what came of each."""
    revision = options.revision
    if revision == "current":
        from semif.revision import Registry

        revision = Registry(home.revisions).current().id
    results: list[dict[str, object]] = []
    model = getattr(options, "model", None) or home.config.model.path or None
    with Revisions(home.folder, model, threads(home.config)) as find:
        for path in paths:
            try:
                one = replay(record.read(path), find, revision)
            except (ContextError, ModelError) as error:
                text = str(error) if isinstance(error, ContextError) else f"{path}: {error}"
                print(f"sia: {text}", file=sys.stderr)
                results.append({"file": str(path), "equal": False, "problem": text})
                continue
            results.append({"file": str(path), **one.to_json()})
            if not options.json:
                print(words(path, one, brief=len(paths) > 1))
    equal = sum(bool(result["equal"]) for result in results)
    if options.json:
        whole = {"equal": equal == len(results), "files": results}
        print(json.dumps(results[0] if len(results) == 1 else whole, ensure_ascii=False))
    elif len(results) > 1:
        print(f"{len(results)} iterations, {equal} equal, {len(results) - equal} not")
    return DONE if equal == len(results) else SOME_FAILED


def diff(options: argparse.Namespace, folder: Path) -> int:
    """1 where the two differ."""
    home = homes.open_home(folder)
    a, b = (record.read(one(home, name)) for name in (options.a, options.b))
    result = compare(a, b)
    print(json.dumps(result.to_json(), ensure_ascii=False) if options.json else told(result))
    return DONE if result.equal else SOME_FAILED


def found(home: Home, name: str) -> Iterator[Path]:
    """The files that a name on the command line means, in order. Raises UsageError."""
    path = Path(name).expanduser()
    folder = path if path.is_dir() else home.contexts / name
    if not path.is_file() and folder.is_dir():
        files = sorted(folder.glob("[0-9]*.xml")) or sorted(folder.glob("*/[0-9]*.xml"))
        if not files:
            raise UsageError(f"{folder} holds no iterations")
        yield from files
        return
    yield one(home, name)


def one(home: Home, name: str) -> Path:
    """The file of one iteration; UsageError when there is none."""
    path = Path(name).expanduser()
    return path if path.is_file() else feedback.path_of(home.contexts, name)


def words(path: Path, result: Replay, brief: bool) -> str:
    """A replay for people; ``brief``: of what is equal one line."""
    moved = result.moved
    verdict = "equal" if result.equal else f"{len(moved)} of {len(result.decisions)} differ"
    lines = [f"{path}  {verdict}  ({len(result.decisions)} decisions, revision {result.revision})"]
    if not result.prompt:
        lines.append("  the context was edited: its prompt is not the one that was recorded")
    rows = [
        (
            replayed.before.phase,
            _choice(replayed, False),
            "→",
            _choice(replayed, True),
            replayed.why,
        )
        for replayed in result.decisions
        if not brief or not replayed.equal
    ]
    lines += [f"  {''.join(cells).rstrip()}" for cells in columns(rows)] if rows else []
    for replayed in moved:
        lines += _options(replayed)
    response = result.iteration.response
    if response and not brief:
        lines.append(f"  response by {response.by}: {shorten(clean(response.text), WIDTH)}")
    return "\n".join(lines)


def _choice(replayed: Replayed, now: bool) -> str:
    probs = replayed.now if now else {id: p for id, _, p in replayed.before.options}
    name = replayed.selected if now else replayed.before.selected
    return f"{name} {probs[name]:.2f}" if name in probs else "-"


def _options(replayed: Replayed) -> list[str]:
    """The options of a decision that differs, the likeliest first, both probabilities."""
    if not replayed.now:
        return []
    was = {id: p for id, _, p in replayed.before.options}
    order = sorted(was, key=lambda id: -max(was[id], replayed.now[id]))
    rows = [(id, f"{was[id]:.3f}", f"{replayed.now[id]:.3f}") for id in order]
    return [
        f"    {replayed.before.phase} saw {shorten(clean(replayed.state), WIDTH - 20)}",
        *(f"      {''.join(cells)}" for cells in columns(rows)),
    ]


def told(result: Comparison) -> str:
    if result.equal:
        return "the two are equal"
    return "\n".join([*_entries(result.changes), *_moved(result.decisions)])


def _entries(changes: Sequence[Change]) -> Iterator[str]:
    for change in changes:
        yield f"{change.kind} {change.what}"
        yield from (f"  {clean(line)}" for line in change.lines if not line.startswith("@@"))


def _moved(decisions: Sequence[Moved]) -> Iterator[str]:
    for moved in decisions:
        a, b = (
            f"{name} {probs[name]:.2f}" if name else "-"
            for name, probs in zip(moved.selected, moved.probs, strict=True)
        )
        yield f"decided {moved.phase}: {a} → {b}"
        if moved.state[0] != moved.state[1]:
            yield f"  - {shorten(clean(moved.state[0]), WIDTH)}"
            yield f"  + {shorten(clean(moved.state[1]), WIDTH)}"
