"""Tuning the adapter for writing: pairs in, `write.gguf` and its figures out.

Loss is on the written text alone. Everything that decides the outcome is in `Plan`: the same plan,
pairs and start give the same weights, also when the run was cut into pieces and resumed.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from semif.chat import Chat
from semif.errors import EXIT_FAILED, FileError, ModelError
from semif.jsonl import write_whole
from semif.llama import Model, Session, sha256_file
from semif.training import lora
from semif.training.processes import Processes
from semif.training.progress import Progress, Say, silent
from semif.training.schedule import load_checkpoint, rate_factor, save_checkpoint
from semif.training.tuned import fast_bfloat16
from semif.writing.net import Example, Net, example, turn_example
from semif.writing.pairs import Pair, data_sha256
from semif.writing.tasks import load
from semif.writing.turns import LIMIT, Turn, nll
from semif.writing.writer import N_CTX

# How far torch and the engine on F16 may be apart in the mean log likelihood of a text, in nats a
# token: weights rounded to bfloat16 move it by a few hundredths.
TOLERANCE = 0.15
_CHUNK_TOKENS = 1024  # with padding; more only costs memory
_COMPARED = 6  # pairs
_LEAST_RATE = 0.05  # of the peak


@dataclass(frozen=True)
class Plan:
    """The settings of a run. `batch` pairs make a step; `minutes` of steps end a piece early.

    `validations` an epoch; the weights that were best at one are kept. `limit`: tokens of a turn
    and its reply.
    """

    epochs: int = 3
    batch: int = 16
    rate: float = 1e-3
    rank: int = 16  # of a fresh adapter
    seed: int = 0
    validations: int = 2
    limit: int = LIMIT
    bfloat16: bool | None = None  # None: where the machine is faster in it
    minutes: float | None = None
    threads: int = 2
    checkpoint_every: float = 300.0  # seconds

    def resolved(self) -> Plan:
        return self if self.bfloat16 is not None else replace(self, bfloat16=fast_bfloat16())


@dataclass
class _State:
    """Where a run stands; `seconds` spent on steps."""

    step: int = 0
    score: float = math.inf
    seconds: float = 0.0
    best: dict[str, Tensor] = field(default_factory=dict)
    nll: dict[str, float] = field(default_factory=dict)


def train(
    model: Model,
    start: Path | None,
    pairs: Sequence[Pair | Turn],
    out: Path,
    plan: Plan,
    resume: bool,
    say: Say,
) -> Path:
    """Tune a fresh adapter, or `start`, on the pairs; the path of `write.gguf` in `out`.

    Beside it `training.json` has the figures; working files stay in `out/work`. In several
    processes one writes and speaks, and all return the same path. Raises ModelError
    when model and start cannot be tuned, torch and engine differ or the loss is not finite,
    DecisionError for a pair that is too long, FileError when too few are left, or when `resume`
    meets no checkpoint of this run.
    """
    plan = plan.resolved()
    torch.set_num_threads(plan.threads)
    processes = Processes()
    say = say if processes.first else silent
    taught, held = _examples(model, pairs, plan)
    if not taught or not held:
        raise FileError(out, f"{len(taught)} pairs to train on, {len(held)} to validate on")
    try:
        (out / "work").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(out, f"cannot be made: {error.strerror}") from error
    say(f"{len(taught)} pairs to train on, {len(held)} to validate on")
    net = Net(
        model,
        start,
        rank=plan.rank,
        seed=plan.seed,
        bfloat16=bool(plan.bfloat16),
        longest=max(len(row.tokens) for row in taught + held),
        device=processes.device,
    )
    some = held[:: max(1, len(held) // _COMPARED)][:_COMPARED]
    _agree(model, start, net, some, plan, say)
    key = _key(model, start, taught + held, plan)
    loop = Loop(net, taught, held, plan, out / "work" / f"{key}.checkpoint", say, processes)
    if resume:
        loop.resume()
    loop.go(None if plan.minutes is None else time.monotonic() + 60 * plan.minutes)
    done = _finish(model, loop, some, data_sha256(pairs), plan, out) if processes.first else out
    path: Path = processes.gather(done)[0]
    return path


def _examples(
    model: Model, pairs: Sequence[Pair | Turn], plan: Plan
) -> tuple[list[Example], list[Example]]:
    """(to train on, to validate on)."""
    prompts = load()
    chat = Chat(model) if any(isinstance(pair, Turn) for pair in pairs) else None
    taught: list[Example] = []
    held: list[Example] = []
    for pair in pairs:
        if isinstance(pair, Turn):
            assert chat is not None
            row = turn_example(model, chat, pair, plan.limit)
        else:
            row = example(model, prompts, pair, N_CTX)
        (held if pair.held_out else taught).append(row)
    return taught, held


class Loop:
    """A run over its pairs; `go` leaves the best weights in the net."""

    def __init__(
        self,
        net: Net,
        taught: Sequence[Example],
        held: Sequence[Example],
        plan: Plan,
        checkpoint: Path,
        say: Say,
        processes: Processes,
    ) -> None:
        self.net = net
        self.say = say
        self._processes = processes
        self.state = _State()
        self._taught, self._held = taught, held
        self._plan = plan
        self._checkpoint = checkpoint
        self.steps = [
            step for epoch in range(plan.epochs) for step in self._epoch(len(taught), epoch)
        ]
        self._optimizer = torch.optim.AdamW(net.weights().values(), lr=plan.rate, weight_decay=0.0)

    def _epoch(self, count: int, epoch: int) -> list[list[int]]:
        order = np.random.default_rng([self._plan.seed, epoch]).permutation(count)
        size = self._plan.batch
        return [[int(i) for i in order[at : at + size]] for at in range(0, count, size)]

    def go(self, deadline: float | None) -> None:
        """Train to the end or to the deadline."""
        state, total = self.state, len(self.steps)
        often = self._plan.validations * self._plan.epochs
        checks = {round(total * i / often) for i in range(1, often)}
        saved, loss = time.monotonic(), None
        first = self._processes.first
        with Progress("training", "steps", total, self.say, state.step, first) as progress:
            while state.step < total and not self._over(deadline):
                if state.step in checks:
                    self._validate()
                begun = time.monotonic()
                value = self._step([self._taught[i] for i in self.steps[state.step]])
                state.seconds += time.monotonic() - begun
                loss = value if loss is None else 0.9 * loss + 0.1 * value
                state.step += 1
                progress.reach(state.step, f"loss {loss:.3f}")
                if time.monotonic() - saved >= self._plan.checkpoint_every:
                    self._save()
                    saved = time.monotonic()
        self._save()  # so that a run that ended early, or failed afterwards, can go on
        self._validate()
        self.net.set_weights(state.best)

    def _over(self, deadline: float | None) -> bool:
        """Whether the deadline has passed, by the first process's clock."""
        late = deadline is not None and time.monotonic() >= deadline
        return bool(self._processes.gather(late)[0])

    @property
    def seconds_per_pair(self) -> float | None:
        done = sum(len(step) for step in self.steps[: self.state.step])
        return self.state.seconds / done if done else None

    def _step(self, rows: Sequence[Example]) -> float:
        """One update; the mean loss a token before it. Each process takes its chunks."""
        processes, tuned = self._processes, list(self.net.weights().values())
        factor = rate_factor(self.state.step, len(self.steps), least=_LEAST_RATE)
        self._optimizer.param_groups[0]["lr"] = self._plan.rate * factor
        self._optimizer.zero_grad(set_to_none=True)
        whole = sum(sum(row.weights) for row in rows)
        total = 0.0
        for number, chunk in enumerate(chunks(rows)):
            if not processes.takes(number):
                continue
            parts = [
                (losses * torch.tensor(row.weights, device=losses.device)).sum()
                for row, losses in zip(chunk, self.net.losses(chunk), strict=True)
            ]
            loss = torch.stack(parts).sum() / whole
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        if processes.count > 1:
            total = self._together(tuned, total)
        if not math.isfinite(total):
            raise _not_finite(self.state.step)
        torch.nn.utils.clip_grad_norm_(tuned, 1.0)
        self._optimizer.step()
        return total

    def _together(self, tuned: Sequence[Tensor], total: float) -> float:
        """Give all processes the sum of their gradients; the sum of their losses."""
        flat = [w.grad.flatten() if w.grad is not None else w.new_zeros(w.numel()) for w in tuned]
        whole = self._processes.add(torch.cat([tuned[0].new_tensor([total]), *flat]))
        start = 1
        for weights in tuned:
            weights.grad = whole[start : start + weights.numel()].view_as(weights)
            start += weights.numel()
        return whole[0].item()

    @torch.no_grad()
    def _validate(self) -> None:
        """Mean negative log likelihood a token by task; the weights of the best mean are kept."""
        mine = {
            number: [
                (row.task, losses.mean().item())
                for row, losses in zip(chunk, self.net.losses(chunk), strict=True)
            ]
            for number, chunk in enumerate(chunks(self._held))
            if self._processes.takes(number)
        }
        every = {n: found for part in self._processes.gather(mine) for n, found in part.items()}
        sums: dict[str, list[float]] = {}
        for number in sorted(every):
            for task, value in every[number]:
                sums.setdefault(task, []).append(value)
        nll = {task: float(np.mean(values)) for task, values in sorted(sums.items())}
        score = float(np.mean(list(nll.values())))
        if not math.isfinite(score):
            raise _not_finite(self.state.step)
        better = score < self.state.score
        if better:
            self.state.score, self.state.nll = score, nll
            self.state.best = self.net.copy_weights()
        by_task = ", ".join(f"{task} {value:.3f}" for task, value in nll.items())
        self.say(
            f"validation at step {self.state.step}: nll {score:.3f}"
            f"{' (best)' if better else ''}; {by_task}"
        )

    def _save(self) -> None:
        if not self._processes.first:
            return
        whole = vars(self.state) | {
            "weights": self.net.copy_weights(),
            "optimizer": self._optimizer.state_dict(),
        }
        save_checkpoint(self._checkpoint, whole)

    def resume(self) -> None:
        """Go back to the last checkpoint of the same run; FileError without one."""
        whole = load_checkpoint(self._checkpoint, "these pairs and settings")
        self.net.set_weights(whole.pop("weights"))
        self._optimizer.load_state_dict(whole.pop("optimizer"))
        self.state = _State(**whole)
        self.say(f"resumed at step {self.state.step}/{len(self.steps)}")


