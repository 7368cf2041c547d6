"""notes/find and notes/write on a folder like an Obsidian vault."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sia import notes
from sia.skills.api import Folders
from sia.skills.testing import FakeCtx, run_actions

Start = Callable[..., FakeCtx]
BOILER = """---
aliases: [heating, Kessel]
tags:
  - house
---
# Boiler

Serial 4711, see [[Plumber|the man]].
"""


@pytest.fixture
def vault(folders: Folders) -> Path:
    files = {
        "Projects/Boiler.md": BOILER,
        "Plumber.md": "Mr. Rossi, 555-1234\n",
        "Daily/2026-11-29.md": "Called the plumber about the boiler.\n",
        "Daily/2026-11-30.md": "Rain.\n",
        ".obsidian/workspace.md": "boiler",
        "image.png": "boiler",
    }
    for n, (name, text) in enumerate(files.items()):
        file = folders.notes / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (n + 1, n + 1))
    return folders.notes


def said(make: Start, skills: Path, request: str, **given: object) -> str:
    ctx = make(request, **given)
    assert run_actions(skills / "notes/find", ctx).kind == "done"
    return "\n".join(ctx.said)


@pytest.mark.parametrize(
    "request_",
    ["show my note about the boiler", "read the note Kessel", "what is in my heating note"],
)
def test_the_note_that_is_meant_is_shown(
    make: Start, skills: Path, vault: Path, request_: str
) -> None:
    text = said(make, skills, request_)
    assert text == "Projects/Boiler:\n# Boiler\n\nSerial 4711, see [[Plumber|the man]]."


def test_notes_that_fit_are_listed(make: Start, skills: Path, vault: Path) -> None:
    assert said(make, skills, "find rossi") == "Plumber:\nMr. Rossi, 555-1234"
    assert said(make, skills, "what did I note about 555-1234") == "Plumber:\nMr. Rossi, 555-1234"
    assert said(make, skills, "notes from 2026-11", answers=[]).startswith("2 notes fit:\n- Daily/")
    text = said(make, skills, "list all my notes").split("\n")
    assert text[0] == "4 notes:" and text[1] == "- Daily/2026-11-30: Rain."
    assert said(make, skills, "find the zebra") == "Nothing of that is noted."


def test_which_of_several_is_chosen(make: Start, skills: Path, vault: Path) -> None:
    ctx = make("read my 2026-11 note", choices=["n2"])
    run_actions(skills / "notes/find", ctx)
    assert ctx.said == ["Daily/2026-11-29:\nCalled the plumber about the boiler."]
    assert ctx.chosen[0][1] == [("n1", "Daily/2026-11-30"), ("n2", "Daily/2026-11-29")]


def test_odd_notes(make: Start, skills: Path, folders: Folders) -> None:
    outcome = run_actions(skills / "notes/find", make("find tea"))
    assert outcome.message == f"There is no folder of notes: {folders.notes}."
    folders.notes.mkdir()
    assert said(make, skills, "find tea") == "There are no notes yet."
    (folders.notes / "bytes.md").write_bytes(b"tea \xff\x1b[2J\n")
    (folders.notes / "broken.md").write_text("---\na: [\n---\nmilk\n")
    (folders.notes / "open.md").write_text("---\nno end of front matter\n")
    (folders.notes / "bomb.md").write_text(
        "---\na: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\naliases: [*b,*b,*b]\n---\ncocoa\n"
    )
    (folders.notes / "huge.md").write_bytes(b"tea" * notes.MOST_BYTES)
    (folders.notes / "link.md").symlink_to("/etc/passwd")
    assert said(make, skills, "find tea") == "bytes:\ntea \ufffd[2J"
    assert said(make, skills, "find milk") == "broken:\nmilk"
    assert said(make, skills, "find cocoa") == "bomb:\ncocoa"
    assert said(make, skills, "find root") == "Nothing of that is noted."
    assert said(make, skills, "find my notes", answers=["?"]) == "Nothing of that is noted."


@pytest.mark.parametrize(
    ("request_", "file", "added"),
    [
        ("append bled the radiators to the note boiler", "Projects/Boiler.md",
         "\nbled the radiators\n"),
        ("add to my note Kessel: pressure 1.5 bar", "Projects/Boiler.md", "\npressure 1.5 bar\n"),
        ('add see [[Boiler]] to the note called "plumber"', "Plumber.md", "\nsee [[Boiler]]\n"),
    ],
)  # fmt: skip
def test_a_note_is_appended_to_where_it_lies(
    make: Start, skills: Path, vault: Path, request_: str, file: str, added: str
) -> None:
    before = {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()}
    outcome = run_actions(skills / "notes/write", make(request_))
    assert outcome.value is True
    assert (vault / file).read_bytes() == before.pop(vault / file) + added.encode()
    assert before == {
        p: p.read_bytes() for p in vault.rglob("*") if p.is_file() and p != vault / file
    }


def test_a_name_cannot_lead_out_of_the_folder(make: Start, skills: Path, vault: Path) -> None:
    (vault / "evil.md").symlink_to(vault.parent / "outside.md")
    run_actions(skills / "notes/write", make('add x to the note "../../outside"'))
    assert not (vault.parent / "outside.md").exists()
    assert (vault / "Outside.md").read_text() == "# Outside\n\nx\n"
