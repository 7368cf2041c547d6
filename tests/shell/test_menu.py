"""Corrections as a dialogue: the summary, the menus, what they write and what they have worked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from semif.log import DecisionLog
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia.corrections import Corrections, choices
from sia.errors import UsageError
from sia.events import Admitted, Ended, Routed
from sia.home import Home, open_home
from sia.shell.menu import Menu, summary
from sia.shell.text import plain, width_of
from sia.skills.tree import Tree
from sia.store import Run, Store
from sia.turn import Again, Result

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=UTC)
ESCAPE = "\x1b[31m"


@pytest.fixture
def opened(home: Path) -> Home:
    (home / "sia.toml").write_text('[person]\ntimezone = "UTC"\n')
    return open_home(home)


@pytest.fixture
def store(opened: Home):
    store = Store(opened.database)
    yield store
    store.close()


class Skill:
    def __init__(self, id: str) -> None:
        self.id = id


class Skills:
    skills = tuple(map(Skill, ("email/compose", "notes/write", "reminders/set", "reminders/list")))


@pytest.fixture
def worked() -> list[Again]:
    return []


@pytest.fixture
def menu(opened: Home, store: Store, worked: list[Again]) -> Menu:
    tree: Tree = Skills()  # type: ignore[assignment]
    return Menu(opened, store, lambda: tree, worked.append, plain, lambda: 80)


def decide(home: Home, run: str, phase: str, id: str, probs: Mapping[str, float]) -> None:
    about = {"anna-k": "Anna Karenina", "anna-b": f"Anna Berg{ESCAPE}, girlfriend"}
    options = tuple(Option(name, about.get(name, f"About {name}.")) for name in probs)
    decision = Decision(id, phase, {"input": "tell Anna hello"}, f"Which {phase}?", options)
    log = DecisionLog(home.decisions)
    log.append(ScriptedDecider(lambda _: dict(probs)).decide([decision]), run)


@pytest.fixture
def mail(opened: Home, store: Store) -> None:
    decide(opened, "r1", "contains_request", "d1", {"yes": 0.9, "no": 0.1})
    decide(
        opened, "r1", "navigate_category", "d2", {"email": 0.9, "reminders": 0.06, "notes": 0.04}
    )
    decide(opened, "r1", "navigate_skill", "d3", {"compose": 0.8, "create_skill": 0.2})
    decide(opened, "r1", "read_next", "d4", {"anna-k": 0.51, "anna-b": 0.4, "none": 0.09})
    run = Run("r1", "typed", "tell Anna hello", 0.4, NOW, NOW, status="done", skill="email/compose")
    store.save_run(run)
    store.save_result("r1", "recipient", 0, "choose", "anna-k")


def said(home: Home) -> list[tuple[str, str, str]]:
    return [(x.row, x.polarity, x.option) for x in Corrections(home).in_force()]


@pytest.mark.usefixtures("mail")
def test_the_summary_is_one_line_of_what_mattered(opened: Home, store: Store) -> None:
    made = choices(opened, store, "r1")
    line = summary(made, 80, plain)
    assert line == "  email 0.90 › compose 0.80 › Anna Karenina 0.51  /right or /wrong?"
    assert summary(made[:3], 80, plain) == "  email 0.90 › compose 0.80"
    assert summary(made[:3], 80, plain, hint=True).endswith("  /right or /wrong?")
    assert summary(made[:1], 80, plain) == ""
    painted = summary(made, 80, lambda style, text: f"<{style}:{text}>")
    assert "<warning:Anna Karenina 0.51>" in painted and "<dim:email 0.90>" in painted
    for width in (30, 40, 60, 80, 120):
        assert width_of(summary(made, width, plain)) <= max(width, 72)


@pytest.mark.usefixtures("mail")
def test_right_labels_the_last_run_once_and_undo_takes_it_back(menu: Menu, opened: Home) -> None:
    right = "  right: a request yes, email, compose, Anna Karenina · /undo takes it back"
    assert menu.start("/right", []) == right
    assert [row for row, _, _ in said(opened)] == ["d1", "d2", "d3", "d4"]
    assert menu.start("/right", []) == "  that was said before; /undo takes it back"
    undone = menu.start("/undo", [])
    assert undone == ("  taken back: a request yes, category email, skill compose, choice anna-k")
    assert said(opened) == []
    assert menu.start("/undo", []) == "  there is nothing to take back"


@pytest.mark.usefixtures("mail")
def test_wrong_asks_which_decision_then_what_is_right_then_works_it_again(
    menu: Menu, opened: Home, worked: list[Again]
) -> None:
    assert menu.start("/wrong", []).split("\n") == [
        "? What was wrong?  tell Anna hello",
        "   1  category   email          0.90",
        "   2  skill      compose        0.80",
        "   3  choice     Anna Karenina  0.51",
        "   4  a request  yes            0.90",
        "  Enter leaves it as it is",
    ]
    assert menu.prompt == "1-4"
    assert menu.answer("3").split("\n") == [
        "? Which read_next?  not Anna Karenina (0.51)",
        "   1  Anna Berg␛[31m, girlfriend  0.40",
        "   2  none of these               0.09",
        "   0  just not Anna Karenina",
        "  Enter leaves it as it is",
    ]
    assert menu.prompt == "0-2" and said(opened) == []
    assert menu.answer("1").split("\n") == [
        "  noted: Anna Berg␛[31m, girlfriend, not Anna Karenina · /undo takes it back",
        "? Run it again with Anna Berg␛[31m, girlfriend?",
        "  yes · no",
    ]
    assert said(opened) == [("d4", "is", "anna-b")] and worked == []
    assert menu.answer("yes") == ""
    known = Result("recipient", 0, "choose", "anna-b")
    assert worked == [Again("tell Anna hello", "email/compose", "r1", known)]
    assert not menu.options and menu.prompt == ""


@pytest.mark.usefixtures("mail")
def test_a_category_with_several_skills_asks_which(menu: Menu, worked: list[Again]) -> None:
    menu.start("/wrong", [])
    assert "   1  reminders  0.06  About reminders." in menu.answer("category email").split("\n")
    assert menu.answer("rem").split("\n")[1:] == [
        "? Run it again, with which skill?",
        "   1  reminders/list",
        "   2  reminders/set",
        "  Enter: do not",
    ]
    menu.answer("reminders/set")
    assert [way.skill for way in worked] == ["reminders/set"]


@pytest.mark.usefixtures("mail")
def test_none_of_these_says_only_what_is_not(menu: Menu, opened: Home, worked: list[Again]) -> None:
    menu.start("/wrong", [])
    menu.answer("2")
    assert menu.answer("0") == "  noted: not compose · /undo takes it back"
    assert said(opened) == [("d3", "not", "compose")] and not worked and not menu.options


@pytest.mark.usefixtures("mail")
@pytest.mark.parametrize("words", ["7", "99999999999999999999", "-1"])
def test_a_number_that_is_none_of_them_asks_on_or_is_an_input(menu: Menu, words: str) -> None:
    menu.start("/wrong", [])
    if words == "-1":  # no number, and so said to the agent
        assert menu.answer(words) is None and not menu.options
    else:
        assert menu.answer(words) == "  1-4, or Enter to leave it as it is"
        assert menu.prompt == "1-4"


@pytest.mark.usefixtures("mail")
def test_other_words_leave_the_menu_and_are_said_to_the_agent(menu: Menu, opened: Home) -> None:
    menu.start("/wrong", [])
    assert menu.answer("how full is the disk") is None
    assert menu.options == () and said(opened) == []
    menu.start("/wrong", [])
    assert menu.answer("q") == "  left as it is" and menu.options == ()
    assert menu.answer("1") is None


def test_which_request_is_meant(menu: Menu, opened: Home, store: Store, mail: None) -> None:
    decide(opened, "r2", "contains_request", "d9", {"no": 0.8, "yes": 0.2})
    # Nothing was heard since the start: the one that was led somewhere.
    assert "tell Anna hello" in menu.start("/wrong", [])
    menu.hear(Routed("r1", "email/compose", 0.8))
    menu.hear(Ended("r1", "done"))
    menu.hear(Admitted("r2", "ignore", "thanks"))
    assert menu.start("/wrong", []).startswith("? Which contains_request?  not no (0.80)")
    menu.hear(Admitted("r3", "answer", "the second", to="r1"))
    assert menu.start("/wrong", []).startswith("? What was wrong?")
    assert menu.start("/right", ["r2"]).startswith("  right: a request no")
    assert menu.start("/right", ["r77"]) == "  nothing was decided about r77"


@pytest.mark.usefixtures("mail")
def test_what_is_not_done_cannot_be_right_yet_but_wrong(
    menu: Menu, opened: Home, store: Store
) -> None:
    store.save_run(replace(store.run("r1"), status="running"))
    assert menu.start("/right", []).startswith("  it is not done yet")
    menu.start("/wrong", [])
    menu.answer("4")
    assert menu.prompt == "1"
    assert menu.answer("1") == "  noted: no, not yes · /undo takes it back"
    assert said(opened) == [("d1", "is", "no")]


def test_before_anything_was_decided(menu: Menu) -> None:
    assert menu.start("/right", []) == "  nothing was decided yet"
    assert menu.start("/wrong", []) == "  nothing was decided yet"
    assert menu.start("/undo", []) == "  there is nothing to take back"
    assert menu.answer("1") is None


@pytest.mark.usefixtures("mail")
def test_what_cannot_be_worked_again_says_why_and_is_noted_all_the_same(
    opened: Home, store: Store
) -> None:
    def refuse(wanted: Again) -> None:
        raise UsageError("I cannot do that yet: email needs a host")

    tree: Tree = Skills()  # type: ignore[assignment]
    menu = Menu(opened, store, lambda: tree, refuse, plain, lambda: 80)
    for words in ("3", "1"):
        menu.start("/wrong", []) if words == "3" else None
        menu.answer(words)
    assert menu.answer("yes") == "  I cannot do that yet: email needs a host"
    assert said(opened) == [("d4", "is", "anna-b")]


@pytest.mark.usefixtures("mail")
@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_menus_fit_the_terminal(opened: Home, store: Store, width: int) -> None:
    tree: Tree = Skills()  # type: ignore[assignment]
    menu = Menu(opened, store, lambda: tree, lambda wanted: None, plain, lambda: width)
    shown = [menu.start("/wrong", []), menu.answer("1"), menu.answer("1"), menu.start("/undo", [])]
    for line in "\n".join(filter(None, shown)).split("\n"):
        assert width_of(line) <= width, line
