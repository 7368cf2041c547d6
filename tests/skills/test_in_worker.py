"""The skills in the agent's real worker process, their calls answered by the double."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sia.skills.api import Folders
from sia.skills.calls import Outcome, Payload
from sia.skills.host import WorkerPool, passed_environment
from sia.skills.manifest import parse_skill
from sia.skills.testing import FakeCtx


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    pool = WorkerPool(tmp_path / "skills.log", passed_environment(os.environ))
    yield pool
    pool.close()


def work(pool: WorkerPool, folder: Path, ctx: FakeCtx) -> Outcome:
    """All actions, and ``verify`` where there is one, in the worker."""
    skill = parse_skill(folder)
    outcome = Outcome("done", state={})
    for action in (*skill.actions, *(("verify",) if skill.has_verify else ())):
        ctx.enter(action)
        payload = Payload(
            ctx.request, ctx.run, ctx.now, ctx.person, ctx.folders, ctx.settings, outcome.state
        )
        outcome = pool.run(skill, action, payload, ctx._answer, 30, threading.Event())
        assert outcome.kind == "done", outcome
    return outcome


def test_set(pool: WorkerPool, skills: Path, make: Callable[..., FakeCtx]) -> None:
    ctx = make("remind me about the dentist on 3 March at 14:30")
    assert work(pool, skills / "reminders/set", ctx).value is True
    assert ctx.said == ["I will remind you on Wednesday 3 March 2027 at 14:30: the dentist."]


def test_notes(
    pool: WorkerPool, skills: Path, make: Callable[..., FakeCtx], folders: Folders
) -> None:
    assert work(pool, skills / "notes/write", make("add tea to the shopping list")).value is True
    assert (folders.notes / "Shopping list.md").read_text() == "# Shopping list\n\n- tea\n"


def test_organize(
    pool: WorkerPool, skills: Path, make: Callable[..., FakeCtx], folders: Folders
) -> None:
    downloads = folders.files / "Downloads"
    downloads.mkdir()
    (downloads / os.fsdecode(b"bad \xff.pdf")).touch()
    ctx = make("tidy my downloads", answers=["yes"])
    assert work(pool, skills / "files/organize", ctx).value is True
    assert os.listdir(os.fsencode(downloads / "Documents")) == [b"bad \xff.pdf"]


def test_report_and_find(
    pool: WorkerPool, skills: Path, make: Callable[..., FakeCtx], folders: Folders
) -> None:
    (folders.files / "tax.pdf").touch()
    ctx = make("how much memory is free")
    work(pool, skills / "system/report", ctx)
    assert ctx.said[0].endswith("%).")
    ctx = make("find the tax pdf")
    work(pool, skills / "files/find", ctx)
    assert ctx.said[0].endswith("tax.pdf")


def test_email(
    pool: WorkerPool,
    skills: Path,
    make: Callable[..., FakeCtx],
    mail_server: Callable[..., Any],
) -> None:
    inbox = mail_server()
    settings = {"host": "127.0.0.1", "port": inbox.port, "tls": "none"}
    ctx = make("tell anna@example.org I will be late", settings=settings, answers=["yes"])
    assert work(pool, skills / "email/compose", ctx).value is True
    assert inbox.messages[0].get_content().strip() == "I will be late."