def _not_finite(step: int) -> ModelError:
    return ModelError(f"the loss is not finite at step {step}; lower --rate", EXIT_FAILED)


def chunks(rows: Sequence[Example], most: int = _CHUNK_TOKENS) -> list[list[Example]]:
    """Rows of like length together, at most `most` tokens with padding (or one row)."""
    done: list[list[Example]] = []
    for row in sorted(rows, key=lambda row: -len(row.tokens)):
        if done:
            longest, count = len(done[-1][0].tokens), len(done[-1])
            # A chunk that is large enough to be worth it takes no row that is mostly padding.
            fits = longest * count < most // 3 or len(row.tokens) > 0.8 * longest
            if fits and longest * (count + 1) <= most:
                done[-1].append(row)
                continue
        done.append([row])
    return done


def _key(model: Model, start: Path | None, rows: Sequence[Example], plan: Plan) -> str:
    """Hash of all that a run's numbers depend on; names its checkpoint."""
    free = replace(plan, minutes=None, checkpoint_every=0.0)
    begun = sha256_file(start) if start else None
    whole = json.dumps([model.sha256, begun, asdict(free), [asdict(row) for row in rows]])
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _agree(
    model: Model, adapter: Path | None, net: Net, rows: Sequence[Example], plan: Plan, say: Say
) -> float:
    """The largest difference of torch and engine in a text's mean log likelihood a token."""
    with torch.no_grad():
        ours = [net.losses([row])[0].mean().item() for row in rows]
    loaded = model.adapter(adapter) if adapter else None
    size = max(len(row.tokens) for row in rows)
    with Session(model, size, threads=plan.threads, adapter=loaded) as session:
        theirs = [nll(session, row.tokens, row.start) for row in rows]
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    say(f"torch and engine agree within {apart:.3f} nats a token on {len(rows)} pairs")
    if not apart <= TOLERANCE:
        raise ModelError(f"torch and engine differ by {apart:.3f} on {model.path}; cannot tune it")
    return apart


def _finish(
    model: Model, loop: Loop, some: Sequence[Example], data: str, plan: Plan, out: Path
) -> Path:
    """Write the adapter, hold the engine's reading of it against torch, then the figures."""
    temp, path = out / "work" / "write.gguf", out / "write.gguf"
    lora.write(temp, loop.net.adapter(), loop.net.heads, loop.net.kind.name)
    apart = _agree(model, temp, loop.net, some, plan, loop.say)
    temp.replace(path)
    each = loop.seconds_per_pair
    figures = {
        "prompts": load().version,
        "base_sha256": model.sha256,
        "adapter_sha256": sha256_file(path),
        "data_sha256": data,
        "plan": asdict(plan),
        "steps": loop.state.step,
        "of_steps": len(loop.steps),
        "seconds_per_pair": None if each is None else round(each, 4),
        "validation_nll": {task: round(value, 4) for task, value in loop.state.nll.items()},
        "torch_apart": round(apart, 4),
    }
    write_whole(out / "training.json", json.dumps(figures, indent=1).encode() + b"\n")
    return path
