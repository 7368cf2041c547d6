"""A plan of what forgetting changes, and its carrying out. What was forgotten leaves a tombstone.

A text goes wherever it stands; rows that a model could learn it from go whole. A row, a run, an
entry, an iteration and a session go by their id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from semif.log import timestamp
from sia import history
from sia.forget import database, stones
from sia.forget.files import Change, Files
from sia.forget.target import Target
from sia.home import Home


@dataclass(frozen=True)
class Plan:
    """changes: of files. cells: values of the database that change; left: whether pages that it
    freed still hold the text. elsewhere: files of the person's own that hold the text; they stay.
    learned: revisions that were tuned on it. unread: damaged contexts, which stay."""

    target: Target
    changes: tuple[Change, ...]
    cells: int
    left: bool = False
    elsewhere: tuple[Path, ...] = ()
    learned: tuple[str, ...] = ()
    unread: tuple[Path, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.changes or self.cells or self.left)


def plan(home: Home, target: Target) -> Plan:
    """What would change; nothing does."""
    files = Files(home, target)
    changes = files.changes()
    found = database.change(home.database, target, dry=True)
    return Plan(
        target, changes, found.cells, found.left, tuple(files.elsewhere()),
        tuple(_learned(home, changes)), tuple(files.unread),
    )  # fmt: skip


def carry_out(home: Home, wanted: Plan, by: str) -> None:
    """Leave the tombstone, and rewrite. Hold the home: nobody may write meanwhile."""
    target = wanted.target
    text = target.kind == "text"
    stones.put(
        home.state,
        stones.Stone(
            time=timestamp(datetime.now(UTC)),
            by=by,
            kind=target.kind,
            id="" if text else target.value,
            digest=stones.digest(target.value) if text else "",
            files=len(wanted.changes),
            cells=wanted.cells,
            rows=tuple(sorted(target.rows)),
            learned=wanted.learned,
        ),
    )
    history.drop(home)  # its words stand there too; it is made again from what stays
    for change in wanted.changes:
        if not change.late:
            change.apply()
    database.change(home.database, target, dry=False)
    for change in wanted.changes:
        if change.late:
            change.apply()
    for folder in sorted({change.path.parent for change in wanted.changes}, reverse=True):
        with suppress(OSError):  # where something is left in it
            if folder.parent in (home.contexts, home.scripts) or folder.suffix == ".d":
                folder.rmdir()


def _learned(home: Home, changes: Sequence[Change]) -> Iterator[str]:
    """Candidates of dreams whose rows change."""
    for folder in sorted({change.path.parent for change in changes}):
        for proof in sorted(folder.glob("proof*.json")) if folder.parent == home.dreams else ():
            with suppress(ValueError):
                yield str(json.loads(proof.read_bytes()).get("candidate", ""))
