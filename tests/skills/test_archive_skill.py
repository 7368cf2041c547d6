"""files/archive on real folders: what is packed is whole, and nothing unproven is deleted."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia import archives
from sia.skills.api import Folders
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))
Start = Callable[..., FakeCtx]
FILES = {"a.txt": 1, "sub/b.txt": 400, "sub/.hidden": 10, "Käse 🧀.txt": 200}  # days ago


@pytest.fixture
def work(folders: Folders) -> Path:
    folder = folders.files / "Work"
    for name, days in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name} " * 100)
        when = (NOW - timedelta(days=days)).timestamp()
        os.utime(file, (when, when))
    return folder


def contents(target: Path) -> dict[str, str]:
    if target.suffix == ".zip":
        with zipfile.ZipFile(target) as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}
    with tarfile.open(target) as tar:
        return {m.name: tar.extractfile(m).read().decode() for m in tar if m.isreg()}


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(("words", "ending"), [("zip", ".zip"), ("make a tar.gz of", ".tar.gz")])
def test_a_folder_is_packed(make: Start, skills: Path, work: Path, words: str, ending: str) -> None:
    ctx = make(f"{words} the work folder", answers=["yes"])
    assert run_actions(skills / "files/archive", ctx).value is True
    target = work.parent / f"Work 2026-11-30{ending}"
    assert contents(target) == {f"Work/{name}": f"{name} " * 100 for name in FILES}
    assert listing(work) == sorted(FILES)
    assert ctx.said[0].startswith(f"I would pack 4 files (4.3 kB) of {work} into {target.name}")
    assert ctx.said[1].startswith(f"Packed 4 files into {target} (")
    assert not list(work.parent.glob(".*.part"))
    # A second time it takes another name.
    run_actions(skills / "files/archive", make(f"{words} the work folder", answers=["yes"]))
    assert (work.parent / f"Work 2026-11-30 2{ending}").exists()


def test_it_is_a_dry_run_without_a_yes(make: Start, skills: Path, work: Path) -> None:
    ctx = make("archive the work folder and delete it", answers=["no"])
    assert run_actions(skills / "files/archive", ctx).kind == "finished"
    assert listing(work.parent) == sorted(f"Work/{name}" for name in FILES)


@pytest.mark.parametrize(
    ("age", "names"),
    [
        ("older than 6 months", ["Käse 🧀.txt", "sub/b.txt"]),
        ("older than half a year", ["Käse 🧀.txt", "sub/b.txt"]),
        ("older than 1 week", ["Käse 🧀.txt", "sub/.hidden", "sub/b.txt"]),
        ("not touched for a year", ["sub/b.txt"]),
        ("older than 3 years", []),
    ],
)
def test_old_files_are_packed_and_deleted(
    make: Start, skills: Path, work: Path, age: str, names: list[str]
) -> None:
    request = f"archive files {age} from the work folder and delete them"
    ctx = make(request, answers=["yes", "yes"])
    outcome = run_actions(skills / "files/archive", ctx)
    if not names:
        assert ctx.said[0].startswith("Nothing to pack") and outcome.kind == "finished"
        return
    assert outcome.value is True
    assert sorted(contents(work.parent / "Work 2026-11-30.zip")) == [f"Work/{n}" for n in names]
    assert listing(work) == sorted(set(FILES) - set(names))
    assert (
        ctx.asked[1]
        == f"Delete the {len(names)} file{'s' * (len(names) > 1)} that are in the archive now?"
    )


def test_packed_is_not_deleted_without_a_second_yes(make: Start, skills: Path, work: Path) -> None:
    ctx = make("move the work folder into an archive", answers=["yes", "no"])
    assert run_actions(skills / "files/archive", ctx).kind == "finished"
    assert listing(work) == sorted(FILES)
    ctx = make("zip the work folder but do not delete anything", answers=["yes"])
    assert run_actions(skills / "files/archive", ctx).kind == "done" and listing(work) == sorted(
        FILES
    )


def test_what_changed_or_cannot_be_proven_stays(make: Start, skills: Path, work: Path) -> None:
    def answer(question: str, options: Any) -> str:
        if question.startswith("Delete"):
            (work / "a.txt").write_text("newer")
            (work / "sub/b.txt").unlink()
            (work / "sub/b.txt").symlink_to(work / "a.txt")
        return "yes"

    ctx = make("zip the work folder and delete it", answers=answer)
    run_actions(skills / "files/archive", ctx)
    assert (work / "a.txt").read_text() == "newer" and (work / "sub/b.txt").is_symlink()
    assert "Deleted 2 files." in ctx.said[2] and "- a.txt has changed since" in ctx.said[2]


def test_a_damaged_archive_deletes_nothing(
    make: Start, skills: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = archives.pack

    def torn(folder: Path, target: Path, *args: Any) -> Any:
        sums = real(folder, target, *args)
        data = bytearray(target.read_bytes())
        data[80:84] = b"\0\0\0\0"
        target.write_bytes(data)
        return sums

    monkeypatch.setattr(archives, "pack", torn)
    ctx = make("zip the work folder and delete it", answers=["yes", "yes"])
    outcome = run_actions(skills / "files/archive", ctx)
    assert outcome.kind == "failed" and "Nothing was deleted" in outcome.message
    assert listing(work) == sorted(FILES)


@pytest.mark.parametrize("words", ["zip", "tar"])
def test_links_and_odd_things(make: Start, skills: Path, work: Path, words: str) -> None:
    secret = work.parent / "secret"
    secret.mkdir()
    (secret / "key").write_text("s3cret")
    (work / "out").symlink_to(secret)  # a folder elsewhere
    (work / "key").symlink_to(secret / "key")
    (work / "loop").symlink_to(work)
    os.mkfifo(work / "pipe")
    (work / os.fsdecode(b"bad\xff")).write_text("x")
    ctx = make(f"{words} the work folder and delete it", answers=["yes", "yes"])
    assert run_actions(skills / "files/archive", ctx).value is True
    target = next(work.parent.glob("Work 2026*"))
    found = contents(target)
    assert set(found) == {f"Work/{name}" for name in (*FILES, "bad%FF")}
    assert "s3cret" not in "".join(found.values())
    assert (secret / "key").read_text() == "s3cret"
    if words == "tar":
        with tarfile.open(target) as tar:
            assert {m.name for m in tar if m.issym()} == {"Work/out", "Work/key", "Work/loop"}
    else:
        assert "3 links would be left out." in ctx.said[0]
    assert sorted(os.listdir(work)) == ["key", "loop", "out", "pipe"]


def test_interrupted_everywhere(make: Start, skills: Path, work: Path) -> None:
    ctx, outcome = run_interrupted(
        skills / "files/archive",
        lambda: make("zip the work folder and delete it", answers=["yes", "yes"]),
        lose=["write archive", "delete packed files"],
    )
    assert outcome.value is True and not work.exists()
    assert len(contents(work.parent / "Work 2026-11-30.zip")) == 4
    assert len(list(work.parent.iterdir())) == 1


def test_a_target_that_appears_meanwhile_is_not_overwritten(
    make: Start, skills: Path, work: Path
) -> None:
    target = work.parent / "Work 2026-11-30.zip"

    def answer(question: str, options: Any) -> str:
        target.write_text("mine")
        return "yes"

    outcome = run_actions(skills / "files/archive", make("zip the work folder", answers=answer))
    assert outcome.kind == "failed" and "is there already" in outcome.message
    assert target.read_text() == "mine"


def test_folders_that_are_not_packed(
    make: Start, skills: Path, work: Path, folders: Folders
) -> None:
    for path in (str(folders.home.parent), "~"):
        outcome = run_actions(skills / "files/archive", make(f"archive {path} please"))
        assert outcome.kind == "failed" and "as a whole is not packed" in outcome.message

    outcome = run_actions(skills / "files/archive", make("archive it", answers=["/no/such"] * 3))
    assert outcome.message == "I do not know which folder to pack."
