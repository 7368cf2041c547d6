"""Tuning the adapter for decisions: rows in, a revision folder out.

Only the adapter of the upper layers is tuned. What the lower layers, which keep the parent's
adapter, make of each row is computed once and kept, so that an epoch costs half the network.

Everything that decides the outcome is in `Plan`: the same plan, data and parent give the same
weights, also when the run was killed in between and resumed.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from semif import lora, rows
from semif.engine import Engine
from semif.errors import FileError, ModelError
from semif.export import LabelledRow
from semif.fit import Scored, fit, mean_nll, metrics
from semif.jsonl import sync_folder, write_whole
from semif.llama import Model, sha256_file
from semif.prompting import BranchesPrompt, load_prompt
from semif.revision import Adapters, Revision
from semif.tower import Activations, Encoded, Tower, encode, packs

SMOOTHING = 0.02
OPTION_LOSS = 0.3
# Rows that share a criterion in one step: more of them cost less, but make the step one-sided.
SHARED_ROWS = 4
# How far torch on F32 and the engine on F16 may be apart, in logits.
TOLERANCE = 0.05
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The settings of a run. `layers` counts from the top; `minutes` ends training early."""

    epochs: int = 2
    layers: int = 14
    rows_limit: int | None = None
    focus: bool = False  # the rows of a limit by the needs of the main job
    seed: int = 0
    batch: int = 8
    rate: float = 5e-4
    minutes: float | None = None
    threads: int = 2
    checkpoint_every: float = 300.0  # seconds


@dataclass(frozen=True)
class Example:
    """A labelled row in tokens; `right` is the index of the right option."""

    row: LabelledRow
    tokens: Encoded
    right: int


@dataclass
class _State:
    """Where a run stands; with the optimiser, all that a checkpoint holds."""

    step: int = 0
    score: float = math.inf
    best: dict[str, Tensor] = field(default_factory=dict)


def train(
    model: Model, parent: Revision, data: Path, out: Path, plan: Plan, resume: bool, say: Say
) -> Path:
    """Tune `parent`'s adapter on the texts in `data`; the folder of the new revision, in `out`.

    Working files stay in `out/work`: delete it when the revision is good. `say` hears one line at
    a time. Raises ModelError when model and parent cannot be tuned, FileError and DecisionError
    for data, and FileError when `resume` meets a checkpoint of another run.
    """
    started = time.monotonic()
    torch.set_num_threads(plan.threads)
    prompt = load_prompt(parent.contents.prompt_version)
    if not isinstance(prompt, BranchesPrompt) or parent.decide_path is None:
        raise ModelError(f"revision {parent.id} has no adapter for the readout branches to tune")
    work = out / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(work, f"cannot be made: {error.strerror}") from error

    labelled = _chosen(rows.build(data, plan.seed), plan)
    examples = [_example(model, prompt, row) for row in labelled]
    taught, held = (_of(examples, side) for side in rows.split(labelled))
    if not taught or not held:
        raise FileError(data, f"{len(taught)} rows to train on, {len(held)} to validate on")
    say(f"{len(taught)} rows to train on, {len(held)} to validate on")

    tower = Tower(model, parent.decide_path, prompt, plan.layers)
    apart = _apart(tower, held[:8], _engine_scores(model, parent, held[:8], plan.threads))
    say(f"torch and engine agree within {apart:.3f} on {len(held[:8])} rows")
    if apart > TOLERANCE:
        raise ModelError(f"torch and engine differ by {apart:.3f} on {model.path}; cannot tune it")

    key = _key(model, parent, taught + held, plan)
    kept = _activations(tower, taught + held, work / f"{key}.activations", say)
    run = _Run(tower, kept, taught, held, plan, work / f"{key}.checkpoint", say)
    if resume:
        run.resume()
    run.go(None if plan.minutes is None else started + 60 * plan.minutes)
    return _finish(model, parent, run, rows.data_sha256(data), out)


def _chosen(built: list[LabelledRow], plan: Plan) -> list[LabelledRow]:
    if plan.focus and plan.rows_limit is not None:
        return rows.focus(built, plan.rows_limit, plan.seed)
    return rows.sample(built, plan.rows_limit, plan.seed)


