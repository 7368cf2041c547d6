"""What no skill covers, in a whole agent: categories that are made, suggestions, and new skills."""

import json
import shutil
from dataclasses import replace

import pytest

from semif.jsonl import read
from sia.entries import ProcessView
from sia.events import Asked, Notice, Routed, Said, Traced
from sia.generator.types import TASKS
from sia.questions import Questions
from sia.scheduler import Scheduler
from sia.sources import SOURCES
from sia.uncovered import MAKE_ONE, NAME_IT

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
WRITERS = TASKS - {"act", "judge"}
TRAVEL = '{"id": "travel", "title": "Travel", "description": "Finds and books trips and hotels"}'
PARCELS = "tell me if my parcel was delivered"


def decide(decision):
    """By words: a category or skill whose name stands in the input, else none of them."""
    text = decision.state.get("input", "") if isinstance(decision.state, dict) else ""
    words = text.casefold().split()
    ids = [option.id for option in decision.options]
    match decision.phase:
        case "contains_request":
            return "no" if text.count(":") or len(words) < 3 else "yes"
        case "urgency":
            return "medium"
        case "answers":
            return "no"
        case "navigate_category" if "parcel" in words and "tracking" in ids:
            return "tracking"
        case "navigate_category" | "navigate_skill":
            return next((word for word in words if word in ids), ids[-1])
        case "cover":
            return "yes" if decision.state["skill"].startswith("trips:") else "no"
        case "same_action":
            return "yes" if "parcel" in decision.state["earlier"] else "no"
    return ids[0]


@pytest.fixture
def agent(make, skill):
    """agent(replies, **more): with the skill demo/echo; ``name`` is proven, ``act`` is not."""
    skill("echo", ECHO)

    def call(replies=(), **more):
        more = {"decide": decide, "proven": WRITERS, "create_category": "ask", **more}
        return make(replies, **more)

    return call


def category(home, name: str, description: str = "Things.") -> None:
    folder = home / "skills" / name
    folder.mkdir(parents=True)
    (folder / "CATEGORY.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n")


def drop(home, id: str) -> None:
    """A skill folder put into the home as a person would: whole, at once."""
    name = id.split("/")[1]
    new = home / "new" / name
    shutil.copytree(home / "skills" / "demo" / "echo", new)
    text = (new / "SKILL.md").read_text()
    (new / "SKILL.md").write_text(text.replace("echo", name))
    new.rename(home / "skills" / id)


def rows(home) -> list[dict]:
    return list(read(home / ".sia" / "suggestions.jsonl").rows)


def notices(rig) -> list[str]:
    return [event.text for event in rig.events if isinstance(event, Notice)]


def test_a_category_is_written_asked_for_made_and_gone_on_in(agent, home) -> None:
    rig = agent([TRAVEL]).start()
    run = rig.say("book a flight to Rome")
    question = (
        "No category covers this. Make a new one for it? Travel: Finds and books trips and hotels"
    )
    assert rig.wait(Asked) == Asked(run, question, ("yes", "no"))
    assert not (home / "skills" / "travel").exists()
    rig.say("yes")
    rig.wait(Said, run=run)
    assert rig.end() == 1
    assert (home / "skills" / "travel" / "CATEGORY.md").read_text() == (
        "---\nname: travel\ndescription: Finds and books trips and hotels\n---\n# Travel\n"
    )
    assert "new category travel: Finds and books trips and hotels" in notices(rig)
    assert [c.name for c in rig.agent.holder.tree.categories] == ["demo", "travel"]
    assert rig.said[0].startswith("I have no skill for that yet")
    assert rig.said[0].endswith("It is noted as s1.")
    # Navigated and written once, though the question lay between.
    assert [row["phase"] for row in rig.rows()].count("navigate_category") == 1
    assert len(rig.generator.calls) == 1
    (row,) = rows(home)
    assert (row["kind"], row["category"], row["query"]) == (
        "create_skill", "travel", "book a flight to Rome"
    )  # fmt: skip
    assert row["request"]["id"] == run and row["state"] == {"input": "book a flight to Rome"}
    (decision,) = row["decisions"]
    assert decision["selected"] == "create_category" and decision["revision"] == "scripted"
    assert decision["probs"].keys() == decision["logits"].keys() == {"demo", "create_category"}
    assert decision["id"] in {found["id"] for found in rig.rows()}
    (traced,) = [event.text for event in rig.events if isinstance(event, Traced)]
    assert json.loads(traced.removeprefix("suggestion ")) == row
    assert [event.skill for event in rig.events if isinstance(event, Routed)] == ["-"]


