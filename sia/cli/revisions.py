"""``sia revisions`` and ``sia rollback``: which revision decides, and which did."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from semif.errors import SemifError
from semif.revision import Registry, Revision, load, shipped
from sia import home as homes
from sia.errors import DONE, SOME_FAILED, UsageError
from sia.forget import stones


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    registry = Registry(home.revisions)
    ids = options.ids
    wanted = {"list": (0, 0), "show": (0, 1), "diff": (1, 2), "use": (1, 1), "prune": (0, 0)}
    least, most = wanted[options.action]
    if not least <= len(ids) <= most:
        count = str(least) if least == most else f"{least} or {most}"
        raise UsageError(f"sia revisions {options.action} takes {count} ids")
    match options.action:
        case "list":
            return _list(registry, stones.revisions(home.state), options.json)
        case "show":
            one = registry.get(ids[0]) if ids else registry.current()
            print(json.dumps(_whole(one), indent=1))
            if one.id in stones.revisions(home.state):
                print(f"sia: {one.id} was tuned on rows that were forgotten since", file=sys.stderr)
        case "diff":
            old = registry.get(ids[0])
            new = registry.get(ids[1]) if len(ids) == 2 else registry.current()
            _diff(_whole(old), _whole(new), options.json)
        case "use":
            registry.swap(registry.get(ids[0]).id)
            print(f"{ids[0]} is on trial from the next start on")
        case "prune":
            _prune(registry, options.keep)
    return DONE


def rollback(options: argparse.Namespace, folder: Path) -> int:
    """Go back to the parent of the pinned revision."""
    registry = Registry(homes.open_home(folder).revisions)
    current = registry.current()
    if current.folder == shipped():
        raise UsageError("the shipped revision is pinned; there is none to go back to")
    parent = current.contents.parent
    known = {*registry.ids(), load(shipped()).id}
    back = registry.get(parent) if parent in known else load(shipped())
    registry.swap(back.id)
    print(f"{current.id} is put back to {back.id}, from the next start on")
    return DONE


def _list(registry: Registry, saw: frozenset[str], as_json: bool) -> int:
    pinned, pending = registry.current().id, registry.pending()
    found, failed = [load(shipped())], False
    for id_ in registry.ids():
        try:
            found.append(registry.get(id_))
        except SemifError as error:
            print(f"sia: {error}", file=sys.stderr)
            failed = True
    rows = [
        {
            "id": one.id,
            "parent": one.contents.parent or "",
            "pinned": one.id == pinned,
            "pending": one.id == pending,
            "shipped": one.folder == shipped(),
            "proven": sorted(one.proven),
            "saw_forgotten": one.id in saw,
            "accuracy": one.contents.metrics.get("accuracy"),
        }
        for one in found
    ]
    if as_json:
        print(json.dumps(rows))
    for row in rows if not as_json else ():
        notes = ["shipped"] if row["shipped"] else [f"from {row['parent']}"]
        notes += ["on trial"] if row["pending"] else []
        notes += ["tuned on what was forgotten"] if row["saw_forgotten"] else []
        print(f"{'*' if row['pinned'] else ' '} {row['id']}  {', '.join(notes)}")
    return SOME_FAILED if failed else DONE


def _whole(revision: Revision) -> dict[str, Any]:
    return {"id": revision.id, **msgspec.to_builtins(revision.contents)}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {
        key: leaf
        for part, inner in value.items()
        for key, leaf in _flat(inner, f"{name}.{part}" if name else part).items()
    }


def _diff(old: dict[str, Any], new: dict[str, Any], as_json: bool) -> None:
    a, b = _flat(old), _flat(new)
    changed = {key: [a.get(key), b.get(key)] for key in a | b if a.get(key) != b.get(key)}
    if as_json:
        print(json.dumps(changed))
        return
    for key, (before, after) in changed.items():
        print(f"{key}: {json.dumps(before)} -> {json.dumps(after)}")


def _prune(registry: Registry, keep: int) -> None:
    current = registry.current()
    stays = {current.id, current.contents.parent, registry.pending()}
    folders = sorted(registry.ids(), key=lambda id_: (registry.folder / id_).stat().st_mtime)
    for id_ in folders[: max(0, len(folders) - keep)]:
        if id_ not in stays:
            registry.drop(id_)
            print(f"{id_} deleted")
