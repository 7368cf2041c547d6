"""LoRA adapters: GGUF files of llama.cpp on one side, layers of peft on the other.

In a GGUF of the llama architecture the rows of the query and key weights stand in llama.cpp's
rotary order (the two halves of a head interleaved); in transformers they stand one half after the
other. `Pair` is always in the order of transformers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semif.errors import ModelError
from semif.llama import check_gguf
from semif.training.architectures import Target

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

_PART = re.compile(r"blk\.(\d+)\.([\w.]+)\.weight\.lora_([ab])")
_NAME = "default"  # what peft calls an adapter


@dataclass(frozen=True)
class Pair:
    """The two factors of a change: `a` is [rank, inputs], `b` is [outputs, rank], float32."""

    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class Lora:
    """An adapter: the change of a target is (alpha / rank) * b @ a."""

    alpha: float
    pairs: Mapping[Target, Pair]


@dataclass(frozen=True)
class Heads:
    """Numbers of attention heads and of key-value heads, which the rotary order goes by.

    None where the order is the same on both sides.
    """

    query: int | None = None
    key: int | None = None

    def of(self, name: str) -> int | None:
        return {"attn_q": self.query, "attn_k": self.key}.get(name)


def read(path: Path, heads: Heads) -> Lora:
    """Read an adapter; ModelError 69 when missing, 78 when damaged or of another kind."""
    import numpy as np
    from gguf import GGUFReader

    check_gguf(path, "adapter")
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ModelError(f"adapter {path} is damaged: {error}") from error
    alpha = reader.get_field("adapter.lora.alpha")
    parts: dict[Target, dict[str, np.ndarray]] = {}
    for tensor in reader.tensors:
        match = _PART.fullmatch(tensor.name)
        if match is None:
            raise ModelError(f"adapter {path} changes {tensor.name}, which cannot be tuned here")
        target = Target(int(match[1]), match[2])
        parts.setdefault(target, {})[match[3]] = np.array(tensor.data, np.float32)
    if alpha is None or not parts or any(pair.keys() != {"a", "b"} for pair in parts.values()):
        raise ModelError(f"adapter {path} is no whole LoRA adapter")
    pairs = {
        target: Pair(pair["a"], _from_rotary(pair["b"], heads.of(target.name)))
        for target, pair in parts.items()
    }
    return Lora(float(alpha.contents()), pairs)


def write(path: Path, lora: Lora, heads: Heads, architecture: str = "llama") -> None:
    """Write an adapter in F16 and sync it; ModelError when a weight is no finite F16 number."""
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", lora.alpha)
    for target, pair in lora.pairs.items():
        for part, weights in (("a", pair.a), ("b", _to_rotary(pair.b, heads.of(target.name)))):
            name = f"blk.{target.layer}.{target.name}.weight.lora_{part}"
            if not np.abs(weights).max() <= np.finfo(np.float16).max:
                raise ModelError(f"{name} has run away in training; try a lower rate")
            writer.add_tensor(name, np.ascontiguousarray(weights, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def inject(
    net: Any, start: Lora, ranks: Mapping[Target, int], names: Mapping[Target, str]
) -> dict[Target, Any]:
    """Put LoRA layers of peft on the targets in `ranks`, float32, frozen or not as peft has it.

    They have the weights of `start`; where it has none, the change begins as zero. `names`: what
    the network calls its linear layers. ModelError when `start` does not fit them.
    """
    import torch
    from peft import LoraConfig, inject_adapter_in_model

    for target, pair in start.pairs.items():
        if target not in names:
            raise ModelError(f"the adapter changes {target}, which is no linear layer of the model")
        found = tuple(net.get_submodule(names[target]).weight.shape)
        if (pair.b.shape[0], pair.a.shape[1]) != found:
            raise ModelError(f"the adapter does not fit {target} of the model, which is {found}")
    config = LoraConfig(
        r=max(ranks.values()),
        lora_alpha=start.alpha,  # type: ignore[arg-type]
        rank_pattern={re.escape(names[target]): rank for target, rank in ranks.items()},
        target_modules=sorted(names[target] for target in ranks),
    )
    inject_adapter_in_model(config, net, _NAME)
    layers: dict[Target, Any] = {target: net.get_submodule(names[target]) for target in ranks}
    with torch.no_grad():
        for target, layer in layers.items():
            layer.cast_input_dtype_enabled = False  # autocast does that, once
            for part in factors(layer):
                part.data = part.data.float()
            if target in start.pairs:
                pair = start.pairs[target]
                for part, value in zip(factors(layer), (pair.a, pair.b), strict=True):
                    part.copy_(torch.from_numpy(value.copy()))
    return layers


def factors(layer: Any) -> tuple[nn.Parameter, nn.Parameter]:
    """`a` [rank, inputs] and `b` [outputs, rank] of a LoRA layer of peft."""
    return layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight


def _to_rotary(b: np.ndarray, heads: int | None) -> np.ndarray:
    if heads is None:
        return b
    split = b.reshape(heads, 2, b.shape[0] // heads // 2, b.shape[1])
    return split.swapaxes(1, 2).reshape(b.shape)


def _from_rotary(b: np.ndarray, heads: int | None) -> np.ndarray:
    if heads is None:
        return b
    paired = b.reshape(heads, b.shape[0] // heads // 2, 2, b.shape[1])
    return paired.swapaxes(1, 2).reshape(b.shape)
