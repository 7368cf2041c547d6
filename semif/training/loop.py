"""Training itself: steps over packs of rows, validations, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from semif.measuring.fit import Scored, fit, mean_nll, metrics
from semif.training.activations import Activations
from semif.training.examples import Example, Examples
from semif.training.loss import Weights, option_scores, row_loss
from semif.training.packing import packs, spread
from semif.training.processes import Processes
from semif.training.progress import Progress, Say
from semif.training.schedule import load_checkpoint, rate_factor, save_checkpoint
from semif.training.tower import Read, Tower
from semif.training.workers import Workers

_VALIDATIONS = 2  # an epoch
# Tokens evaluated together. Fewer cost more (measured on two cores: 0.19 s a row at 256, 0.16 at
# 512, 0.15 at 1024); a GPU wants more.
_PACK_TOKENS = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Settings:
    """What the steps of a run depend on (see `Plan`)."""

    epochs: int
    batch: int
    shared: int
    rate: float
    seed: int
    patience: int
    checkpoint_every: float
    weights: Weights


@dataclass
class _State:
    """Where a run stands; with the optimiser, all that a checkpoint holds.

    `stale`: validations since the best one.
    """

    step: int = 0
    score: float = math.inf
    stale: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)


class Loop:
    """A run over its rows; `go` leaves the best weights in the tower."""

    def __init__(
        self,
        tower: Tower,
        kept: Activations | None,
        examples: Examples,
        settings: Settings,
        workers: Workers,
        processes: Processes,
        checkpoint: Path,
        say: Say,
    ) -> None:
        self.tower = tower
        self.held = examples.held
        self.say = say
        self._settings = settings
        self._workers = workers
        self._processes = processes
        self._size = _PACK_TOKENS[tower.device.type]
        self._kept = kept
        self._examples = [*examples.taught, *examples.held]
        self._rows = [example.row for example in self._examples]
        self._checkpoint = checkpoint
        taught = len(examples.taught)
        # Weights say how rows count against each other; the rate says how large a step is.
        self._mean_weight = float(np.mean([e.label.weight for e in examples.taught]))
        self._steps = [
            step for epoch in range(settings.epochs) for step in self._epoch(taught, epoch)
        ]
        self._state = _State()
        self._optimizer = torch.optim.AdamW(
            tower.weights().values(), lr=settings.rate, weight_decay=0.0
        )

    def _epoch(self, rows: int, epoch: int) -> Iterator[list[int]]:
        """Steps of about `batch` rows: groups that share a head, in an order of its own."""
        generator = np.random.default_rng([self._settings.seed, epoch])
        groups: list[list[int]] = []
        open_: dict[tuple[int, ...], list[int]] = {}
        for index in map(int, generator.permutation(rows)):
            head = self._rows[index].head
            group = open_.get(head, [])
            if not group or len(group) == self._settings.shared:
                group = open_[head] = []
                groups.append(group)
            group.append(index)
        step: list[int] = []
        for number in generator.permutation(len(groups)):
            if step and len(step) + len(groups[number]) > self._settings.batch:
                yield step
                step = []
            step += groups[number]
        if step:
            yield step

    def go(self, deadline: float | None) -> None:
        """Train to the end, to the deadline, or until patience is out.

        With a deadline the rate falls with the time that is left, where that is less than the
        steps left: a run that is cut short ends like one that was planned short.
        """
        state, total = self._state, len(self._steps)
        often = _VALIDATIONS * self._settings.epochs
        checks = {round(total * i / often) for i in range(often)}
        saved = time.monotonic()
        began = time.monotonic()
        loss = None
        first = self._processes.first
        with Progress("training", "steps", total, self.say, state.step, first) as progress:
            while state.step < total and (spent := self._spent(began, deadline)) < 1:
                if state.step in checks:
                    self._validate()
                    if state.stale >= self._settings.patience:
                        self.say(f"no better for {state.stale} validations: training ends")
                        break
                factor = rate_factor(state.step, total, spent=spent)
                self._optimizer.param_groups[0]["lr"] = self._settings.rate * factor
                value = self._step(self._steps[state.step])
                loss = value if loss is None else 0.95 * loss + 0.05 * value
                state.step += 1
                progress.reach(state.step, f"loss {loss:.3f}")
                if time.monotonic() - saved >= self._settings.checkpoint_every:
                    self._save()
                    saved = time.monotonic()
        self._save()  # so that a run that ended early, or failed afterwards, can go on
        self._validate()
        self.tower.set_weights(state.best)

    def _spent(self, began: float, deadline: float | None) -> float:
        """Share of the time until the deadline that has passed, by the first process's clock."""
        if deadline is None:
            return 0.0
        passed = 1.0
        if deadline > began:
            passed = (time.monotonic() - began) / (deadline - began)
        return float(self._processes.gather(passed)[0])

    def _step(self, step: Sequence[int]) -> float:
        """One update; the mean loss of its rows before it."""
        processes, workers = self._processes, self._workers
        parts = processes.count * workers.count
        every = spread(self.tower.packing, self._rows, step, parts, self._size)
        mine = [packs for i, packs in enumerate(every) if processes.takes(i)]
        tuned = list(self.tower.weights().values())
        whole = torch.zeros(1 + sum(map(torch.numel, tuned)), device=self.tower.device)
        for found in workers.map(partial(self._learn, tuned, len(step)), mine):
            for part in found:
                whole += part
        processes.add(whole)
        start = 1
        for weights in tuned:
            weights.grad = whole[start : start + weights.numel()].view_as(weights)
            start += weights.numel()
        torch.nn.utils.clip_grad_norm_(tuned, 1.0)
        self._optimizer.step()
        return whole[0].item()

    def _learn(
        self, tuned: Sequence[Tensor], rows: int, every: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """Of each pack its part of a step of so many rows: the loss, then all gradients."""
        found = []
        for pack in every:
            losses = [
                self._loss(self._examples[i], read)
                for i, read in zip(pack, self._forward(pack, learn=True), strict=True)
            ]
            loss = torch.stack(losses).sum() / rows
            gradients = torch.autograd.grad(loss, tuned)
            flat = [loss.detach()[None], *(gradient.flatten() for gradient in gradients)]
            found.append(torch.cat(flat))
        return found

    def _loss(self, example: Example, read: Read) -> Tensor:
        weights = self._settings.weights
        loss = row_loss(read.scores, example.row.options, example.target, weights)
        if read.log_mass is not None:
            loss = loss - weights.mass * read.log_mass.mean()
        return loss * (example.label.weight / self._mean_weight)

    def _forward(self, pack: Sequence[int], learn: bool = False) -> list[Read]:
        where = self.tower.layout([self._rows[i] for i in pack], pack)
        hidden = self._kept.of(where) if self._kept else self.tower.lower(where)
        return self.tower.upper(hidden, where, learn and self._settings.weights.mass > 0)

    def scores(self) -> list[np.ndarray]:
        """Scores by option of the held-out rows under the weights as they are."""
        start = len(self._examples) - len(self.held)
        every = packs(self.tower.packing, self._rows, range(start, len(self._rows)), self._size)
        mine = [pack for i, pack in enumerate(every) if self._processes.takes(i)]
        found: dict[int, np.ndarray] = {}
        for of_pack in self._workers.map(self._measure, mine):
            found |= of_pack
        gathered = self._processes.gather(found)
        everywhere = {i: values for part in gathered for i, values in part.items()}
        return [everywhere[i] for i in range(start, len(self._examples))]

    @torch.no_grad()
    def _measure(self, pack: Sequence[int]) -> dict[int, np.ndarray]:
        return {
            i: option_scores(read.scores, self._rows[i].options).double().cpu().numpy()
            for i, read in zip(pack, self._forward(pack), strict=True)
        }

    def _validate(self) -> None:
        """Measure on the held-out rows, calibrated as the revision will be, and keep the best."""
        found = scored(self.held, self.scores())
        score, measured = mean_nll(found), metrics(found, fit(found))
        better = score < self._state.score
        self._state.stale = 0 if better else self._state.stale + 1
        if better:
            self._state.score, self._state.best = score, self.tower.copy_weights()
        phases = ", ".join(
            f"{phase} {values['accuracy']:.2f}/{values['nll']:.2f}"
            for phase, values in measured["phases"].items()
        )
        self.say(
            f"validation at step {self._state.step}: accuracy {measured['accuracy']:.3f}, "
            f"mean nll {score:.3f}{' (best)' if better else ''}; {phases}"
        )

    def _save(self) -> None:
        if not self._processes.first:
            return
        whole = vars(self._state) | {
            "weights": self.tower.copy_weights(),
            "optimizer": self._optimizer.state_dict(),
        }
        save_checkpoint(self._checkpoint, whole)

    def resume(self) -> None:
        """Go back to the last checkpoint of the same run; FileError without one."""
        whole = load_checkpoint(self._checkpoint, "this data, parent and settings")
        self.tower.set_weights(whole.pop("weights"))
        self._optimizer.load_state_dict(whole.pop("optimizer"))
        self._state = _State(**whole)
        self.say(f"resumed at step {self._state.step}/{len(self._steps)}")


def scored(examples: Sequence[Example], scores: Sequence[np.ndarray]) -> list[Scored]:
    """Examples with their scores by option."""
    return [
        Scored.of(example.label, dict(zip(example.ids, values, strict=True)))
        for example, values in zip(examples, scores, strict=True)
    ]
