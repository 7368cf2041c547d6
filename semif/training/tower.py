"""The model in torch, cut in two: frozen lower layers, and upper layers whose adapter is tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from semif.errors import ModelError
from semif.llama import Model
from semif.training import attention
from semif.training.architectures import Target
from semif.training.lora import Lora
from semif.training.packing import Layout, Packing, Row, Sequences, Tree, map_tensors
from semif.training.tuned import FRESH, Precision, Tuned


@dataclass(frozen=True)
class Slot:
    """What is read at the end of a prompt: the logit of a token, or its lead over another's."""

    token: int
    against: int | None = None


@dataclass(frozen=True)
class Read:
    """What is read of a row: its scores [M], float32, and by place the log of the probability that
    the next token is one that its slots name, where that was asked for."""

    scores: Tensor
    log_mass: Tensor | None


@dataclass(frozen=True)
class Tuning:
    """How a tower is tuned: the upper `layers` layers, with a fresh adapter of `rank`, drawn by
    `seed`, in those where the parent has none. `precision`: see `Tuned`.
    """

    layers: int
    rank: int = 16
    seed: int = 0
    precision: Precision = "float32"


class Tower(Tuned):
    """The network with the parent's adapter, if any, and that of its upper layers to be tuned.

    ModelError when the model is of a kind that cannot be tuned, or the adapter does not fit it.
    """

    def __init__(
        self,
        model: Model,
        adapter: Path | None,
        slots: Sequence[Slot],
        tuning: Tuning,
        device: torch.device | None = None,
    ) -> None:
        attention.register()
        super().__init__(model, attention.NAME, tuning.precision, device)
        self.packing: Packing = Sequences() if self.kind.recurrent else Tree()
        self.width = int(self._net.config.hidden_size)
        self.split = max(0, len(self._blocks) - tuning.layers)
        self._tokens = _tokens(slots).to(self.device)
        self._slots = _vectors(self._head, slots)
        ranks = partial(self._ranks, rank=tuning.rank)
        self._inject(adapter, tuning.rank, tuning.seed, ranks)
        self._tune(lambda target: target.layer >= self.split)

    def _ranks(self, parent: Lora, names: Mapping[Target, str], *, rank: int) -> dict[Target, int]:
        """Rank by target: the parent's, and fresh ones in tuned layers that have none."""
        ranks = {target: len(pair.a) for target, pair in parent.pairs.items()}
        wanted = {target.name for target in ranks} or set(FRESH)
        touched = {target.layer for target in ranks}
        for target in names:
            if target.layer >= self.split and target.layer not in touched:
                if target.name in wanted:
                    ranks[target] = rank
        if not ranks:
            raise ModelError("no layer of this model can be tuned")
        return ranks

    def layout(self, rows: Sequence[Row], indexes: Sequence[int]) -> Layout:
        """Where the tokens of these rows stand when they are evaluated together."""
        where = self.packing.layout(rows, indexes)
        return map_tensors(where, lambda part: part.to(self.device))

    @torch.no_grad()
    def lower(self, where: Layout) -> Tensor:
        """Activations [N, width] of the tokens below the layers that are tuned."""
        embedded = self._net.model.embed_tokens(where.tokens).float()
        hidden = self._run(self._blocks[: self.split], embedded, where).flatten(0, 1)
        return hidden if where.places is None else hidden[where.places]

    def upper(self, hidden: Tensor, where: Layout, mass: bool = False) -> list[Read]:
        """What is read of each row, from `lower`'s activations [N, width]; `mass`: its mass too."""
        hidden = hidden.to(self.device)
        if where.places is not None:
            padded = hidden.new_zeros(where.tokens.numel(), self.width)
            hidden = padded.index_copy(0, where.places, hidden)
        hidden = hidden.view(*where.tokens.shape, self.width)
        top = self._run(self._blocks[self.split :], hidden, where).flatten(0, 1)
        places, slots = where.reads.T
        read = self._norm()(top[places].float())
        scores = torch.split((read * self._slots[slots]).sum(-1), where.counts)
        if not mass:
            return [Read(of_row, None) for of_row in scores]
        log_probs = torch.split(self._log_probs(read, slots), where.counts)
        return [
            Read(of_row, log_prob.view(-1, together).logsumexp(1))
            for of_row, log_prob, together in zip(scores, log_probs, where.together, strict=True)
        ]

    def _log_probs(self, read: Tensor, slots: Tensor) -> Tensor:
        """Log probability [M] of the tokens of each slot, over the whole vocabulary."""
        with self._autocast():
            logits = nn.functional.linear(read, self._head)
        logits = logits.float()
        tokens = self._tokens[slots]
        named = logits.gather(1, tokens.clamp(min=0)).masked_fill(tokens < 0, float("-inf"))
        return named.logsumexp(1) - logits.logsumexp(1)

    def scores(self, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """Scores by row from the whole network."""
        where = self.layout(rows, range(len(rows)))
        return tuple(read.scores for read in self.upper(self.lower(where), where))

    def _run(self, blocks: Sequence[nn.Module], hidden: Tensor, where: Layout) -> Tensor:
        rotary: dict[str | None, Any] = {}
        with self._autocast():
            for block in blocks:
                kind = getattr(getattr(block, "self_attn", None), "layer_type", None)
                if kind not in rotary:
                    rotary[kind] = self._rotary(hidden, where.positions, kind)
                hidden = block(
                    hidden,
                    position_ids=where.positions,
                    position_embeddings=rotary[kind],
                    where=where,
                )
        return hidden

    def _rotary(self, hidden: Tensor, positions: Tensor, kind: str | None) -> Any:
        """Rotary embeddings, which in some models go by the kind of layer."""
        embed = self._net.model.rotary_emb
        if isinstance(embed.rope_type, dict):
            return embed(hidden, position_ids=positions, layer_type=kind)
        return embed(hidden, position_ids=positions)

    def _norm(self) -> Any:
        model = self._net.model
        return model.embedding_norm if hasattr(model, "embedding_norm") else model.norm


def _vectors(head: Tensor, slots: Sequence[Slot]) -> Tensor:
    """The vectors [slots, width] whose product with the last activation is what is read."""
    vectors = [
        head[slot.token] - (0 if slot.against is None else head[slot.against]) for slot in slots
    ]
    return torch.stack(vectors).float()


def _tokens(slots: Sequence[Slot]) -> Tensor:
    """The tokens [slots, 2] that each slot names, -1 for none."""
    return torch.tensor(
        [[slot.token, -1 if slot.against is None else slot.against] for slot in slots]
    )
