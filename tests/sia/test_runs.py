"""A run around its actions: what stood ready, whether it would work, its outcome, its cost."""

import json
import threading
import time

import pytest

from sia.events import Asked, Ended, Notice, TurnEnded
from sia.generator.types import TASKS
from sia.scripts import Cancel, Until
from sia.store import Store

PREDICT = {"answers": 0.5, "predict": 0.6}
DO = """
def observe(ctx):
    return {"door": "open", "note": "password: hunter2"}

def act(ctx):
    ctx.state["name"] = "Anna"
    ctx.say(f"did {ctx.request}")
"""
GOOD = json.dumps({"success": True, "cause": "none", "summary": "It was done."})


def bad(cause: str = "choice", summary: str = "It went to the wrong one.") -> str:
    return json.dumps({"success": False, "cause": cause, "summary": summary})


def doubts(p: float):
    """The policy of the rig, with this probability of success."""

    def decide(policy):
        def choose(decision):
            if decision.phase == "predict":
                return {"succeed": p, "fail": 1 - p}
            return policy(decision)

        return choose

    return decide


@pytest.fixture
def doubting(make, rigs):
    """doubting(p, **more): an agent that foresees success with p."""
    return lambda p=0.2, **more: make(
        more.pop("replies", ()), decide=doubts(p)(rigs.policy), thresholds=PREDICT, **more
    )


def phases(rig) -> list[str]:
    return [row["phase"] for row in rig.rows()]


# predict


def test_a_prediction_sees_the_request_the_skill_and_what_stands_ready(doubting, skill) -> None:
    skill("do", DO)
    rig = doubting()
    assert rig.all("do it") == 0 and rig.said == ["did do it"]  # of low stakes: nobody is asked
    (row,) = [row for row in rig.rows() if row["phase"] == "predict"]
    assert row["state"] == {
        "request": "do it",
        "skill": "demo/do: Does do.",
        "observed": "door: open; note: password: [redacted]",
    }
    assert row["selected"] == "fail" and row["run"] == "r1"


@pytest.mark.parametrize("more", ["sia-stakes: high", "sia-effects: outside"])
@pytest.mark.parametrize(("answer", "status"), [("yes", "done"), ("no", "cancelled")])
def test_a_doubt_is_put_to_the_person_first(doubting, skill, more, answer, status) -> None:
    skill("do", DO, more=more)
    rig = doubting().start()
    rig.say("do it")
    asked = rig.wait(Asked)
    assert asked.text.startswith("I doubt that this will work (2")
    assert asked.text.endswith("%): do it. Go on?") and asked.options == ("yes", "no")
    assert rig.said == []
    rig.say(answer)
    assert rig.wait(Ended, run="r1").status == status
    assert rig.end() == 0
    assert rig.said == (["did do it"] if answer == "yes" else ["All right, I leave it: do it"])
    assert phases(rig).count("predict") == 1  # not decided anew by the answer


def test_without_a_doubt_or_a_threshold_nobody_is_asked(doubting, make, rigs, skill) -> None:
    skill("do", DO, more="sia-stakes: high")
    rig = doubting(0.9)
    assert rig.all("do it") == 0 and rig.asked == [] and phases(rig).count("predict") == 1
    rig = make(decide=doubts(0.1)(rigs.policy))  # this revision was never taught it
    assert rig.all("do it") == 0 and rig.asked == [] and phases(rig).count("predict") == 1


def test_what_the_person_confirmed_is_not_asked_twice(doubting, skill) -> None:
    skill(
        "do",
        """
def ready(ctx):
    ctx.state["to"] = "Anna"
    assert ctx.confirm("Send it?")

def send(ctx):
    ctx.say("sent")
""",
        actions="ready send",
        more="sia-effects: outside\nsia-predict: send",
    )
    rig = doubting().start()
    rig.say("do it")
    rig.wait(Asked)
    rig.say("yes")
    rig.wait(Ended, run="r1")
    assert rig.end() == 0 and rig.asked == ["Send it?"] and rig.said == ["sent"]
    (row,) = [row for row in rig.rows() if row["phase"] == "predict"]
    assert row["state"]["observed"] == "to: Anna"  # predicted once the arguments were there


def test_a_doubt_with_nobody_there_ends_the_run_undone(doubting, skill) -> None:
    skill("do", DO, more="sia-stakes: high")
    rig = doubting()
    assert rig.all("do it") == 1
    (said,) = rig.said
    assert said.startswith("nobody is there to answer: I doubt that this will work")
    assert doubting(yes=True).all("do it") == 0  # agreed to in advance


