"""files/find and files/organize on real folders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia import places
from sia.skills.api import Folders
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Monday
Start = Callable[..., FakeCtx]

FILES = {  # name: (size in bytes, days ago)
    "Documents/tax return 2025.pdf": (1_200_000, 6),
    "Documents/Rechnung Strom.pdf": (90_000, 3),
    "Documents/letter to anna.odt": (20_000, 40),
    "Downloads/setup.deb": (150_000_000, 1),
    "Downloads/IMG_0001.JPG": (3_000_000, 0),
    "Downloads/holiday.mp4": (900_000_000, 400),
    "Pictures/2026/cat.jpeg": (2_000_000, 2),
    "tax.txt": (12, 10),
    ".hidden/tax secret.pdf": (10, 0),
    ".sia/tax.pdf": (10, 0),
}


@pytest.fixture
def tree(folders: Folders) -> Path:
    for name, (size, days) in FILES.items():
        file = folders.files / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.truncate(file, size)  # sparse
        seconds = (NOW - timedelta(days=days)).timestamp()
        os.utime(file, (seconds, seconds))
    return folders.files


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("find my tax return", ["Documents/tax return 2025.pdf"]),
        ("where is the tax file", ["Documents/tax return 2025.pdf", "tax.txt"]),
        ("find the invoices", ["Documents/Rechnung Strom.pdf"]),
        ("find pdfs", ["Documents/Rechnung Strom.pdf", "Documents/tax return 2025.pdf"]),
        ("find the pdf from last week",
         ["Documents/Rechnung Strom.pdf", "Documents/tax return 2025.pdf"]),
        ("show photos from this week", ["Downloads/IMG_0001.JPG"]),
        ("find jpg files", ["Downloads/IMG_0001.JPG", "Pictures/2026/cat.jpeg"]),
        ("find files bigger than 100 MB", ["Downloads/setup.deb", "Downloads/holiday.mp4"]),
        ("find videos over 1 GB", []),
        ("files smaller than 1 kB", ["tax.txt"]),
        ("find photos in my downloads", ["IMG_0001.JPG"]),
        ("what did I download yesterday", ["Downloads/setup.deb"]),
        ("find documents from the last 7 days",
         ["Documents/Rechnung Strom.pdf", "Documents/tax return 2025.pdf"]),
        ("find documents from october", ["Documents/letter to anna.odt"]),
        ("find documents from september", []),
        ("find the letter from 2026", ["Documents/letter to anna.odt"]),
        ("find videos from 2025", ["Downloads/holiday.mp4"]),
        ("find files since friday",
         ["Downloads/IMG_0001.JPG", "Downloads/setup.deb", "Pictures/2026/cat.jpeg",
          "Documents/Rechnung Strom.pdf"]),
        ('find "return 2025"', ["Documents/tax return 2025.pdf"]),
        ("find .odt", ["Documents/letter to anna.odt"]),
        ("find the biggest files in downloads", ["holiday.mp4", "setup.deb", "IMG_0001.JPG"]),
        ("find anna", ["Documents/letter to anna.odt"]),
        ("find cat pictures", ["Pictures/2026/cat.jpeg"]),
    ],
)  # fmt: skip
def test_find(make: Start, skills: Path, tree: Path, request_: str, names: list[str]) -> None:
    ctx = make(request_)
    outcome = run_actions(skills / "files/find", ctx)
    assert outcome.kind == "done" and not ctx.asked
    lines = ctx.said[0].split("\n")[1:]
    assert [line.split("  ")[-1] for line in lines] == names, ctx.said


def test_find_says_what_it_found(make: Start, skills: Path, tree: Path) -> None:
    ctx = make("find my tax return")
    run_actions(skills / "files/find", ctx)
    assert ctx.said == [
        f"1 file in {tree}:\n- 2026-11-24 15:00     1.2 MB  Documents/tax return 2025.pdf"
    ]


def test_find_with_only_some_of_the_words(make: Start, skills: Path, tree: Path) -> None:
    ctx = make("find the tax zebra")
    run_actions(skills / "files/find", ctx)
    assert ctx.said[0].startswith(f"None has all the words; 2 files in {tree}:")


def test_find_nothing(make: Start, skills: Path, tree: Path) -> None:
    ctx = make("find the zebra")
    run_actions(skills / "files/find", ctx)
    assert ctx.said[0].startswith(f"I found no such file in {tree} (")


def test_find_asks_what_for(make: Start, skills: Path, tree: Path) -> None:
    ctx = make("find my files", answers=["something with tax"])
    run_actions(skills / "files/find", ctx)
    assert "tax.txt" in ctx.said[0]


def test_find_shows_the_newest_twenty_and_odd_names(
    make: Start, skills: Path, folders: Folders
) -> None:
    for number in range(30):
        file = folders.files / f"song {number}.mp3"
        file.touch()
        os.utime(file, (number, number))
    odd = os.fsencode(folders.files) + b"/song \xff\x1b[31m\n.mp3"
    os.close(os.open(odd, os.O_CREAT))
    ctx = make("find songs")
    run_actions(skills / "files/find", ctx)
    lines = ctx.said[0].split("\n")
    assert lines[0] == f"31 files in {folders.files}, the 20 newest:" and len(lines) == 21
    assert lines[1].endswith("  song \ufffd\ufffd[31m\ufffd.mp3")
    assert lines[2].endswith("  song 29.mp3")


def test_find_in_a_folder_that_is_not_there(make: Start, skills: Path) -> None:
    outcome = run_actions(skills / "files/find", make("find photos in /no/such/folder"))
    assert outcome.message == "There is no folder /no/such/folder."
    assert outcome.cause == "environment"


def test_walk_is_bounded_and_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    for number in range(50):
        (tmp_path / f"{number}").touch()
    walk = places.Walk(tmp_path)
    assert len(list(walk.files())) == 50 and walk.stopped == ""
    short = places.Walk(tmp_path, most=10)
    assert len(list(short.files())) <= 10 and short.stopped == "after 10 names"
    slow = places.Walk(tmp_path, seconds=0)
    assert list(slow.files()) == [] and slow.stopped == "after 0 seconds"


@pytest.mark.parametrize(
    ("size", "base", "words"),
    [
        (0, 1000, "0 bytes"),
        (1, 1000, "1 byte"),
        (999, 1000, "999 bytes"),
        (1_000, 1000, "1.0 kB"),
        (7_730_941_133, 1024, "7.2 GB"),
        (17_179_869_184, 1024, "16.0 GB"),
        (5e15, 1000, "5000.0 TB"),
    ],
)
def test_sizes(size: float, base: int, words: str) -> None:
    assert places.size_words(size, base) == words


@pytest.fixture
def messy(folders: Folders) -> Path:
    downloads = folders.files / "Downloads"
    (downloads / "Pictures").mkdir(parents=True)
    for name in ("a.jpg", "b.PNG", "bill.pdf", "song.mp3", "odd", "half.iso.part", ".hidden"):
        (downloads / name).write_text(name)
    (downloads / "a's $(x).jpg").write_text("quoted")
    (downloads / "Pictures" / "b.PNG").write_text("there before")
    (downloads / "link.pdf").symlink_to("bill.pdf")
    os.close(os.open(os.fsencode(downloads) + b"/bad \xff.pdf", os.O_CREAT))
    return downloads


def listing(folder: Path) -> set[str]:
    return {os.path.relpath(p, folder) for p in folder.rglob("*") if not p.is_dir()}


SORTED = {
    "Pictures/a.jpg", "Pictures/a's $(x).jpg", "Pictures/b.PNG", "b.PNG", "Documents/bill.pdf",
    "Documents/bad \udcff.pdf", "Music/song.mp3", "Other/odd", "half.iso.part", ".hidden",
    "link.pdf",
}  # fmt: skip


def test_organize(make: Start, skills: Path, messy: Path, folders: Folders) -> None:
    before = listing(messy)
    ctx = make("tidy up my downloads folder", answers=["yes"])
    outcome = run_actions(skills / "files/organize", ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    assert ctx.said[0] == (
        f"I would move 6 files of {messy} into:\n"
        "- Documents: 2 files (bad \ufffd.pdf, bill.pdf)\n"
        "- Music: 1 file (song.mp3)\n"
        "- Other: 1 file (odd)\n"
        "- Pictures: 2 files (a's $(x).jpg, a.jpg)\n"
        "1 file would stay: of a name that is there already, or over 500 at once."
    )
    assert listing(messy) == SORTED
    assert (messy / "Pictures/b.PNG").read_text() == "there before"
    undo = folders.tasks / "undo-organize-r1.sh"
    assert ctx.said[1] == f"Moved 6 files. To put them back: sh {undo}"
    subprocess.run(["sh", undo], check=True)
    assert listing(messy) == before
    assert not (messy / "Music").exists()


def test_organize_interrupted_everywhere(make: Start, skills: Path, messy: Path) -> None:
    ctx, outcome = run_interrupted(
        skills / "files/organize",
        lambda: make("organize downloads folder", answers=["yes"]),
        lose=["move file", "write undo file"],
    )
    assert outcome.value is True and listing(messy) == SORTED
    assert len(ctx.asked) == 1


def test_organize_moves_nothing_without_a_yes(make: Start, skills: Path, messy: Path) -> None:
    before = listing(messy)
    ctx = make("organize my downloads", answers=["no"])
    outcome = run_actions(skills / "files/organize", ctx)
    assert (outcome.kind, outcome.value, listing(messy)) == ("finished", None, before)


def test_organize_overwrites_nothing_that_came_meanwhile(
    make: Start, skills: Path, messy: Path
) -> None:
    def answer(question: str, options: Any) -> str:
        (messy / "Music").mkdir()
        (messy / "Music/song.mp3").write_text("newer")
        (messy / "odd").unlink()
        return "yes"

    ctx = make("organize my downloads", answers=answer)
    outcome = run_actions(skills / "files/organize", ctx)
    assert outcome.value is True
    assert (messy / "Music/song.mp3").read_text() == "newer"
    assert (messy / "song.mp3").read_text() == "song.mp3"
    assert "Moved 4 files." in ctx.said[1] and "2 files stayed:" in ctx.said[1]
    assert "- song.mp3: Music has a file of that name" in ctx.said[1]
    assert "- odd: No such file or directory" in ctx.said[1]


def test_organize_without_hard_links(
    make: Start, skills: Path, messy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **given: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)  # as on FAT
    run_actions(skills / "files/organize", make("organize my downloads", answers=["yes"]))
    assert listing(messy) == SORTED and (messy / "Pictures/a.jpg").read_text() == "a.jpg"


def test_organize_asks_which_folder(make: Start, skills: Path, messy: Path) -> None:
    ctx = make("tidy up", answers=["/nowhere/at/all", str(messy), "yes"])
    run_actions(skills / "files/organize", ctx)
    assert ctx.asked[1].startswith("There is no folder /nowhere/at/all.")
    assert listing(messy) == SORTED


def test_organize_an_orderly_folder(make: Start, skills: Path, folders: Folders) -> None:
    (folders.files / "Desktop" / "Pictures").mkdir(parents=True)
    ctx = make("clean up my desktop")
    outcome = run_actions(skills / "files/organize", ctx)
    assert outcome.kind == "finished" and ctx.said[0].startswith("Nothing to sort:")


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("tidy my downloads", "Downloads"),
        ("sort the Schreibtisch folder", None),
        ("sort the work folder", "Work"),
        ("sort the files in documents", "Documents"),
        ("find the download speed test", None),
        ("find my documents about tax", None),
        ("clean up my downloads", "Downloads"),
        ("tidy nothing", None),
    ],
)
def test_named_folders(tmp_path: Path, text: str, folder: str | None) -> None:
    for name in ("Downloads", "Work", "Documents"):
        (tmp_path / name).mkdir()
    place = places.named_folder(text, tmp_path)
    assert (place and place.folder.name) == folder
    assert places.named_folder(f"sort '{tmp_path}/my dir' now", tmp_path).folder.name == "my dir"
    assert places.named_folder("find photos and/or videos", tmp_path) is None
