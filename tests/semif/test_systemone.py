from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from semif.serving import systemone
from semif.serving.systemone import Asked, RequestError
from semif.testing import ScriptedDecider
from semif.types import Decision, Option

NOUL = {"type": "noul", "instructions": "Is it?"}
CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"x": "An x.", "y": ""}}
SCORE = {"type": "score", "instructions": "How much?", "criteria": ["Low", "Mid", "High"]}


def decode(state: Any = "some text", questions: Any = None, **more: Any) -> list[Asked]:
    asked = {"q": NOUL} if questions is None else questions
    return systemone.decode(json.dumps({"state": state, "questions": asked, **more}).encode())


def test_questions_become_decisions() -> None:
    noul, choice, score = decode(questions={"n": NOUL, "c": CHOICE, "s": SCORE}, model="any")
    assert noul.decision == Decision(
        "n", "noul", "some text", "Is it?", (Option("yes", "Yes"), Option("no", "No"))
    )
    assert choice.decision.options == (Option("x", "An x."), Option("y"))
    assert score.decision.options == tuple(map(Option, "012", ("Low", "Mid", "High")))
    assert [one.decision.phase for one in (noul, choice, score)] == ["noul", "choice", "score"]
    assert not any(one.full for one in (noul, choice, score))
    assert decode(questions={"n": {**NOUL, "criteria": None}})[0].decision == noul.decision


@pytest.mark.parametrize(
    ("state", "read"),
    [
        (" as it\nis ", " as it\nis "),
        ({"a": "text", "b": 3, "c": True, "d": None, "e": 0.5}, None),
        ({"a": {"b": "é"}, "c": 1}, '{"a":{"b":"é"},"c":1}'),
        (["one", 2], '["one",2]'),
        (7, "7"),
        (False, "false"),
    ],
)
def test_any_json_is_a_state(state: Any, read: Any) -> None:
    read = read or {"a": "text", "b": "3", "c": "true", "d": "null", "e": "0.5"}
    assert decode(state)[0].decision.state == read


def test_a_phase_asks_for_all() -> None:
    asked = {**CHOICE, "phase": "navigate_skill", "none": ["y"]}
    (one,) = decode({"input": 3}, {"q": asked})
    assert one.full and one.decision.phase == "navigate_skill"
    assert one.decision.options == (Option("x", "An x."), Option("y", none=True))
    assert one.decision.state == {"input": 3}  # as it stands: the engine says what it takes


