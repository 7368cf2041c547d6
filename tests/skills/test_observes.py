"""What the shipped skills rest on, as their ``observe`` sees it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sia.skills.api import Folders
from sia.skills.calls import load_module
from sia.skills.manifest import parse_skill
from sia.skills.testing import FakeCtx

CARD = "BEGIN:VCARD\nVERSION:3.0\nFN:Anna Berg\nEMAIL:anna@example.org\nEND:VCARD\n"
Start = Callable[..., FakeCtx]


@pytest.fixture
def module(skills: Path) -> Callable[[str], Any]:
    return lambda id: load_module(skills / id, parse_skill(skills / id).code)


@pytest.mark.parametrize("name", ["email/compose", "email/reply"])
def test_mail(make: Start, module: Any, folders: Folders, mail_server: Any, name: str) -> None:
    (folders.home / "contacts").mkdir()
    (folders.home / "contacts" / "a.vcf").write_text(CARD)
    server = mail_server()
    settings = {"host": "127.0.0.1", "port": server.port, "contacts": "contacts"}
    ctx = make("tell Anna that I am late", settings=settings)
    assert module(name).observe(ctx) == {"server": "reachable"}
    ctx.state["to"] = [["Anna Berg", "anna@example.org"], ["", "tom@example.org"]]
    seen = module(name).observe(ctx)
    assert seen["recipient"] == (
        "anna@example.org in the address book, tom@example.org as it was typed"
    )
    (folders.home / "contacts" / "a.vcf").unlink()
    assert "anna@example.org as it was typed" in module(name).observe(ctx)["recipient"]
    ctx.settings = {**settings, "port": 1}
    assert module(name).observe(ctx)["server"] == "does not answer"
    assert not ctx.said and not ctx.asked


def test_archive(
    make: Start, module: Any, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill, folder = module("files/archive"), folders.files / "Photos"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        (folder / name).write_text(name)
    ctx = make("pack my Photos folder", answers=["yes"])
    assert skill.observe(ctx) == {"folder": "not yet chosen"}
    ctx.enter("plan")
    skill.plan(ctx)
    fine = {
        "folder": "there", "files": "2 of 2", "archive": "name is free", "disk": "room enough",
    }  # fmt: skip
    assert skill.observe(ctx) == fine
    (folder / "b").unlink()
    assert skill.observe(ctx) == {**fine, "files": "1 of 2"}
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: usage(1, 1, 0))
        assert skill.observe(ctx)["disk"] == "too full"
    ctx.enter("pack")
    skill.pack(ctx)
    assert skill.observe(ctx) == {"archive": "there"}


def test_drive(make: Start, module: Any, tmp_path: Path) -> None:
    """The speed and the halts change by themselves: they are no reason to ask."""
    from sia import vehicle

    skill, ctx = module("driving/drive"), make("drive to the sea", settings={"socket": ""})
    said = {"status": vehicle.Status("idle", 0.0, 0)}
    skill.vehicle.tell, told = (lambda path, command: said[command]), skill.vehicle.tell
    try:
        assert skill.observe(ctx) == {"vehicle": "ready"}
        said["status"] = vehicle.Status("driving", 12.0, 0)
        assert skill.observe(ctx) == {"vehicle": "driving somewhere else"}
        ctx.state["place"] = "the sea"
        before = skill.observe(ctx)
        said["status"] = vehicle.Status("halted", 0.0, 1)
        assert skill.observe(ctx) == before == {"vehicle": "answers"}
    finally:
        skill.vehicle.tell = told
