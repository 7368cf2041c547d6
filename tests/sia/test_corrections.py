"""What a person says about decisions: which ones led a run, and the labels that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from semif.export import labelled
from semif.jsonl import read
from semif.log import DecisionLog, Label, append_labels
from semif.measuring.paired import Said, cost
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia import corrections
from sia.corrections import Choice, Corrections, choices, find, skip, unsure
from sia.errors import UsageError
from sia.home import Home, open_home
from sia.skills.tree import Tree, load
from sia.store import Run, Store
from sia.turn import Again, Result

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=UTC)
YES, NO = {"yes": 0.9, "no": 0.1}, {"yes": 0.2, "no": 0.8}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "sia.toml").write_text('[person]\nname = "Ann"\ntimezone = "UTC"\n')
    return open_home(tmp_path)


@pytest.fixture
def store(home: Home):
    store = Store(home.database)
    yield store
    store.close()


def decide(
    home: Home, run: str, phase: str, id: str, probs: Mapping[str, float], **state: str
) -> None:
    options = tuple(Option(name, f"About {name}.") for name in probs)
    decision = Decision(id, phase, {"input": "tell Anna hello", **state}, "Which?", options)
    log = DecisionLog(home.decisions)
    log.append(ScriptedDecider(lambda _: dict(probs)).decide([decision]), run)


def keep(store: Store, id: str, skill: str, status: str = "done") -> Run:
    run = Run(id, "typed", "tell Anna hello", 0.4, NOW, NOW, status=status, skill=skill)
    store.save_run(run)
    return run


def mail(home: Home, store: Store, status: str = "done") -> Run:
    """A request that went to the wrong Anna."""
    decide(home, "r1", "contains_request", "d1", YES)
    decide(home, "r1", "urgency", "d2", {"medium": 0.6, "low": 0.4})
    decide(home, "r1", "navigate_category", "d3", {"email": 0.9, "notes": 0.1})
    decide(home, "r1", "navigate_skill", "d4", {"compose": 0.8, "create_skill": 0.2})
    decide(home, "r1", "read_next", "d5", {"anna-k": 0.7, "anna-b": 0.2, "none": 0.1})
    store.save_result("r1", "recipient", 0, "choose", "anna-k")
    store.save_result("r1", "write", 0, "choose", "formal")
    return keep(store, "r1", "email/compose", status)


def led(made: list[Choice]) -> dict[str, str]:
    return {choice.row: choice.taken for choice in made if choice.led}


def said(home: Home) -> list[tuple[str, str, str, float]]:
    return [(x.row, x.polarity, x.option, x.weight) for x in Corrections(home).in_force()]


def test_right_labels_what_led_there_and_nothing_else(home: Home, store: Store) -> None:
    mail(home, store)
    made = choices(home, store, "r1")
    assert [choice.row for choice in made] == ["d1", "d2", "d3", "d4", "d5"]
    assert len(Corrections(home).right(made)) == 4
    assert said(home) == [
        ("d1", "is", "yes", 3.0),
        ("d3", "is", "email", 3.0),
        ("d4", "is", "compose", 3.0),
        ("d5", "is", "anna-k", 3.0),
    ]
    assert {label.by for label in Corrections(home).in_force()} == {"Ann"}
    before = home.labels.read_bytes()
    assert Corrections(home).right(made) == [] and home.labels.read_bytes() == before


def test_after_a_guards_no_the_second_category_is_what_was_right(home: Home, store: Store) -> None:
    decide(home, "r1", "navigate_category", "d1", {"notes": 0.6, "email": 0.4})
    decide(home, "r1", "navigate_skill", "d2", {"compose": 0.9, "create_skill": 0.1})
    decide(home, "r1", "cover", "d3", NO, skill="notes/compose: writes")
    decide(home, "r1", "navigate_skill", "d4", {"compose": 0.7, "create_skill": 0.3})
    decide(home, "r1", "cover", "d5", NO, skill="email/compose: mails")  # above its threshold
    keep(store, "r1", "email/compose")
    wanted = {"d1": "email", "d3": "no", "d4": "compose", "d5": "yes"}
    assert led(choices(home, store, "r1")) == wanted


def test_where_no_skill_fits_only_that_is_right(home: Home, store: Store) -> None:
    decide(home, "r1", "contains_request", "d0", YES)
    decide(home, "r1", "navigate_category", "d1", {"notes": 0.6, "email": 0.4})
    decide(home, "r1", "navigate_skill", "d2", {"write": 0.9, "create_skill": 0.1})
    decide(home, "r1", "cover", "d3", NO)
    keep(store, "r1", "-", "failed")
    assert led(choices(home, store, "r1")) == {"d0": "yes", "d3": "no"}


def test_a_remark_was_taken_for_none_whatever_is_likelier(home: Home, store: Store) -> None:
    decide(home, "r1", "contains_request", "d1", {"yes": 0.6, "no": 0.4})  # below its threshold
    decide(home, "r2", "answers", "d2", YES)
    decide(home, "r2", "contains_request", "d3", YES)
    assert led(choices(home, store, "r1")) == {"d1": "no"}
    assert led(choices(home, store, "r2")) == {}


def test_a_correction_names_the_right_one_and_the_cost_follows(home: Home, store: Store) -> None:
    mail(home, store)
    append_labels(home.labels, [Label.new("d5", "r1", "not", "anna-k", "verified", "email")])
    probs = {"anna-k": 0.7, "anna-b": 0.2, "none": 0.1}
    (row,) = labelled(home.folder, pytest.fail)
    assert cost([Said.of(row, probs, "")])["nll"]["mean"] == pytest.approx(-math.log(1 - 0.7))
    Corrections(home).name(find(home, "d5"), "anna-b")
    (row,) = labelled(home.folder, pytest.fail)
    assert (row.outcome, row.source, row.weight) == ("anna-b", "human", 3.0)
    assert cost([Said.of(row, probs, "")])["nll"]["mean"] == pytest.approx(-math.log(0.2))


def test_undo_takes_back_what_was_said_at_once_and_appends(home: Home, store: Store) -> None:
    mail(home, store)
    mine = Corrections(home)
    mine.name(find(home, "d2"), "low")
    mine.right(choices(home, store, "r1"))
    before = home.labels.read_bytes()
    assert [label.row for label in mine.undo()] == ["d1", "d3", "d4", "d5"]
    assert home.labels.read_bytes().startswith(before)
    assert [row["weight"] for row in read(home.labels).rows[-4:]] == [0.0] * 4
    assert said(home) == [("d2", "is", "low", 3.0)]
    assert [label.option for label in mine.undo()] == ["low"]
    assert mine.undo() == [] and list(labelled(home.folder, pytest.fail)) == []
    mine.right(choices(home, store, "r1"))  # and it can be said again
    assert len(said(home)) == 4


def test_what_another_source_says_is_not_taken_back(home: Home, store: Store) -> None:
    mail(home, store)
    append_labels(home.labels, [Label.new("d4", "r1", "is", "compose", "verified", "email")])
    assert Corrections(home).undo() == []


def test_an_unknown_row_or_option_says_what_there_is(home: Home, store: Store) -> None:
    with pytest.raises(UsageError, match="no decision 'd5' in this home; `sia decisions`"):
        find(home, "d5")
    mail(home, store)
    with pytest.raises(UsageError, match="d5 has no option 'bob'; it has: anna-k, anna-b, none"):
        Corrections(home).name(find(home, "d5"), "bob")
    assert not home.labels.exists()


def test_damaged_rows_are_passed_over(home: Home, store: Store) -> None:
    mail(home, store)
    with home.decisions.open("ab") as file:
        file.write(b'{"id": "d6", "run": "r1", "phase": "cover"}\n[]\n{"torn')
    assert len(choices(home, store, "r1")) == 5
    with pytest.raises(UsageError, match="damaged"):
        find(home, "d6")


# the least certain ones


def test_the_least_certain_come_first_and_what_was_said_or_skipped_not_again(home: Home) -> None:
    for number, p in enumerate((0.9, 0.6, 0.75, 0.55, 0.52)):
        decide(home, "r1", "urgency", f"d{number}", {"low": p, "high": 1 - p}, input=f"t{number}")
    decide(home, "r2", "cover", "d5", {"yes": 0.51, "no": 0.49})
    rows = [choice.row for choice in unsure(home, [], "", 9)]
    assert rows == ["d5", "d4", "d3", "d1", "d2", "d0"]
    assert [choice.row for choice in unsure(home, [], "urgency", 2)] == ["d4", "d3"]
    mine = Corrections(home)
    mine.name(find(home, "d4"), "high")
    mine.name(find(home, "d3"), "low", "not")
    skip(home, find(home, "d1"))
    checks = [
        Label.new("d2", "r1", "is", "low", "verified", "x"),
        Label.new("d0", "r1", "not", "low", "verified", "x"),
    ]
    append_labels(home.labels, checks)
    # Of what failed nobody has named the right option yet.
    assert [choice.row for choice in unsure(home, mine.labels(), "", 9)] == ["d5", "d0"]


def test_the_same_question_is_looked_at_once(home: Home) -> None:
    for number in range(3):
        decide(home, f"r{number}", "cover", f"d{number}", YES)
    assert [choice.row for choice in unsure(home, [], "", 9)] == ["d2"]
    Corrections(home).name(find(home, "d0"), "no")
    assert unsure(home, Corrections(home).labels(), "", 9) == []


# working it again


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "skills"
    for id in ("email/compose", "email/search", "notes/write", "diary/write"):
        folder = root / id
        folder.mkdir(parents=True)
        category, name = id.split("/")
        (folder.parent / "CATEGORY.md").write_text(
            f"---\nname: {category}\ndescription: About {category}.\n---\n"
        )
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\nx\n")
    return load([root])


def ways(home: Home, store: Store, tree: Tree, row: str, option: str) -> list[Again]:
    choice = next(c for c in choices(home, store, "r1") if c.row == row)
    made = choices(home, store, "r1")
    return corrections.again(choice, option, made, store.run("r1"), tree, store)


def test_how_a_request_is_worked_again(home: Home, store: Store, tree: Tree) -> None:
    mail(home, store)
    text = "tell Anna hello"
    assert ways(home, store, tree, "d3", "notes") == [Again(text, "notes/write", "r1")]
    assert [way.skill for way in ways(home, store, tree, "d3", "email")] == [
        "email/compose",
        "email/search",
    ]
    assert ways(home, store, tree, "d5", "anna-b") == [
        Again(text, "email/compose", "r1", Result("recipient", 0, "choose", "anna-b"))
    ]
    assert ways(home, store, tree, "d1", "no") == []
    assert ways(home, store, tree, "d2", "low") == []
    assert ways(home, store, tree, "d4", "create_skill") == []


def test_the_skill_of_a_category_is_not_taken_for_its_namesake(
    home: Home, store: Store, tree: Tree
) -> None:
    decide(home, "r1", "navigate_category", "d1", {"diary": 0.5, "notes": 0.3, "email": 0.2})
    decide(home, "r1", "navigate_skill", "d2", {"compose": 0.6, "search": 0.4})
    keep(store, "r1", "email/compose")
    assert [way.skill for way in ways(home, store, tree, "d2", "search")] == ["email/search"]
    assert [way.skill for way in ways(home, store, tree, "d1", "notes")] == ["notes/write"]


def test_what_a_guard_refused_can_be_worked_all_the_same(
    home: Home, store: Store, tree: Tree
) -> None:
    decide(home, "r1", "cover", "d1", NO, skill="notes/write: Does write.")
    keep(store, "r1", "-", "failed")
    assert [way.skill for way in ways(home, store, tree, "d1", "yes")] == ["notes/write"]


def test_what_is_worked_now_is_not_worked_twice(home: Home, store: Store, tree: Tree) -> None:
    mail(home, store, "running")
    assert ways(home, store, tree, "d3", "notes") == []


def test_a_remark_that_was_a_request_is_worked_unless_its_words_are_lost(
    home: Home, store: Store, tree: Tree
) -> None:
    decide(home, "r1", "contains_request", "d1", NO)
    assert ways(home, store, tree, "d1", "yes") == [Again("tell Anna hello")]
    decide(home, "r1", "contains_request", "d2", NO, input="use password=[redacted]")
    assert ways(home, store, tree, "d2", "yes") == []
