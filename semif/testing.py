"""Doubles for tests: a decider that follows a script, and a random model made in a moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from semif.engine import select
from semif.types import Answer, Decision

Policy = Callable[[Decision], str | Mapping[str, float]]

_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_EMBEDDING, _HEADS, _KV_HEADS, _FEED_FORWARD = 64, 4, 2, 128


class ScriptedDecider:
    """Answers by a function from decision to option id or probabilities; records its calls.

    `mass` is the allowed_token_mass of its answers.
    """

    def __init__(self, policy: Policy, revision: str = "scripted", mass: float = 1.0) -> None:
        self.revision = revision
        self.mass = mass
        self.policy = policy
        self.calls: list[tuple[Decision, ...]] = []

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision; ValueError when the policy names an unknown option."""
        self.calls.append(tuple(decisions))
        for decision in decisions:
            decision.check()
        return [self._answer(decision) for decision in decisions]

    def _answer(self, decision: Decision) -> Answer:
        said = self.policy(decision)
        ids = [option.id for option in decision.options]
        weights = {said: 1.0} if isinstance(said, str) else dict(said)
        if not weights or not weights.keys() <= set(ids):
            raise ValueError(f"{decision.id}: {said!r} is not among the options {ids}")
        # A sure pick still leaves the others a little, as a real decider does.
        floor = 0.1 / len(ids) if isinstance(said, str) else 1e-9
        total = sum(weights.values()) + floor * len(ids)
        probs = {id_: (weights.get(id_, 0.0) + floor) / total for id_ in ids}
        return Answer(
            decision=decision,
            probs=probs,
            logits={id_: math.log(p) for id_, p in probs.items()},
            selected=select(probs),
            prompt_version="scripted",
            prompt_sha256="0" * 64,
            revision=self.revision,
            tokens=0,
            prompt_tokens=0,
            ms=0.0,
            allowed_token_mass=self.mass,
            plan={},
        )


def write_tiny_model(path: Path, seed: int = 0, layers: int = 2) -> None:
    """Write a random Llama of about 100,000 weights whose vocabulary covers every byte.

    Needs the package gguf (extra `test`). Its answers mean nothing; its mechanics are real: BPE,
    control tokens, a chat template, single tokens for ` yes` and ` no`.
    """
    import gguf
    import numpy as np

    tokens, merges = _vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(8192)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_rope_dimension_count(_EMBEDDING // _HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokens, *_CONTROL])
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(_CONTROL)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) + 1)
    writer.add_eos_token_id(len(tokens) + 2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT)
    random = np.random.default_rng(seed)
    shapes = {"token_embd": (len(tokens) + len(_CONTROL), _EMBEDDING)}
    norms = ["output_norm"]
    for layer in range(layers):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in _block().items()}
        norms += [f"blk.{layer}.attn_norm", f"blk.{layer}.ffn_norm"]
    for name, shape in shapes.items():
        weights = random.normal(0, 0.3, shape).astype(np.float32)
        writer.add_tensor(f"{name}.weight", weights)
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(_EMBEDDING, np.float32))
    _finish(writer)


def write_tiny_adapter(path: Path, seed: int = 1, rank: int = 4, layers: int = 2) -> None:
    """Write a random LoRA adapter that fits `write_tiny_model` of as many layers."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0 * rank)
    random = np.random.default_rng(seed)
    for layer in range(layers):
        for name in ("attn_q", "attn_v", "ffn_up", "ffn_down"):
            out, inner = _block()[name]
            for part, shape in (("a", (rank, inner)), ("b", (out, rank))):
                weights = random.normal(0, 0.2, shape).astype(np.float16)
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{part}", weights)
    _finish(writer)


def _block() -> dict[str, tuple[int, int]]:
    kv = _EMBEDDING // _HEADS * _KV_HEADS
    return {
        "attn_q": (_EMBEDDING, _EMBEDDING),
        "attn_k": (kv, _EMBEDDING),
        "attn_v": (kv, _EMBEDDING),
        "attn_output": (_EMBEDDING, _EMBEDDING),
        "ffn_gate": (_FEED_FORWARD, _EMBEDDING),
        "ffn_up": (_FEED_FORWARD, _EMBEDDING),
        "ffn_down": (_EMBEDDING, _FEED_FORWARD),
    }


def _vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE: all bytes, and the two answers of `branches`."""
    # Byte-level BPE writes a byte as a printable character: itself where it is one, else one
    # from U+0100 on, in order.
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    shifted = iter(range(256, 512))
    tokens = [chr(byte if byte in printable else next(shifted)) for byte in range(256)]
    merges = []
    for word in (" yes", " no"):
        parts = [tokens[byte] for byte in word.encode()]
        for i in range(1, len(parts)):
            left = "".join(parts[:i])
            if f"{left} {parts[i]}" not in merges:
                merges.append(f"{left} {parts[i]}")
                tokens.append(left + parts[i])
    return tokens, merges


def _finish(writer: object) -> None:
    from gguf import GGUFWriter

    assert isinstance(writer, GGUFWriter)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
