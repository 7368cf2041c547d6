"""Tuning on a tiny random model: the same numbers in torch and engine, kept through everything.

torch is imported inside tests and fixtures, after the engine: it must find the thread settings
that the engine has made, or both crawl.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from semif import lora, revision
from semif.cli import main
from semif.engine import Engine
from semif.errors import FileError, ModelError
from semif.llama import Model
from semif.lora import Heads, Lora, Pair, Target
from semif.prompting import BranchesPrompt, load_prompt
from semif.revision import Revision
from semif.types import Decision, Option

if TYPE_CHECKING:
    from semif.train import Plan

TINY_HEADS = Heads(4, 2)
NOUNS = ("cat", "dog", "oven", "mail", "door", "lamp", "bus", "key", "song", "tree")
Say = Callable[[str], None]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data folder: 20 requests and 20 inputs."""
    folder = tmp_path_factory.mktemp("texts")
    shipped = Path(revision.shipped()).parents[1] / "data"
    (folder / "questions-v1.json").write_bytes((shipped / "questions-v1.json").read_bytes())
    tree = {
        name: {"description": f"{name} things", "skills": {"do": f"do {name}", "undo": "back"}}
        for name in ("one", "two", "three", "four", "five", "six", "seven")
    }
    (folder / "trees.json").write_text(json.dumps(tree))
    requests = [f"{verb} the {noun}" for verb in ("feed", "find") for noun in NOUNS]
    (folder / "requests.tsv").write_text(
        "".join(f"{text}\t{('one/do', 'seven/undo')[i % 2]}\n" for i, text in enumerate(requests))
    )
    inputs = [f"stop the {noun}!\tdriving\tyes\tyes\tcritical\n" for noun in NOUNS]
    inputs += [f"nice {noun}\tnone\tno\t-\tlow\n" for noun in NOUNS]
    (folder / "inputs.tsv").write_text("".join(inputs))
    for name in ("answers.tsv", "choices.jsonl", "covers.jsonl"):
        (folder / name).write_text("")
    return folder


@pytest.fixture
def plan(tiny: Model) -> Plan:
    from semif.train import Plan

    return Plan(epochs=2, layers=1, rate=1e-2, threads=1, checkpoint_every=0.0, rows_limit=40)


@pytest.fixture
def prompt() -> BranchesPrompt:
    loaded = load_prompt("branches-v1")
    assert isinstance(loaded, BranchesPrompt)
    return loaded


def decisions() -> list[Decision]:
    options = (Option("no", "It asks for nothing."), Option("yes", "It asks for something."))
    asked = [
        Decision(f"d{i}", "p", {"current_process": "none", "input": text}, "A request?", options)
        for i, text in enumerate(("feed the cat", "thanks, übrigens\nWie spät ist es?", "x"))
    ]
    many = tuple(Option(f"c{i}", f"category {i}") for i in range(70))
    return [*asked, Decision("many", "q", "where to?", "Which?", many)]


def test_packed_rows_score_as_in_the_engine(
    tiny: Model, tuned: Revision, prompt: BranchesPrompt
) -> None:
    from semif.tower import Tower, encode, packs

    assert tuned.decide_path is not None
    asked = decisions()
    rows = [encode(tiny, prompt, decision) for decision in asked]
    with Engine(tiny, tuned) as engine:
        expected = [engine.decide([decision])[0].logits for decision in asked]
    for layers in (1, 2):
        tower = Tower(tiny, tuned.decide_path, prompt, layers)
        gathered = packs(rows, range(len(rows)), size=3)
        assert gathered == [[0, 1, 2], [3]]
        for pack in gathered:
            chosen = [rows[i] for i in pack]
            scores = tower.upper(tower.lower(chosen), chosen)
            for i, score in zip(pack, scores, strict=True):
                assert rows[i].ids == tuple(expected[i])
                assert score.tolist() == pytest.approx(list(expected[i].values()), abs=1e-2)


def test_packs_hold_one_criterion_and_a_bounded_number_of_rows(
    tiny: Model, prompt: BranchesPrompt
) -> None:
    from semif.tower import encode, packs

    short, *_, long = (encode(tiny, prompt, decision) for decision in decisions())
    order = [4, 0, 1, 5, 2, 3]
    assert packs([short, short, long, short, long, short], order, size=3) == [
        [4],
        [0, 1, 5],
        [2],
        [3],
    ]


def test_kept_activations_give_the_same_scores(
    tiny: Model, tuned: Revision, prompt: BranchesPrompt, tmp_path: Path
) -> None:
    from semif.tower import Activations, Tower, encode

    assert tuned.decide_path is not None
    tower = Tower(tiny, tuned.decide_path, prompt, 1)
    rows = [encode(tiny, prompt, decision) for decision in decisions()]
    counts: list[int] = []
    kept = Activations(rows, tower.width)
    kept.make(tower, tmp_path / "a", counts.append)
    assert counts == [3, 4]
    again = Activations(rows, tower.width)
    assert again.open(tmp_path / "a") and not Activations(rows[1:], tower.width).open(
        tmp_path / "a"
    )
    for pack in ([2, 0], [3]):
        chosen = [rows[i] for i in pack]
        exact = tower.upper(tower.lower(chosen), chosen)
        for a, b in zip(exact, tower.upper(again.of(pack), chosen), strict=True):
            assert a.tolist() == pytest.approx(b.tolist(), abs=2e-2)