class _Run:
    """Training itself: steps, validation each half of an epoch, checkpoints."""

    def __init__(
        self,
        tower: Tower,
        kept: Activations,
        taught: Sequence[Example],
        held: Sequence[Example],
        plan: Plan,
        checkpoint: Path,
        say: Say,
    ) -> None:
        self.tower = tower
        self.held = held
        self.plan = plan
        self.say = say
        self._kept = kept
        self._examples = [*taught, *held]
        self._tokens = [example.tokens for example in self._examples]
        self._checkpoint = checkpoint
        self._steps = [
            step for epoch in range(plan.epochs) for step in self._epoch(len(taught), epoch)
        ]
        self._state = _State()
        parameters = list(tower.weights().values())
        if not parameters:
            raise ModelError("the adapter has nothing in the layers to be tuned; name more layers")
        self._optimizer = torch.optim.AdamW(parameters, lr=plan.rate, weight_decay=0.0)

    def _epoch(self, count: int, epoch: int) -> Iterator[list[list[int]]]:
        """The packs of each step: about `batch` rows a step, never fewer but in the last."""
        random = np.random.default_rng([self.plan.seed, epoch])
        gathered = packs(self._tokens, random.permutation(count).tolist(), SHARED_ROWS)
        step: list[list[int]] = []
        for i in random.permutation(len(gathered)):
            step.append(gathered[i])
            if sum(map(len, step)) >= self.plan.batch:
                yield step
                step = []
        if step:
            yield step

    def go(self, deadline: float | None) -> None:
        """Train to the end, or to the deadline; the best weights are then in the tower."""
        state, total = self._state, len(self._steps)
        checks = {round(total * i / (2 * self.plan.epochs)) for i in range(2 * self.plan.epochs)}
        first, began = state.step, time.monotonic()
        spoke = saved = began
        loss = None
        while state.step < total and (deadline is None or time.monotonic() < deadline):
            if state.step in checks:
                self._validate()
            value = self._step(self._steps[state.step])
            loss = value if loss is None else 0.95 * loss + 0.05 * value
            state.step += 1
            now = time.monotonic()
            if now - spoke >= 15 or state.step == total:
                left = (now - began) / (state.step - first) * (total - state.step)
                self.say(f"step {state.step}/{total}, loss {loss:.3f}, {left / 60:.0f} min left")
                spoke = now
            if now - saved >= self.plan.checkpoint_every:
                self._save()
                saved = now
        self._save()  # so that a run that ended early, or failed afterwards, can go on
        self._validate()
        self.tower.set_weights(state.best)

    def _rate(self, step: int) -> float:
        """Cosine from the peak to zero after a warm-up over 5 % of the steps; a factor 0..1."""
        total = len(self._steps)
        warm = max(1, round(0.05 * total))
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))

    def _step(self, step: Sequence[list[int]]) -> float:
        """One update; the mean loss of its rows before it."""
        self._optimizer.param_groups[0]["lr"] = self.plan.rate * self._rate(self._state.step)
        self._optimizer.zero_grad(set_to_none=True)
        count, total = sum(map(len, step)), 0.0
        for pack in step:
            scores = self.tower.upper(self._kept.of(pack), [self._tokens[i] for i in pack])
            chosen = [self._examples[i] for i in pack]
            losses = [
                example.row.weight * _loss(score, example.right)
                for score, example in zip(scores, chosen, strict=True)
            ]
            loss = torch.stack(losses).sum() / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.tower.weights().values(), 1.0)
        self._optimizer.step()
        return total

    @torch.no_grad()
    def scores(self) -> list[np.ndarray]:
        """Scores of the held-out rows under the weights as they are."""
        start = len(self._examples) - len(self.held)
        found: dict[int, np.ndarray] = {}
        for pack in packs(self._tokens, range(start, len(self._examples)), size=16):
            scores = self.tower.upper(self._kept.of(pack), [self._tokens[i] for i in pack])
            found.update((i, s.double().numpy()) for i, s in zip(pack, scores, strict=True))
        return [found[i] for i in range(start, len(self._examples))]

    def _validate(self) -> None:
        """Measure on the held-out rows, calibrated as the revision will be, and keep the best."""
        found = scored(self.held, self.scores())
        score, measured = mean_nll(found), metrics(found, fit(found))
        better = score < self._state.score
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
        buffer = io.BytesIO()
        whole = {
            "step": self._state.step,
            "score": self._state.score,
            "best": self._state.best,
            "weights": self.tower.copy_weights(),
            "optimizer": self._optimizer.state_dict(),
        }
        torch.save(whole, buffer)
        write_whole(self._checkpoint, buffer.getvalue())

    def resume(self) -> None:
        """Go back to the last checkpoint of the same run; FileError without one."""
        try:
            whole: dict[str, Any] = torch.load(self._checkpoint, weights_only=True)
        except FileNotFoundError as error:
            raise FileError(
                self._checkpoint,
                "no checkpoint of a run with this data, parent and settings; start without resume",
            ) from error
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise FileError(self._checkpoint, f"is damaged: {error}; delete it") from error
        self._state = _State(whole["step"], whole["score"], whole["best"])
        self.tower.set_weights(whole["weights"])
        self._optimizer.load_state_dict(whole["optimizer"])
        self.say(f"resumed at step {self._state.step}/{len(self._steps)}")


def scored(examples: Sequence[Example], scores: Sequence[np.ndarray]) -> list[Scored]:
    """Examples with their scores, options sorted by id."""
    result = []
    for example, values in zip(examples, scores, strict=True):
        decision = example.row.decision
        none = {option.id for option in decision.options if option.means_none}
        means_none = np.array([id_ in none for id_ in example.tokens.ids])
        result.append(Scored(decision.phase, values, means_none, example.right))
    return result


