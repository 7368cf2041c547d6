"""The model in torch with an adapter in all its layers, for tuning on written texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from semif.chat import Chat
from semif.errors import DecisionError
from semif.llama import Model
from semif.training.architectures import Target
from semif.training.lora import Lora
from semif.training.tuned import FRESH, Tuned
from semif.writing import pairs as written
from semif.writing.tasks import Prompts
from semif.writing.turns import Turn

# What the judgement itself weighs in the loss against a token of its summary: it is two tokens of
# some thirty, and all that is acted on.
_VERDICT_WEIGHT = 4.0
# Longer rows than the writing tasks have cost more memory than time: the fused kernel does not
# keep the square of their length, and a layer is computed again where its gradient is.
_LONG = 1024
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


def turn_example(model: Model, chat: Chat, turn: Turn, limit: int) -> Example:
    """DecisionError when a turn has more than `limit` tokens; ModelError when the model's chat
    template does not take it."""
    prompt = chat.tokens(turn.parts)
    text = model.tokenize(turn.output, special=False)
    if (count := len(prompt) + len(text) + 1) > limit:
        raise DecisionError(turn.about[:60], "parts", f"and output have {count} tokens of {limit}")
    return Example(
        turn.task, (*prompt, *text, model.eos), len(prompt), (1.0,) * (len(text) + 1)
    )


def _verdict(text: str) -> list[tuple[int, int]]:
    """Spans, in bytes, of the values that are the judgement."""
    match = _VERDICT.search(text.encode())
    return [match.span(1), match.span(2)] if match else []


class Net(Tuned):
    """The network with an adapter in all its blocks: a fresh one, or `start` to go on from.

    See `Tuned`. ModelError when the model is of a kind that cannot be tuned, or `start` does not
    fit it.
    """

    def __init__(
        self,
        model: Model,
        start: Path | None,
        *,
        rank: int,
        seed: int,
        bfloat16: bool,
        longest: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """longest: the tokens of the longest row it will be given."""
        # For short texts, the plain products cost less than the fused kernel's backward.
        long = longest > _LONG
        attention = "sdpa" if long else "eager"
        super().__init__(model, attention, "bfloat16" if bfloat16 else "float32", device)
        self._inject(start, rank, seed, partial(_ranks, rank=rank))
        if long:
            for block in self._blocks:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    def losses(self, batch: Sequence[Example]) -> list[Tensor]:
        """Negative log likelihood of each learned token, [len(text) + 1] for every example.

        Shorter rows are padded at their end, where causal attention lets nothing look.
        """
        longest = max(len(row.tokens) for row in batch)
        padded = torch.zeros(len(batch), longest, dtype=torch.long)
        for i, row in enumerate(batch):
            padded[i, : len(row.tokens)] = torch.tensor(row.tokens)
        padded = padded.to(self.device)
        with self._autocast():
            hidden = self._net.model(input_ids=padded, use_cache=False).last_hidden_state
        before = [hidden[i, row.start - 1 : len(row.tokens) - 1] for i, row in enumerate(batch)]
        logits = torch.cat(before).to(self._head.dtype) @ self._head.T
        wanted = torch.cat([padded[i, row.start : len(row.tokens)] for i, row in enumerate(batch)])
        losses = functional.cross_entropy(logits.float(), wanted, reduction="none")
        return list(torch.split(losses, [len(row.tokens) - row.start for row in batch]))


def _ranks(known: Lora, names: Mapping[Target, str], *, rank: int) -> dict[Target, int]:
    """Rank by target: the known one, and fresh ones wherever there can be one."""
    fresh = {target: rank for target in names if target.name in FRESH}
    return fresh | {target: len(pair.a) for target, pair in known.pairs.items()}
