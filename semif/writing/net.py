"""The model in torch with an adapter in all its layers, for tuning on written texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from semif import architectures, lora
from semif.errors import DecisionError
from semif.llama import Model
from semif.lora import Heads, Lora, Pair
from semif.writing import pairs as written
from semif.writing.tasks import Prompts

# What a fresh adapter changes, where a layer has it; keys and gate add cost and gain little.
_FRESH = frozenset(
    "attn_q attn_v attn_output shortconv.in_proj shortconv.out_proj ffn_up ffn_down".split()
)
# What the judgement itself weighs in the loss against a token of its summary: it is two tokens of
# some thirty, and all that is acted on.
_VERDICT_WEIGHT = 4.0
_VERDICT = re.compile(rb'"success": (true|false), "cause": "(\w+)"')


@dataclass(frozen=True)
class Example:
    """A pair in tokens: `tokens[start:]` are the text and its end, which is what is learned.

    `weights`: what each of these counts in the loss.
    """

    task: str
    tokens: tuple[int, ...]
    start: int
    weights: tuple[float, ...]


def example(model: Model, prompts: Prompts, pair: written.Pair, limit: int) -> Example:
    """DecisionError when a pair has more than `limit` tokens, or a text more than its budget."""
    task = prompts.task(pair.task)
    prompt = prompts.tokens(model, pair.task, pair.given)
    text = model.tokenize(task.text(pair.output), special=False)
    name = next(iter(pair.given.values()))[:60]
    if len(text) >= task.max_tokens:
        raise DecisionError(name, "output", f"has {len(text)} tokens of at most {task.max_tokens}")
    if len(prompt) + task.max_tokens > limit:
        raise DecisionError(name, "input", f"has {len(prompt)} tokens; shorten it")
    weights = [1.0] * (len(text) + 1)
    for begin, end in _verdict(task.text(pair.output)):
        at = 0
        for i, token in enumerate(text):
            size = len(model.piece(token))
            if at < end and at + size > begin:
                weights[i] = _VERDICT_WEIGHT
            at += size
    return Example(pair.task, (*prompt, *text, model.eos), len(prompt), tuple(weights))


def _verdict(text: str) -> list[tuple[int, int]]:
    """Spans, in bytes, of the values that are the judgement."""
    match = _VERDICT.search(text.encode())
    return [match.span(1), match.span(2)] if match else []


class Net:
    """The network with an adapter in all its blocks; only that is tuned.

    A fresh adapter of `rank`, drawn by `seed`, at first changes nothing; `start` is one to go on
    from. In bfloat16 the frozen weights are held and products computed in it, the adapter itself
    and everything else in float32. ModelError when the model is of a kind that cannot
    be tuned, or `start` does not fit it.
    """

    def __init__(
        self, model: Model, start: Path | None, *, rank: int, seed: int, bfloat16: bool
    ) -> None:
        self.bfloat16 = bfloat16
        self.kind = architectures.architecture(model)
        # For texts this short, the plain products cost less than the fused kernel's backward.
        self._net = architectures.network(model, "eager")
        config = self._net.config
        self.heads = Heads()
        if self.kind.permuted:
            self.heads = Heads(config.num_attention_heads, config.num_key_value_heads)
        names = architectures.linears(self._net, self.kind)
        known = lora.read(start, self.heads) if start else Lora(2.0 * rank, {})
        ranks = {target: rank for target in names if target.name in _FRESH}
        ranks |= {target: len(pair.a) for target, pair in known.pairs.items()}
        self._head = self._net.get_output_embeddings().weight.detach()
        if bfloat16:
            self._head = self._head.to(torch.bfloat16)
            for name in names.values():
                self._net.get_submodule(name).to(torch.bfloat16)
        torch.manual_seed(seed)
        self._tuned = lora.inject(self._net, known, ranks, names)
        self._alpha = known.alpha
        for layer in self._tuned.values():
            for weights in lora.factors(layer):
                weights.requires_grad_(True)

    def weights(self) -> dict[str, nn.Parameter]:
        """What is tuned, by name."""
        return {
            f"{target.layer}.{target.name}.{part}": weights
            for target, layer in self._tuned.items()
            for part, weights in zip("ab", lora.factors(layer), strict=True)
        }

    def copy_weights(self) -> dict[str, Tensor]:
        return {name: weights.detach().clone() for name, weights in self.weights().items()}

    def set_weights(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weights in self.weights().items():
                weights.copy_(values[name])

    def adapter(self) -> Lora:
        """The adapter as it now is."""
        pairs = {
            target: Pair(*(part.detach().numpy() for part in lora.factors(layer)))
            for target, layer in self._tuned.items()
        }
        return Lora(self._alpha, pairs)

    def losses(self, batch: Sequence[Example]) -> list[Tensor]:
        """Negative log likelihood of each learned token, [len(text) + 1] for every example.

        Shorter rows are padded at their end, where causal attention lets nothing look.
        """
        longest = max(len(row.tokens) for row in batch)
        padded = torch.zeros(len(batch), longest, dtype=torch.long)
        for i, row in enumerate(batch):
            padded[i, : len(row.tokens)] = torch.tensor(row.tokens)
        with self._autocast():
            hidden = self._net.model(input_ids=padded, use_cache=False).last_hidden_state
        before = [hidden[i, row.start - 1 : len(row.tokens) - 1] for i, row in enumerate(batch)]
        logits = torch.cat(before).to(self._head.dtype) @ self._head.T
        wanted = torch.cat([padded[i, row.start : len(row.tokens)] for i, row in enumerate(batch)])
        losses = functional.cross_entropy(logits.float(), wanted, reduction="none")
        return list(torch.split(losses, [len(row.tokens) - row.start for row in batch]))

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16)
