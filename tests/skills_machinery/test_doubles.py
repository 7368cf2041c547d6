"""The doubles that skills are tested with must themselves find what is wrong with a skill."""

from datetime import timedelta

import pytest

from semif.errors import DecisionError
from sia.skills.api import Reminder, Unproven
from sia.skills.testing import FakeCtx, run_actions, run_interrupted


@pytest.fixture
def make(payload, folders):
    def call(**more) -> FakeCtx:
        return FakeCtx(
            "feed the cat", now=payload.now, folders=folders, person=payload.person, **more
        )

    return call


GOOD = """
from sia.skills.api import Finished
def act(ctx):
    ctx.say("hello")
    ctx.state["name"] = ctx.ask("Name?")
    ctx.state["which"] = ctx.choose("Which?", [("a", "A"), ("b", "B")])
    ctx.state["one"] = ctx.choose("One?", [("only", "Only")])
def send(ctx):
    if not ctx.confirm("Send?"):
        raise Finished("Not sent.")
    ctx.state["sent"] = ctx.effect("send", lambda key: [key])
    ctx.remind(ctx.now, "again")
    ctx.say("done " + ctx.state["name"])
def verify(ctx):
    return len(ctx.reminders()) == 1
"""


def test_a_skill_is_run_and_recorded(write, make):
    folder = write("demo/one", GOOD, actions="act send")
    ctx = make(answers=["Tom", "y"], choices=["b"])
    outcome = run_actions(folder, ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    expected = {"name": "Tom", "which": "b", "one": "only", "sent": ["r1-send-2"]}
    assert outcome.state == ctx.state == expected
    assert ctx.said == ["hello", "done Tom"] and ctx.asked == ["Name?", "Send?"]
    assert ctx.effects == [("send", "r1-send-2", ["r1-send-2"])]
    assert ctx.reminders_set == [Reminder("m1", ctx.now, "again", "waiting")]
    assert ctx.chosen == [("Which?", [("a", "A"), ("b", "B")], "b")]

    no = make(answers=lambda question, options: "no" if options else "Tom", choices=["b"])
    outcome = run_actions(folder, no)
    assert (outcome.kind, outcome.message, no.effects) == ("finished", "Not sent.", [])
    assert outcome.value is False  # the world was asked: no reminder
    yes = make(answers=["Tom"], choices=["b"], yes=True)
    assert run_actions(folder, yes).kind == "done" and yes.asked == ["Name?"]


def test_interrupted_after_every_call_it_comes_to_the_same(write, make):
    folder = write("demo/one", GOOD, actions="act send")
    whole = make(answers=["Tom", "y"], choices=["b"])
    plain = run_actions(folder, whole)
    ctx, outcome = run_interrupted(folder, lambda: make(answers=["Tom", "y"], choices=["b"]))
    assert outcome == plain
    assert (ctx.said, ctx.asked, ctx.effects) == (whole.said, whole.asked, whole.effects)
    assert ctx.reminders_set == whole.reminders_set


def test_an_effect_outside_of_unknown_fate_is_asked_about(write, make):
    folder = write("demo/one", GOOD, actions="act send", more="sia-effects: outside")
    for answer, tries, value in (("no", 1, None), ("yes", 2, ["r1-send-2"])):
        ctx, outcome = run_interrupted(
            folder,
            lambda answer=answer: make(answers=["Tom", "y", answer], choices=["b"]),
            lose=["send"],
        )
        assert ctx.asked[-1] == "send may have happened already. Do it again?"
        assert ctx.tried() == [("send", "r1-send-2", tries)]
        assert outcome.state["sent"] == value


def test_a_skill_that_changes_its_calls_is_found(write, make, tmp_path):
    mark = tmp_path / "mark"
    folder = write(
        "demo/one",
        f"""
        from pathlib import Path
        def act(ctx):
            mark = Path({str(mark)!r})
            if not mark.exists():
                mark.touch()
                ctx.say("first")
            ctx.ask("Name?")
        """,
    )
    with pytest.raises(AssertionError, match="was say the first time, now ask"):
        run_interrupted(folder, lambda: make(answers=["Tom"]))


def test_a_refusal_to_write_is_kept_like_a_text(write, make):
    folder = write(
        "demo/one",
        """
        from sia.skills.api import Unproven
        def act(ctx):
            try:
                ctx.state["text"] = ctx.generate("report", {"facts": "a: 2"})
            except Unproven as error:
                ctx.state["text"] = ctx.ask(str(error))
        """,
    )
    tried = []

    def once(fields):
        tried.append(fields)
        raise Unproven("not fit")

    ctx, outcome = run_interrupted(folder, lambda: make(answers=["two"], proven={"report": once}))
    assert outcome.state == {"text": "two"} and ctx.asked == ["not fit"]
    assert tried == [{"facts": "a: 2"}]
    ctx, outcome = run_interrupted(folder, lambda: make(proven=["report"]))
    assert outcome.state == {"text": "a: 2"}


def test_scripts_that_do_not_fit_are_said(write, make):
    ctx = make(answers=["maybe"], choices=["c"])
    with pytest.raises(AssertionError, match="'c' is none of"):
        ctx.choose("Which?", [("a", "A"), ("b", "B")])
    with pytest.raises(AssertionError, match="'maybe' is none of"):
        ctx.confirm("Sure?")
    with pytest.raises(AssertionError, match="no answer left for 'Name\\?'"):
        ctx.ask("Name?")
    with pytest.raises(TypeError, match="the result of effect send must be JSON"):
        ctx.effect("send", lambda key: {1})
    with pytest.raises(Unproven):
        ctx.generate("message", {"to": "Tom", "request": "x"})
    with pytest.raises(DecisionError, match="input.cc: is unknown"):
        ctx.generate("message", {"to": "Tom", "request": "x", "cc": "Bo"})


def test_the_rest_of_the_agent(make, payload):
    later = Reminder("m1", payload.now + timedelta(hours=2), "later", "waiting")
    soon = Reminder("m2", payload.now + timedelta(hours=1), "soon", "waiting")
    ctx = make(
        waiting=[later, soon],
        skills=[("a/b", "AB.")],
        interrupted=["sing"],
        proven={"message": lambda fields: fields["request"].upper()},
        choices=["none"],
    )
    assert ctx.generate("message", {"to": "Tom", "request": "hi"}) == "HI"
    assert ctx.reminders() == [soon, later]
    assert ctx.cancel_reminder("m2") is True and ctx.cancel_reminder("m2") is False
    assert ctx.reminders() == [later]
    assert ctx.skills() == [("a/b", "AB.")]
    assert ctx.interrupted() == ["sing"] and ctx.cancel_interrupted() == ["sing"]
    assert ctx.interrupted() == []
    assert ctx.choose("Which?", [("a", "A")], none=True) == "none"


def test_a_fault_of_the_skill_is_raised_with_its_own_type(write, make):
    folder = write("demo/one", "def act(ctx): ctx.state['x'] = {1}\n")
    with pytest.raises(TypeError, match="ctx.state after act must be JSON"):
        run_actions(folder, make())
    folder = write("demo/two", "def act(ctx): 1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        run_actions(folder, make())
