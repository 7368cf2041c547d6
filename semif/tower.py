"""The model in torch, cut in two: frozen lower layers, and upper layers whose adapter is tuned.

Rows that share a criterion are evaluated as one packed sequence: criterion, then for each row its
state and its branches. A token sees what the engine lets it see: the criterion, the state of its
own row, its own branch. Positions go on from the criterion's end for each row, and from the
state's end for each branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from semif import lora
from semif.errors import ModelError
from semif.jsonl import sync_folder
from semif.llama import Model
from semif.lora import Heads, Lora, Pair, Target
from semif.prompting import BranchesPrompt
from semif.readout import too_long
from semif.types import Decision

# More tokens in one sequence pay more for attention than sharing the criterion saves.
_PACK_TOKENS = 768


@dataclass(frozen=True)
class Encoded:
    """A decision in tokens: `own` is the state, then all branches; options sorted by id.

    `criterion` is what the criterion alone and criterion + state have in common, as in the engine.
    """

    ids: tuple[str, ...]
    criterion: tuple[int, ...]
    own: tuple[int, ...]
    state: int
    branches: tuple[int, ...]  # lengths


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a pack stand: positions [T], mask [1, 1, T, T], branch ends [N]."""

    positions: Tensor
    mask: Tensor
    ends: Tensor
    options: list[int]  # by row; their sum is N


def encode(model: Model, prompt: BranchesPrompt, decision: Decision) -> Encoded:
    """The tokens that the readout `branches` evaluates; DecisionError when they do not fit."""
    rendered = prompt.render(decision)
    alone = model.tokenize(rendered.criterion, special=False)
    joint = model.tokenize(rendered.criterion + rendered.state, special=False)
    shared = 0
    while shared < min(len(alone), len(joint)) and alone[shared] == joint[shared]:
        shared += 1
    branches = [model.tokenize(text, special=False) for _, text in rendered.branches]
    longest = len(joint) + max(map(len, branches))
    if longest > model.n_ctx_train:
        raise too_long(decision, longest, model.n_ctx_train)
    own = joint[shared:]
    return Encoded(
        ids=tuple(option.id for option, _ in rendered.branches),
        criterion=tuple(joint[:shared]),
        own=tuple(own + [token for tokens in branches for token in tokens]),
        state=len(own),
        branches=tuple(map(len, branches)),
    )


def packs(rows: Sequence[Encoded], order: Iterable[int], size: int) -> list[list[int]]:
    """Indexes of `rows`, in order, gathered by criterion into packs of at most `size` rows."""
    done: list[list[int]] = []
    open_: dict[tuple[int, ...], list[int]] = {}
    for index in order:
        row = rows[index]
        pack = open_.get(row.criterion, [])
        tokens = len(row.criterion) + sum(len(rows[i].own) for i in [*pack, index])
        if not pack or len(pack) == size or tokens > _PACK_TOKENS:
            pack = open_[row.criterion] = []
            done.append(pack)
        pack.append(index)
    return done


def layout(rows: Sequence[Encoded]) -> Layout:
    """The layout of rows with one criterion, packed."""
    start = len(rows[0].criterion)
    positions = list(range(start))
    row_of, branch_of = [-1] * start, [-1] * start  # -1: seen by all rows, by all branches
    ends = []
    for number, row in enumerate(rows):
        parts = [(-1, start, row.state)]
        parts += [(i, start + row.state, length) for i, length in enumerate(row.branches)]
        for branch, begin, length in parts:
            positions += range(begin, begin + length)
            row_of += [number] * length
            branch_of += [branch] * length
            if branch >= 0:
                ends.append(len(positions) - 1)
    of_row, of_branch = torch.tensor(row_of), torch.tensor(branch_of)
    mask = (of_row == -1) | (of_row == of_row[:, None])
    mask &= (of_branch == -1) | (of_branch == of_branch[:, None])
    return Layout(
        positions=torch.tensor(positions),
        mask=mask.tril()[None, None],
        ends=torch.tensor(ends),
        options=[len(row.branches) for row in rows],
    )


class _Tuned(nn.Module):
    """A frozen linear layer with a LoRA change."""

    def __init__(self, base: nn.Module, pair: Pair, scale: float) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.from_numpy(pair.a.copy()), requires_grad=False)
        self.b = nn.Parameter(torch.from_numpy(pair.b.copy()), requires_grad=False)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        change = functional.linear(functional.linear(x, self.a), self.b)
        return self.base(x) + self.scale * change  # type: ignore[no-any-return]


