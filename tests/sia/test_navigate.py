"""Navigation: one choice a level, the guard with its own threshold, and what is not asked."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from semif.testing import ScriptedDecider
from sia.events import Ended
from sia.navigate import Navigator, Route
from sia.questions import Questions
from sia.skills.manifest import Manifest
from sia.skills.tree import Category, Tree

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")

def verify(ctx):
    return True
"""


def tree(**categories: str) -> Tree:
    """tree(notes="write read", tracking=""): categories with their skills."""

    def skill(category: str, name: str) -> Manifest:
        return Manifest(name, category, f"Does {name}.", "", Path("/none"))

    return Tree(
        tuple(
            Category(name, f"All {name}.", Path("/none"), tuple(skill(name, s) for s in skills))
            for name, skills in ((name, words.split()) for name, words in categories.items())
        )
    )


@pytest.fixture
def navigate() -> Callable[..., Route]:
    """navigate(tree, answers, thresholds): the route; its phases stand in ``asked``."""

    def call(tree: Tree, answers: dict[str, object], guard: bool = True, **thresholds: float):
        def policy(decision):
            answer = answers[decision.phase]
            if callable(answer):
                return answer(decision)
            return answer

        call.decider = ScriptedDecider(policy)
        ids = iter(range(100))
        navigator = Navigator(
            call.decider, thresholds, Questions.load(), lambda: f"d{next(ids)}", guard
        )
        return navigator.route("file it", tree)

    return call


def phases(route: Route) -> list[str]:
    return [answer.decision.phase for answer in route.answers]


def options(route: Route, n: int) -> list[str]:
    return [option.id for option in route.answers[n].decision.options]


def test_one_choice_a_level_and_creation_each_at_its_own(navigate) -> None:
    route = navigate(
        tree(notes="read write", tracking=""),
        {"navigate_category": "notes", "navigate_skill": "write"},
    )
    assert (route.skill, route.suggestion, route.nearest) == ("notes/write", "", "")
    assert phases(route) == ["navigate_category", "navigate_skill"]
    assert options(route, 0) == ["notes", "tracking", "create_category"]
    assert options(route, 1) == ["read", "write", "create_skill"]
    assert all(abs(sum(answer.probs.values()) - 1) < 1e-9 for answer in route.answers)


def test_an_empty_level_is_no_decision(navigate) -> None:
    route = navigate(tree(), {})
    assert (route.skill, route.p, route.suggestion) == ("-", 1.0, "create_category")
    assert route.answers == () and navigate.decider.calls == []
    route = navigate(tree(notes="read", tracking=""), {"navigate_category": "tracking"})
    assert (route.skill, route.suggestion, route.nearest) == ("-", "create_skill", "tracking")
    assert phases(route) == ["navigate_category"]


def test_nothing_fits(navigate) -> None:
    found = tree(notes="read write", files="find")
    route = navigate(found, {"navigate_category": {"create_category": 0.6, "files": 0.3}})
    assert (route.skill, route.suggestion, route.nearest) == ("-", "create_category", "files")
    answers = {"navigate_category": "notes", "navigate_skill": "create_skill"}
    route = navigate(found, answers, cover=0.5)
    assert (route.skill, route.suggestion, route.nearest) == ("-", "create_skill", "notes")
    assert phases(route) == ["navigate_category", "navigate_skill"]  # nothing to guard


def test_the_guard_is_asked_only_where_it_has_a_threshold(navigate) -> None:
    found = tree(notes="read write")
    answers = {
        "navigate_category": "notes",
        "navigate_skill": "read",
        "cover": {"yes": 0.6, "no": 0.4},
    }
    for more, wanted in (
        ({}, ["notes/read", 2]),
        ({"same_action": 0.5}, ["notes/read", 2]),
        ({"cover": 0.5}, ["notes/read", 3]),
        ({"cover": 0.7}, ["-", 3]),
        ({"cover": 0.7, "guard": False}, ["notes/read", 2]),
    ):
        route = navigate(found, answers, **more)
        assert [route.skill, len(route.answers)] == wanted, more
    route = navigate(found, answers, cover=0.7)
    assert route.answers[2].decision.state == {
        "input": "file it",
        "skill": "notes/read: Does read.",
    }
    assert (route.suggestion, route.nearest) == ("create_skill", "notes")
    assert abs(route.p - 0.4) < 0.01


