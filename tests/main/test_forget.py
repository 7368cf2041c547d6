"""A real session, of which a text, a run, a row, an iteration or all is forgotten."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sia import record

pytestmark = pytest.mark.model

CANARY = 'Zorblatt "7731" & Søn'
LINES = f"remind me to feed the {CANARY} tomorrow at 9\nhow much memory is free\n"


def sia(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sia", *arguments, "--home", str(home)],
        input=given, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("lived") / "home"
    done = sia(home, "run", given=LINES)
    assert done.returncode == 0 and CANARY in done.stdout, done.stderr
    return home


@pytest.fixture
def home(lived: Path, tmp_path: Path) -> Path:
    return shutil.copytree(lived, tmp_path / "home", symlinks=True)


def session(home: Path) -> Path:
    (found,) = [path for path in (home / "contexts").iterdir() if path.is_dir()]
    return found


def holding(home: Path, word: str) -> Iterator[Path]:
    for path in sorted(home.rglob("*")):
        if path.is_file() and not path.is_symlink() and word.encode() in path.read_bytes():
            yield path


def rows(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / ".sia/decisions.jsonl").read_text().splitlines()]


def test_a_text_goes_from_every_byte_of_the_home_and_the_rest_works(home: Path) -> None:
    assert len(list(holding(home, "Zorblatt"))) > 4
    (home / "letter.txt").write_text(f"Dear {CANARY}")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    looked = sia(home, "forget", CANARY, "--dry-run")
    assert looked.returncode == 0 and "letter.txt" in looked.stdout
    assert all(
        path.read_bytes() == data
        for path, data in before.items()
        if "log" not in str(path)
        and path.name not in ("lock", "state.db-shm", "state.db-wal", "state.db")
    )
    unsure = sia(home, "forget", CANARY)
    assert unsure.returncode == 2 and "--yes" in unsure.stderr

    count = len(rows(home))
    done = sia(home, "forget", CANARY, "--yes")
    assert done.returncode == 0, done.stderr
    assert list(holding(home, "Zorblatt")) == [home / "letter.txt"]
    assert list(holding(home, "7731")) == [home / "letter.txt"]
    assert 0 < len(rows(home)) < count
    (stone,) = map(json.loads, (home / ".sia/forgotten.jsonl").read_text().splitlines())
    assert stone["kind"] == "text" and stone["files"] > 3 and stone["cells"] > 0

    for path in session(home).glob("*.xml"):
        record.read(path)  # each is whole
    verified = subprocess.run(
        [sys.executable, "-m", "semif", "verify", str(home), "--json"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["rows"] == len(rows(home))
    replayed = sia(home, "replay", f"{session(home).name}/2", "--json")
    assert replayed.returncode == 0 and json.loads(replayed.stdout)["prompt_equal"], replayed.stdout
    assert sia(home, "history").returncode == 0
    again = sia(home, "run", given="what is 12% of 340\n")
    assert again.returncode == 0 and "40.8" in again.stdout, again.stderr
    assert sia(home, "forget", CANARY, "--yes").returncode == 1


def test_a_run_goes_by_its_id(home: Path) -> None:
    (run,) = {row["run"] for row in rows(home) if "Zorblatt" in str(row["state"])}
    assert sia(home, "forget", run, "--yes").returncode == 0
    assert run not in {row["run"] for row in rows(home)} and rows(home)
    kept = [record.read(path) for path in sorted(session(home).glob("*.xml"))]
    words = [entry.text.text for one in kept for entry in one.entries if hasattr(entry, "text")]
    assert not [word for word in words if "Zorblatt" in word]
    assert not [view for one in kept for view in one.decisions if "Zorblatt" in view.state]
    with sqlite3.connect(home / ".sia/state.db") as database:
        assert not database.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchall()


def test_a_row_goes_with_its_labels_and_out_of_its_context(home: Path) -> None:
    row = rows(home)[0]["id"]
    assert sia(home, "correct", row, "no").returncode == 0
    assert row in (home / ".sia/labels.jsonl").read_text()
    assert sia(home, "forget", row, "--yes").returncode == 0
    assert row not in {found["id"] for found in rows(home)}
    assert row not in (home / ".sia/labels.jsonl").read_text()
    assert not [path for path in holding(session(home), row)]


def test_an_iteration_and_a_session_go_with_their_rows(home: Path) -> None:
    name = session(home).name
    seen = {view.id for view in record.read(session(home) / "000001.xml").decisions}
    assert seen and sia(home, "forget", f"{name}/1", "--yes").returncode == 0
    assert not (session(home) / "000001.xml").exists() and (session(home) / "000002.xml").exists()
    assert not seen & {row["id"] for row in rows(home)}
    assert sia(home, "forget", name, "--yes").returncode == 0
    assert not (home / "contexts" / name).exists()
    assert not rows(home)
    again = sia(home, "run", given="what is 12% of 340\n")
    assert again.returncode == 0 and "40.8" in again.stdout, again.stderr


def test_what_cannot_be_forgotten_is_said(home: Path) -> None:
    short = sia(home, "forget", "a", "--yes")
    assert short.returncode == 2 and "too short" in short.stderr
    nothing = sia(home, "forget", "never said by anybody", "--yes")
    assert nothing.returncode == 1 and "no text of that is kept" in nothing.stdout
