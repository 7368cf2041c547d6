"""``sia replay --edit`` with an editor that is a small program."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sia import record
from sia.context import to_xml
from sia.entries import Figures, InputEntry, Iteration, Text

NAME = "20261201T120000Z-aaaa"
# Replaces a word by the next line of the file `typed`, of each call one.
EDIT = """import pathlib, sys
typed = pathlib.Path(__file__).with_name("typed")
first, *rest = typed.read_text().splitlines()
typed.write_text("\\n".join(rest))
old, new = first.split("=>")
path = pathlib.Path(sys.argv[1])
text = path.read_text()
assert old in text
path.write_text(text.replace(old, new))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    entries = (InputEntry("e1", "typed", "r1", Text("say hello")),)
    value = Iteration(NAME, 1, Figures(datetime(2026, 12, 1, tzinfo=UTC)), entries)
    record.write_iteration(tmp_path / "contexts", NAME, 1, to_xml(value))
    (tmp_path / "editor.py").write_text(EDIT)
    return tmp_path


def sia(home: Path, typed: str, given: str, *more: str) -> subprocess.CompletedProcess[str]:
    (home / "typed").write_text(typed)
    editor = f"{sys.executable} {home / 'editor.py'}"
    return subprocess.run(
        [sys.executable, "-m", "sia", "replay", "--edit", f"{NAME}/1", *more, "--home", str(home)],
        input=given, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "EDITOR": editor, "VISUAL": ""},
    )  # fmt: skip


def test_what_is_wrong_has_a_place_and_the_text_stays(home: Path) -> None:
    before = record.path_of(home / "contexts", NAME, 1).read_bytes()
    done = sia(home, "</context>=></contex>\n", "g\n")
    assert done.returncode == 1 and "line " in done.stderr and "column " in done.stderr
    (copy,) = (home / ".sia" / "edits").iterdir()
    assert f"what you wrote is in {copy}" in done.stderr and "</contex>" in copy.read_text()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert record.path_of(home / "contexts", NAME, 1).read_bytes() == before


def test_an_editor_that_fails_says_so(home: Path) -> None:
    done = sia(home, "no such words=>x\n", "")
    assert done.returncode == 1 and "ended with 1; your text: " in done.stderr
    assert sia(home, "", "", "--json").returncode == 2


@pytest.mark.model
def test_the_editor_again_and_then_a_reply(home: Path) -> None:
    done = sia(home, "</context>=></contex>\n</contex>=></context>\n", "e\n")
    assert done.returncode == 0, done.stderr
    assert "column" in done.stderr and "nothing was done:\n<" in done.stdout
