"""A revision on trial is confirmed by a whole turn; a swap restarts a running agent."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from semif.errors import ModelError
from semif.export import LabelledRow
from semif.revision import Registry
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia import trial
from sia.dream.measured import FILE
from sia.errors import RESTART
from sia.events import Ended, Notice, Ready, Said, TurnEnded

ECHO = "def act(ctx):\n    ctx.say(f'did {ctx.request}')\n"
ROWS = [
    LabelledRow(
        Decision(f"g{i}", "asks", f"text {i}", "?", (Option("a", "a"), Option("b", "b"))),
        "a", (), "given", 1.0,
    )
    for i in range(24)
]  # fmt: skip


def on_trial(home: Path) -> Path:
    folder = home / ".sia/revisions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pending").write_text("0123456789ab\n")
    return folder


def test_a_whole_turn_ends_the_trial(make, home) -> None:
    folder = on_trial(home)
    shipped = Registry(folder).current()
    for name in "pending", "current":
        (folder / name).write_text(f"{shipped.id}\n")
    rig = make()
    loaded = rig.agent._load()
    rig.agent._load = lambda *_: replace(loaded, revision=shipped)
    rig.start()
    rig.wait(Ready)
    assert not (folder / "pending").exists()
    assert rig.wait(TurnEnded, n=1)
    (turn,) = rig.iterations()
    assert turn.process is None
    assert rig.end() == 0


def test_a_swap_that_was_cut_off_is_undone_and_told(make, home) -> None:
    folder = on_trial(home)  # and what is pinned is another
    rig = make().start()
    text = "the swap to revision 0123456789ab was cut off; sia revisions use 0123456789ab tries it"
    assert rig.wait(Notice, text=text)
    rig.wait(Ready)
    assert not (folder / "pending").exists() and rig.end() == 0


def test_what_it_said_when_it_was_proven_it_must_still_say(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("semif.rows.golden", lambda: ROWS)
    registry = Registry(on_trial(tmp_path))
    beside = registry.folder / "0123456789ab" / FILE
    beside.parent.mkdir()
    turns: list[int] = []

    def written(selected: str, other: int) -> None:
        rows = [
            {"id": row.decision.id, "selected": "b" if i < other else selected}
            for i, row in enumerate(ROWS)
        ]
        beside.write_text(json.dumps({"golden_sha256": "", "rows": rows}))

    decider = ScriptedDecider(lambda decision: "a")
    decider.revision = "0123456789ab"
    written("a", other=4)  # two of the twelve
    with pytest.raises(ModelError, match="decides 83% of 12 golden rows") as caught:
        trial.end(registry, decider.revision, decider, lambda: turns.append(1))
    assert caught.value.exit_code == 78 and not turns and registry.pending()
    written("a", other=2)
    trial.end(registry, "another", decider, lambda: turns.append(1))
    assert not turns and registry.pending()  # pinned after the other one was loaded
    trial.end(registry, decider.revision, decider, lambda: turns.append(1))
    assert turns == [1] and registry.pending() is None
    trial.end(registry, decider.revision, decider, lambda: turns.append(2))
    assert turns == [1]  # no trial, no turn


def test_a_swap_restarts_the_agent_and_what_waits_goes_on(make, skill, home) -> None:
    skill("echo", ECHO)
    rig = make().start()
    rig.wait(Ready)
    shipped = Registry(home / ".sia/revisions").current()
    folder = home / ".sia/revisions" / "feedfeedfeed"
    folder.mkdir()
    text = (shipped.folder / "revision.json").read_text().replace('"proven"', '"proven" ')
    import hashlib

    id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = folder.rename(folder.with_name(id_))
    (folder / "revision.json").write_text(text)
    (folder / "decide.gguf").symlink_to(shipped.folder / "decide.gguf")
    if shipped.write_path:
        (folder / "write.gguf").symlink_to(shipped.write_path)
    Registry(home / ".sia/revisions").swap(id_)
    assert rig.wait(Notice, text=f"SIA starts again with revision {id_}")
    run = rig.say("echo this")
    assert rig.joined() == RESTART
    (home / ".sia/revisions/current").unlink()
    again = make().start()
    assert again.wait(Ended, run=run).status == "done"
    assert again.wait(Said, text="did echo this") and again.end() == 0
