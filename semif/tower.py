"""The model in torch, cut in two: frozen lower layers, and upper layers whose adapter is tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from semif import architectures, attention, lora
from semif.architectures import Target
from semif.errors import ModelError
from semif.llama import Model
from semif.lora import Heads, Lora, Pair
from semif.packing import Layout, Packing, Row, Sequences, Tree, map_tensors

Precision = Literal["float32", "bfloat16"]
# What a fresh adapter changes, where a layer has it: of attention, of a short convolution and of
# the feed-forward part. Keys and gate add cost and gain little.
_FRESH = (
    "attn_q",
    "attn_v",
    "attn_output",
    "shortconv.in_proj",
    "shortconv.out_proj",
    "ffn_up",
    "ffn_down",
)


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
    `seed`, in those where the parent has none.

    The frozen weights are held in `precision`; in bfloat16 matrix products are computed in it too,
    everything else in float32.
    """

    layers: int
    rank: int = 16
    seed: int = 0
    precision: Precision = "float32"


class Tower:
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
        self.kind = architectures.architecture(model)
        self.packing: Packing = Sequences() if self.kind.recurrent else Tree()
        self.device = device or torch.device("cpu")
        self._precision = tuning.precision
        attention.register()
        net = architectures.network(model, attention.NAME)
        self.width = int(net.config.hidden_size)
        self.heads = Heads()
        if self.kind.permuted:
            self.heads = Heads(net.config.num_attention_heads, net.config.num_key_value_heads)
        self._blocks: list[nn.Module] = list(net.model.layers)
        self.split = max(0, len(self._blocks) - tuning.layers)
        self._tokens = _tokens(slots).to(self.device)
        self._head = net.get_output_embeddings().weight.detach().to(self.device)
        self._slots = _vectors(self._head, slots)
        if tuning.precision == "bfloat16":
            self._head = self._head.to(torch.bfloat16)
            for part in (part for block in self._blocks for part in block.modules()):
                if isinstance(part, nn.Linear):
                    part.to(torch.bfloat16)
        parent = lora.read(adapter, self.heads) if adapter else Lora(2.0 * tuning.rank, {})
        names = architectures.linears(net, self.kind)
        torch.manual_seed(tuning.seed)
        ranks = self._ranks(parent, names, tuning.rank)
        self._tuned = lora.inject(net, parent, ranks, names)
        self._alpha = parent.alpha
        self._net = net.to(self.device)
        for target, layer in self._tuned.items():
            for weights in lora.factors(layer):
                weights.requires_grad_(target.layer >= self.split)

    def _ranks(self, parent: Lora, names: Mapping[Target, str], rank: int) -> dict[Target, int]:
        """Rank by target: the parent's, and fresh ones in tuned layers that have none."""
        ranks = {target: len(pair.a) for target, pair in parent.pairs.items()}
        wanted = {target.name for target in ranks} or set(_FRESH)
        touched = {target.layer for target in ranks}
        for target in names:
            if target.layer >= self.split and target.layer not in touched:
                if target.name in wanted:
                    ranks[target] = rank
        if not ranks:
            raise ModelError("no layer of this model can be tuned")
        return ranks

    def weights(self) -> dict[str, nn.Parameter]:
        """What is tuned, by name."""
        return {
            f"{target.layer}.{target.name}.{part}": weights
            for target, layer in self._tuned.items()
            for part, weights in zip("ab", lora.factors(layer), strict=True)
            if weights.requires_grad
        }

    def copy_weights(self) -> dict[str, Tensor]:
        return {name: weights.detach().cpu().clone() for name, weights in self.weights().items()}

    def set_weights(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weights in self.weights().items():
                weights.copy_(values[name])

    def adapter(self) -> Lora:
        """The whole adapter as it now is, the frozen part unchanged."""
        pairs = {
            target: Pair(*(part.detach().cpu().numpy() for part in lora.factors(layer)))
            for target, layer in self._tuned.items()
        }
        return Lora(self._alpha, pairs)

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

    def _autocast(self) -> AbstractContextManager[Any]:
        on = self._precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on)


def fast_bfloat16() -> bool:
    """Whether matrix products in bfloat16 are faster here than in float32."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


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