@pytest.mark.parametrize(
    ("policy", "answer", "made", "asked"),
    [("ask", "no", False, 1), ("allow", "", True, 0), ("deny", "", False, 0)],
)
def test_who_decides_is_configured(agent, home, policy, answer, made, asked) -> None:
    rig = agent([TRAVEL], create_category=policy).start()
    run = rig.say("book a flight to Rome")
    if answer:
        rig.wait(Asked)
        rig.say(answer)
    rig.wait(Said, run=run)
    assert rig.end() == 1
    assert len(rig.asked) == asked
    assert (home / "skills" / "travel" / "CATEGORY.md").exists() == made
    (row,) = rows(home)
    assert row["kind"] == ("create_skill" if made else "create_category")
    written = {"name": "travel", "title": "Travel",
               "description": "Finds and books trips and hotels"}  # fmt: skip
    assert row.get("proposal") == (written if policy == "ask" else None)
    assert len(rig.generator.calls) == (policy != "deny")


def test_where_nobody_can_answer_it_is_noted_alone(agent, home) -> None:
    assert agent([TRAVEL], yes=False).all("book a flight to Rome", source="piped") == 1
    assert [row["kind"] for row in rows(home)] == ["create_category"]
    rig = agent([], proven=frozenset())
    rig.say("paint the old fence")
    rig.agent.close_input()
    rig.start()
    assert rig.joined() == 1
    assert [row["query"] for row in rows(home)] == ["book a flight to Rome", "paint the old fence"]
    assert "I have no skill for that yet" in rig.said[-1]


def test_confirmed_in_advance_it_is_made(agent, home) -> None:
    rig = agent([TRAVEL], yes=True)
    assert rig.all("book a flight to Rome") == 1
    assert rig.asked == [] and (home / "skills" / "travel" / "CATEGORY.md").exists()


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        (["yes", "Trips abroad: flights and hotels"], "flights and hotels"),
        # Whatever is said is the answer, though it reads like a request.
        (["yes", "Trips abroad", "find me a flight: or a hotel"], "find me a flight: or a hotel"),
        (["no"], ""),
        (["yes", "no"], ""),
        (["yes", "Trips abroad", "nope"], ""),
        (["yes", "!: nothing"], ""),
    ],
)
@pytest.mark.parametrize("replies", [None, ['{"id": "?"}']])  # not proven, and nothing fit
def test_the_person_names_it_where_the_generator_cannot(
    agent, home, answers, made, replies
) -> None:
    more = {} if replies else {"proven": frozenset()}
    rig = agent(replies or (), **more).start()
    run = rig.say("book a flight to Rome")
    for n, answer in enumerate(answers):
        rig.until(lambda n=n: len(rig.asked) > n)
        rig.say(answer)
    rig.wait(Said, run=run)
    assert rig.end() == 1
    questions = [MAKE_ONE, NAME_IT, "What belongs to Trips abroad? A few words (or no)"]
    assert rig.asked == questions[: len(answers)]
    assert [row["phase"] for row in rig.rows()].count("contains_request") == 1
    path = home / "skills" / "trips-abroad" / "CATEGORY.md"
    assert path.exists() == bool(made)
    if made:
        found = rig.agent.holder.tree.category("trips-abroad")
        assert found.description == made
    assert [row["kind"] for row in rows(home)] == [
        "create_skill" if made else "create_category"
    ]  # fmt: skip


def test_a_secret_is_neither_shown_to_the_generator_nor_made_a_category(agent, home) -> None:
    rig = agent([TRAVEL]).start()
    rig.say("book it with password=hunter22 please")
    rig.wait(Asked, text=MAKE_ONE)
    rig.say("yes")
    rig.wait(Asked, text=NAME_IT)
    rig.say("Trips: token=hunter22")
    rig.wait(Said)
    assert rig.end() == 1
    assert rig.generator.calls == []
    assert not list((home / "skills").glob("trips*"))
    assert "hunter22" not in (home / ".sia" / "suggestions.jsonl").read_text()


