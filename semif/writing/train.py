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

from semif.errors import EXIT_FAILED, FileError, ModelError
from semif.jsonl import write_whole
from semif.llama import Model, Session, sha256_file
from semif.training import lora
from semif.training.progress import Progress, Say
from semif.training.schedule import load_checkpoint, rate_factor, save_checkpoint
from semif.training.tuned import fast_bfloat16
from semif.writing.net import Example, Net, example
from semif.writing.pairs import Pair, data_sha256
from semif.writing.tasks import load
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

    `validations` an epoch; the weights that were best at one are kept.
    """

    epochs: int = 3
    batch: int = 16
    rate: float = 1e-3
    rank: int = 16  # of a fresh adapter
    seed: int = 0
    validations: int = 2
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
    pairs: Sequence[Pair],
    out: Path,
    plan: Plan,
    resume: bool,
    say: Say,
) -> Path:
    """Tune a fresh adapter, or `start`, on the pairs; the path of `write.gguf` in `out`.

    Beside it `training.json` has the figures; working files stay in `out/work`. Raises ModelError
    when model and start cannot be tuned, torch and engine differ or the loss is not finite,
    DecisionError for a pair that is too long, FileError when too few are left, or when `resume`
    meets no checkpoint of this run.
    """
    plan = plan.resolved()
    torch.set_num_threads(plan.threads)
    prompts = load()
    taught = [example(model, prompts, pair, N_CTX) for pair in pairs if not pair.held_out]
    held = [example(model, prompts, pair, N_CTX) for pair in pairs if pair.held_out]
    if not taught or not held:
        raise FileError(out, f"{len(taught)} pairs to train on, {len(held)} to validate on")
    try:
        (out / "work").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(out, f"cannot be made: {error.strerror}") from error
    say(f"{len(taught)} pairs to train on, {len(held)} to validate on")
    net = Net(model, start, rank=plan.rank, seed=plan.seed, bfloat16=bool(plan.bfloat16))
    some = held[:: max(1, len(held) // _COMPARED)][:_COMPARED]
    _agree(model, start, net, some, plan, say)
    key = _key(model, start, taught + held, plan)
    loop = Loop(net, taught, held, plan, out / "work" / f"{key}.checkpoint", say)
    if resume:
        loop.resume()
    loop.go(None if plan.minutes is None else time.monotonic() + 60 * plan.minutes)
    return _finish(model, loop, some, data_sha256(pairs), plan, out)


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
    ) -> None:
        self.net = net
        self.say = say
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
        with Progress("training", "steps", total, self.say, state.step) as progress:
            while state.step < total and (deadline is None or time.monotonic() < deadline):
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

    @property
    def seconds_per_pair(self) -> float | None:
        done = sum(len(step) for step in self.steps[: self.state.step])
        return self.state.seconds / done if done else None

    def _step(self, rows: Sequence[Example]) -> float:
        """One update; the mean loss a token before it."""
        factor = rate_factor(self.state.step, len(self.steps), least=_LEAST_RATE)
        self._optimizer.param_groups[0]["lr"] = self._plan.rate * factor
        self._optimizer.zero_grad(set_to_none=True)
        whole = sum(sum(row.weights) for row in rows)
        total = 0.0
        for chunk in chunks(rows):
            parts = [
                (losses * torch.tensor(row.weights)).sum()
                for row, losses in zip(chunk, self.net.losses(chunk), strict=True)
            ]
            loss = torch.stack(parts).sum() / whole
            if not torch.isfinite(loss):
                raise _not_finite(self.state.step)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.net.weights().values(), 1.0)
        self._optimizer.step()
        return total

    @torch.no_grad()
    def _validate(self) -> None:
        """Mean negative log likelihood a token by task; the weights of the best mean are kept."""
        sums: dict[str, list[float]] = {}
        for chunk in chunks(self._held):
            for row, losses in zip(chunk, self.net.losses(chunk), strict=True):
                sums.setdefault(row.task, []).append(losses.mean().item())
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
    with Session(model, N_CTX, threads=plan.threads, adapter=loaded) as session:
        theirs = [_engine_nll(session, row) for row in rows]
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    say(f"torch and engine agree within {apart:.3f} nats a token on {len(rows)} pairs")
    if not apart <= TOLERANCE:
        raise ModelError(f"torch and engine differ by {apart:.3f} on {model.path}; cannot tune it")
    return apart


def _engine_nll(session: Session, row: Example) -> float:
    """Mean negative log likelihood of the learned tokens, token by token as in writing."""
    session.clear()
    total, at = 0.0, 0
    for i in range(row.start, len(row.tokens)):
        part = row.tokens[at:i]
        session.decode(part, range(at, i), [(0,)] * len(part), [len(part) - 1])
        logits = session.logits(len(part) - 1).astype(np.float64)
        top = logits.max()
        total += top + math.log(np.exp(logits - top).sum()) - logits[row.tokens[i]]
        at = i
    return total / (len(row.tokens) - row.start)


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
