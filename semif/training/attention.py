"""Attention over the layouts of `packing`, as transformers calls it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from semif.training.packing import Layout

NAME = "semif"


def register() -> None:
    """Make the attention known to transformers under `NAME`."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    *,
    where: Layout,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of query [B, H, T, D] to key and value [B, KV, T, D] in `where`: [B, T, H, D].

    What a token sees is said by the layout alone, and by `sliding_window` where the layer has one.
    """
    if not where.spans:
        return _causal(query, key, value, scaling, sliding_window).transpose(1, 2), None
    assert where.order is not None
    heads, kv = query.shape[1], key.shape[1]
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))  # [T, heads, D]
    found = []
    for spans in where.spans:
        count, longest = spans.queries.shape
        # [S, KV, heads of one key * Q, D] against [S, KV, K, D]
        of_q = q[spans.queries].transpose(1, 2).reshape(count, kv, -1, query.shape[-1])
        of_k, of_v = (part[spans.keys].transpose(1, 2) for part in (k, v))
        scores = (of_q @ of_k.transpose(2, 3)).float() * scaling
        hidden = spans.hidden
        if sliding_window is not None:
            hidden = hidden | (spans.distance >= sliding_window)
        scores = scores.view(count, kv, heads // kv, longest, -1)
        # Not -inf: a padded query may see nothing within its window.
        scores = scores.masked_fill(hidden[:, None, None], torch.finfo(scores.dtype).min)
        shares = scores.softmax(-1).to(of_v.dtype).view(count, kv, -1, scores.shape[-1])
        result = (shares @ of_v).view(count, heads, longest, -1)
        found.append(result.transpose(1, 2).flatten(0, 1))  # [S * Q, H, D]
    return torch.cat(found)[where.order][None], None


def _causal(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, sliding_window: int | None
) -> Tensor:
    mask = None
    if sliding_window is not None:
        places = torch.arange(query.shape[2], device=query.device)
        back = places[:, None] - places
        mask = (back >= 0) & (back < sliding_window)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value.to(query.dtype),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
