"""Training in several processes, as `accelerate launch` or `torchrun` starts them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Processes:
    """The processes of this run, one where nothing started more; all do the same in step."""

    def __init__(self) -> None:
        from accelerate import PartialState  # type: ignore[import-untyped]

        self._state = PartialState(cpu=not torch.cuda.is_available())
        self.count = int(self._state.num_processes)
        self.device: torch.device = self._state.device

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return bool(self._state.is_main_process)

    def wait(self) -> None:
        """Go on when all have come here."""
        self._state.wait_for_everyone()

    def takes(self, number: int) -> bool:
        """Whether this process does the work of that number."""
        return number % self.count == int(self._state.process_index)

    def add(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in order."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(found, value)
        return found
