"""Skills written to disk, and what an action is given."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia.skills.api import Folders, Person
from sia.skills.calls import Outcome, Payload
from sia.skills.host import Worker, WorkerPool, passed_environment
from sia.skills.manifest import Manifest, parse_skill

BERLIN = ZoneInfo("Europe/Berlin")


def write_skill(
    root: Path, id: str, code: str = "", actions: str = "act", description: str = "Test.", more=""
) -> Path:
    """A skill folder below root, its category made where missing."""
    folder = root / id
    folder.mkdir(parents=True, exist_ok=True)
    category = folder.parent / "CATEGORY.md"
    if not category.exists():
        category.write_text(f"---\nname: {folder.parent.name}\ndescription: Things.\n---\n")
    lines = ["---", f"name: {folder.name}", f"description: {description}"]
    if code or more:
        lines.append("metadata:")
    if code:
        (folder / "skill.py").write_text(dedent(code))
        lines.append(f"  sia-actions: {actions}")
    lines += [f"  {line}" for line in more.splitlines()]
    (folder / "SKILL.md").write_text("\n".join([*lines, "---", "Do it.", ""]))
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    return lambda id, code="", **more: write_skill(tmp_path / "skills", id, code, **more)


@pytest.fixture
def skill(write: Callable[..., Path]) -> Callable[..., Manifest]:
    return lambda code, id="demo/one", **more: parse_skill(write(id, code, **more))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path, tmp_path / "tasks", tmp_path / "notes", tmp_path / "files")


@pytest.fixture
def payload(folders: Folders) -> Payload:
    now = datetime(2026, 11, 30, 15, 0, tzinfo=BERLIN)
    person = Person("Max", "max@example.org", "Europe/Berlin")
    return Payload("feed the cat", "r7", now, person, folders, {"host": "h"}, {"given": 1})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log" / "skills.log"


@pytest.fixture
def worker(log: Path) -> Iterator[Worker]:
    worker = Worker.spawn(log, passed_environment(os.environ))
    yield worker
    worker.close()


@pytest.fixture
def pool(log: Path) -> Iterator[WorkerPool]:
    pool = WorkerPool(log, passed_environment(os.environ))
    yield pool
    pool.close()


@pytest.fixture
def run(payload: Payload) -> Callable[..., Outcome]:
    """run(worker or pool, skill, handle=..., seconds=..., cancel=..., action=..., state=...)"""

    def call(
        runner: Worker | WorkerPool,
        skill: Manifest,
        handle: Callable[[str, dict[str, Any]], Any] = lambda method, args: None,
        seconds: float = 20.0,
        cancel: threading.Event | None = None,
        action: str = "act",
        state: dict[str, Any] | None = None,
    ) -> Outcome:
        given = payload if state is None else replace(payload, state=state)
        return runner.run(skill, action, given, handle, seconds, cancel or threading.Event())

    return call
