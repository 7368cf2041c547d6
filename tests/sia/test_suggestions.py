"""The file of suggestions: what is kept, counted and marked, and what a torn one costs."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sia.errors import UsageError
from sia.store import Run, Store
from sia.suggestions import Suggestions, load, plain

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RUN = Run("r1", "typed", "Where is my parcel?", 0.4, NOON, NOON)
SEEN = [{"phase": "navigate_category", "probs": {"tracking": 0.9, "create_category": 0.1}}]


@pytest.fixture
def kept(tmp_path: Path) -> Suggestions:
    return Suggestions(tmp_path / "suggestions.jsonl")


def suggest(kept: Suggestions, run: Run = RUN, **more: object):
    return kept.suggest(run, "create_skill", "tracking", {"input": run.text}, SEEN, **more)


def again(text: str, id: str = "r2") -> Run:
    return replace(RUN, id=id, text=text)


def test_a_first_row_says_what_was_asked_and_what_the_model_said(kept) -> None:
    item, row = suggest(kept, proposal={"title": "Parcels"})
    assert kept.all() == [item] and item.open and item.count == 1
    told = row.to_json()
    assert told.pop("time").endswith("Z")
    assert told == {
        "id": "s1",
        "event": "suggested",
        "kind": "create_skill",
        "category": "tracking",
        "query": "Where is my parcel?",
        "request": {
            "id": "r1",
            "source": "typed",
            "urgency": 0.4,
            "arrived": "2026-11-30T12:00:00.000Z",
            "attempt": 1,
        },
        "state": {"input": "Where is my parcel?"},
        "decisions": SEEN,
        "proposal": {"title": "Parcels"},
    }
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_a_run_is_noted_once_and_its_words_are_counted(kept) -> None:
    first, _ = suggest(kept)
    assert suggest(kept, replace(RUN, attempt=2)) == (first, None)  # entered again after a crash
    item, row = suggest(kept, again("where is my  PARCEL"))
    assert (item.id, item.count, row.event) == ("s1", 2, "repeated")
    assert suggest(kept, again("where is my  PARCEL"))[1] is None
    other, _ = suggest(kept, again("Ring my keys", "r3"))
    assert other.id == "s2"
    same, row = suggest(kept, again("let the keys beep", "r4"), same_as=lambda items: 1)
    assert (same.id, same.count, row.event) == ("s2", 2, "repeated")
    assert [(item.id, item.count, item.status) for item in kept.all()] == [
        ("s1", 2, "suggested"), ("s2", 2, "suggested")
    ]  # fmt: skip


def test_texts_without_letters_are_told_apart() -> None:
    assert plain("?!") != plain("…") and plain("我的快递！") == plain("我的快递")


def test_marks_close_it_and_what_is_asked_later_is_new(kept) -> None:
    suggest(kept)
    kept.mark("s1", "covered", "tracking/parcel")
    (item,) = kept.open()
    assert (item.status, item.skill) == ("covered", "tracking/parcel")
    kept.done("something else", "x/y")
    kept.done("where is my parcel", "tracking/parcel")
    assert kept.open() == [] and kept.get("s1").status == "done"
    item, _ = suggest(kept, again("where is my parcel", "r2"))
    assert item.id == "s2"
    kept.mark("s2", "dropped")
    assert [item.status for item in kept.all()] == ["done", "dropped"]
    with pytest.raises(UsageError, match="there is no suggestion s3"):
        kept.get("s3")


def test_secrets_stay_in_the_database(kept, tmp_path) -> None:
    text = "log in at the carrier with password=hunter22"
    run = replace(RUN, text=text)
    item, _ = suggest(kept, run)
    assert item.query == "log in at the carrier with password=[redacted]"
    store = Store(tmp_path / "state.db")
    assert item.text(store) == item.query  # another database, after damage
    store.save_run(replace(run, text="another"))
    assert item.text(store) == item.query
    store.save_run(run)
    assert item.text(store) == text
    store.close()


def test_what_is_no_row_is_told_and_passed_over(kept) -> None:
    suggest(kept)
    lines = [
        '{"id": "sx", "event": "suggested", "time": ""}',
        '{"id": "s1", "event": "eaten", "time": ""}',
        '{"id": "s7", "event": "dropped", "time": ""}',
        "[]",
        '{"id": "s1", "ev',
    ]
    with kept.path.open("a") as file:
        file.write("\n".join(lines))
    problems = []
    assert [item.id for item in load(kept.path, problems.append)] == ["s1"]
    assert [problem.line for problem in problems] == [2, 3, 5, 6]
    item, _ = suggest(kept, again("Ring my keys"))
    assert item.id == "s2" and len(kept.all()) == 2