class Tower:
    """The network with the parent's adapter; that of the upper `layers` layers can be tuned.

    ModelError when the model is no Llama, or the adapter does not fit it.
    """

    def __init__(self, model: Model, adapter: Path, prompt: BranchesPrompt, layers: int) -> None:
        self._net = _network(model)
        config = self._net.config
        self.width = int(config.hidden_size)
        self.heads = Heads(config.num_attention_heads, config.num_key_value_heads)
        self._blocks: list[nn.Module] = list(self._net.model.layers)
        self._split = max(0, len(self._blocks) - layers)
        self._parent = lora.read(adapter, self.heads)
        self._tuned = {
            target: self._wrap(target, pair, adapter) for target, pair in self._parent.pairs.items()
        }
        yes, no = (model.tokenize(text, special=False)[0] for text in (prompt.yes, prompt.no))
        head = self._net.get_output_embeddings().weight
        self._slot = (head[yes] - head[no]).detach()

    def _wrap(self, target: Target, pair: Pair, adapter: Path) -> _Tuned:
        if target.layer >= len(self._blocks):
            raise ModelError(f"adapter {adapter} was made for a model with more layers")
        parent, _, name = lora.MODULES[target.name].partition(".")
        owner = getattr(self._blocks[target.layer], parent)
        base = getattr(owner, name)
        if (pair.b.shape[0], pair.a.shape[1]) != tuple(base.weight.shape):
            raise ModelError(f"adapter {adapter} does not fit {target} of the model")
        tuned = _Tuned(base, pair, self._parent.alpha / len(pair.a))
        setattr(owner, name, tuned)
        for weights in (tuned.a, tuned.b):
            weights.requires_grad_(target.layer >= self._split)
        return tuned

    def weights(self) -> dict[str, nn.Parameter]:
        """What is tuned, by name."""
        return {
            f"{target.layer}.{target.name}.{part}": weights
            for target, tuned in self._tuned.items()
            for part, weights in (("a", tuned.a), ("b", tuned.b))
            if weights.requires_grad
        }

    def copy_weights(self) -> dict[str, Tensor]:
        return {name: weights.detach().clone() for name, weights in self.weights().items()}

    def set_weights(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, weights in self.weights().items():
                weights.copy_(values[name])

    def adapter(self) -> Lora:
        """The whole adapter as it now is, the frozen part unchanged."""
        pairs = {
            target: Pair(tuned.a.detach().numpy(), tuned.b.detach().numpy())
            for target, tuned in self._tuned.items()
        }
        return Lora(self._parent.alpha, pairs)

    @torch.no_grad()
    def lower(self, rows: Sequence[Encoded]) -> Tensor:
        """Activations [T, width] of a pack below the layers that are tuned."""
        tokens = [*rows[0].criterion, *(token for row in rows for token in row.own)]
        embedded = self._net.model.embed_tokens(torch.tensor(tokens))
        return self._run(self._blocks[: self._split], embedded, layout(rows))

    def upper(self, hidden: Tensor, rows: Sequence[Encoded]) -> tuple[Tensor, ...]:
        """Scores of each row's options, logit(yes) - logit(no), from `lower`'s activations."""
        where = layout(rows)
        top = self._run(self._blocks[self._split :], hidden, where)
        scores: Tensor = self._net.model.norm(top[where.ends]) @ self._slot
        return torch.split(scores, where.options)

    def _run(self, blocks: Sequence[nn.Module], hidden: Tensor, where: Layout) -> Tensor:
        hidden, positions = hidden[None], where.positions[None]
        rotary = self._net.model.rotary_emb(hidden, position_ids=positions)
        for block in blocks:
            hidden = block(
                hidden,
                attention_mask=where.mask,
                position_ids=positions,
                position_embeddings=rotary,
            )
        return hidden[0]


class Activations:
    """The lower layers' output for all rows, F16 in a mapped file; each criterion is kept once."""

    def __init__(self, rows: Sequence[Encoded], width: int) -> None:
        self._rows = rows
        self._width = width
        self._spans: dict[int | tuple[int, ...], slice] = {}
        end = 0
        for index, row in enumerate(rows):
            for key, length in ((row.criterion, len(row.criterion)), (index, len(row.own))):
                if key not in self._spans:
                    self._spans[key] = slice(end, end + length)
                    end += length
        self._shape = (end, width)
        self._data: np.ndarray = np.empty((0, width), np.float16)

    def open(self, path: Path) -> bool:
        """Use the file of an earlier run; whether there is a whole one."""
        if not path.is_file() or path.stat().st_size != 2 * self._shape[0] * self._width:
            return False
        self._data = np.memmap(path, np.float16, "r", shape=self._shape)
        return True

    def make(self, tower: Tower, path: Path, done: Callable[[int], None]) -> None:
        """Evaluate all rows, whole or not at all on disk; `done` hears how many rows are."""
        temp = path.with_name(f".{path.name}.tmp")
        data = np.memmap(temp, np.float16, "w+", shape=self._shape)
        count = 0
        for pack in packs(self._rows, range(len(self._rows)), size=8):
            hidden = tower.lower([self._rows[i] for i in pack]).numpy()
            if not np.abs(hidden).max() <= np.finfo(np.float16).max:
                raise ModelError("this model's activations do not fit F16, so it cannot be tuned")
            start = 0
            for span in self._of(pack):
                data[span] = hidden[start : start + span.stop - span.start]
                start += span.stop - span.start
            count += len(pack)
            done(count)
        data.flush()
        temp.replace(path)
        sync_folder(path.parent)
        self._data = data

    def of(self, pack: Sequence[int]) -> Tensor:
        """Activations [T, width] of a pack, float32."""
        parts = [self._data[span] for span in self._of(pack)]
        return torch.from_numpy(np.concatenate(parts, dtype=np.float32))

    def _of(self, pack: Sequence[int]) -> list[slice]:
        """Where the pack's criterion and its rows are kept."""
        criterion = self._rows[pack[0]].criterion
        return [self._spans[criterion], *(self._spans[index] for index in pack)]


def _network(model: Model) -> Any:
    """The dequantised model in float32, frozen."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    architecture = model.meta("general.architecture")
    if architecture != "llama":
        raise ModelError(f"{model.path} is a {architecture}; only a llama can be tuned")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    net: Any = AutoModelForCausalLM.from_pretrained(
        str(model.path.parent), gguf_file=model.path.name, dtype=torch.float32
    )
    net.requires_grad_(False)
    return net.eval()
