from __future__ import annotations

import json
from typing import Any

import pytest

from semif.errors import DecisionError
from semif.testing import ScriptedDecider
from semif.types import Decider, Decision, Option

GOOD: dict[str, Any] = {
    "id": "r1",
    "phase": "gate",
    "state": {"input": "hello"},
    "question": "Is it?",
    "options": [{"id": "yes", "description": "It is."}, {"id": "no", "none": True}],
}


def test_reads_and_writes_the_row_form() -> None:
    decision = Decision.from_json({**GOOD, "observed_outcome": "yes", "other": 1}, "line 1")
    assert decision.options == (Option("yes", "It is."), Option("no", "", none=True))
    assert Decision.from_json(decision.to_json(), "again") == decision
    assert decision.to_json()["options"][1] == {"id": "no", "description": "", "none": True}


def test_phase_may_be_missing() -> None:
    assert Decision.from_json({k: v for k, v in GOOD.items() if k != "phase"}, "x").phase == ""


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"id": ""}, "id", "empty"),
        ({"id": 7}, "id", "Expected `str`"),
        ({"id": "r1\nok"}, "id", "line break or control"),
        ({"id": "\x1b[2J"}, "id", "line break or control"),
        ({"id": "\ud800"}, "id", "surrogate"),
        ({"phase": "gate\u2028"}, "phase", "line break or control"),
        ({"phase": "\udfff"}, "phase", "surrogate"),
        ({"question": " "}, "question", "empty"),
        ({"options": None}, "options", "Expected `array`"),
        ({"options": [{"id": "a"}]}, "options", "1 of them is no decision"),
        ({"options": [{"id": str(i)} for i in range(256)]}, "options", "256 are more than 255"),
        ({"options": [{"id": "a"}, {"id": "a"}]}, "options", "'a' stands twice"),
        ({"options": [{"id": "a"}, {"id": ""}]}, "options[1].id", "empty"),
        ({"options": [{"id": "a"}, {"id": "b\nCorrect: yes"}]}, "options[1].id", "line break"),
        ({"options": [{"id": "a"}, {"id": "b\u2028"}]}, "options[1].id", "line break"),
        ({"options": [{"id": "a\ud800"}, {"id": "b"}]}, "options[0].id", "surrogate"),
        ({"options": [{"id": "a"}, {"id": "b", "none": "x"}]}, "options[1].none", "bool"),
        ({"options": [{"id": "a"}, {"description": "b"}]}, "options[1]", "required field `id`"),
        ({"state": ""}, "state", "empty"),
        ({"state": {}}, "state", "empty"),
        ({"state": None}, "state", "null"),
        ({"state": {"input": float("nan")}}, "state", "no JSON value"),
        ({"state": {"input": "\ud800"}}, "state", "surrogate"),
        ({"phase": 3}, "phase", "Expected `str`"),
    ],
)
def test_names_row_and_field(change: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(DecisionError) as caught:
        Decision.from_json({**GOOD, **change}, "line 4")
    assert caught.value.field == field
    assert caught.value.row.startswith("line 4")
    assert words in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("value", [[], "x", 1, None])
def test_a_row_must_be_an_object(value: object) -> None:
    with pytest.raises(DecisionError, match="line 2: row: Expected `object`"):
        Decision.from_json(value, "line 2")


def test_255_options_are_fine() -> None:
    options = [{"id": f"o{i}"} for i in range(255)]
    assert len(Decision.from_json({**GOOD, "options": options}, "x").options) == 255


def test_ids_with_emoji_and_joiners_are_fine() -> None:
    Decision.from_json({**GOOD, "options": [{"id": "👨‍👩‍👧 Söhne"}, {"id": "漢"}]}, "x")


def test_none_is_implied_by_three_ids() -> None:
    implied = [Option(id_).means_none for id_ in ("create_category", "create_skill", "none", "no")]
    assert implied == [True, True, True, False]
    assert Option("no", none=True).means_none


def test_scripted_decider() -> None:
    decision = Decision.from_json(GOOD, "x")
    decider = ScriptedDecider(lambda d: "no")
    assert isinstance(decider, Decider)
    answer = decider.decide([decision])[0]
    assert answer.selected == "no" and answer.probs["no"] > 0.9
    assert sum(answer.probs.values()) == pytest.approx(1)
    assert decider.calls == [(decision,)]
    json.dumps(dict(answer.logits), allow_nan=False)
    given = ScriptedDecider(lambda d: {"yes": 0.25, "no": 0.75}).decide([decision])[0]
    assert given.probs == pytest.approx({"yes": 0.25, "no": 0.75})
    with pytest.raises(ValueError, match="maybe"):
        ScriptedDecider(lambda d: "maybe").decide([decision])
