"""``sia setup calendar`` and ``contacts`` against a real server; a skill in the real worker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sia import config, setup
from sia.skills.api import Secret
from sia.skills.calls import Payload
from sia.skills.host import WorkerPool, passed_environment
from sia.skills.manifest import parse_skill

ROOT = Path(__file__).parents[3]


def works(skills: Path, category: str, home: Path, **answers: Any) -> list[str]:
    return list(setup.load([skills], category).test(answers, home))


def test_calendar(dav: Any, skills: Path, tmp_path: Path) -> None:
    login = {"url": dav.url, "user": "robin", "password": "s3cret", "calendar": ""}
    with pytest.raises(setup.NotWorking, match="has no calendar of robin"):
        works(skills, "calendar", tmp_path, **login)
    dav.calendar("Home")
    dav.calendar("Work")
    assert works(skills, "calendar", tmp_path, **login) == ["calendars: Home, Work"]
    with pytest.raises(setup.NotWorking, match="there is no calendar Wrok; there are: Home, Work"):
        works(skills, "calendar", tmp_path, **{**login, "calendar": "Wrok"})
    with pytest.raises(setup.NotWorking, match="refused user robin"):
        works(skills, "calendar", tmp_path, **{**login, "password": "wrong"})


def test_contacts(dav: Any, skills: Path, tmp_path: Path) -> None:
    login = {"folder": "contacts", "url": dav.url, "user": "robin", "password": "s3cret"}
    assert works(skills, "contacts", tmp_path, **{**login, "url": ""}) == ["in contacts: 0 people"]
    with pytest.raises(setup.NotWorking, match="has no address book of robin"):
        works(skills, "contacts", tmp_path, **login)
    dav.addressbook("People")
    assert works(skills, "contacts", tmp_path, **login)[1].endswith(": 1")
    with pytest.raises(setup.NotWorking, match="refused user robin"):
        works(skills, "contacts", tmp_path, **{**login, "password": "wrong"})


def test_from_the_command_line(dav: Any, tmp_path: Path) -> None:
    dav.calendar("Home")
    words = ["--set", f"url={dav.url}", "--set", "user=robin"]
    keyring = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "sia", "--home", str(tmp_path), "setup", "calendar", *words],
        input="s3cret\n",
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, **keyring},
    )
    assert (done.returncode, done.stderr) == (0, "") and "calendars: Home" in done.stdout
    kept = config.load(tmp_path / "sia.toml").calendar
    assert (kept.url, kept.user) == (dav.url, "robin")
    assert "s3cret" not in (tmp_path / "sia.toml").read_text() + done.stdout


def test_in_the_worker(dav: Any, ask: Callable[..., Any], skills: Path, tmp_path: Path) -> None:
    dav.calendar("Home", "DTSTART:20261201T080000Z\nSUMMARY:Dentist")
    ctx = ask("what is my next appointment")
    skill = parse_skill(skills / "calendar/show")
    pool = WorkerPool(tmp_path / "skills.log", passed_environment(os.environ))
    try:
        ctx.enter("show")
        payload = Payload(ctx.request, ctx.run, ctx.now, ctx.person, ctx.folders, ctx.settings)
        payload = replace(payload, secrets={"password": Secret("s3cret")})
        outcome = pool.run(skill, "show", payload, ctx._answer, 60, threading.Event())
    finally:
        pool.close()
    assert outcome.kind == "done", outcome
    assert ctx.said == ["Tomorrow, Tuesday 1 December, 09:00: Dentist"]


@pytest.mark.parametrize("hours", ["9-18", "18:00-09:00", "09:00-25:00", ""])
def test_hours_that_are_none_are_refused(tmp_path: Path, hours: str) -> None:
    (tmp_path / "sia.toml").write_text(f'[calendar]\nhours = "{hours}"\n')
    with pytest.raises(Exception, match="calendar.hours"):
        config.load(tmp_path / "sia.toml")
