"""Tuning on a tiny random model: the same numbers in torch and engine, kept through everything.

torch is imported inside tests and fixtures, after the engine: it must find the thread settings
that the engine has made, or both crawl.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from semif import revision
from semif.cli.main import main
from semif.engine import Engine
from semif.errors import DecisionError, FileError, ModelError
from semif.export import LabelledRow
from semif.llama import Model
from semif.models import Source
from semif.revision import Revision, untuned
from semif.rows import split
from semif.training import lora
from semif.training.architectures import Target
from semif.training.lora import Heads, Lora, Pair
from semif.types import Decision, Option

if TYPE_CHECKING:
    from semif.train import Plan
    from semif.training.examples import Example
    from semif.training.tower import Tower

TINY_HEADS = Heads(4, 2)
NOUNS = ("cat", "dog", "oven", "mail", "door", "lamp", "bus", "key", "song", "tree")
ASKS = (Option("no", "It asks for nothing."), Option("yes", "It asks for something."))
Say = Callable[[str], None]


def labels() -> list[LabelledRow]:
    """40 rows of two phases that a tiny model can learn."""
    rows = []
    for i, noun in enumerate(NOUNS):
        for text, said in ((f"feed the {noun}", "yes"), (f"nice {noun}", "no")):
            state = {"input": text}
            rows.append(labelled(Decision(f"a{i}{said}", "asks", state, "A request?", ASKS), said))
        leaves = tuple(Option(id_, f"{id_} things") for id_ in ("one", "two", "three"))
        for text, said in ((f"first {noun}", "one"), (f"second {noun}", "two")):
            state = {"input": text}
            rows.append(labelled(Decision(f"l{i}{said}", "leaf", state, "Where?", leaves), said))
    return rows


def labelled(decision: Decision, said: str, weight: float = 1.0) -> LabelledRow:
    return LabelledRow(decision, said, (), "given", weight)


@pytest.fixture
def plan(tiny: Model) -> Plan:
    from semif.train import Plan

    return Plan(epochs=2, layers=1, rate=1e-2, threads=1, precision="float32", checkpoint_every=0.0)


def tune(
    model: Model, parent: Revision, out: Path, plan: Plan, resume: bool = False, say: Say = print
) -> Path:
    from semif.train import tune

    return tune(model, parent, labels(), "0" * 64, out, plan, resume, say)


def decisions() -> list[Decision]:
    texts = ("feed the cat", "thanks, übrigens\nWie spät ist es?", "x")
    asked = [
        Decision(f"d{i}", "p", {"current_process": "none", "input": text}, "A request?", ASKS)
        for i, text in enumerate(texts)
    ]
    many = tuple(Option(f"c{i}", f"category {i}") for i in range(70))
    return [*asked, Decision("many", "q", "where to?", "Which?", many)]


def examples_of(model: Model, pinned: Revision, asked: list[Decision]) -> list[Example]:
    from semif.training.examples import examples

    rows = [labelled(decision, decision.options[0].id) for decision in asked]
    return list(examples(model, pinned, rows, []).taught)


def tower(model: Model, pinned: Revision, layers: int, precision: str = "float32") -> Tower:
    from semif.training.examples import examples
    from semif.training.tower import Tower, Tuning

    slots = examples(model, pinned, [labelled(d, d.options[0].id) for d in decisions()], []).slots
    assert precision in ("float32", "bfloat16")
    return Tower(model, pinned.decide_path, slots, Tuning(layers, precision=precision))  # type: ignore[arg-type]


def with_prompts(pinned: Revision, **versions: str) -> Revision:
    contents = msgspec.structs.replace(pinned.contents, prompt_versions=versions)
    return replace(pinned, contents=contents)


@pytest.mark.parametrize("prompt", ["branches-v1", "branches-v2", "branches-state-v2"])
@pytest.mark.parametrize("layers", [1, 2])
def test_packed_rows_score_as_in_the_engine(
    tiny: Model, tuned: Revision, prompt: str, layers: int
) -> None:
    import torch

    from semif.training.loss import option_scores

    pinned = with_prompts(tuned, p=prompt)
    asked = decisions()
    # Two options of one text share its probability.
    asked[0] = replace(asked[0], options=(*ASKS, Option("also", "It asks for something.")))
    pinned = with_prompts(pinned, p=prompt, q="branches-described-v2")
    with Engine(tiny, pinned) as engine:
        expected = [engine.decide([decision])[0].logits for decision in asked]
    found = examples_of(tiny, pinned, asked)
    with torch.no_grad():
        together = tower(tiny, pinned, layers).scores([example.row for example in found])
    for example, scores, logits in zip(found, together, expected, strict=True):
        by_option = option_scores(scores, example.row.options).tolist()
        assert example.ids == tuple(logits)
        assert by_option == pytest.approx(list(logits.values()), abs=1e-2)


def test_a_tower_in_bfloat16_is_near(tiny: Model, tuned: Revision) -> None:
    import torch

    rows = [example.row for example in examples_of(tiny, tuned, decisions())]
    with torch.no_grad():
        exact, near = (tower(tiny, tuned, 1, p).scores(rows) for p in ("float32", "bfloat16"))
    apart = max(float((a - b).abs().max()) for a, b in zip(exact, near, strict=True))
    assert 1e-4 < apart < 0.5


def test_packs_hold_rows_of_one_head_together_and_a_bounded_number_of_tokens(
    tiny: Model, tuned: Revision
) -> None:
    from semif.training.packing import Sequences, Tree, packs

    short, *_, long = (example.row for example in examples_of(tiny, tuned, decisions()))
    rows = [short, short, long, short, long, short]
    room = len(short.head) + 3 * short.own
    assert packs(Tree(), rows, [4, 0, 1, 5, 2, 3], room) == [[4], [2], [0, 1, 5], [3]]
    assert packs(Tree(), rows, [0, 2, 1], 10**6) == [[0, 1, 2]]
    # Without a tree every branch has all that comes before it.
    (alone,) = Sequences().pieces(0, short)
    assert alone == (0, 2 * (len(short.head) + len(short.body)) + sum(map(len, short.branches)))
    assert packs(Sequences(), rows, [0, 1, 3], 2 * alone[1]) == [[0, 1], [3]]


def test_workers_get_rows_of_one_head_together_and_tokens_alike() -> None:
    from semif.training.packing import Row, Tree, spread

    rows = [Row((head,) * 20, (4,) * 30, ((5,),), (0,), (0,)) for head in (1, 1, 1, 1, 2, 2, 3)]
    assert spread(Tree(), rows, range(7), 1, 10**6) == [[list(range(7))]]
    two = spread(Tree(), rows, range(7), 2, 10**6)
    assert two == [[[0, 1, 2, 3]], [[4, 5, 6]]]
    assert spread(Tree(), rows, range(7), 2, 90) == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    # One head for all: it is split.
    assert spread(Tree(), rows, range(4), 2, 10**6) == [[[0, 1]], [[2, 3]]]
    assert spread(Tree(), rows, [6], 2, 10**6) == [[[6]], []]


def test_workers_use_all_threads() -> None:
    from semif.training.workers import Workers

    for threads, tokens, expected in ((2, 10**6, 2), (2, 100, 1), (6, 400, 3), (1, 10**6, 1)):
        with Workers(threads, tokens) as workers:
            assert workers.count == expected
            assert list(workers.map(lambda x: 2 * x, range(5))) == [0, 2, 4, 6, 8]
    with Workers(2, 10**6) as workers, pytest.raises(ZeroDivisionError):
        list(workers.map(lambda x: 1 / x, [1, 0]))


def test_attention_is_padded_little() -> None:
    from semif.training.packing import Row, Tree

    rows = [Row((1, 2, 3), (4,) * length, ((5,),), (0,), (0,)) for length in (5, 6, 90, 7)]
    where = Tree().layout(rows, range(4))
    needed = 3 * 3 + sum(row.own * (3 + row.own) for row in rows)
    assert sum(spans.hidden.numel() for spans in where.spans) < 1.6 * needed
    assert sorted(where.order.tolist()) == sorted(set(where.order.tolist()))  # type: ignore[union-attr]
    assert where.tokens.shape == (1, 3 + sum(row.own for row in rows))


def test_kept_activations_give_the_same_scores(
    tiny: Model, tuned: Revision, tmp_path: Path
) -> None:
    from semif.training.activations import Activations
    from semif.training.processes import Processes
    from semif.training.workers import Workers

    net = tower(tiny, tuned, 1)
    rows = [example.row for example in examples_of(tiny, tuned, decisions())]
    counts: list[int] = []
    kept = Activations(rows, net)
    kept.make(tmp_path / "a", Workers(1, 1), Processes(), counts.append)
    assert counts[-1] == 4
    again = Activations(rows, net)
    assert again.open(tmp_path / "a") and not Activations(rows[1:], net).open(tmp_path / "a")
    for pack in ([2, 0], [3]):
        chosen = [rows[i] for i in pack]
        where = net.layout(chosen, pack)
        for exact, read in zip(net.scores(chosen), net.upper(again.of(where), where), strict=True):
            assert read.scores.tolist() == pytest.approx(exact.tolist(), abs=2e-2)


@pytest.mark.parametrize("readout", ["branches", "letters"])
def test_the_mass_is_that_of_the_engine(tiny: Model, tiny_source: Source, readout: str) -> None:
    import torch

    from semif.training.examples import examples
    from semif.training.tower import Tower, Tuning

    assert readout in ("branches", "letters")
    pinned = untuned(tiny_source, readout)  # type: ignore[arg-type]
    asked = decisions()[:3]
    with Engine(tiny, pinned) as engine:
        expected = [engine.decide([decision])[0].allowed_token_mass for decision in asked]
    found = examples(tiny, pinned, [labelled(d, "yes") for d in asked], [])
    net = Tower(tiny, None, found.slots, Tuning(1))
    where = net.layout([example.row for example in found.taught], range(3))
    with torch.no_grad():
        reads = net.upper(net.lower(where), where, mass=True)
    masses = [read.log_mass.exp().min().item() for read in reads if read.log_mass is not None]
    assert masses == pytest.approx(expected, rel=0.02)


def test_training_raises_the_mass(tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path) -> None:
    from semif.train import tune

    def mass(weight: float) -> float:
        changed = replace(plan, epochs=3, mass_weight=weight)
        folder = tune(tiny, tuned, labels(), "", tmp_path / str(weight), changed, False, print)
        return float(revision.load(folder).contents.metrics["allowed_token_mass"])

    assert mass(1.0) > 2 * mass(0.0)


def test_an_adapter_survives_reading_and_writing(tiny_adapter: Path, tmp_path: Path) -> None:
    from gguf import GGUFReader

    whole = lora.read(tiny_adapter, TINY_HEADS)
    assert whole.alpha == 8 and len(whole.pairs) == 8
    lora.write(tmp_path / "copy.gguf", whole, TINY_HEADS)
    before, after = (GGUFReader(p).tensors for p in (tiny_adapter, tmp_path / "copy.gguf"))
    assert [t.name for t in before] == [t.name for t in after]
    assert all(np.array_equal(a.data, b.data) for a, b in zip(before, after, strict=True))
    # Rows of one head of four: the halves of a head lie side by side in the file.
    pair = Pair(np.ones((1, 3), np.float32), np.arange(4, dtype=np.float32)[:, None])
    lora.write(tmp_path / "one.gguf", Lora(1, {Target(0, "attn_q"): pair}), Heads(1, 1))
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


def measure(model: Model, pinned: Revision) -> tuple[float, list[float]]:
    """Accuracy over all rows, and every logit."""
    right: list[bool] = []
    logits: list[float] = []
    with Engine(model, pinned) as engine:
        for row in labels():
            answer = engine.decide([row.decision])[0]
            right.append(answer.selected == row.outcome)
            logits += answer.logits.values()
    return float(np.mean(right)), logits


def test_training_improves_and_the_engine_gives_the_tuned_scores(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    said: list[str] = []
    folder = tune(tiny, tuned, tmp_path, replace(plan, epochs=8, patience=99), say=said.append)
    made = revision.load(folder)
    assert folder.name == made.id
    contents = made.contents
    assert contents.parent == tuned.id and contents.base == tuned.contents.base
    assert contents.data_sha256 == "0" * 64 and contents.proven == ("report",)
    assert contents.thresholds == {"contains_request": 0.5, "interrupt": 0.7, "predict": 0.5}
    assert contents.temperatures["warm"] == 2.0 and contents.none_bias["biased"] == 1.5
    assert contents.metrics["torch_apart"] < 0.05
    assert contents.metrics["rows"] == len(split(labels())[1]) >= 3
    (before, old), (after, new) = measure(tiny, tuned), measure(tiny, made)
    assert after > before + 0.3
    assert max(abs(a - b) for a, b in zip(old, new, strict=True)) > 1
    # Below the tuned layer the parent's adapter is untouched, in it nothing is.
    assert tuned.decide_path and made.decide_path
    parent, child = (lora.read(path, TINY_HEADS) for path in (tuned.decide_path, made.decide_path))
    for target, pair in parent.pairs.items():
        assert np.array_equal(pair.b, child.pairs[target].b) == (target.layer == 0)
    assert any("validation at step 0:" in line for line in said)


def test_a_parent_without_an_adapter_gets_a_fresh_one(
    tiny: Model, plain: Revision, plan: Plan, tmp_path: Path
) -> None:
    made = revision.load(tune(tiny, plain, tmp_path, replace(plan, epochs=6, rank=4, layers=2)))
    assert made.decide_path is not None
    found = lora.read(made.decide_path, TINY_HEADS)
    assert found.alpha == 8 and all(len(pair.a) == 4 for pair in found.pairs.values())
    assert len(found.pairs) == 2 * 5  # q, v, output, up and down of both layers
    assert measure(tiny, made)[0] > measure(tiny, plain)[0] + 0.2


def test_a_run_may_begin_afresh_with_another_prompt(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    changed = replace(
        plan,
        epochs=1,
        fresh=True,
        rank=2,
        prompt="branches-v2",
        phase_prompts=(("leaf", "branches-described-v2"), ("asks", "branches-v2")),
    )
    contents = revision.load(tune(tiny, tuned, tmp_path, changed)).contents
    assert contents.prompt_version == "branches-v2"
    assert contents.prompt_versions == {"leaf": "branches-described-v2"}
    # What was fitted to the old prompts and adapter is gone.
    assert set(contents.temperatures) == {"asks", "leaf"} and "biased" not in contents.none_bias


def test_a_run_resumed_after_a_crash_ends_with_the_same_weights(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    def crash(line: str) -> None:
        if line.startswith("validation at step 5:"):
            raise KeyboardInterrupt

    whole = tune(tiny, tuned, tmp_path / "whole", plan)
    with pytest.raises(KeyboardInterrupt):
        tune(tiny, tuned, tmp_path / "torn", plan, say=crash)
    said: list[str] = []
    resumed = tune(tiny, tuned, tmp_path / "torn", plan, resume=True, say=said.append)
    assert any(line.startswith("resumed at step 5/") for line in said)
    assert not any(line.startswith("lower layers") for line in said)
    assert (resumed / "decide.gguf").read_bytes() == (whole / "decide.gguf").read_bytes()
    assert resumed.name == whole.name
    with pytest.raises(FileError, match="no checkpoint"):
        tune(tiny, tuned, tmp_path / "torn", replace(plan, seed=1), resume=True)


def note_losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loss of each step from now on."""
    from semif.training.loop import Loop

    losses: list[float] = []
    step = Loop._step

    def noted(*args: Any) -> float:
        losses.append(step(*args))
        return losses[-1]

    monkeypatch.setattr(Loop, "_step", noted)
    return losses