def test_one_such_question_at_a_time_and_the_rest_is_worked_meanwhile(agent, home) -> None:
    rig = agent(proven=frozenset()).start()
    first = rig.say("book a flight to Rome")
    rig.wait(Asked, run=first)
    second = rig.say("paint the old fence")
    rig.wait(Said, run=second)
    rig.say("demo echo this please")
    rig.wait(Said, text="did demo echo this please")
    rig.say("yes")
    rig.wait(Asked, run=first, text=NAME_IT)
    rig.say("Travel: trips")
    rig.wait(Said, run=first)
    assert rig.end() == 1
    assert rig.asked == [MAKE_ONE, NAME_IT]
    assert [(row["kind"], row["query"]) for row in rows(home)] == [
        ("create_category", "paint the old fence"), ("create_skill", "book a flight to Rome")
    ]  # fmt: skip


def test_what_interrupts_is_heard_while_a_title_is_wanted(agent, home, skill) -> None:
    def policy(decision):
        if decision.phase == "interrupt":
            return "interrupt" if decision.state["input"].startswith("now") else "defer"
        return decide(decision)

    rig = agent(proven=frozenset(), decide=policy).start()
    first = rig.say("book a flight to Rome")
    rig.wait(Asked, run=first)
    rig.say("yes")
    rig.wait(Asked, run=first, text=NAME_IT)
    situation = replace(rig.agent.loop.situation(), process=ProcessView("demo/slow", 1, "r9", ""))
    scheduler = Scheduler(rig.decider, {}, Questions.load(), lambda: "d")
    typed = SOURCES["typed"]
    assert scheduler.admit("now demo echo please", typed, situation).action == "preempt"
    told = scheduler.admit("please book me trips", typed, situation)
    assert (told.action, told.text, told.run) == ("answer", "please book me trips", first)
    for given in (situation, replace(situation, process=None)):
        assert scheduler.admit("please book me trips", SOURCES["piped"], given).action != "answer"
    assert rig.stop() == 0


def test_what_overlaps_is_refused_and_the_request_goes_on_there(agent, home) -> None:
    category(home, "trips", "Journeys.")
    rig = agent([TRAVEL], create_category="allow", thresholds={"cover": 0.5})
    assert rig.all("book a flight to Rome") == 1
    assert not (home / "skills" / "travel").exists()
    words = "no new category: trips covers Travel: Finds and books trips and hotels"
    assert words in notices(rig)
    covers = [row for row in rig.rows() if row["phase"] == "cover"]
    assert [row["state"]["skill"] for row in covers] == ["demo: Things.", "trips: Journeys."]
    assert covers[0]["state"]["input"] == "Travel: Finds and books trips and hotels"
    (row,) = rows(home)
    assert (row["kind"], row["category"]) == ("create_skill", "trips")
    assert [d["phase"] for d in row["decisions"]] == ["navigate_category", "cover", "cover"]


def test_one_of_that_name_is_the_one_that_is_there(agent, home) -> None:
    category(home, "travel")
    drop(home, "travel/flight")
    rig = agent([TRAVEL], create_category="allow")
    assert rig.all("book a flight to Rome") == 0
    assert rig.said == ["did book a flight to Rome"]
    assert [event.skill for event in rig.events if isinstance(event, Routed)] == ["travel/flight"]
    assert rows(home) == []


def test_a_category_that_cannot_be_saved_is_told_of_and_noted(agent, home) -> None:
    (home / "skills" / "travel").write_text("a file in the way")
    rig = agent([TRAVEL], create_category="allow")
    assert rig.all("book a flight to Rome") == 1
    assert any("no new category" in text and "cannot be made" in text for text in notices(rig))
    assert [row["kind"] for row in rows(home)] == ["create_category"]


def test_an_interruption_while_it_is_written_loses_nothing(agent, home) -> None:
    def preempted(_parts, cancel):
        rig.say("now demo echo please")
        assert cancel.wait(20)

    def policy(decision):
        if decision.phase == "interrupt":
            return "interrupt"
        return decide(decision)

    rig = agent([preempted, TRAVEL], create_category="allow", decide=policy).start()
    run = rig.say("book a flight to Rome")
    rig.wait(Said, run=run)
    assert rig.end() == 1
    assert rig.said[0] == "did now demo echo please"
    assert (home / "skills" / "travel" / "CATEGORY.md").exists()
    categories = [r for r in rig.rows() if r["run"] == run and r["phase"] == "navigate_category"]
    assert len(categories) == 1


def test_a_generator_that_may_act_works_it_all_the_same(agent, home) -> None:
    rig = agent([TRAVEL, "<write_stdout>booked</write_stdout>"], proven=TASKS, yes=True)
    assert rig.all("book a flight to Rome") == 0
    assert rig.said == ["booked"]
    assert [row["category"] for row in rows(home)] == ["travel"]


