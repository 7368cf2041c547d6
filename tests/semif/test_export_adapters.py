"""An adapter means the same in torch and in the engine, for each architecture that can be tuned.

torch is imported inside tests, after the engine (see test_train.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import msgspec
import numpy as np
import pytest

from semif.engine import Engine
from semif.errors import ModelError
from semif.export import LabelledRow
from semif.llama import Model, sha256_file
from semif.models import Source
from semif.revision import Adapters, Revision, untuned
from semif.testing import _vocabulary as vocabulary
from semif.training import architectures, lora
from semif.training.architectures import ARCHITECTURES, Target
from semif.training.lora import Heads, Lora, Pair
from semif.types import Decision, Option

if TYPE_CHECKING:
    from semif.training.tower import Tower

WIDTH, FEED_FORWARD, HEADS, KV_HEADS = 64, 96, 4, 2
Shapes = dict[str, tuple[int, ...]]
RANK = 3
TOLERANCE = 2e-3  # the engine keeps keys and values in F16


@pytest.fixture(params=sorted(ARCHITECTURES))
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Model]:
    path = tmp_path / f"{request.param}.gguf"
    write_model(path, request.param)
    opened = Model.open(path)
    yield opened
    opened.close()


def decisions() -> list[Decision]:
    """Short and long; with many options, and with options whose branches are one text."""
    letters = tuple(Option(id_, f"What {id_} means.") for id_ in "abcdefg")
    text = "feed the cat before the sun goes down, and then tell me how it went"
    return [
        Decision("d1", "p", {"process": "none", "input": "x"}, "Asked?", letters[:2]),
        Decision("d2", "p", {"process": "none", "input": text}, "Asked?", letters[:2]),
        Decision("d3", "p", text, "Which of them is it?", letters),
    ]


def base(model: Model) -> Revision:
    return untuned(Source(model.path, model.sha256, model.type), "branches")


def with_adapter(model: Model, adapter: Path) -> Revision:
    contents = msgspec.structs.replace(
        base(model).contents, adapters=Adapters(sha256_file(adapter))
    )
    return Revision("tuned", contents, adapter.parent)


def tower(model: Model, adapter: Path | None, layers: int = 99) -> Tower:
    from semif.branches import answer_token
    from semif.prompting import branches_prompt
    from semif.training.tower import Slot, Tower, Tuning

    prompt = branches_prompt("branches-v1")
    yes, no = (answer_token(model, prompt, text) for text in (prompt.yes, prompt.no))
    return Tower(model, adapter, [Slot(yes, no)], Tuning(layers, rank=RANK))


def every_layer(model: Model) -> tuple[Lora, Heads]:
    """A random change of every linear layer, of values that F16 holds exactly."""
    net = tower(model, None)
    random = np.random.default_rng(5)
    pairs = {}
    found = {**architectures.linears(net._net, net.kind)}
    found |= {target: "" for target in net.adapter().pairs}  # those that peft has wrapped
    for target in sorted(found, key=str):
        path = f"blk.{target.layer}.{target.name}.weight"
        outputs, inputs = shapes(model)[path]
        a, b = random.normal(0, 0.12, (RANK, inputs)), random.normal(0, 0.12, (outputs, RANK))
        pairs[target] = Pair(*(part.astype(np.float16).astype(np.float32) for part in (a, b)))
    return Lora(2.0 * RANK, pairs), net.heads


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    tensors = gguf.GGUFReader(model.path).tensors
    return {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in tensors}


def engine_scores(model: Model, pinned: Revision) -> list[list[float]]:
    with Engine(model, pinned) as engine:
        return [list(engine.decide([d])[0].logits.values()) for d in decisions()]


def torch_scores(model: Model, adapter: Path | None, layers: int = 99) -> list[list[float]]:
    import torch

    from semif.training.examples import examples
    from semif.training.loss import option_scores

    labels = [LabelledRow(d, d.options[0].id, (), "given", 1.0) for d in decisions()]
    rows = [example.row for example in examples(model, base(model), labels, []).taught]
    with torch.no_grad():
        scores = tower(model, adapter, layers).scores(rows)
    return [
        option_scores(of_row, row.options).tolist()
        for of_row, row in zip(scores, rows, strict=True)
    ]


def apart(one: list[list[float]], other: list[list[float]]) -> float:
    pairs = zip(one, other, strict=True)
    return max(abs(a - b) for xs, ys in pairs for a, b in zip(xs, ys, strict=True))


def test_the_network_without_an_adapter(model: Model) -> None:
    assert apart(engine_scores(model, base(model)), torch_scores(model, None)) < TOLERANCE


def test_an_adapter_on_every_linear_layer(model: Model, tmp_path: Path) -> None:
    change, heads = every_layer(model)
    names = {target.name for target in change.pairs}
    assert {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"} <= names
    kind = architectures.architecture(model)
    assert ("shortconv.in_proj" in names) == kind.recurrent
    path = tmp_path / "decide.gguf"
    lora.write(path, change, heads, kind.name)
    in_engine = engine_scores(model, with_adapter(model, path))
    assert apart(in_engine, torch_scores(model, path)) < TOLERANCE
    assert apart(in_engine, torch_scores(model, path, layers=1)) < TOLERANCE
    assert apart(in_engine, engine_scores(model, base(model))) > 50 * TOLERANCE
    # Were the rows of a llama's queries and keys not put into its order, it would show.
    lora.write(path, change, Heads(), kind.name)
    moved = apart(in_engine, engine_scores(model, with_adapter(model, path)))
    assert moved > 2 * TOLERANCE if kind.permuted else moved < 1e-6


def test_a_fresh_adapter_changes_nothing_at_first(model: Model, tmp_path: Path) -> None:
    fresh = tower(model, None, layers=1)
    path = tmp_path / "decide.gguf"
    lora.write(path, fresh.adapter(), fresh.heads, fresh.kind.name)
    found = lora.read(path, fresh.heads)
    last = max(target.layer for target in found.pairs)
    assert {target.layer for target in found.pairs} == {last} and last > 0
    assert all(len(pair.a) == RANK and not pair.b.any() for pair in found.pairs.values())
    tuned = engine_scores(model, with_adapter(model, path))
    assert apart(tuned, engine_scores(model, base(model))) < 1e-6


def test_rows_packed_together_score_as_alone(model: Model) -> None:
    import torch

    from semif.training.examples import examples

    asked = [*decisions(), *decisions()[:2]]
    labels = [LabelledRow(d, d.options[0].id, (), "given", 1.0) for d in asked]
    rows = [example.row for example in examples(model, base(model), labels, []).taught]
    net = tower(model, None, layers=1)
    with torch.no_grad():
        together = net.scores(rows)
        for row, scores in zip(rows, together, strict=True):
            assert scores.tolist() == pytest.approx(net.scores([row])[0].tolist(), abs=1e-4)


def test_in_bfloat16_the_scores_are_near(model: Model) -> None:
    import torch

    from semif.training.examples import examples
    from semif.training.tower import Tower, Tuning

    labels = [LabelledRow(d, d.options[0].id, (), "given", 1.0) for d in decisions()]
    found = examples(model, base(model), labels, [])
    with torch.no_grad():
        exact, near = (
            Tower(model, None, found.slots, Tuning(1, precision=precision)).scores(
                [example.row for example in found.taught]
            )
            for precision in ("float32", "bfloat16")
        )
    apart = max(float((a - b).abs().max()) for a, b in zip(exact, near, strict=True))
    assert 1e-5 < apart < 0.1


def test_a_model_is_tuned_from_end_to_end(model: Model, tmp_path: Path) -> None:
    from semif.revision import load
    from semif.train import Plan, tune

    letters = tuple(Option(id_, f"What {id_} means.") for id_ in "abc")
    labels = [
        LabelledRow(Decision(f"d{i}", "p", f"text {i}", "Which?", letters), "b", (), "given", 1.0)
        for i in range(30)
    ]
    plan = Plan(epochs=6, layers=1, rate=1e-2, rank=4, precision="float32")
    made = load(tune(model, base(model), labels, "0" * 64, tmp_path, plan, False, print))
    assert list(tmp_path.glob("work/*.activations"))
    assert made.contents.metrics["torch_apart"] < 0.03
    assert made.contents.metrics["accuracy"] == 1.0 and made.contents.metrics["nll"] < 0.9


def test_what_does_not_fit_is_refused(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "decide.gguf"
    wrong = Pair(np.ones((1, 5), np.float32), np.ones((7, 1), np.float32))
    lora.write(path, Lora(1.0, {Target(0, "ffn_up"): wrong}), Heads())
    with pytest.raises(ModelError, match=r"does not fit .*ffn_up"):
        tower(model, path)
    lora.write(path, Lora(1.0, {Target(9, "ffn_up"): wrong}), Heads())
    with pytest.raises(ModelError, match="no linear layer"):
        tower(model, path)


# The models: random, of a few layers, with norms that are not 1, so that they show.


def write_model(path: Path, architecture: str, seed: int = 0) -> None:
    """Write a random model of a few layers; its norms are not 1, so that they show."""
    make = _KINDS[architecture]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_head_count(HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens, merges = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    random = np.random.default_rng(seed)
    shapes: Shapes = {"token_embd.weight": (len(tokens), WIDTH), **make(writer)}
    for name, shape in shapes.items():
        if "norm" in name:
            weights = 1 + random.normal(0, 0.2, shape)
        else:
            weights = random.normal(0, 0.1, shape)
        writer.add_tensor(name, weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _feed_forward(layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"blk.{layer}.ffn_norm.weight", (WIDTH,)
    for name in ("ffn_gate", "ffn_up"):
        yield f"blk.{layer}.{name}.weight", (FEED_FORWARD, WIDTH)
    yield f"blk.{layer}.ffn_down.weight", (WIDTH, FEED_FORWARD)


def _attention(layer: int, head: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"blk.{layer}.attn_norm.weight", (WIDTH,)
    yield f"blk.{layer}.attn_q.weight", (HEADS * head, WIDTH)
    for name in ("attn_k", "attn_v"):
        yield f"blk.{layer}.{name}.weight", (KV_HEADS * head, WIDTH)
    yield f"blk.{layer}.attn_output.weight", (WIDTH, HEADS * head)


def _plain(
    writer: gguf.GGUFWriter, layers: int = 2, head: int = WIDTH // HEADS, base: float = 10000.0
) -> Shapes:
    writer.add_block_count(layers)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(base)
    shapes: Shapes = {"output_norm.weight": (WIDTH,)}
    for layer in range(layers):
        shapes |= {**dict(_attention(layer, head)), **dict(_feed_forward(layer))}
    return shapes


def _llama(writer: gguf.GGUFWriter) -> Shapes:
    return _plain(writer)


def _qwen2(writer: gguf.GGUFWriter) -> Shapes:
    """Biases on queries, keys and values; an output matrix of its own."""
    shapes = _plain(writer, base=1e6)
    for name, shape in list(shapes.items()):
        if name.endswith(("attn_q.weight", "attn_k.weight", "attn_v.weight")):
            shapes[name.replace("weight", "bias")] = shape[:1]
    return {**shapes, "output.weight": (len(vocabulary()[0]), WIDTH)}


def _qwen3(writer: gguf.GGUFWriter) -> Shapes:
    """Norms on queries and keys; heads wider than their share of the width."""
    head = 32
    writer.add_key_length(head)
    writer.add_value_length(head)
    shapes = _plain(writer, head=head, base=1e6)
    for layer in range(2):
        for name in ("attn_q_norm", "attn_k_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = (head,)
    return shapes


def _gemma3(writer: gguf.GGUFWriter) -> Shapes:
    """Five layers of a short window, then one of a long one; norms around every part."""
    head, layers = 24, 7
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_sliding_window(16)
    shapes = _plain(writer, layers=layers, head=head, base=5e5)
    for layer in range(layers):
        for name in ("attn_q_norm", "attn_k_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = (head,)
        for name in ("post_attention_norm", "post_ffw_norm"):
            shapes[f"blk.{layer}.{name}.weight"] = (WIDTH,)
    return shapes


def _lfm2(writer: gguf.GGUFWriter) -> Shapes:
    """Short convolutions, and attention in between."""
    kinds = ("conv", "conv", "attention", "conv")
    head = WIDTH // HEADS
    writer.add_block_count(len(kinds))
    writer.add_head_count_kv([KV_HEADS if kind == "attention" else 0 for kind in kinds])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(1e6)
    writer.add_shortconv_l_cache(3)
    writer.add_vocab_size(len(vocabulary()[0]))
    shapes: Shapes = {"token_embd_norm.weight": (WIDTH,)}
    for layer, kind in enumerate(kinds):
        shapes |= dict(_feed_forward(layer))
        if kind == "attention":
            shapes |= dict(_attention(layer, head))
            for name in ("attn_q_norm", "attn_k_norm"):
                shapes[f"blk.{layer}.{name}.weight"] = (head,)
        else:
            shapes[f"blk.{layer}.attn_norm.weight"] = (WIDTH,)
            shapes[f"blk.{layer}.shortconv.conv.weight"] = (WIDTH, 3)
            shapes[f"blk.{layer}.shortconv.in_proj.weight"] = (3 * WIDTH, WIDTH)
            shapes[f"blk.{layer}.shortconv.out_proj.weight"] = (WIDTH, WIDTH)
    return shapes


_KINDS: dict[str, Callable[[gguf.GGUFWriter], Shapes]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "lfm2": _lfm2,
}