# observe


def test_observe_may_refuse(make, skill) -> None:
    skill(
        "do",
        """
from sia.skills.api import Failed

def observe(ctx):
    raise Failed("The door is shut.", "environment")

def act(ctx):
    ctx.say("did it")
""",
    )
    rig = make()
    assert rig.all("do it") == 1 and rig.said == ["The door is shut."]


def test_observe_changes_nothing(make, skill) -> None:
    skill("do", "def observe(ctx):\n    ctx.say('hm')\n\ndef act(ctx):\n    pass\n")
    rig = make()
    assert rig.all("do it") == 1
    assert rig.said == ["observe may only look: ctx.say belongs into an action"]


WATCHED = """
import pathlib, time

WORLD = pathlib.Path({world!r})

def observe(ctx):
    return {{"door": WORLD.read_text()}}

def first(ctx):
    WORLD.write_text("ours")

def second(ctx):
    while not WORLD.with_name("gate").exists():
        time.sleep(0.01)
    ctx.say("through the door")
"""


@pytest.mark.parametrize(("door", "answer"), [("ours", ""), ("shut", "yes"), ("shut", "no")])
def test_a_displaced_run_goes_on_in_the_world_it_left(make, skill, tmp_path, door, answer) -> None:
    world = tmp_path / "world"
    world.write_text("open")
    skill("watched", WATCHED.format(world=str(world)), actions="first second")
    skill("shut", f"def act(ctx):\n    open({str(world)!r}, 'w').write({door!r})\n")
    rig = make().start()
    rig.say("watched")
    rig.wait(TurnEnded, n=2)
    rig.say("now shut")
    rig.wait(Ended, run="r2")
    (tmp_path / "gate").touch()
    if answer:
        asked = "While this was interrupted, something changed (door: ours, now shut). Go on with: "
        assert rig.wait(Asked).text == f"{asked}watched?"
        rig.say(answer)
    status = "cancelled" if answer == "no" else "done"
    assert rig.wait(Ended, run="r1").status == status
    assert rig.end() == 0
    gone = ["All right, I leave it: watched"] if answer == "no" else ["through the door"]
    assert rig.said == gone


# assess


def test_the_judge_says_what_became_of_it(make, skill) -> None:
    skill("do", DO)
    rig = make([GOOD], proven=frozenset({"judge"}))
    assert rig.all("do it") == 0 and rig.said == ["did do it"]
    assert rig.wait(Ended, run="r1").text == "It was done."
    (call,) = rig.generator.calls
    assert "request: do it" in call.parts[1].text
    assert "before: door: open; note: password: [redacted]" in call.parts[1].text
    assert "output: did do it" in call.parts[1].text
    taken = {row["id"]: row["selected"] for row in rig.rows() if "navigate" in row["phase"]}
    assert {label["row"]: label["option"] for label in rig.labels()} == taken
    assert {(label["source"], label["weight"], label["by"]) for label in rig.labels()} == {
        ("assessed", 0.0, "scripted")
    }


def test_a_failure_names_its_phase_and_is_tried_again_with_an_updated_request(make, skill) -> None:
    skill("do", "def act(ctx):\n    ctx.say(ctx.choose('?', [('a', 'A'), ('b', 'B')]))\n")
    rig = make([bad(), "do the other", GOOD], proven=frozenset({"judge", "rewrite"}))
    assert rig.all("do it") == 0
    again = "That did not work: It went to the wrong one. I try again: do the other"
    assert rig.said == ["a", again, "a"]
    assert rig.runs() == {"r1": "done"} and rig.ended == [("r1", "done")]
    first, *_ = [row for row in rig.rows() if row["phase"] == "read_next"]
    wrong = [label for label in rig.labels() if label["polarity"] == "not"]
    assert [(label["row"], label["option"]) for label in wrong] == [(first["id"], "a")]
    assert phases(rig).count("navigate_category") == 2  # it finds its way anew


HOW = ("gently", "slowly", "softly", "well")


def test_it_is_tried_again_three_times_at_most(make, skill) -> None:
    skill("do", DO)
    script = [text for how in HOW for text in (bad(), f"do it {how}")]
    rig = make(script, proven=frozenset({"judge", "rewrite"}))
    assert rig.all("do it") == 1
    assert [said for said in rig.said if said.startswith("did")] == [
        "did do it", *(f"did do it {how}" for how in HOW[:3])
    ]  # fmt: skip
    assert rig.said[-1] == "That did not work: It went to the wrong one."
    assert len(rig.generator.calls) == 7  # the last is not even asked for