def test_repeats_are_counted_by_their_words_or_where_it_is_proven_by_their_sense(
    agent, home
) -> None:
    category(home, "tracking")
    assert agent().all(PARCELS, f"{PARCELS}!") == 1
    assert [(row["id"], row["event"]) for row in rows(home)] == [
        ("s1", "suggested"), ("s1", "repeated")
    ]  # fmt: skip
    rig = agent(thresholds={"same_action": 0.5})
    assert rig.all("find out where the tracking stands") == 1
    assert [(row["id"], row["event"]) for row in rows(home)][2:] == [("s1", "repeated")]
    assert rig.rows()[-1]["phase"] == "same_action"
    assert rig.rows()[-1]["state"] == {
        "earlier": PARCELS, "input": "find out where the tracking stands"
    }  # fmt: skip


def test_a_skill_dropped_in_is_a_leaf_at_once_and_says_what_it_can_do_now(agent, home) -> None:
    category(home, "tracking", "Where things are.")
    rig = agent(create_category="deny").start()
    rig.say(PARCELS)
    rig.wait(Said)
    rig.say("sing me a song")
    rig.until(lambda: len(rows(home)) == 2)
    before = len(rig.events)
    drop(home, "tracking/parcel")
    told = rig.wait(
        Notice,
        after=before,
        text=f"tracking/parcel seems to do what you asked for ({PARCELS}): sia suggestions run s1",
    )
    assert told.level == "info"
    rig.say(PARCELS)
    rig.wait(Said, text=f"did {PARCELS}")
    assert rig.end() == 1
    marks = [(row["id"], row["event"], row.get("skill")) for row in rows(home)][2:]
    assert marks == [
        ("s1", "covered", "tracking/parcel"), ("s1", "done", "tracking/parcel")
    ]  # fmt: skip
    # Every decision about it is in a file of the iterations, as it is in the log.
    filed = {d.id for iteration in rig.iterations() for d in iteration.decisions}
    assert filed == {row["id"] for row in rig.rows()}


def test_a_skill_that_came_while_nothing_ran_is_seen_at_the_next_start_once(agent, home) -> None:
    category(home, "tracking")
    assert agent().all(PARCELS) == 1
    drop(home, "tracking/parcel")
    rig = agent().start()
    assert rig.end() == 0
    assert any("tracking/parcel seems to do" in text for text in notices(rig))
    again = agent().start()
    assert again.end() == 0
    assert not any("seems to do" in text for text in notices(again))
    assert again.rows() == rig.rows()


def test_a_broken_skill_is_refused_with_the_reason_and_nothing_is_promised(agent, home) -> None:
    category(home, "tracking")
    rig = agent().start()
    rig.say(PARCELS)
    rig.wait(Said)
    new = home / "skills" / "tracking" / "parcel"
    new.mkdir()
    (new / "SKILL.md").write_text("---\nname: parcel\n---\n")
    warning = f"{new}/SKILL.md: description is missing or not a text"
    rig.wait(Notice, text=warning, level="warning")
    rig.say(f"{PARCELS} today")
    rig.until(lambda: len(rig.said) == 2)
    assert rig.end() == 1
    assert [row["event"] for row in rows(home)] == ["suggested", "suggested"]


def test_what_a_skill_finds_not_covered_is_noted_with_what_led_there(agent, skill, home) -> None:
    skill(
        "echo",
        "from sia.skills.api import NotCovered\n\n"
        "def act(ctx):\n    raise NotCovered('No skill for that.')\n",
    )
    for count in (1, 2):
        rig = agent()
        assert rig.all("demo echo this to me") == 1
        assert rig.said == ["No skill for that."]
        assert "noted as s1; see sia suggestions" in [
            event.text for event in rig.events if isinstance(event, Notice)
        ]
        assert rig.labels() == []
        rows = read(home / ".sia" / "suggestions.jsonl").rows
        assert [row["event"] for row in rows] == ["suggested", "repeated"][:count]
    (first, second) = rows
    assert (first["kind"], first["category"]) == ("create_skill", "demo")
    assert (first["query"], first["state"]) == (
        "demo echo this to me", {"input": "demo echo this to me"},
    )  # fmt: skip
    assert [item["phase"] for item in first["decisions"]][0] == "navigate_category"
    logged = {row["id"] for row in rig.rows()}
    assert {item["id"] for item in [*first["decisions"], *second["decisions"]]} <= logged
    skill("echo", ECHO)
    assert agent().all("demo echo this to me") == 0
    assert read(home / ".sia" / "suggestions.jsonl").rows[-1]["event"] == "done"