def test_a_single_skill_is_no_choice_where_the_guard_asks_of_it(navigate) -> None:
    found = tree(notes="write", files="find sort")
    answers = {"navigate_category": "notes", "navigate_skill": "create_skill", "cover": "yes"}
    route = navigate(found, answers, cover=0.5)
    assert route.skill == "notes/write" and phases(route) == ["navigate_category", "cover"]
    # Without a guard nothing else would say that it does not fit.
    route = navigate(found, answers)
    assert route.skill == "-" and phases(route) == ["navigate_category", "navigate_skill"]


def refuse(*skills: str):
    return lambda d: "no" if d.state["skill"].split(":")[0] in skills else "yes"


def first(decision) -> str:
    return decision.options[0].id


RANKED = {"navigate_category": {"notes": 0.5, "create_category": 0.3, "files": 0.2}}


def test_what_the_guard_refuses_is_looked_for_in_the_second_category_once(navigate) -> None:
    found = tree(files="find sort", mail="send read", notes="read write")
    answers = {**RANKED, "navigate_skill": first, "cover": refuse("notes/read")}
    route = navigate(found, answers, cover=0.5)
    assert (route.skill, route.suggestion) == ("files/find", "")
    assert phases(route) == ["navigate_category", *["navigate_skill", "cover"] * 2]
    answers["cover"] = "no"
    route = navigate(found, answers, cover=0.5)
    assert (route.skill, route.suggestion, route.nearest) == ("-", "create_skill", "notes")
    assert phases(route) == ["navigate_category", *["navigate_skill", "cover"] * 2]
    # A second one without skills, or without one that fits, leaves it at the first.
    route = navigate(tree(files="", notes="read write"), answers, cover=0.5)
    assert (route.skill, route.nearest) == ("-", "notes")
    assert phases(route) == ["navigate_category", "navigate_skill", "cover"]
    route = navigate(tree(notes="read write"), {**answers, "navigate_category": "notes"}, cover=0.5)
    assert (route.skill, route.nearest) == ("-", "notes")


def test_success_labels_the_category_that_it_was_found_in(make, skill, home) -> None:
    """Not the one whose skill the guard refused, though it was chosen first."""
    skill("echo", ECHO)
    other = home / "skills" / "other" / "tell"
    shutil.copytree(home / "skills" / "demo" / "echo", other)
    (other / "SKILL.md").write_text(
        (other / "SKILL.md").read_text().replace("name: echo", "name: tell")
    )
    (other.parent / "CATEGORY.md").write_text("---\nname: other\ndescription: More.\n---\n")

    def decide(decision):
        match decision.phase:
            case "navigate_category":
                return {"demo": 0.6, "other": 0.3}
            case "navigate_skill":
                return decision.options[0].id
            case "cover":
                return "no" if decision.state["skill"].startswith("demo") else "yes"
        return {"contains_request": "yes", "urgency": "low"}[decision.phase]

    rig = make(decide=decide, thresholds={"cover": 0.5})
    assert rig.all("tell me") == 0
    rig.wait(Ended, status="done")
    rows = {row["id"]: row for row in rig.rows()}
    assert [row["phase"] for row in rows.values()][2:] == ["navigate_category", "cover", "cover"]
    (label,) = rig.labels()
    assert rows[label["row"]]["selected"] == "demo"
    assert (label["option"], label["polarity"], label["source"]) == ("other", "is", "verified")
