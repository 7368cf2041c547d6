"""What a person says of a response: kept, in force, and never undone by a start."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sia import feedback, record
from sia.cli.main import main
from sia.context import to_xml
from sia.entries import Figures, InputEntry, Iteration, ProcessView, Response, Text
from sia.errors import SiaError, UsageError
from sia.store import Store

SAID = "<write_stdout>Two ticks.</write_stdout>"
BETTER = "<write_stdout>3 ticks.</write_stdout>"
TURN = Iteration(
    "s1",
    5,
    Figures(datetime(2026, 11, 30, 15, tzinfo=UTC)),
    (InputEntry("e2", "typed", "r1", Text("count the ticks")),),
    ProcessView("", 1, "r1", "count the ticks"),
    response=Response(SAID),
    run="r1",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".sia").mkdir()
    put(tmp_path, TURN)
    return tmp_path


def put(home: Path, turn: Iteration) -> Path:
    (home / "contexts").mkdir(exist_ok=True)
    return record.write_iteration(home / "contexts", turn.session, turn.n, to_xml(turn))


def give(home: Path, kind: feedback.Kind, text: str | None = None) -> feedback.Feedback:
    log = home / ".sia/feedback.jsonl"
    return feedback.give(log, home / "contexts", "s1/5", kind, "Ada", text)


def test_an_edit_stands_in_the_log_and_in_the_file(home: Path) -> None:
    give(home, "edited", f"\n{BETTER}\n")
    (row,) = (json.loads(line) for line in (home / ".sia/feedback.jsonl").read_text().splitlines())
    assert set(row) == {"id", "iteration", "kind", "before", "after", "by", "time"}
    assert (row["iteration"], row["kind"], row["by"]) == ("s1/5", "edited", "Ada")
    assert (row["before"], row["after"]) == (SAID, BETTER) and row["time"].endswith("Z")
    path = home / "contexts/s1/000005.xml"
    assert record.read(path) == replace(TURN, response=Response(BETTER, "person", edited=True))


def test_approval_and_rejection_leave_the_file(home: Path) -> None:
    path = home / "contexts/s1/000005.xml"
    bytes_before = path.read_bytes()
    assert give(home, "approved").after == SAID
    assert give(home, "rejected").after == ""
    assert path.read_bytes() == bytes_before
    kinds = [row.kind for row in feedback.read(home / ".sia/feedback.jsonl", print)]
    assert kinds == ["approved", "rejected"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("two", "is no core action: the reply does not begin"),
        ('<delete id="e9"/>', "there is no entry e9"),
        ("<write_stdout>token=abcdefgh12345</write_stdout>", "looks like a secret"),
    ],
)
def test_an_edit_that_could_not_be_a_reply_is_refused(home: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        give(home, "edited", text)
    assert not (home / ".sia/feedback.jsonl").exists()


def test_what_cannot_be_judged_is_refused_by_its_name(home: Path) -> None:
    put(home, replace(TURN, response=Response(SAID, "skill")))
    with pytest.raises(UsageError, match="was made by skill"):
        give(home, "approved")
    put(home, replace(TURN, response=None))
    with pytest.raises(UsageError, match="s1/5 has no response"):
        give(home, "rejected")
    (home / "contexts/s1/000005.xml").write_text("<iteration")
    with pytest.raises(SiaError, match="000005.xml: not well-formed"):
        give(home, "rejected")
    for wrong in ("s1", "s1/", "s1/6", "../s1/5", "s1/x", "/5"):
        with pytest.raises(UsageError, match="there is no iteration"):
            feedback.path_of(home / "contexts", wrong)


def test_a_start_does_not_undo_an_edit_of_the_last_iteration(home: Path) -> None:
    path, store = home / "contexts/s1/000005.xml", Store(home / ".sia/state.db")
    store.save_unfiled("s1", 5, to_xml(TURN))
    give(home, "edited", BETTER)
    assert record.reconcile(store, home / "contexts") == []
    assert BETTER in path.read_text()
    path.write_bytes(path.read_bytes()[:-9])  # torn: it is written again
    assert len(record.reconcile(store, home / "contexts")) == 1
    assert record.read(path) == TURN
    store.close()


def test_the_command(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["feedback", "--home", str(home)]
    assert main(where) == 0 and "no response was edited" in capsys.readouterr().out
    assert main([*where, "s1/5", "--approve"]) == 0
    (tmp_path / "new").write_text(BETTER)
    assert main([*where, "s1/5", "--edit", str(tmp_path / "new")]) == 0
    capsys.readouterr()
    assert main([*where, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["before"]) for row in rows] == [("approved", SAID), ("edited", SAID)]
    for wrong in (["s1/5"], ["--approve"], ["s1/5", "--edit", str(tmp_path / "gone")]):
        with pytest.raises(UsageError):
            main([*where, *wrong])