def _example(model: Model, prompt: BranchesPrompt, row: LabelledRow) -> Example:
    tokens = encode(model, prompt, row.decision)
    assert row.outcome is not None  # rows from texts all have one
    return Example(row, tokens, tokens.ids.index(row.outcome))


def _of(examples: Sequence[Example], side: Sequence[LabelledRow]) -> list[Example]:
    ids = {row.decision.id for row in side}
    return [example for example in examples if example.row.decision.id in ids]


def _loss(scores: Tensor, right: int) -> Tensor:
    """Cross-entropy over the options, and a part of each option's own yes or no."""
    target = torch.full_like(scores, SMOOTHING / len(scores))
    target[right] += 1 - SMOOTHING
    of_all = -(target * functional.log_softmax(scores, 0)).sum()
    return of_all + OPTION_LOSS * functional.binary_cross_entropy_with_logits(scores, target)


def _key(model: Model, parent: Revision, examples: Sequence[Example], plan: Plan) -> str:
    """Hash of all that a run's numbers depend on; names its working files."""
    settings = asdict(replace(plan, minutes=None, checkpoint_every=0.0))
    labels = [(asdict(e.tokens), e.right, e.row.weight) for e in examples]
    whole = json.dumps([model.sha256, parent.id, settings, labels])
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _activations(tower: Tower, examples: Sequence[Example], path: Path, say: Say) -> Activations:
    kept = Activations([example.tokens for example in examples], tower.width)
    if kept.open(path):
        say(f"using the activations in {path}")
        return kept
    began = spoke = time.monotonic()

    def done(count: int) -> None:
        nonlocal spoke
        now = time.monotonic()
        if now - spoke >= 15 or count == len(examples):
            left = (now - began) / count * (len(examples) - count)
            say(f"lower layers: {count}/{len(examples)} rows, {left / 60:.1f} min left")
            spoke = now

    kept.make(tower, path, done)
    return kept


def _engine_scores(
    model: Model, revision: Revision, examples: Sequence[Example], threads: int
) -> list[np.ndarray]:
    with Engine(model, revision, threads) as engine:
        answers = [engine.decide([example.row.decision])[0] for example in examples]
    return [
        np.array([answer.logits[id_] for id_ in example.tokens.ids])
        for answer, example in zip(answers, examples, strict=True)
    ]


@torch.no_grad()
def _apart(tower: Tower, examples: Sequence[Example], engine: Sequence[np.ndarray]) -> float:
    """The largest difference between the whole network in torch and the engine, in logits."""
    apart = 0.0
    for example, expected in zip(examples, engine, strict=True):
        (scores,) = tower.upper(tower.lower([example.tokens]), [example.tokens])
        apart = max(apart, float(np.abs(scores.numpy() - expected).max()))
    return apart


def _finish(model: Model, parent: Revision, run: _Run, data_sha256: str, out: Path) -> Path:
    """Write the revision: adapter, then what the engine makes of it on the held-out rows."""
    folder = out / "work" / "revision"
    folder.mkdir(exist_ok=True)
    adapter = folder / "decide.gguf"
    lora.write(adapter, run.tower.adapter(), run.tower.heads)
    old = parent.contents
    draft = msgspec.structs.replace(
        old,
        parent=parent.id,
        adapters=Adapters(sha256_file(adapter)),
        proven=(),
        thresholds={"contains_request": 0.5, "interrupt": 0.5} | old.thresholds,
        data_sha256=data_sha256,
    )
    run.say(f"measuring {len(run.held)} rows with the engine")
    engine = _engine_scores(model, Revision("draft", draft, folder), run.held, run.plan.threads)
    apart = _apart(run.tower, run.held[:50], engine[:50])
    run.say(f"torch and engine agree within {apart:.3f} on {len(run.held[:50])} rows")
    found = scored(run.held, engine)
    fits = fit(found)
    biases = old.none_bias | {phase: f.none_bias for phase, f in fits.items()}
    contents = msgspec.structs.replace(
        draft,
        temperatures=old.temperatures | {phase: f.temperature for phase, f in fits.items()},
        none_bias={phase: bias for phase, bias in biases.items() if bias},
        metrics={
            **metrics(found, fits),
            # Temperatures were fitted, and the weights chosen, on the very rows measured here.
            "measured_on": "validation rows, by the engine",
            "torch_apart": round(apart, 4),
        },
    )
    data = json.dumps(msgspec.to_builtins(contents), indent=1).encode() + b"\n"
    write_whole(folder / "revision.json", data)
    target = out / hashlib.sha256(data).hexdigest()[:12]
    if not target.exists():
        folder.replace(target)
        sync_folder(out)
    return target
