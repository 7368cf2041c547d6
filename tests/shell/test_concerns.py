"""``/concerns`` and ``/quiet`` in the shell."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from sia.concerns.table import Concerns
from sia.concerns.testing import START, Clock
from sia.config import Config
from sia.errors import UsageError
from sia.shell.concerns import ConcernCommands
from sia.shell.text import plain, width_of
from sia.store import Store


@pytest.fixture
def commands(tmp_path: Path):
    store, clock = Store(tmp_path / "state.db"), Clock()
    agent = SimpleNamespace(
        concerns=Concerns(store, tmp_path / "autonomy.jsonl", clock=clock),
        now=clock,
        options=SimpleNamespace(autonomy=True),
        home=SimpleNamespace(config=Config()),
    )
    yield ConcernCommands(agent, plain, lambda: 60)
    store.close()


def test_concerns_are_added_listed_and_explained(commands) -> None:
    assert "no concerns" in commands.concerns([])
    words = "add Anna's photo disk --do how full is the disk --every day".split()
    assert commands.concerns(words) == "  added c1: Anna's photo disk, every day"
    listed = commands.concerns([])
    assert listed.splitlines() == [
        "  c1    0.00  Anna's photo disk",
        "              every day · ready on 1 Dec 12:00",
    ]
    why = commands.concerns(["why", "c1"])
    assert "do: how full is the disk" in why and "added" in why
    assert all(width_of(line) <= 60 for line in why.splitlines())
    assert commands.concerns(["drop", "c1"]) == "  dropped c1: Anna's photo disk"
    with pytest.raises(UsageError, match="/concerns: .*invalid choice: 'fly'"):
        commands.concerns(["fly"])


def test_quiet_for_some_hours(commands) -> None:
    assert commands.quiet([]) == "  quiet hours are 22:00-07:00"
    assert commands.quiet(["3"]) == "  I begin nothing unasked until 30 Nov 11:00"
    assert commands.agent.concerns.quiet() == START + timedelta(hours=3)
    assert commands.quiet([]).startswith("  quiet until 30 Nov 11:00")
    commands.quiet(["off"])
    assert commands.agent.concerns.quiet() is None
    for wrong in (["-1"], ["nan"], ["soon"], ["1", "2"]):
        with pytest.raises(UsageError):
            commands.quiet(wrong)
