"""The kinds of models that can be tuned: loaded into torch, and their layers' names in GGUF."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semif.errors import ModelError
from semif.llama import Model


@dataclass(frozen=True)
class Architecture:
    """What training must know of an architecture of llama.cpp.

    `permuted`: the rows of the query and key weights stand in another order in a GGUF than in
    transformers (see `lora`). `recurrent`: some layers carry a state along the sequence.
    """

    name: str
    permuted: bool = False
    recurrent: bool = False


# Each proven against the engine by tests/semif/test_export_adapters.py.
ARCHITECTURES = {
    kind.name: kind
    for kind in (
        Architecture("llama", permuted=True),
        Architecture("qwen2"),
        Architecture("qwen3"),
        Architecture("gemma3"),
        Architecture("lfm2", recurrent=True),
    )
}


@dataclass(frozen=True)
class Target:
    """A linear layer that an adapter changes: block number and GGUF name, such as `attn_q`."""

    layer: int
    name: str


def architecture(model: Model) -> Architecture:
    """The architecture of a model; ModelError when it cannot be tuned."""
    name = model.meta("general.architecture") or "unknown"
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{model.path} is a {name}; what can be tuned is {known}")
    return ARCHITECTURES[name]


def network(model: Model, attention: str) -> Any:
    """The dequantised model in float32, frozen, with an attention known to transformers.

    ModelError when transformers cannot make the network of this file.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # The reader of GGUF draws a bar of its own all the same.
        with contextlib.redirect_stderr(io.StringIO()):
            net: Any = AutoModelForCausalLM.from_pretrained(
                str(model.path.parent),
                gguf_file=model.path.name,
                config=_config(model),
                dtype=torch.float32,
                attn_implementation=attention,
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{model.path} cannot be loaded into torch: {reason}") from error
    net.requires_grad_(False)
    return net.eval()


def _config(model: Model) -> Any:
    """The configuration of the network, with what transformers' reader of GGUF passes over."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(str(model.path.parent), gguf_file=model.path.name)
    kind = model.meta("general.architecture")
    head, base = (model.meta(f"{kind}.{key}") for key in ("attention.key_length", "rope.freq_base"))
    if head is not None:
        config.head_dim = int(head)
    if kind == "gemma3":
        # As llama.cpp has it: queries are scaled by the size of a head, and the base of the file
        # is that of the layers with the long window.
        config.query_pre_attn_scalar = config.head_dim
        if base is not None:
            config.rope_parameters["full_attention"]["rope_theta"] = float(base)
    return config


def linears(net: Any, kind: Architecture) -> Mapping[Target, str]:
    """The linear layers of the blocks of a network, and what transformers calls them."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
    from torch import nn

    numbers = {name: number for number, name in MODEL_ARCH_NAMES.items()}
    known = get_tensor_name_map(numbers[kind.name], len(net.model.layers))
    found = {}
    for path, module in net.named_modules():
        name = known.get_name(path) if isinstance(module, nn.Linear) else None
        if name is not None and name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            found[Target(int(layer), rest)] = path
    return found
