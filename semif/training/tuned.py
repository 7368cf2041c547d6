"""A network in torch with the adapter that a run tunes: what is common to all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from semif.llama import Model
from semif.training import architectures, lora
from semif.training.architectures import Target
from semif.training.lora import Heads, Lora, Pair

Precision = Literal["float32", "bfloat16"]
# What a fresh adapter changes, where a layer has it: of attention, of a short convolution and of
# the feed-forward part. Keys and gate add cost and gain little.
FRESH = (
    "attn_q",
    "attn_v",
    "attn_output",
    "shortconv.in_proj",
    "shortconv.out_proj",
    "ffn_up",
    "ffn_down",
)
# Rank by target, from the adapter that is known and all linear layers.
Ranks = Callable[[Lora, Mapping[Target, str]], dict[Target, int]]


class Tuned:
    """The network of a model with LoRA layers on its blocks.

    The frozen weights are held in `precision`; in bfloat16 matrix products are computed in it too,
    the adapter and everything else in float32. ModelError when the model is of a kind that cannot
    be tuned.
    """

    def __init__(
        self,
        model: Model,
        attention: str,
        precision: Precision,
        device: torch.device | None = None,
    ) -> None:
        """attention: one that transformers knows by this name."""
        self.kind = architectures.architecture(model)
        self.device = device or torch.device("cpu")
        self._precision = precision
        self._net = architectures.network(model, attention)
        config = self._net.config
        self.heads = Heads()
        if self.kind.permuted:
            self.heads = Heads(config.num_attention_heads, config.num_key_value_heads)
        self._blocks: list[nn.Module] = list(self._net.model.layers)
        self._head = self._net.get_output_embeddings().weight.detach().to(self.device)

    def _inject(self, adapter: Path | None, rank: int, seed: int, ranks: Ranks) -> None:
        """Put in `adapter`, or a fresh one of `rank` that is drawn by `seed` and at first changes
        nothing; all of it is tuned. ModelError when it does not fit."""
        if self._precision == "bfloat16":
            self._head = self._head.to(torch.bfloat16)
            for part in (part for block in self._blocks for part in block.modules()):
                if isinstance(part, nn.Linear):
                    part.to(torch.bfloat16)
        known = lora.read(adapter, self.heads) if adapter else Lora(2.0 * rank, {})
        names = architectures.linears(self._net, self.kind)
        torch.manual_seed(seed)
        self._tuned = lora.inject(self._net, known, ranks(known, names), names)
        self._alpha = known.alpha
        self._net = self._net.to(self.device)
        self._tune(lambda target: True)

    def _tune(self, which: Callable[[Target], bool]) -> None:
        for target, layer in self._tuned.items():
            for weights in lora.factors(layer):
                weights.requires_grad_(which(target))

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
        """The whole adapter as it now is, what is frozen of it unchanged."""
        pairs = {
            target: Pair(*(part.detach().cpu().numpy() for part in lora.factors(layer)))
            for target, layer in self._tuned.items()
        }
        return Lora(self._alpha, pairs)

    def _autocast(self) -> AbstractContextManager[Any]:
        on = self._precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on)


def fast_bfloat16() -> bool:
    """Whether matrix products in bfloat16 are faster here than in float32."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