@pytest.mark.parametrize(("answer", "sent"), [("yes", 2), ("no", 1)])
def test_what_left_the_machine_leaves_again_only_if_the_person_agrees(
    make, skill, tmp_path, answer, sent
) -> None:
    world = tmp_path / "world"
    code = f"""
def do(key):
    with open({str(world)!r}, "a") as file:
        file.write(key + "\\n")

def act(ctx):
    ctx.effect("send it", do)
"""
    skill("do", code, more="sia-effects: outside")
    rig = make([bad(), "do it well", GOOD], proven=frozenset({"judge", "rewrite"})).start()
    rig.say("do it")
    asked = "That did not work: It went to the wrong one. Shall I try again: do it well?"
    assert rig.wait(Asked).text == asked
    rig.say(answer)
    assert rig.wait(Ended, run="r1").status == ("done" if answer == "yes" else "failed")
    rig.end()
    # A key of its own: what is looked for by it is never the one of before.
    assert world.read_text().split() == ["r1-act-1", "r1.1-act-1"][:sent]
    wrong = [label for label in rig.labels() if label["polarity"] == "not"]
    assert len(wrong) == 1  # once, though the question came between


VERIFIED = "def act(ctx):\n    pass\n\ndef verify(ctx):\n    return {result}\n"


def test_the_world_goes_before_the_judge_who_is_compared_with_it(make, skill) -> None:
    skill("do", VERIFIED.format(result=True))
    rig = make([bad()], proven=frozenset({"judge", "rewrite"}))
    assert rig.all("do it") == 0 and rig.runs() == {"r1": "done"}
    assert rig.said == [] and len(rig.generator.calls) == 1
    assert {label["source"] for label in rig.labels() if label["weight"]} == {"verified"}


def test_a_judge_who_agreed_thirty_times_counts(make, skill) -> None:
    skill("do", VERIFIED.format(result=True))
    skill("say", "def act(ctx):\n    ctx.say('hello')\n")
    rig = make([GOOD] * 31, proven=frozenset({"judge"}))
    assert rig.all(*["do it"] * 31, "say it") == 0
    assert len(rig.generator.calls) == 31  # no longer beside the world
    weights = [label["weight"] for label in rig.labels() if label["source"] == "assessed"]
    assert weights == [0.0] * 60 + [0.3] * 2


def test_a_judge_who_writes_nonsense_is_no_judge(make, skill) -> None:
    skill("do", DO)
    rig = make(["it went well"], proven=frozenset({"judge"}))
    assert rig.all("do it") == 0
    assert rig.labels() == [] and rig.ended == [("r1", "done")]


def test_verify_may_name_the_cause(make, skill) -> None:
    skill(
        "do",
        """
from sia.skills.api import Failed

def act(ctx):
    ctx.choose("Which?", [("a", "A"), ("b", "B")])

def verify(ctx):
    raise Failed("It was the other one.", "which")
""",
    )
    rig = make()
    assert rig.all("do it") == 1
    assert rig.said == ["That did not work: It was the other one."]
    (label,) = rig.labels()
    (row,) = [row for row in rig.rows() if row["phase"] == "read_next"]
    assert (label["row"], label["polarity"], label["source"]) == (row["id"], "not", "verified")


# budgets


def write(task: str = "report") -> str:
    return f"def act(ctx):\n    ctx.say(ctx.generate({task!r}, {{'facts': ctx.request}}))\n"


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ("tokens=3", "the 3 tokens are used up"),
        ("money=0.00001", "its money, 1e-05, is used up"),
    ],
)
def test_a_run_that_writes_too_much_is_ended(make, skill, home, budget, why) -> None:
    with (home / "sia.toml").open("a") as file:
        file.write("[generator]\nprice_written = 10\n")
    skill("do", write(), more=f"sia-budget: {budget}")
    rig = make(["do it with more words than that"])
    assert rig.all("do it") == 1
    assert rig.said == [f"I gave up on this: do it ({why})."]


def test_over_budget_it_is_tried_once_with_less(make, skill) -> None:
    degrade = 'sia-degrade: "do less of {request}"'
    skill("do", write(), more=f"sia-budget: tokens=8\n{degrade}")
    rig = make(["do it in a text that has far too many words for it", "do less of do it"])
    assert rig.all("do it") == 0
    assert rig.said == ["do less of do it"] and rig.ended == [("r1", "done")]
    told = "demo/do: the 8 tokens are used up; again with less: do less of do it"
    assert told in [event.text for event in rig.events if isinstance(event, Notice)]
    rig = make(["do it in a text that has far too many words for it"] * 2)
    assert rig.all("do it") == 1
    (said,) = rig.said
    assert said.endswith("(the 8 tokens are used up, with less too).")


