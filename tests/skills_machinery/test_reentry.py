"""Entering an action again, in a new worker each time, as after an answer or a restart."""

import os
from collections.abc import Callable

import pytest

from sia.skills.calls import Outcome, Suspended
from sia.skills.host import Worker, passed_environment


class Agent:
    """The least an agent must do: keep what each call gave by ordinal, and settle effects."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.said: list[str] = []
        self.stored: dict[int, object] = {}
        self.effects: dict[int, tuple[str, object]] = {}
        self.unknown: list[tuple[str, object]] = []
        self.fate = "do"
        self.deaf = False  # the agent dies before it can keep that an effect happened

    def handle(self, method: str, args: dict) -> object:
        ordinal = args["ordinal"]
        if method == "effect_begin":
            known = ordinal in self.effects
            status, value = self.effects.setdefault(ordinal, ("unknown", None))
            status = status if known else "new"
            return {"status": status, "key": f"r7-act-{ordinal}", "value": value}
        if method == "effect_unknown":
            self.unknown.append((args["name"], args["checked"]))
            return self.fate
        if method == "effect_end":
            if self.deaf:
                raise ConnectionAbortedError("kill -9")
            self.effects[ordinal] = ("confirmed", args["value"])
            return None
        if ordinal not in self.stored:
            self.stored[ordinal] = self.first(method, args)
        return self.stored[ordinal]

    def first(self, method: str, args: dict) -> object:
        if method == "say":
            return self.said.append(args["text"])
        if method == "choose":
            return args["options"][-1][0]
        if method == "ask" and args["question"] in self.answers:
            return self.answers[args["question"]]
        self.asked.append(args["question"])
        raise Suspended


@pytest.fixture
def enter(log, run) -> Callable[..., Outcome]:
    """One entry of the action, in a worker of its own."""

    def call(made, agent, **more) -> Outcome:
        worker = Worker.spawn(log, passed_environment(os.environ))
        try:
            return run(worker, made, agent.handle, **more)
        finally:
            worker.close()

    return call


def test_a_suspended_ask_is_entered_again_and_nothing_happens_twice(skill, enter, tmp_path):
    world = tmp_path / "world"
    made = skill(
        f"""
        def send(key):
            with open({str(world)!r}, "a") as file:
                file.write(key + "\\n")
            return {{"sent": key}}
        def act(ctx):
            ctx.state["rows"] = ctx.state.get("rows", 0) + 1
            ctx.say("working")
            ctx.state["which"] = ctx.choose("Which?", [("a", "A"), ("b", "B")])
            ctx.state["sent"] = ctx.effect("send", send)
            ctx.state["name"] = ctx.ask("Name?")
            ctx.state["again"] = ctx.effect("send again", send)
            ctx.say("done " + ctx.state["name"])
        """
    )
    agent = Agent({})
    outcome = enter(made, agent)
    assert outcome.kind == "suspended" and outcome.state == {"given": 1}
    assert agent.asked == ["Name?"] and agent.said == ["working"]
    assert world.read_text() == "r7-act-3\n"

    assert enter(made, agent).kind == "suspended"  # still no answer: a restart in between
    agent.answers["Name?"] = "Tom"
    outcome = enter(made, agent)
    assert outcome.kind == "done"
    assert outcome.state == {
        "given": 1,
        "rows": 1,
        "which": "b",
        "sent": {"sent": "r7-act-3"},
        "name": "Tom",
        "again": {"sent": "r7-act-5"},
    }
    assert agent.said == ["working", "done Tom"]
    assert world.read_text() == "r7-act-3\nr7-act-5\n"


def test_a_skill_cannot_swallow_the_suspension(skill, enter):
    made = skill(
        """
        def act(ctx):
            try:
                ctx.ask("Name?")
            except:
                pass
            finally:
                try:
                    ctx.say("never")
                except BaseException:
                    pass
            ctx.state["went"] = "on"
        """
    )
    agent = Agent({})
    outcome = enter(made, agent)
    assert outcome.kind == "suspended" and outcome.state == {"given": 1}
    assert agent.said == []


@pytest.mark.parametrize(
    ("check", "fate", "asked", "times", "value"),
    [
        ("lambda key: True", "do", [], 1, None),
        ("lambda key: False", "do", [("send", False)], 2, "r7-act-1"),
        ("lambda key: None", "skip", [("send", None)], 1, None),
        ("None", "skip", [("send", None)], 1, None),
        ("None", "do", [("send", None)], 2, "r7-act-1"),
    ],
)
def test_an_effect_cut_off_before_it_was_recorded(
    skill, enter, tmp_path, check, fate, asked, times, value
):
    world = tmp_path / "world"
    made = skill(
        f"""
        def send(key):
            with open({str(world)!r}, "a") as file:
                file.write(key + "\\n")
            return key
        def act(ctx):
            ctx.state["sent"] = ctx.effect("send", send, {check})
        """
    )
    agent = Agent({})
    agent.deaf, agent.fate = True, fate
    with pytest.raises(ConnectionAbortedError):
        enter(made, agent)
    agent.deaf = False
    assert enter(made, agent).state == {"given": 1, "sent": value}
    assert agent.unknown == asked
    assert world.read_text() == "r7-act-1\n" * times
    assert enter(made, agent).state == {"given": 1, "sent": value}  # settled for good
    assert agent.unknown == asked and world.read_text() == "r7-act-1\n" * times


def test_a_limit_within_an_effect_leaves_its_fate_unknown(skill, enter):
    made = skill(
        """
        import time
        def act(ctx):
            ctx.effect("send", lambda key: time.sleep(60), lambda key: True)
        """
    )
    agent = Agent({})
    assert enter(made, agent, seconds=0.4).kind == "limit"
    assert enter(made, agent, seconds=20.0).kind == "done"
    assert agent.unknown == []


def test_an_effect_whose_result_is_not_json_is_still_recorded(skill, enter):
    agent = Agent({})
    outcome = enter(skill("def act(ctx): ctx.effect('send', lambda key: {key})"), agent)
    assert outcome.kind == "failed"
    assert outcome.message == (
        "TypeError: the result of effect send must be JSON: "
        "Object of type set is not JSON serializable (demo/one/skill.py:1)"
    )
    assert agent.effects == {1: ("confirmed", None)}


def test_calls_inside_an_effect_are_refused(skill, enter):
    outcome = enter(skill("def act(ctx): ctx.effect('send', lambda key: ctx.say('x'))"), Agent({}))
    assert outcome.message == (
        "RuntimeError: ctx.say inside the effect send: call it outside (demo/one/skill.py:1)"
    )
