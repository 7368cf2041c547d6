"""Rows made from texts: the wording SIA asks in, drawn the same way each time."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from semif.errors import DecisionError, FileError
from semif.export import LabelledRow
from semif.rows import (
    apart,
    build,
    data_sha256,
    focus,
    golden,
    golden_data,
    main_text,
    sample,
    shipped_data,
    split,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[LabelledRow]:
    return build(shipped_data(), 0)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(shipped_data(), tmp_path / "data")


def of(rows: list[LabelledRow], phase: str) -> list[LabelledRow]:
    return [row for row in rows if row.decision.phase == phase]


def test_every_phase_has_rows_in_the_wording_of_sia(rows: list[LabelledRow]) -> None:
    wording = "questions-v1.json"
    asked = (ROOT / "sia" / "prompts" / wording).read_bytes()
    assert (shipped_data() / wording).read_bytes() == asked
    phases = Counter(row.decision.phase for row in rows)
    assert set(phases) == {
        "contains_request",
        "interrupt",
        "urgency",
        "answers",
        "navigate_category",
        "navigate_skill",
        "read_next",
        "cover",
        "same_action",
        "predict",
        "triage",
        "noul",
        "choice",
        "score",
    }
    assert min(phases.values()) >= 150 and len(rows) >= 10_000
    assert len({row.decision.id for row in rows}) == len(rows)
    state = of(rows, "interrupt")[0].decision.state
    assert isinstance(state, dict) and list(state) == ["current_process", "input"]


def test_categories_are_drawn_as_they_are_met(rows: list[LabelledRow]) -> None:
    found = of(rows, "navigate_category")
    sizes = Counter(len(row.decision.options) - 1 for row in found)
    assert min(sizes) == 4 and max(sizes) <= 16
    nothing = sum(row.outcome == "create_category" for row in found) / len(found)
    assert 0.07 < nothing < 0.15
    shipped, hidden = set(shipped_tree()), {"driving"}
    shown = [({o.id for o in r.decision.options} - {"create_category"}, r.outcome) for r in found]
    theirs = [names for names, outcome in shown if outcome in shipped]
    whole = [names for names in theirs if names >= shipped - hidden]
    assert 0.6 < len(whole) / len(theirs) < 0.8
    assert any(names == shipped - hidden for names in whole) and shipped in whole
    assert any(names > shipped for names in whole)
    others = [outcome for names, outcome in shown if names >= shipped - hidden]
    assert "create_category" in others and "ferry" in others


def test_what_ships_is_shown_as_it_ships() -> None:
    tree = json.loads((shipped_data() / "trees.json").read_bytes())
    taught = {
        name: (
            category["description"],
            {
                skill: text
                for skill, text in category["skills"].items()
                if skill not in category.get("unshipped", ())
            },
        )
        for name, category in tree.items()
        if category.get("shipped")
    }
    assert taught == shipped_tree()


def shipped_tree() -> dict[str, tuple[str, dict[str, str]]]:
    """Description and skills (id to description) of each category in `skills/`."""
    folder = ROOT / "skills"
    return {
        path.parent.name: (
            frontmatter(path),
            {skill.parent.name: frontmatter(skill) for skill in path.parent.glob("*/SKILL.md")},
        )
        for path in folder.glob("*/CATEGORY.md")
    }


def frontmatter(path: Path) -> str:
    return str(yaml.safe_load(path.read_text().split("---")[1])["description"])


def test_a_skill_is_left_out_only_where_a_sibling_remains(rows: list[LabelledRow]) -> None:
    found = of(rows, "navigate_skill")
    nothing = [row for row in found if row.outcome == "create_skill"]
    assert 0.05 < len(nothing) / len(found) < 0.15
    assert all(2 <= len(row.decision.options) <= 7 for row in found)


def test_rows_are_the_same_each_time_and_other_by_seed(rows: list[LabelledRow]) -> None:
    assert build(shipped_data(), 0) == rows
    assert build(shipped_data(), 1) != rows


def test_a_line_more_leaves_the_other_rows_as_they_were(
    rows: list[LabelledRow], copied: Path
) -> None:
    before = data_sha256(copied)
    with (copied / "requests.tsv").open("a") as file:
        file.write("wake me when the bread is done\treminders/set\n")
    more = build(copied, 0)
    ids = {row.decision.id for row in rows}
    assert [row for row in more if row.decision.id in ids] == rows
    assert len(more) == len(rows) + 2
    assert data_sha256(copied) != before == data_sha256(shipped_data())


def test_rows_of_new_lines_are_told_from_the_others(rows: list[LabelledRow], copied: Path) -> None:
    older = shutil.copytree(copied, copied.parent / "older")
    with (copied / "requests.tsv").open("a") as file:
        file.write("wake me when the bread is done\treminders/set\n")
    built = build(copied, 0)
    new, others = apart(built, copied, older)
    assert {main_text(row.decision.state) for row in new} == {"wake me when the bread is done"}
    assert [*others] == [row for row in built if row not in new] == rows
    (older / "general.jsonl").unlink()
    with pytest.raises(FileError, match=r"general\.jsonl"):
        apart(built, copied, older)


def test_a_text_is_on_one_side(rows: list[LabelledRow]) -> None:
    taught, held = split(rows)
    assert len(taught) + len(held) == len(rows)
    assert 0.07 < len(held) / len(rows) < 0.13

    def texts(side: list[LabelledRow]) -> set[str]:
        return {" ".join(main_text(row.decision.state).casefold().split()) for row in side}

    assert not texts(taught) & texts(held)


def test_a_sample_grows_by_adding(rows: list[LabelledRow]) -> None:
    small, large = sample(rows, 50, 3), sample(rows, 80, 3)
    assert len(small) == 50 and len(large) == 80
    assert [row for row in large if row in small] == small
    assert sample(rows, None, 3) == rows


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("requests.tsv", "text\tno/leaf", "requests.tsv:1: leaf: 'no/leaf' is not in trees.json"),
        ("requests.tsv", "no tab", "requests.tsv:1: line: must have 2 fields"),
        ("inputs.tsv", "hi\tnone\tmaybe\t-\tlow", "observed_outcome: 'maybe' is none"),
        ("choices.jsonl", "{}", "choices.jsonl:1: line: Object missing required field"),
        ("covers.jsonl", "{", "covers.jsonl:1: line: "),
    ],
)
def test_a_bad_line_is_named(copied: Path, name: str, line: str, message: str) -> None:
    (copied / name).write_text(line + "\n")
    with pytest.raises(DecisionError) as error:
        build(copied, 0)
    assert message in str(error.value)


def test_a_bad_file_is_named(copied: Path) -> None:
    (copied / "trees.json").write_text("[")
    with pytest.raises(FileError, match=r"trees\.json: is damaged"):
        build(copied, 0)
    (copied / "trees.json").unlink()
    with pytest.raises(FileError, match=r"trees\.json: cannot be read"):
        build(copied, 0)


def test_focus_draws_by_the_shares_of_the_main_job(rows: list[LabelledRow]) -> None:
    chosen = focus(rows, 1000, 0)
    counts = Counter(row.decision.phase for row in chosen)
    assert counts["navigate_category"] == 180 and counts["contains_request"] == 100
    assert sum(counts.values()) == 1000
    assert [row.decision.id for row in focus(rows, 1000, 0)] == [r.decision.id for r in chosen]


# A change of the golden set makes every earlier figure incomparable.
FROZEN = "d951d2ed13c9154d"


def test_the_golden_set_is_frozen_and_covers_every_phase() -> None:
    assert data_sha256(golden_data())[:16] == FROZEN
    phases = Counter(row.decision.phase for row in golden())
    general = phases["noul"] + phases["choice"] + phases["score"]
    assert general >= 100 and len(golden()) >= 1000
    assert min(count for phase, count in phases.items() if phase not in GENERAL) >= 100


GENERAL = ("noul", "choice", "score")


def grams(text: str) -> frozenset[str]:
    text = " ".join(text.casefold().split())
    return frozenset(text[i : i + 5] for i in range(max(1, len(text) - 4)))


def texts(rows: list[LabelledRow]) -> list[str]:
    """What rows are about, each text once; contrasts about one concern count with their facts."""
    return list(dict.fromkeys(" ".join(row_text(row).split()) for row in rows))


def row_text(row: LabelledRow) -> str:
    state = row.decision.state
    if isinstance(state, dict) and "input" not in state:
        return " ".join(str(value) for value in state.values())
    return main_text(state)


def closest(text: str, index: dict[str, list[int]], sets: list[frozenset[str]]) -> float:
    """The largest Jaccard index of the 5-grams of a text with those of an indexed one."""
    own = grams(text)
    shared = Counter(i for gram in own for i in index.get(gram, ()))
    return max((n / (len(own) + len(sets[i]) - n) for i, n in shared.items()), default=0.0)


def test_texts_are_written_not_templated_and_the_golden_ones_are_apart(
    rows: list[LabelledRow],
) -> None:
    sets: list[frozenset[str]] = []
    index: dict[str, list[int]] = {}

    def add(text: str) -> None:
        for gram in grams(text):
            index.setdefault(gram, []).append(len(sets))
        sets.append(grams(text))

    for text in texts(golden()):
        add(text)
    written = texts(rows)
    assert [text for text in written if closest(text, index, sets) >= 0.6] == []
    index.clear()
    sets.clear()
    near = []
    for text in written:
        if closest(text, index, sets) >= 0.7:
            near.append(text)
        add(text)
    assert near == []
    patterns = Counter(pattern(text) for text in written)
    assert [found for found, count in patterns.items() if count > 3] == []


def pattern(text: str) -> str:
    """A text with its numbers and names left out."""
    return " ".join(
        "0" if re.search(r"\d", word) else "N" if i and word[0].isupper() else word.casefold()
        for i, word in enumerate(text.split())
    )