def q(**change: Any) -> dict[str, Any]:
    return {"q": {**CHOICE, **change}}


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"\xff", "the body is not UTF-8 at byte 0"),
        (b"{", "the body is no JSON: Expecting property name enclosed in double quotes at line 1"),
        (b"[" * 100_000, "the body is nested too deep"),
        (b'{"state":' + b"1" * 5000 + b"}", "the body is no JSON: "),
        (b"[1]", "the body must be an object with state and questions"),
        (b'{"state":"a","state":"b","questions":{}}', "'state' stands twice"),
        (b'{"state":"a","questions":{"q":1,"q":2}}', "questions: 'q' stands twice"),
        (b'{"state":{"a":1,"a":2},"questions":{}}', "state: 'a' stands twice"),
        (b'{"state":{"a":[NaN]},"questions":{}}', "state.a[0]: is no finite number"),
        (b'{"state":[1,{"b":{"c":1,"c":2}}],"questions":{}}', "state[1].b: 'c' stands twice"),
        (b'{"state":1e999,"questions":{}}', "state: is no finite number"),
        (b'{"questions":{}}', "state: is missing"),
        (b'{"state":"a"}', "questions: is missing"),
        ({"state": "a", "questions": {}}, "questions: must be an object of at least one"),
        ({"state": "a", "questions": [1]}, "questions: must be an object of at least one"),
        ({"state": "a", "questions": {"q": NOUL}, "model": 3}, "model: must be a string"),
        ({"state": "", "questions": {"q": NOUL}}, "state: is empty"),
        ({"state": None, "questions": {"q": NOUL}}, "state: is empty"),
        ({"state": {}, "questions": {"q": NOUL}}, "state: is empty"),
        ({"state": " \n", "questions": {"q": NOUL}}, "question 'q': state: is empty"),
        ({"state": "\ud800", "questions": {"q": NOUL}}, "question 'q': state: holds a lone"),
        (
            {"state": "a", "questions": {str(i): NOUL for i in range(257)}},
            "questions: 257 are more",
        ),
        ({"state": "a", "questions": {" ": NOUL}}, "questions: a question has an empty key"),
        ({"state": "a", "questions": {"\ud800": NOUL}}, "question '\\ud800': key: holds a lone"),
        ({"state": "a", "questions": {"a\nb": NOUL}}, "question 'a\\nb': key: holds a line break"),
        ({"state": "a", "questions": {"q": 1}}, "question 'q': must be an object"),
        (q(type="rank"), "question 'q': type: must be one of noul, choice, score"),
        (q(type=["noul"]), "question 'q': type: must be one of"),
        (q(instructions=None), "question 'q': instructions: must be a string"),
        (q(instructions=" "), "question 'q': instructions: is empty"),
        (q(type="noul"), "question 'q': criteria: a noul takes none"),
        (q(criteria=["x", "y"]), "question 'q': criteria: a choice needs an object"),
        (q(type="score"), "question 'q': criteria: a score needs a list of levels"),
        (q(criteria={"x": "An x."}), "question 'q': criteria: 1 of them is no decision"),
        (q(criteria={}), "question 'q': criteria: 0 of them is no decision"),
        (q(criteria={"x": "An x.", "y": 3}), "question 'q': criteria.y: must be a string"),
        (q(criteria={str(i): "" for i in range(256)}), "question 'q': criteria: 256 are more than"),
        (q(criteria={"x": "", " ": ""}), "question 'q': criteria: the id of option 2 is empty"),
        (q(criteria={"x": "", "a\nb": ""}), "question 'q': criteria: the id of option 2 holds"),
        (q(criteria={"x": "", "\udc00": ""}), "question 'q': criteria: the id of option 2 holds"),
        (q(phase=3), "question 'q': phase: must be a string"),
        (q(phase="a\nb"), "question 'q': phase: holds a line break"),
        (q(phase="\ud800"), "question 'q': phase: holds a lone surrogate"),
        (q(phase="", none=["z"]), "question 'q': none: must be a list of option ids"),
        (q(phase="", none=[["x"]]), "question 'q': none: must be a list of option ids"),
        (q(phase="", none=["x"] * 3), "question 'q': none: must be a list of option ids"),
    ],
)
def test_what_cannot_be_answered_is_one_line(body: Any, line: str) -> None:
    if isinstance(body, dict):
        body = json.dumps(body if "state" in body else {"state": "a", "questions": body}).encode()
    with pytest.raises(RequestError) as caught:
        systemone.decode(body)
    error = caught.value.to_json()["error"]
    assert error["message"].startswith(line) and error["message"].isprintable()
    assert error["question"] == ("q" if "question 'q'" in line else error["question"])
    json.dumps(error).encode("ascii")


def test_duplicates_in_raw_json_are_named() -> None:
    question = '{"type":"choice","instructions":"a","criteria":{"x":"1","x":"2"}}'
    with pytest.raises(RequestError, match="question 'q': criteria: 'x' stands twice"):
        systemone.decode(f'{{"state":"a","questions":{{"q":{question}}}}}'.encode())


