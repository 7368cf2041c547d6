"""Saved iterations run again, and two of them side by side."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from semif.errors import ModelError
from semif.testing import ScriptedDecider
from semif.types import Answer, Decision
from sia.compare import compare
from sia.context import parse_iteration, to_xml
from sia.entries import (
    DecisionView,
    Figures,
    InputEntry,
    Iteration,
    ProcessView,
    Response,
    Text,
    WriteStdout,
)
from sia.prompt import prompt
from sia.replay import decision_of, replay

NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
OPTIONS = (("no", "It asks for nothing.", 0.1), ("yes", "It asks for something.", 0.9))


def view(
    phase: str, source: str, state: Mapping[str, str] | str, **changes: object
) -> DecisionView:
    text = state if isinstance(state, str) else json.dumps(state)
    usual = {"selected": "yes", "question": "A request?", "options": OPTIONS}
    return DecisionView(f"d-{phase}", phase, source, state=text, **{**usual, **changes})


def recorded(*decisions: DecisionView) -> Iteration:
    iteration = Iteration(
        session="20261201T090000Z-0001",
        n=1,
        figures=Figures(NOW),
        entries=(
            InputEntry("e1", "typed", "r1", Text("feed the cat")),
            InputEntry("e2", "typed", "r2", Text("thanks")),
            WriteStdout("e3", "r1", Text("fed")),
        ),
        process=ProcessView("pets/feed", 1, "r1", "feed the cat"),
        decisions=decisions,
        response=Response("<write_stdout>fed</write_stdout>", "skill"),
        decision_revision="abc",
    )
    return replace(iteration, prompt_sha256=prompt(iteration).sha256)


def edited(iteration: Iteration, old: str, new: str) -> Iteration:
    data = to_xml(iteration)
    assert data.count(old.encode()) >= 1
    return parse_iteration(data.replace(old.encode(), new.encode()))


def finds(policy: Callable[[Decision], Mapping[str, float] | str]):
    decider = ScriptedDecider(policy, "abc")

    def find(id: str) -> Callable[[Decision], Answer]:
        if id != "abc":
            raise ModelError.missing(f"revision {id} is neither in the home nor shipped")
        return lambda decision: decider.decide([decision])[0]

    return find


def as_recorded(decision: Decision) -> Mapping[str, float]:
    return {"no": 0.1, "yes": 0.9}


GATE = {"current_process": "none", "input": "feed the cat"}


def test_what_is_decided_the_same_is_equal() -> None:
    result = replay(recorded(view("contains_request", "e1", GATE)), finds(as_recorded))
    assert result.equal and result.prompt and result.revision == "abc"
    whole = result.to_json()
    assert whole["equal"] is True and whole["response"]["by"] == "skill"
    assert whole["decisions"][0]["probs"]["before"] == {"no": 0.1, "yes": 0.9}


@pytest.mark.parametrize(("now", "equal"), [(0.909, True), (0.889, False), (0.4, False)])
def test_equal_is_the_same_choice_within_a_hundredth(now: float, equal: bool) -> None:
    result = replay(
        recorded(view("contains_request", "e1", GATE)),
        finds(lambda decision: {"no": 1 - now, "yes": now}),
    )
    assert result.equal is equal
    if now == 0.4:
        assert result.moved[0].why == "yes was chosen, now no"
    elif not equal:
        assert result.moved[0].why.startswith("p of ")


def test_an_edited_input_changes_what_its_decisions_see_and_only_those() -> None:
    iteration = recorded(
        view("contains_request", "e1", GATE),
        view("navigate_category", "r1", {"input": "feed the cat"}),
        view("predict", "r1", {"request": "feed the cat", "skill": "feed", "observed": "full"}),
        view("urgency", "e2", {"current_process": "none", "input": "thanks"}),
        view("read_next", "r1", {"shelf": "3"}),
        view("unknown_phase", "e1", "a plain state"),
    )
    changed = edited(iteration, "<![CDATA[feed the cat]]></input>", "<![CDATA[pet it]]></input>")
    states = [decision_of(one, changed, False).state for one in changed.decisions]
    assert states == [
        {"current_process": "none", "input": "pet it"},
        {"input": "pet it"},
        {"request": "pet it", "skill": "feed", "observed": "full"},
        {"current_process": "none", "input": "thanks"},
        {"shelf": "3"},
        "a plain state",
    ]
    seen = finds(
        lambda decision: "no" if "pet it" in str(decision.state) else as_recorded(decision)
    )
    result = replay(changed, seen)
    assert not result.prompt
    moved = [one.before.phase for one in result.moved]
    assert moved == ["contains_request", "navigate_category", "predict"]


def test_an_edited_state_counts_while_the_context_stands() -> None:
    iteration = recorded(view("contains_request", "e1", GATE))
    state = json.dumps({**GATE, "current_process": "driving drive: home"})
    changed = replace(iteration, decisions=(replace(iteration.decisions[0], state=state),))
    seen = []
    replay(changed, finds(lambda decision: seen.append(decision.state) or as_recorded(decision)))
    assert seen == [{"current_process": "driving drive: home", "input": "feed the cat"}]


def test_a_revision_that_is_gone_is_named() -> None:
    iteration = replace(recorded(view("contains_request", "e1", GATE)), decision_revision="gone")
    with pytest.raises(ModelError, match="revision gone is neither"):
        replay(iteration, finds(as_recorded))
    assert replay(iteration, finds(as_recorded), "abc").equal


def test_without_decisions_no_model_is_needed() -> None:
    def find(id: str) -> Callable[[Decision], Answer]:
        raise AssertionError

    assert replay(recorded(), find).equal


def test_two_iterations_are_compared_entry_by_entry() -> None:
    a = recorded(view("contains_request", "e1", GATE))
    assert compare(a, a).equal
    more = (*a.entries[:1], *a.entries[2:], InputEntry("e4", "typed", "r4", Text("more\nfood")))
    b = replace(
        a,
        entries=(more[0], replace(more[1], text=Text("fed twice")), more[2]),
        decisions=(replace(a.decisions[0], selected="no"), view("urgency", "e1", GATE)),
        process=None,
    )
    result = compare(a, b)
    assert [(change.kind, change.what) for change in result.changes] == [
        ("removed", "input e2"),
        ("changed", "write_stdout e3"),
        ("added", "input e4"),
        ("removed", "process"),
    ]
    changed = result.changes[1].lines
    assert any(line.startswith("-") and "fed]]" in line for line in changed)
    assert any(line.startswith("+") and "fed twice" in line for line in changed)
    assert [moved.phase for moved in result.decisions] == ["urgency"]
    assert result.to_json()["equal"] is False
