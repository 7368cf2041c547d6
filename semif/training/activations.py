"""What the frozen lower layers make of each row, kept in a file from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from semif.encoding import Tokens
from semif.errors import ModelError
from semif.jsonl import sync_folder
from semif.training.packing import Layout, Row, packs
from semif.training.processes import Processes
from semif.training.tower import Tower
from semif.training.workers import Workers

# A few dimensions of the residual stream are far larger than all others (Sun et al., Massive
# activations in large language models, 2024): divided by this they fit F16 in larger models too.
_SCALE = 16.0
_PACK_TOKENS = 1024


class Activations:
    """Activations of all rows, F16 in a mapped file; what rows share is kept once."""

    def __init__(self, rows: Sequence[Row], tower: Tower) -> None:
        self._rows = rows
        self._tower = tower
        self._spans: dict[int | Tokens, slice] = {}
        end = 0
        for index, row in enumerate(rows):
            for key, length in tower.packing.pieces(index, row):
                if key not in self._spans:
                    self._spans[key] = slice(end, end + length)
                    end += length
        self._shape = (end, tower.width)
        self._data: np.ndarray = np.empty((0, tower.width), np.float16)

    def open(self, path: Path) -> bool:
        """Use the file of an earlier run; whether there is a whole one."""
        if not path.is_file() or path.stat().st_size != 2 * self._shape[0] * self._shape[1]:
            return False
        self._data = np.memmap(path, np.float16, "r", shape=self._shape)
        return True

    def make(
        self, path: Path, workers: Workers, processes: Processes, done: Callable[[int], None]
    ) -> None:
        """Evaluate all rows, whole or not at all on disk; `done` hears how many rows are.

        Several processes share the work, and must see one file system.
        """
        temp = path.with_name(f".{path.name}.tmp")
        if processes.first:
            np.memmap(temp, np.float16, "w+", shape=self._shape).flush()
        processes.wait()
        data = np.memmap(temp, np.float16, "r+", shape=self._shape)
        count = 0.0
        every = packs(self._tower.packing, self._rows, range(len(self._rows)), _PACK_TOKENS)
        mine = [pack for number, pack in enumerate(every) if processes.takes(number)]
        for pack, (where, hidden) in zip(mine, workers.map(self._lower, mine), strict=True):
            self._put(data, where, hidden)
            count += len(pack) * len(self._rows) / sum(map(len, mine))
            done(round(count))
        data.flush()
        processes.wait()
        if processes.first:
            temp.replace(path)
            sync_folder(path.parent)
        processes.wait()
        self.open(path)

    def _lower(self, pack: Sequence[int]) -> tuple[Layout, np.ndarray]:
        where = self._tower.layout([self._rows[i] for i in pack], pack)
        return where, self._tower.lower(where).float().cpu().numpy() / _SCALE

    def _put(self, data: np.ndarray, where: Layout, hidden: np.ndarray) -> None:
        if not np.abs(hidden).max() <= np.finfo(np.float16).max:
            raise ModelError(
                "this model's activations do not fit F16, so they cannot be kept; "
                "tune all its layers"
            )
        start = 0
        for key, length in where.pieces:
            data[self._spans[key]] = hidden[start : start + length]
            start += length

    def of(self, where: Layout) -> Tensor:
        """Activations [N, width] of the tokens in `where`, float32."""
        parts = [self._data[self._spans[key]] for key, _ in where.pieces]
        return torch.from_numpy(np.concatenate(parts, dtype=np.float32)) * _SCALE
