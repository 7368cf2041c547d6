from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from semif.errors import DecisionError
from semif.export import LabelledRow, in_force, join, labelled
from semif.jsonl import read
from semif.log import DecisionLog, Label, append_labels, row, timestamp
from semif.measuring.paired import Said, cost
from semif.testing import ScriptedDecider
from semif.types import Answer, Decision

Make = Callable[..., Decision]


@pytest.fixture
def answer(make: Make) -> Answer:
    return ScriptedDecider(lambda d: "a", "rev1").decide([make("a", "b", "c")])[0]


def label(option: str, source: str = "human", polarity: str = "is", **change: Any) -> Label:
    return Label.new("d1", "r1", polarity, option, source, "ann", **change)  # type: ignore[arg-type]


def test_a_row_has_the_fields_of_the_log(answer: Answer) -> None:
    now = datetime(2026, 11, 30, 15, 0, 0, 123456, timezone(timedelta(hours=1)))
    assert row(answer, "r7", now) == {
        "id": "d1",
        "phase": "test",
        "state": "some text",
        "question": "Which?",
        "options": [{"id": i, "description": f"What {i} stands for."} for i in "abc"],
        "predicted_probs": dict(answer.probs),
        "logits": dict(answer.logits),
        "selected": "a",
        "prompt_version": "scripted",
        "prompt_sha256": "0" * 64,
        "revision": "rev1",
        "run": "r7",
        "time": "2026-11-30T14:00:00.123Z",
        "tokens": 0,
        "ms": 0.0,
        "allowed_token_mass": 1.0,
        "plan": {},
    }


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(ValueError, match="zone"):
        timestamp(datetime(2026, 1, 1))