def test_an_adapter_survives_reading_and_writing(tiny_adapter: Path, tmp_path: Path) -> None:
    from gguf import GGUFReader

    whole = lora.read(tiny_adapter, TINY_HEADS)
    assert whole.alpha == 8 and len(whole.pairs) == 8
    lora.write(tmp_path / "copy.gguf", whole, TINY_HEADS)
    before, after = (GGUFReader(p).tensors for p in (tiny_adapter, tmp_path / "copy.gguf"))
    assert [t.name for t in before] == [t.name for t in after]
    assert all(np.array_equal(a.data, b.data) for a, b in zip(before, after, strict=True))
    # Rows of one head of four: the halves of a head lie side by side in the file.
    name, pair = (
        "attn_q",
        Pair(np.ones((1, 3), np.float32), np.arange(4, dtype=np.float32)[:, None]),
    )
    lora.write(tmp_path / "one.gguf", Lora(1, {Target(0, name): pair}), Heads(1, 1))
    stored = {t.name[-1]: t.data for t in GGUFReader(tmp_path / "one.gguf").tensors}
    assert stored["b"].ravel().tolist() == [0, 2, 1, 3]


def test_bad_adapters_are_refused(tiny_adapter: Path, tmp_path: Path) -> None:
    whole = lora.read(tiny_adapter, TINY_HEADS)
    target, pair = next(iter(whole.pairs.items()))
    wild = Lora(whole.alpha, {target: Pair(pair.a, pair.b * np.inf)})
    with pytest.raises(ModelError, match="run away"):
        lora.write(tmp_path / "wild.gguf", wild, TINY_HEADS)
    (tmp_path / "torn.gguf").write_bytes(tiny_adapter.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"torn\.gguf is damaged"):
        lora.read(tmp_path / "torn.gguf", TINY_HEADS)


def test_training_improves_and_the_engine_gives_the_tuned_scores(
    tiny: Model, tuned: Revision, texts: Path, plan: Plan, tmp_path: Path
) -> None:
    from semif.rows import build, data_sha256, sample, split
    from semif.train import train

    said: list[str] = []
    folder = train(tiny, tuned, texts, tmp_path, replace(plan, epochs=12), False, said.append)
    made = revision.load(folder)
    assert folder.name == made.id
    contents = made.contents
    assert contents.parent == tuned.id and contents.base == tuned.contents.base
    assert contents.data_sha256 == data_sha256(texts) and contents.proven == ()
    assert contents.thresholds == {"contains_request": 0.5, "interrupt": 0.7}
    assert contents.temperatures["warm"] == 2.0 and contents.none_bias["biased"] == 1.5
    assert contents.metrics["torch_apart"] < 0.05

    taught, held = split(sample(build(texts, 0), 40, 0))
    assert contents.metrics["rows"] == len(held) >= 3

    def measure(pinned: Revision) -> tuple[float, list[float]]:
        right: list[bool] = []
        logits: list[float] = []
        with Engine(tiny, pinned) as engine:
            for row in [*taught, *held]:
                answer = engine.decide([row.decision])[0]
                right.append(answer.selected == row.outcome)
                logits += answer.logits.values()
        return float(np.mean(right)), logits

    before, old = measure(tuned)
    after, new = measure(made)
    assert after > before + 0.3
    assert max(abs(a - b) for a, b in zip(old, new, strict=True)) > 1
    # Below the tuned layer the parent's adapter is untouched, in it nothing is.
    assert tuned.decide_path and made.decide_path
    parent, child = (lora.read(path, TINY_HEADS) for path in (tuned.decide_path, made.decide_path))
    for target, pair in parent.pairs.items():
        assert np.array_equal(pair.b, child.pairs[target].b) == (target.layer == 0)
    assert any("validation at step 0:" in line for line in said)


def test_a_run_resumed_after_a_crash_ends_with_the_same_weights(
    tiny: Model, tuned: Revision, texts: Path, plan: Plan, tmp_path: Path
) -> None:
    from semif.train import train

    def crash(line: str) -> None:
        if line.startswith("validation at step 4:"):
            raise KeyboardInterrupt

    whole = train(tiny, tuned, texts, tmp_path / "whole", plan, False, print)
    with pytest.raises(KeyboardInterrupt):
        train(tiny, tuned, texts, tmp_path / "torn", plan, False, crash)
    said: list[str] = []
    resumed = train(tiny, tuned, texts, tmp_path / "torn", plan, True, said.append)
    assert any(line.startswith("resumed at step 4/") for line in said)
    assert not any(line.startswith("lower layers") for line in said)
    assert (resumed / "decide.gguf").read_bytes() == (whole / "decide.gguf").read_bytes()
    assert resumed.name == whole.name
    with pytest.raises(FileError, match="no checkpoint"):
        train(tiny, tuned, texts, tmp_path / "torn", replace(plan, seed=1), True, print)


def test_an_early_end_keeps_the_best_so_far(
    tiny: Model, tuned: Revision, texts: Path, plan: Plan, tmp_path: Path
) -> None:
    from semif.train import train

    said: list[str] = []
    folder = train(tiny, tuned, texts, tmp_path, replace(plan, minutes=0), False, said.append)
    made = revision.load(folder)
    assert tuned.decide_path and made.decide_path
    parent, child = (lora.read(path, TINY_HEADS) for path in (tuned.decide_path, made.decide_path))
    assert all(np.array_equal(p.b, child.pairs[target].b) for target, p in parent.pairs.items())


def test_what_cannot_be_tuned_is_refused(
    tiny: Model, tuned: Revision, plain: Revision, texts: Path, plan: Plan, tmp_path: Path
) -> None:
    from semif.train import train

    with pytest.raises(ModelError, match="no adapter for the readout branches"):
        train(tiny, plain, texts, tmp_path, plan, False, print)
    with pytest.raises(FileError, match=r"questions-v1\.json: cannot be read"):
        train(tiny, tuned, tmp_path, tmp_path, plan, False, print)


def test_the_command_checks_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", str(tmp_path), "--epochs", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
