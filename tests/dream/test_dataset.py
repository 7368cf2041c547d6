"""What a dream learns from: labelled rows, each text on one side for ever."""

import json
from pathlib import Path
from typing import Any

import pytest

from semif.log import Label, append_labels
from sia.dream.dataset import HELD_OUT, Dataset, collect, replay

WORDS = (
    "fetch the parcel from the depot|tell my boss that I am late|how warm is it outside|"
    "play the record that Tom likes|water the ferns on the balcony|book two seats for Friday|"
    "sharpen the old bread knife|why does the boiler hum at night|print the map of the lake|"
    "ring the dentist about Thursday|list what is in the freezer|fold the blue shirts"
).split("|")


def decided(home: Path, id_: str, text: str, selected: str = "yes", **other: Any) -> None:
    row = {
        "id": id_,
        "phase": "contains_request",
        "state": {"input": text},
        "question": "Is it a request?",
        "options": [{"id": "no", "description": "no"}, {"id": "yes", "description": "yes"}],
        "predicted_probs": {"no": 0.2, "yes": 0.8},
        "selected": selected,
        "run": "r1",
        "time": f"2026-11-30T10:00:{int(id_[1:]) % 60:02}.000Z",
        **other,
    }
    (home / ".sia").mkdir(parents=True, exist_ok=True)
    with (home / ".sia/decisions.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def label(home: Path, row: str, option: str, source: Any = "human", polarity: Any = "is") -> None:
    new = Label.new(row, "r1", polarity, option, source, by="test")
    append_labels(home / ".sia/labels.jsonl", [new])


def of(*homes: Path) -> Dataset:
    return collect(homes, lambda problem: pytest.fail(str(problem)))


def ids(dataset: Dataset) -> set[str]:
    return {row.row.decision.id for row in dataset.rows}


def test_what_nobody_labelled_teaches_nothing(tmp_path: Path) -> None:
    for i, text in enumerate(WORDS):
        decided(tmp_path, f"d{i}", text)
    assert not of(tmp_path).rows
    label(tmp_path, "d1", "yes", "assessed")  # of weight 0 until it is proven
    assert not of(tmp_path).rows
    label(tmp_path, "d2", "no")
    dataset = of(tmp_path)
    assert ids(dataset) == {"d2"} and dataset.corrections == dataset.rows
    said = dataset.rows[0].said()
    assert (said.right, said.weight, round(said.loss, 3)) == (False, 3.0, 1.609)


def test_an_empty_home_has_nothing(tmp_path: Path) -> None:
    assert of(tmp_path) == Dataset((), (), 0)


def test_a_text_and_its_twins_stay_on_their_side_when_more_is_logged(tmp_path: Path) -> None:
    for i, text in enumerate(WORDS):
        decided(tmp_path, f"d{i}", text)
        label(tmp_path, f"d{i}", "yes")
    before = of(tmp_path)
    assert ids(before) == {f"d{i}" for i in range(len(WORDS))}
    assert {row.held_out for row in before.held} == {True}
    for i, text in enumerate(WORDS):
        # Said again otherwise: near enough to be a twin, and labelled otherwise.
        decided(tmp_path, f"d{20 + i}", f"{text} NOW", time=f"2026-12-01T10:00:{i:02}.000Z")
        label(tmp_path, f"d{20 + i}", "no")
    after = of(tmp_path)
    side = {row.row.decision.id: row.held_out for row in after.rows}
    assert len(side) == 2 * len(WORDS)
    assert all(side[f"d{i}"] == side[f"d{20 + i}"] for i in range(len(WORDS)))
    assert all(side[row.row.decision.id] == row.held_out for row in before.rows)


def test_about_one_text_in_four_is_held_out(tmp_path: Path) -> None:
    for i in range(200):
        decided(tmp_path, f"d{i}", f"{WORDS[i % 12]} {i * 7919 % 10007} {WORDS[i * 5 % 12][::-1]}")
        label(tmp_path, f"d{i}", "yes")
    dataset = of(tmp_path)
    assert 0.15 < len(dataset.held) / len(dataset.rows) < 0.35 and HELD_OUT == 4


def test_rows_that_say_the_same_count_once_and_the_latest_word_of_a_person_stands(
    tmp_path: Path,
) -> None:
    for i in range(3):
        decided(tmp_path, f"d{i}", WORDS[0])
    label(tmp_path, "d0", "yes", "verified")
    label(tmp_path, "d1", "no")
    label(tmp_path, "d2", "yes", "verified")
    dataset = of(tmp_path)
    assert ids(dataset) == {"d1"} and dataset.dropped == 2
    assert dataset.rows[0].row.outcome == "no"


def test_logs_of_several_homes_are_merged_by_row(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        decided(home, "d1", WORDS[1])
        label(home, "d1", "yes")
    decided(two, "d2", WORDS[2])
    label(two, "d2", "no", polarity="not")
    dataset = of(one, two)
    assert ids(dataset) == {"d1", "d2"}
    assert dataset.sha256 == of(two, one).sha256
    denied = next(row for row in dataset.rows if row.row.decision.id == "d2")
    assert denied.row.not_outcomes == ("no",) and denied.said().right


def test_a_row_without_its_probabilities_is_reported(tmp_path: Path) -> None:
    decided(tmp_path, "d1", WORDS[0], predicted_probs={"no": 1.0})
    label(tmp_path, "d1", "yes")
    problems: list[object] = []
    assert not collect([tmp_path], problems.append).rows
    assert problems == ["d1: predicted_probs are not of its options; left out"]


def test_what_is_replayed_comes_from_the_training_side_of_the_shipped_rows() -> None:
    rows = replay(100, 0)
    assert 80 <= len(rows) <= 100
    assert len({row.decision.phase for row in rows}) >= 12
