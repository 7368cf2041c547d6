"""The list of iterations: its filters, its search, and the index that is kept beside the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sia import history, record
from sia.context import to_xml
from sia.entries import Figures, InputEntry, Iteration, ProcessView, Response, Text
from sia.errors import SiaError
from sia.forget.plan import carry_out, plan
from sia.forget.target import target
from sia.history import Wanted
from sia.home import Home, open_home
from sia.store import Run, Store

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
OLD, NEW = "20261130T120000Z-aaaa", "20261201T120000Z-bbbb"
SAID = (
    (OLD, 1, "r1", "how much memory is free", "system/memory"),
    (OLD, 2, "r2", "remind me of the Zoë's cake", "reminders/set"),
    (NEW, 1, "r3", "list my reminders", "reminders/list"),
)


def keep(home: Home, session: str, n: int, run: str, text: str, skill: str, **more: object) -> Path:
    days = 1 if session == NEW else 0
    value = Iteration(
        session=session, n=n, run=run,
        figures=Figures(START + timedelta(days=days, minutes=n)),
        entries=(
            InputEntry("e1", "typed", "r1", Text("how much memory is free")),
            InputEntry(f"e{n + 5}", "typed", run, Text(text)),
        ),
        process=ProcessView(skill, 1, run, text),
        response=more.pop("response", Response("<write_stdout>Done.</write_stdout>", "skill")),
    )  # fmt: skip
    return record.write_iteration(home.contexts, session, n, to_xml(value))


@pytest.fixture
def opened(tmp_path: Path) -> Home:
    (tmp_path / "sia.toml").write_text('[person]\ntimezone = "UTC"\n')
    home = open_home(tmp_path)
    for one in SAID:
        keep(home, *one)
    store = Store(home.database)
    for run, status in (("r1", "done"), ("r2", "failed"), ("r3", "running")):
        store.save_run(Run(run, "typed", "words", 0.5, START, START, status=status))
    store.close()
    return home


def runs(home: Home, **wanted: object) -> list[str]:
    return [row["run"] for row in history.find(home, Wanted(**wanted))]


def test_every_filter(opened: Home) -> None:
    assert runs(opened) == ["r1", "r2", "r3"]
    assert runs(opened, limit=1) == ["r3"]
    assert runs(opened, session=OLD) == ["r1", "r2"]
    assert runs(opened, skill="reminders") == ["r2", "r3"]
    assert runs(opened, skill="reminders/list") == ["r3"]
    assert runs(opened, skill="remind") == []
    assert runs(opened, outcome="done") == ["r1"]
    assert runs(opened, outcome="failed") == ["r2"]
    assert runs(opened, outcome="cancelled") == []
    assert runs(opened, since=START + timedelta(minutes=2)) == ["r2", "r3"]
    assert runs(opened, until=START + timedelta(minutes=2)) == ["r1", "r2"]
    assert runs(opened, edited=True) == []
    assert [row["outcome"] for row in history.find(opened, Wanted())] == ["done", "failed", ""]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("memory", ["r1"]),  # the input of r1 also stands in the contexts that follow
        ("MEMORY free", ["r1"]),
        ("memory cake", []),
        ("zoe's", ["r2"]),
        ('"cake', ["r2"]),
        ("cake OR memory", []),
        ("done", ["r1", "r2", "r3"]),
        ("NEAR( *", []),
    ],
)
def test_text_is_words_and_no_query(opened: Home, words: str, found: list[str]) -> None:
    assert runs(opened, text=words) == found


def test_only_what_is_new_or_changed_is_read(opened: Home) -> None:
    told: list[int] = []
    history.find(opened, Wanted(), told.append)
    history.find(opened, Wanted(), told.append)
    assert told == [3]
    right = Response("<write_stdout>Two reminders.</write_stdout>", "person", edited=True)
    keep(opened, *SAID[2], response=right)
    keep(opened, NEW, 2, "r4", "thanks", "")
    assert [row["run"] for row in history.find(opened, Wanted(), told.append)][-1] == "r4"
    assert told == [3, 2]
    assert runs(opened, edited=True) == ["r3"] == runs(opened, text="two reminders")
    (opened.contexts / OLD / "000001.xml").unlink()
    assert runs(opened) == ["r2", "r3", "r4"] and runs(opened, text="memory") == []


def test_an_index_that_is_gone_or_no_index_is_made_again(opened: Home) -> None:
    before = history.find(opened, Wanted())
    assert opened.history.stat().st_mode & 0o777 == 0o600
    for spoil in (
        opened.history.unlink,
        lambda: opened.history.write_bytes(b"no database" * 1000),
    ):
        spoil()
        assert history.find(opened, Wanted()) == before
    opened.database.unlink()
    assert runs(opened, outcome="done") == [] and len(runs(opened)) == 3


def test_a_torn_file_is_listed_with_what_is_wrong(opened: Home) -> None:
    path = opened.contexts / OLD / "000001.xml"
    path.write_bytes(b"<iteration")
    assert "line 1" in history.find(opened, Wanted())[0]["problem"]


def test_a_database_that_cannot_be_read_is_named(opened: Home) -> None:
    opened.database.write_bytes(b"no database" * 1000)
    with pytest.raises(SiaError, match=r"state\.db cannot be read"):
        history.find(opened, Wanted())


def test_what_is_forgotten_is_in_no_index(opened: Home) -> None:
    assert runs(opened, text="cake") == ["r2"]
    assert b"cake" in opened.history.read_bytes()
    wanted = plan(opened, target(opened, "cake"))
    assert all(opened.history != change.path for change in wanted.changes)
    carry_out(opened, wanted, "test")
    assert not opened.history.exists()
    assert runs(opened, text="cake") == [] and len(runs(opened)) == 3


def sia(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sia", "history", *arguments, "--home", str(home.folder)],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "TZ": "UTC"},
    )  # fmt: skip


def test_the_command(opened: Home) -> None:
    found = sia(opened, "--json", "--until", "2026-11-30", "--text", "cake")
    assert [row["n"] for row in json.loads(found.stdout)] == [2], found.stderr
    assert "reminders/list" in sia(opened, "--since", "2026-12-01").stdout
    assert "no iteration is like that" in sia(opened, "--text", "unheard").stdout
    whole = sia(opened, "show", f"{OLD}/2")
    assert whole.returncode == 0 and "<iteration" in whole.stdout
    assert json.loads(sia(opened, "show", f"{OLD}/2", "--json").stdout)["run"] == "r2"
    for wrong, said in (
        (("show", f"{OLD}/9"), "there is no iteration"),
        (("show",), "SESSION/N"),
        (("--since", "yesterday"), "'yesterday' is no date"),
    ):
        result = sia(opened, *wrong)
        assert result.returncode == 2 and said in result.stderr