def test_workers_train_as_one(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = note_losses(monkeypatch)
    made = []
    for name, threads in (("one", 1), ("two", 2), ("again", 2)):
        changed = replace(plan, threads=threads, batch=12)
        made.append(tune(tiny, tuned, tmp_path / name, changed))
    count = len(losses) // 3
    assert count >= 4
    assert losses[count : 2 * count] == pytest.approx(losses[:count], abs=2e-3)
    assert losses[2 * count :] == losses[count : 2 * count]  # to the last bit
    assert (made[1] / "decide.gguf").read_bytes() == (made[2] / "decide.gguf").read_bytes()


def test_an_early_end_keeps_the_best_so_far(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    made = revision.load(tune(tiny, tuned, tmp_path, replace(plan, minutes=0)))
    assert tuned.decide_path and made.decide_path
    parent, child = (lora.read(path, TINY_HEADS) for path in (tuned.decide_path, made.decide_path))
    assert all(np.array_equal(p.b, child.pairs[target].b) for target, p in parent.pairs.items())


@pytest.mark.parametrize("fresh", [False, True])
def test_the_adapter_for_writing_goes_along_with_what_it_was_measured_at(
    tiny: Model, tuned: Revision, tiny_adapter: Path, plan: Plan, tmp_path: Path, fresh: bool
) -> None:
    sha256 = hashlib.sha256(tiny_adapter.read_bytes()).hexdigest()
    contents = msgspec.structs.replace(
        tuned.contents,
        adapters=revision.Adapters(tuned.contents.adapters.deciding, sha256),
        proven=("judge",),
        metrics={"writing": {"rows": 3}, "act": {"rows": 4}},
    )
    files = {revision.DECIDE: tuned.decide_path, revision.WRITE: tiny_adapter}
    parent = revision.write(contents, files, tmp_path)
    made = revision.load(tune(tiny, parent, tmp_path, replace(plan, minutes=0, fresh=fresh)))
    assert made.write_path and made.write_path.read_bytes() == tiny_adapter.read_bytes()
    assert made.proven == {"judge"} and made.contents.metrics["writing"] == {"rows": 3}
    assert made.contents.metrics["act"] == {"rows": 4}
    assert made.decide_path is not None


def test_training_ends_when_patience_is_out(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    said: list[str] = []
    wild = replace(plan, epochs=20, rate=3.0, patience=2)
    tune(tiny, tuned, tmp_path, wild, say=said.append)
    assert any("no better for 2 validations" in line for line in said)
    assert sum(line.startswith("validation") for line in said) < 20


def test_rows_teach_by_weight_and_by_what_they_are_not(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path
) -> None:
    from semif.train import tune

    asks = [row for row in labels() if row.decision.phase == "asks"]
    taught, held = split(asks)
    # Told only that "yes" is wrong, everywhere, and in rows of no weight that it is right.
    denied = [replace(row, outcome=None, not_outcomes=("yes",)) for row in taught]
    nothing = [replace(row, outcome="yes", weight=0.0) for row in taught]
    held = [replace(row, outcome="no") for row in held]
    rows = [*denied, *nothing, *held]
    folder = tune(tiny, tuned, rows, "0" * 64, tmp_path, replace(plan, epochs=6), False, print)
    with Engine(tiny, tuned) as old, Engine(tiny, revision.load(folder)) as new:
        before, after = (
            np.mean([engine.decide([row.decision])[0].logits["yes"] for row in denied])
            for engine in (old, new)
        )
    assert after < before - 1
    both = replace(denied[0], not_outcomes=("yes", "no"))
    with pytest.raises(DecisionError, match="not_outcomes: must name some"):
        tune(tiny, tuned, [both, *held], "0" * 64, tmp_path, plan, False, print)


def test_letters_are_tuned_by_the_same_loss(
    tiny: Model, tiny_source: Source, plan: Plan, tmp_path: Path
) -> None:
    parent = untuned(tiny_source, "letters")
    made = revision.load(tune(tiny, parent, tmp_path, replace(plan, epochs=8, layers=2, rank=4)))
    assert made.contents.readout == "letters" and made.contents.metrics["torch_apart"] < 0.05
    assert measure(tiny, made)[0] > measure(tiny, parent)[0] + 0.2


def test_two_processes_train_as_one(
    tiny: Model, tuned: Revision, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned.folder is not None
    losses = note_losses(monkeypatch)
    tune(tiny, tuned, tmp_path / "one", replace(plan, batch=6))
    script, rows = tmp_path / "two.py", tmp_path / "rows"
    script.write_text(_SCRIPT)
    rows.write_bytes(msgspec.json.encode([row.to_json() for row in labels()]))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
        + [str(script), *map(str, (tiny.path, tuned.folder, rows, tmp_path / "two"))],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [float(part) for part in (tmp_path / "two" / "losses").read_text().split()]
    assert len(found) >= 8
    assert found == pytest.approx(losses, abs=2e-3)


_SCRIPT = """
import sys
from pathlib import Path
import msgspec
from semif import revision
from semif.export import LabelledRow
from semif.llama import Model
from semif.train import Plan, tune
from semif.training.loop import Loop

model, folder, rows, out = map(Path, sys.argv[1:])
opened, parent = Model.open(model), revision.load(folder)
losses, step = [], Loop._step
Loop._step = lambda *args: losses.append(step(*args)) or losses[-1]
plan = Plan(epochs=2, layers=1, rate=1e-2, threads=1, precision="float32", batch=6)
labels = [LabelledRow.from_json(row, "row") for row in msgspec.json.decode(rows.read_bytes())]
tune(opened, parent, labels, "0" * 64, out, plan, False, lambda line: None)
(out / "losses").write_text(" ".join(map(str, losses)))
"""


def test_the_command_trains_on_texts_and_checks_its_numbers(
    tiny: Model, tuned: Revision, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "--out", str(tmp_path), "--epochs", "0"])
    assert caught.value.code == 2
    assert "--epochs: '0' is no whole number of at least 1" in capsys.readouterr().err
    assert main(["train", "--out", str(tmp_path), "--phase-prompt", "urgency"]) == 2
    assert "PHASE=VERSION" in capsys.readouterr().err
    arguments = ["--model", str(tiny.path), "--parent", str(tuned.folder), "--rows-limit", "30"]
    arguments += ["--epochs", "1", "--layers", "1", "--threads", "1", "--batch", "16"]
    assert main(["train", "--out", str(tmp_path / "out"), *arguments]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert revision.load(folder).contents.parent == tuned.id
    with pytest.raises(FileError, match="cannot be read"):
        from semif.train import Plan, train

        train(tiny, tuned, tmp_path, tmp_path, Plan(), False, print)