def test_what_is_large_is_looked_at_once() -> None:
    """Bodies below a megabyte; with their square it would be minutes, or hundreds of megabytes."""
    questions = b'"questions":{"q":{"type":"noul","instructions":"?"}}}'
    keys = b",".join(b'"%d":1' % i for i in range(80_000))
    wide = b'{"state":{"%s":[0%s]},' % (b"k" * 500_000, b",0" * 200_000)
    none = json.dumps({"state": "a", "questions": q(phase="", none=["z"] * 150_000)}).encode()
    deep = b'{"state":' + b'{"%s":' % (b"k" * 3000) * 300 + b"1" + b"}" * 300 + b"," + questions
    started = time.perf_counter()
    with pytest.raises(RequestError, match="'79999' stands twice"):
        systemone.decode(b'{%s,"79999":1}' % keys)
    assert systemone.decode(wide + questions)[0].decision.question == "?"
    with pytest.raises(RequestError, match="none: must be a list"):
        systemone.decode(none)
    assert time.perf_counter() - started < 5
    tracemalloc.start()
    assert systemone.decode(deep)[0].decision.question == "?"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 1024 * 1024


def test_a_path_is_cut_where_it_is_told() -> None:
    with pytest.raises(RequestError) as caught:
        systemone.decode(b'{"state":{"%s":[NaN]},"questions":{}}' % (b"k" * 500_000))
    assert len(json.dumps(caught.value.to_json())) < 1000


def test_answers_as_they_are_sent() -> None:
    asked = decode(questions={"n": NOUL, "c": CHOICE, "s": SCORE})
    says = {"noul": {"yes": 3.0, "no": 1.0}, "choice": "y", "score": "1"}
    decider = ScriptedDecider(lambda decision: says[decision.phase])
    answers = decider.decide([one.decision for one in asked])
    noul, choice, score = map(systemone.encode, asked, answers)
    assert noul == {
        "type": "noul",
        "noul": pytest.approx(0.75, abs=1e-6),
        "prompt_version": "scripted",
    }
    assert list(choice["probabilities"]) == ["x", "y"] and choice["type"] == "choice"
    assert score["probabilities"].keys() == {"0", "1", "2"}
    assert max(score["probabilities"], key=score["probabilities"].get) == "1"


def test_a_decision_goes_over_the_wire_and_back() -> None:
    decision = Decision(
        "d7", "read_next", {"input": "é"}, "Which?", (Option("a"), Option("b", "B", none=True))
    )
    question = systemone.question(decision, full=True)
    assert question == {
        "type": "choice",
        "instructions": "Which?",
        "criteria": {"a": "", "b": "B"},
        "phase": "read_next",
        "none": ["b"],
    }
    (back,) = decode({"input": "é"}, {"d7": question})
    assert back.decision == decision
    assert systemone.question(decision, full=False) == {
        "type": "choice",
        "instructions": "Which?",
        "criteria": {"a": "a", "b": "B"},
    }


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (None, "gives no probabilities"),
        ({"noul": 0.5}, "gives no probabilities"),
        ({"probabilities": {"x": 1.0}}, "gives None as the probability of 'y'"),
        ({"probabilities": {"x": 1, "y": float("nan")}}, "gives nan as"),
        ({"probabilities": {"x": 1, "y": -0.1}}, "gives -0.1 as"),
        ({"probabilities": {"x": 1, "y": 7}}, "gives 7 as"),
        ({"probabilities": {"x": True, "y": 0}}, "gives True as"),
        ({"probabilities": {"x": 0, "y": 0}}, "gives no option a probability above 0"),
    ],
)
def test_probabilities_that_are_none(answer: Any, line: str) -> None:
    decision = decode(questions={"c": CHOICE})[0].decision
    with pytest.raises(ValueError, match=line):
        systemone.probabilities(decision, answer)


def test_probabilities_are_made_to_sum_to_one() -> None:
    decision = decode(questions={"c": CHOICE})[0].decision
    answer = {"probabilities": {"x": 0.6, "y": 0.2, "z": 0.2}}
    assert systemone.probabilities(decision, answer) == {
        "x": pytest.approx(0.75),
        "y": pytest.approx(0.25),
    }
