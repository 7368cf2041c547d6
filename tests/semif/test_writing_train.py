"""Tuning for writing on a tiny random model; torch is imported late, as in test_train.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from semif.cli.main import main
from semif.errors import DecisionError, FileError, ModelError
from semif.llama import Model
from semif.training import lora
from semif.training.lora import Heads
from semif.writing.pairs import Pair
from semif.writing.tasks import load

if TYPE_CHECKING:
    from semif.writing.train import Plan

WORDS = ("cat", "dog", "oven", "mail", "door", "lamp", "bus", "key", "song", "tree")


@pytest.fixture(scope="module")
def taught() -> list[Pair]:
    """60 pairs that a tiny model can learn: some are held out."""
    return [
        Pair("report", {"facts": f"{word}: {number}"}, f"{word} {number}")
        for word in WORDS
        for number in range(6)
    ]


@pytest.fixture
def plan(tiny: Model) -> Plan:  # the engine first: torch must find its thread settings
    from semif.writing.train import Plan

    return Plan(epochs=3, batch=8, rate=3e-3, rank=4, threads=1, bfloat16=False)


def said(lines: list[str]) -> str:
    return "\n".join(lines)


def test_only_the_text_is_learned_and_a_verdict_counts_more(tiny: Model) -> None:
    from semif.writing.net import example

    row = example(tiny, load(), Pair("report", {"facts": "a: 1"}, "a 1"), 1024)
    learned = row.tokens[row.start :]
    assert tiny.detokenize(learned) == "a 1<|im_end|>" and row.weights == (1.0,) * 4
    fields = {name: "x" for name in ("request", "skill", "before", "after", "output")}
    verdict = {"success": False, "cause": "text", "summary": "Cut."}
    row = example(tiny, load(), Pair("judge", fields, verdict), 1024)
    heavy = [
        token
        for token, weight in zip(row.tokens[row.start :], row.weights, strict=True)
        if weight > 1
    ]
    assert tiny.detokenize(heavy) == "falsetext"
    with pytest.raises(DecisionError, match="output"):
        example(tiny, load(), Pair("report", {"facts": "a: 1"}, "a" * 300), 1024)


def test_rows_of_like_length_go_together() -> None:
    from semif.writing.net import Example
    from semif.writing.train import chunks

    rows = [Example("report", (1,) * size, 1, (1.0,) * (size - 1)) for size in (10, 90, 100, 40, 5)]
    sizes = [[len(row.tokens) for row in chunk] for chunk in chunks(rows, 200)]
    assert sizes == [[100, 90], [40, 10], [5]]
    assert [[len(row.tokens) for row in chunk] for chunk in chunks(rows, 50)] == [
        [100], [90], [40], [10, 5]
    ]  # fmt: skip


def test_it_learns_and_the_engine_agrees(
    tiny: Model, taught: list[Pair], plan: Plan, tmp_path: Path
) -> None:
    from semif.writing.train import train

    lines: list[str] = []
    path = train(tiny, None, taught, tmp_path, plan, False, lines.append)
    figures = json.loads((tmp_path / "training.json").read_text())
    assert path == tmp_path / "write.gguf" and figures["torch_apart"] < 0.02
    first = next(line for line in lines if line.startswith("validation"))
    assert figures["validation_nll"]["report"] < float(first.split("nll ")[1][:5])
    assert figures["steps"] == figures["of_steps"] > 10 and figures["seconds_per_pair"] > 0
    assert lora.read(path, Heads(4, 2)).pairs
    # The same plan and pairs give the same weights; another seed does not.
    again = train(tiny, None, taught, tmp_path / "again", plan, False, lines.append)
    assert again.read_bytes() == path.read_bytes()


def test_a_run_in_pieces_gives_what_one_run_gives(
    tiny: Model,
    taught: list[Pair],
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from semif.writing import train as module

    whole = module.train(tiny, None, taught, tmp_path / "whole", plan, False, print)
    step = module.Loop._step

    def breaking(loop: module.Loop, rows: list[module.Example]) -> float:
        if loop.state.step == 7:
            loop._save()
            raise KeyboardInterrupt
        return step(loop, rows)

    monkeypatch.setattr(module.Loop, "_step", breaking)
    with pytest.raises(KeyboardInterrupt):
        module.train(tiny, None, taught, tmp_path / "cut", plan, False, print)
    monkeypatch.undo()
    lines: list[str] = []
    resumed = module.train(tiny, None, taught, tmp_path / "cut", plan, True, lines.append)
    assert any(line.startswith("resumed at step 7/") for line in lines)
    ours, theirs = (lora.read(path, Heads(4, 2)).pairs for path in (whole, resumed))
    assert all(np.array_equal(ours[at].b, theirs[at].b) for at in ours)


def test_it_can_go_on_from_an_adapter(
    tiny: Model, tiny_adapter: Path, taught: list[Pair], plan: Plan, tmp_path: Path
) -> None:
    from dataclasses import replace

    from semif.writing.train import train

    short = replace(plan, epochs=1, rate=0.0)
    path = train(tiny, tiny_adapter, taught, tmp_path, short, False, print)
    before, after = (lora.read(file, Heads(4, 2)).pairs for file in (tiny_adapter, path))
    assert all(np.array_equal(pair.a, after[target].a) for target, pair in before.items())


def test_what_cannot_be_trained_is_said(
    tiny: Model, tiny_path: Path, taught: list[Pair], plan: Plan, tmp_path: Path
) -> None:
    from semif.writing.train import train

    with pytest.raises(FileError, match="to validate on"):
        train(tiny, None, taught[:1], tmp_path, plan, False, print)
    with pytest.raises(FileError, match="no checkpoint"):
        train(tiny, None, taught, tmp_path, plan, True, print)
    usage = ["write", "train", "--out", str(tmp_path), "--model", str(tiny_path)]
    for wrong in (
        "--epochs=0",
        "--rate=nan",
        "--rate=-1",
        "--rate=inf",
        "--minutes=-1",
        "--minutes=0",
    ):
        with pytest.raises(SystemExit) as caught:
            main([*usage, wrong])
        assert caught.value.code == 2


def test_pairs_near_the_golden_set_are_not_trained_on(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from semif.writing import pairs

    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps(pairs.read(pairs.golden())[0].to_json()) + "\n")
    command = ["write", "train", "--out", str(tmp_path / "out"), "--model", str(tiny_path)]
    assert main([*command, "--pairs", str(file)]) == 1
    assert "1 pairs are near the golden set" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_not_finite_ends_the_run(
    tiny: Model, taught: list[Pair], plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semif.writing import train as module

    losses = module.Net.losses

    def breaking(net: module.Net, batch: list[module.Example]) -> object:
        return [row * float("nan") for row in losses(net, batch)]

    monkeypatch.setattr(module, "_agree", lambda *_: 0.0)
    monkeypatch.setattr(module.Net, "losses", breaking)
    with pytest.raises(ModelError, match="not finite at step 0; lower --rate"):
        module.train(tiny, None, taught, tmp_path, plan, False, print)