def test_the_log_appends_what_it_returns(tmp_path: Path, answer: Answer) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    written = log.append([answer, answer], "r1") + log.append([answer], "r2")
    assert read(log.path).rows == tuple(written)
    assert [w["run"] for w in written] == ["r1", "r1", "r2"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", written[0]["time"])
    assert Decision.from_json(written[0], "log") == answer.decision


def test_labels_round_trip_with_the_weight_of_their_source(tmp_path: Path) -> None:
    labels = [label("a"), label("b", "verified", "not"), label("c", "assessed", weight=0.3)]
    assert [made.weight for made in labels] == [3.0, 1.0, 0.3]
    assert label("c", "assessed").weight == 0.0
    append_labels(tmp_path / "labels.jsonl", labels)
    rows = read(tmp_path / "labels.jsonl").rows
    assert [Label.from_json(value, "x") for value in rows] == labels
    assert set(rows[0]) == {
        *("id", "row", "run", "polarity", "option"),
        *("source", "weight", "by", "time", "supersedes"),
    }


CHANGES = [{"source": "self"}, {"polarity": "maybe"}, {"row": 3}, {"weight": -1}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_label_by_the_model_itself_is_no_label(change: dict[str, object]) -> None:
    value = {**msgspec.to_builtins(label("a")), **change}
    with pytest.raises(DecisionError, match=r"^labels\.jsonl:1 \(l1\): "):
        Label.from_json(value, "labels.jsonl:1 (l1)")


JOINS: list[tuple[str, list[Label], object]] = [
    ("one", [label("a")], ("a", "human", 3.0)),
    ("latest of a source", [label("a"), label("b")], ("b", "human", 3.0)),
    ("human first", [label("a"), label("b", "verified")], ("a", "human", 3.0)),
    (
        "verified first",
        [label("a", "verified"), label("b", "assessed", weight=0.3)],
        ("a", "verified", 1.0),
    ),
    ("weight 0 never", [label("a", "assessed")], None),
    ("not", [label("a", polarity="not")], (None, ("a",))),
    (
        "two nots",
        [label("a", polarity="not"), label("b", polarity="not")],
        (None, ("b", "a")),
    ),
    (
        "a person's not beats a later check",
        [label("a", polarity="not"), label("a", "verified")],
        (None, ("a",)),
    ),
    (
        "a not leaves room for another",
        [label("a", polarity="not"), label("b", "verified")],
        ("b", "verified", 1.0),
    ),
    ("taken back", [label("a"), label("a", polarity="not")], (None, ("a",))),
    ("asserted again", [label("a", polarity="not"), label("a")], ("a", "human", 3.0)),
    ("no such option", [label("z")], None),
    (
        "a lower source denies nothing at a person's weight",
        [label("b", "verified", "not"), label("a", polarity="not")],
        (None, ("a",)),
    ),
    (
        "one option is always left: the oldest denial of the lowest source gives way",
        [label("c", polarity="not"), label("b", polarity="not"), label("a", "verified", "not")],
        (None, ("b", "c")),
    ),
    (
        "a person who denied all of them in turn meant the last ones",
        [label("c", polarity="not"), label("b", polarity="not"), label("a", polarity="not")],
        (None, ("a", "b")),
    ),
]


@pytest.mark.parametrize(("labels", "expected"), [j[1:] for j in JOINS], ids=[j[0] for j in JOINS])
def test_join(answer: Answer, labels: list[Label], expected: Any) -> None:
    problems: list[object] = []
    rows = list(join([row(answer, "r1", datetime.now().astimezone())], labels, problems.append))
    if expected is None:
        assert rows == []
    elif expected[0] is None:
        assert rows[0].outcome is None and rows[0].not_outcomes == expected[1]
        assert "observed_outcome" not in rows[0].to_json()
    else:
        assert (rows[0].outcome, rows[0].source, rows[0].weight) == expected
        assert LabelledRow.from_json(rows[0].to_json(), "again") == rows[0]
    assert bool(problems) == (labels[0].option == "z")


def test_a_label_can_withdraw_one_of_its_own_rank_only(answer: Answer) -> None:
    rows = [row(answer, "r1", datetime.now().astimezone())]
    human = label("a")
    by_human = label("a", weight=0.0, supersedes=human.id)
    by_model = label("b", "assessed", weight=0.3, supersedes=human.id)
    assert list(join(rows, [human, by_human], print)) == []
    assert next(join(rows, [human, by_model], print)).outcome == "a"


def chain(*steps: tuple[str, str, int | None, float]) -> list[Label]:
    """Human labels (option, polarity, index of the one it supersedes, weight)."""
    made: list[Label] = []
    for option, polarity, old, weight in steps:
        supersedes = None if old is None else made[old].id
        made.append(label(option, polarity=polarity, weight=weight, supersedes=supersedes))
    return made


CHAINS: list[tuple[str, list[Label], list[int]]] = [
    ("replaced", chain(("a", "is", None, 3), ("b", "not", 0, 3)), [1]),
    ("replaced twice", chain(("a", "is", None, 3), ("b", "is", 0, 3), ("c", "not", 1, 3)), [2]),
    ("taken back", chain(("a", "is", None, 3), ("a", "is", 0, 0)), []),
    (
        "what a label replaced is back when that is taken back",
        chain(("a", "is", None, 3), ("b", "is", 0, 3), ("b", "is", 1, 0)),
        [0],
    ),
    (
        "taking back is taken back",
        chain(("a", "is", None, 3), ("a", "is", 0, 0), ("a", "is", 1, 0)),
        [0],
    ),
    (
        "the earlier of two is in force again",
        chain(("a", "is", None, 3), ("b", "is", None, 3), ("b", "is", 1, 0)),
        [0],
    ),
]


@pytest.mark.parametrize(("labels", "left"), [c[1:] for c in CHAINS], ids=[c[0] for c in CHAINS])
def test_what_is_taken_back_never_was(labels: list[Label], left: list[int]) -> None:
    assert in_force(labels) == [labels[i] for i in left]


def test_only_a_label_of_the_same_row_is_superseded_and_only_by_a_later_one() -> None:
    first = label("a")
    other = Label.new("d2", "r1", "is", "a", "human", "ann", weight=0.0, supersedes=first.id)
    assert in_force([first, other]) == [first]
    last = label("b")
    assert in_force([label("a", weight=0.0, supersedes=last.id), last]) == [last]


def test_cost_is_the_weighted_nll(answer: Answer) -> None:
    probs = {"a": 0.7, "b": 0.2, "c": 0.1}
    is_b = LabelledRow(answer.decision, "b", (), "human", 3.0)
    not_a = LabelledRow(answer.decision, None, ("a",), "verified", 1.0)

    def nll(*rows: LabelledRow, probs: dict[str, float] = probs) -> float:
        said = [Said.of(row, probs, f"text {number}") for number, row in enumerate(rows)]
        return cost(said)["nll"]["mean"]

    assert nll(is_b) == pytest.approx(-math.log(0.2))
    assert nll(not_a) == pytest.approx(-math.log(1 - 0.7))
    both = (3 * -math.log(0.2) + 1 * -math.log(0.3)) / 4
    assert nll(is_b, not_a) == pytest.approx(both)
    sure = {"a": 1.0, "b": 0.0, "c": 1e-12}
    assert nll(not_a, probs=sure) == pytest.approx(-math.log(1e-12))


def test_labelled_reads_a_home_past_its_damage(tmp_path: Path, answer: Answer) -> None:
    (tmp_path / ".sia").mkdir()
    log = DecisionLog(tmp_path / ".sia" / "decisions.jsonl")
    log.append([answer], "r1")
    with log.path.open("ab") as file:
        file.write(b'{"id": "torn')
    labels = tmp_path / ".sia" / "labels.jsonl"
    append_labels(labels, [label("b"), Label.new("gone", "r1", "is", "a", "human", "ann")])
    with labels.open("ab") as file:
        file.write(b'{"id": "self", "source": "self"}\n')
    problems: list[object] = []
    rows = list(labelled(tmp_path, problems.append))
    assert [r.outcome for r in rows] == ["b"]
    text = "\n".join(map(str, problems))
    assert (
        len(problems) == 3
        and "line 2" in text
        and "labels.jsonl:3 (self): " in text
        and "gone" in text
    )


def test_semif_rows_are_read_as_they_are(data: Path) -> None:
    lines = (data / "parity.jsonl").read_text().splitlines()
    rows = [LabelledRow.from_json(json.loads(line), "parity") for line in lines]
    assert len(rows) == 20 and rows[0].outcome == "create_category"
    assert rows[0].source == "given" and rows[0].weight == 1.0
    with pytest.raises(DecisionError, match="observed_outcome: 'x' is none of the options"):
        LabelledRow.from_json({**json.loads(lines[0]), "observed_outcome": "x"}, "p")