def test_what_has_touched_the_world_is_not_begun_anew(make, skill, tmp_path) -> None:
    world = tmp_path / "world"
    code = f"""
import threading
import time

def act(ctx):
    ctx.effect("knock", lambda key: open({str(world)!r}, "a").write(key))
    time.sleep(60)
"""
    skill("do", code, more='sia-budget: seconds=1.5\nsia-degrade: "do less"')
    rig = make()
    begun = time.monotonic()
    assert rig.all("do it") == 1 and time.monotonic() - begun < 15
    assert rig.said == ["I gave up on this: do it (act took longer than 1.5 s and was ended)."]
    assert world.read_text() == "r1-act-1"


def test_writing_is_cut_off_when_the_seconds_are_over(make, skill) -> None:
    from sia.generator.testing import until_cancelled

    skill("do", write(), more="sia-budget: seconds=1")
    rig = make([until_cancelled])
    assert rig.all("do it") == 1
    (said,) = rig.said
    assert said.startswith("I gave up on this: do it (act took longer than 1 s")


def test_actions_are_counted(make, skill) -> None:
    code = "def act(ctx):\n    while ctx.ask('More?') != 're no':\n        pass\n"
    skill("do", code, more="sia-budget: actions=3")
    rig = make().start()
    rig.say("do it")
    for n in range(3):
        rig.until(lambda n=n: len(rig.asked) == n + 1)
        rig.say(f"re {n}")
    rig.wait(Ended, run="r1", status="failed")
    rig.end()
    assert rig.said == ["I gave up on this: do it (the 3 actions are used up)."]


def test_a_skill_worked_by_the_generator_has_a_budget_too(make, rigs, home) -> None:
    place = home / "skills" / "demo" / "do"
    place.mkdir(parents=True)
    (place.parent / "CATEGORY.md").write_text("---\nname: demo\ndescription: Things.\n---\n")
    (place / "SKILL.md").write_text(
        "---\nname: do\ndescription: Does.\nmetadata:\n  sia-budget: tokens=2\n"
        '  sia-degrade: "do a little"\n---\nDo it.\n'
    )
    thought = "<reasoning>a thought that is far too long for it</reasoning>"
    rig = make([thought, "<write_stdout>done</write_stdout>"], proven=TASKS)
    assert rig.all("do it") == 0 and rig.said == ["done"]
    rig = make([thought, thought])
    assert rig.all("do it") == 1
    assert rig.said == ["I gave up on this: do a little (the 2 tokens are used up, with less too)."]


def test_a_home_of_before_there_were_budgets_is_brought_up_to_date(make, skill, home) -> None:
    import sqlite3

    skill("do", DO)
    rig = make()
    rig.say("do it")
    rig.agent.close()
    with sqlite3.connect(home / ".sia/state.db") as db:
        for name in ("spent", "cut"):
            db.execute(f"ALTER TABLE runs DROP COLUMN {name}")
        db.execute("DROP TABLE concerns")
        for name in ("repeat", "timer", "rang"):
            db.execute(f"ALTER TABLE reminders DROP COLUMN {name}")
        db.execute("UPDATE meta SET value = '1' WHERE key = 'schema'")
    db.close()
    looked = Store.look(home / ".sia/state.db")
    assert [item.text for item in looked.inputs()] == ["do it"] and not looked.runs()
    looked.close()
    rig = make().start()
    assert rig.end() == 0 and rig.said == ["did do it"]


def test_what_waits_is_woken_by_the_cancel_or_by_the_time() -> None:
    cancel, woken = Cancel(), threading.Event()
    with Until(cancel, 3600) as until:
        until.add(woken.set)
        assert not until.is_set()
        cancel.set()
        assert until.is_set() and woken.is_set() and until.wait(0)
    with Until(Cancel(), 0.05) as until:
        assert until.wait(10)
    with Until(cancel, float("inf")) as until:  # set before
        assert until.is_set()
    cancel.clear()
    with Until(cancel, float("inf")) as until:
        assert not until.is_set()
    cancel.set()
    assert not until.is_set()  # it no longer listens


def test_without_anything_seen_nothing_is_predicted(doubting, skill) -> None:
    skill("do", "def act(ctx):\n    ctx.say('did it')\n", more="sia-stakes: high")
    rig = doubting()
    assert rig.all("do it") == 0 and rig.asked == [] and "predict" not in phases(rig)
