"""Tuning the adapter for decisions: rows in, a revision folder out.

Only the adapter of the upper layers is tuned. What the lower layers, which keep the parent's
adapter, make of each row is computed once and kept, so that an epoch costs half the network.

Everything that decides the outcome is in `Plan`: on a CPU the same plan, data and parent give the
same weights, also when the run was killed in between and resumed. Only `minutes` brings in the
clock.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch

from semif import rows
from semif.engine import Engine
from semif.errors import DecisionError, FileError, ModelError
from semif.export import LabelledRow
from semif.inputs import entries
from semif.llama import Model, sha256_file
from semif.measuring.fit import fit, metrics
from semif.revision import DECIDE, WRITE, Adapters, Revision, write
from semif.training import lora
from semif.training.activations import Activations
from semif.training.examples import Example, Examples, examples
from semif.training.loop import Loop, Settings, scored
from semif.training.loss import Weights, option_scores
from semif.training.processes import Processes
from semif.training.progress import Progress, Say, beside_bars, silent
from semif.training.tower import Tower, Tuning
from semif.training.tuned import Precision, fast_bfloat16
from semif.training.workers import Workers
from semif.writing.pin import ACT
from semif.writing.pin import METRICS as WRITING

# How far torch and the engine on F16 may be apart, in logits. Weights and products rounded to
# bfloat16 (8 bits) move a score by up to 0.06 to 0.13 (measured on 50 rows, embedded model).
TOLERANCE: dict[Precision, float] = {"float32": 0.05, "bfloat16": 0.5}


@dataclass(frozen=True)
class Plan:
    """The settings of a run. `layers` counts from the top; `minutes` ends training early.

    `batch` rows make a step, of which up to `shared` have one head: more of them cost less, but
    make the step one-sided. `patience`: validations without a better one after which training
    ends. `precision` "auto" is bfloat16 where the machine is faster in it.
    """

    epochs: int = 2
    layers: int = 14
    rows_limit: int | None = None
    focus: bool = False  # the rows of a limit by the needs of the main job
    older: str = ""  # a folder of older texts: what is not in it comes whole, beside the limit
    seed: int = 0
    batch: int = 8
    shared: int = 4
    rate: float = 5e-4
    fresh: bool = False  # begin with a new adapter even where the parent has one
    rank: int = 16  # of a fresh adapter
    prompt: str | None = None  # another than the parent's, and for single phases:
    phase_prompts: tuple[tuple[str, str], ...] = ()
    smoothing: float = 0.02
    option_weight: float = 0.3
    brier_weight: float = 0.2
    mass_weight: float = 0.05
    patience: int = 4
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    minutes: float | None = None
    threads: int = 2
    checkpoint_every: float = 300.0  # seconds

    def resolved(self) -> Precision:
        if self.precision == "auto":
            return "bfloat16" if fast_bfloat16() else "float32"
        return self.precision

    def settings(self, start: Revision) -> Settings:
        """The settings of the loop. The letters' logits have no zero, so no yes or no of theirs."""
        option = self.option_weight if start.contents.readout == "branches" else 0.0
        return Settings(
            epochs=self.epochs,
            batch=self.batch,
            shared=self.shared,
            rate=self.rate,
            seed=self.seed,
            patience=self.patience,
            checkpoint_every=self.checkpoint_every,
            weights=Weights(self.smoothing, option, self.brier_weight, self.mass_weight),
        )


def train(
    model: Model, parent: Revision, data: Path, out: Path, plan: Plan, resume: bool, say: Say
) -> Path:
    """Tune `parent`'s adapter on `data`, a folder of texts or a file of SemIf rows; the folder of
    the new revision, in `out`.

    Raises what `tune` raises, and FileError and DecisionError for data.
    """
    if data.is_dir() or not data.exists():
        built, sha256 = rows.build(data, plan.seed), rows.data_sha256(data)
        new: list[LabelledRow] = []
        if plan.older:
            new, built = rows.apart(built, data, Path(plan.older))
        chosen = [*new, *_chosen(built, plan)]
    else:
        chosen, sha256 = _chosen(_read(data), plan), sha256_file(data)
    return tune(model, parent, chosen, sha256, out, plan, resume, say)


def _read(path: Path) -> list[LabelledRow]:
    """The rows of a file; DecisionError for the first bad one: a run takes all or none."""

    def refuse(error: DecisionError) -> None:
        raise error

    try:
        with path.open("rb") as lines:
            found = entries(lines, str(path), LabelledRow.denied, refuse)
            return [entry.value for entry in found]
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error


def tune(
    model: Model,
    parent: Revision,
    labelled: Sequence[LabelledRow],
    data_sha256: str,
    out: Path,
    plan: Plan,
    resume: bool,
    say: Say,
) -> Path:
    """Tune `parent`'s adapter, or a fresh one, on labelled rows; the new folder in `out`.

    Working files stay in `out/work`: delete it when the revision is good. `say` hears one line at
    a time, in one process of several, and all return the same folder. Raises ModelError when model
    and parent cannot be tuned, DecisionError for a row that teaches nothing or is too long,
    FileError when too few rows are left, and when `resume` meets a checkpoint of another run.
    """
    started = time.monotonic()
    torch.set_num_threads(plan.threads)
    processes = Processes()
    say = beside_bars(say) if processes.first else silent
    start = _start(parent, plan)
    work = out / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(work, f"cannot be made: {error.strerror}") from error
    found = examples(model, start, *rows.split(labelled))
    counts = f"{len(found.taught)} rows to train on, {len(found.held)} to validate on"
    if not found.taught or not found.held:
        raise FileError(out, counts)
    say(counts)
    precision = plan.resolved()
    tuning = Tuning(plan.layers, plan.rank, plan.seed, precision)
    tower = Tower(model, start.decide_path, found.slots, tuning, processes.device)
    _check(model, start, tower, found, plan, say)
    with _workers(tower, found, plan) as workers:
        path = work / f"{_kept_key(model, start, found, tower, plan)}.activations"
        kept = _activations(tower, found, path, workers, processes, say)
        settings, key = plan.settings(start), _key(model, parent, found, plan)
        checkpoint = work / f"{key}.checkpoint"
        loop = Loop(tower, kept, found, settings, workers, processes, checkpoint, say)
        if resume:
            loop.resume()
        loop.go(None if plan.minutes is None else started + 60 * plan.minutes)
    folder = _finish(model, start, loop, plan, data_sha256, out) if processes.first else out
    first: Path = processes.gather(folder)[0]
    return first


def _check(
    model: Model, start: Revision, tower: Tower, found: Examples, plan: Plan, say: Say
) -> None:
    """ModelError unless torch and the engine give the same scores before anything is tuned."""
    some = found.held[:: max(1, len(found.held) // 8)][:8]
    apart = _apart(tower, some, _engine_scores(model, start, some, plan.threads)[0])
    precision = plan.resolved()
    say(f"torch in {precision} and engine agree within {apart:.3f} on {len(some)} rows")
    if not apart <= TOLERANCE[precision]:
        raise ModelError(f"torch and engine differ by {apart:.3f} on {model.path}; cannot tune it")


def _start(parent: Revision, plan: Plan) -> Revision:
    """The parent as the run begins with it: its prompts and adapter may be replaced.

    What was fitted to other prompts or another adapter goes with them.
    """
    old = parent.contents
    prompts = old.prompt_versions if plan.prompt is None else {}
    first = plan.prompt or old.prompt_version
    prompts = {p: v for p, v in {**prompts, **dict(plan.phase_prompts)}.items() if v != first}
    changed = Revision(
        parent.id,
        msgspec.structs.replace(old, prompt_version=first, prompt_versions=prompts),
        parent.folder,
    )

    def same(values: dict[str, float]) -> dict[str, float]:
        if plan.fresh:
            return {}
        return {p: v for p, v in values.items() if changed.prompt_for(p) == parent.prompt_for(p)}

    contents = msgspec.structs.replace(
        changed.contents,
        adapters=Adapters(None, old.adapters.writing) if plan.fresh else old.adapters,
        temperatures=same(old.temperatures),
        none_bias=same(old.none_bias),
    )
    return replace(changed, contents=contents)


def _chosen(built: list[LabelledRow], plan: Plan) -> list[LabelledRow]:
    if plan.focus and plan.rows_limit is not None:
        return rows.focus(built, plan.rows_limit, plan.seed)
    return rows.sample(built, plan.rows_limit, plan.seed)


def _key(model: Model, parent: Revision, found: Examples, plan: Plan) -> str:
    """Hash of all that a run's weights depend on; names its checkpoint."""
    free = replace(plan, minutes=None, checkpoint_every=0.0, precision=plan.resolved())
    every = (*found.taught, *found.held)
    labels = [(asdict(e.row), asdict(e.target), e.label.weight) for e in every]
    return _hash([model.sha256, parent.id, asdict(free), len(found.taught), labels])


def _kept_key(model: Model, start: Revision, found: Examples, tower: Tower, plan: Plan) -> str:
    """Hash of all that the lower layers' output depends on; names its file."""
    adapter = start.contents.adapters.deciding
    every = [asdict(e.row) for e in (*found.taught, *found.held)]
    return _hash([model.sha256, adapter, tower.split, plan.resolved(), every])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def _workers(tower: Tower, found: Examples, plan: Plan) -> Workers:
    """Workers for steps of `batch` rows; on a GPU one."""
    taught = [example.row for example in found.taught]
    each = float(np.mean([row.own + len(row.head) / plan.shared for row in taught]))
    return Workers(plan.threads if tower.device.type == "cpu" else 1, each * plan.batch)


def _activations(
    tower: Tower,
    found: Examples,
    path: Path,
    workers: Workers,
    processes: Processes,
    say: Say,
) -> Activations | None:
    """The lower layers' output for all rows; None where every layer is tuned."""
    if not tower.split:
        return None
    every = [example.row for example in (*found.taught, *found.held)]
    kept = Activations(every, tower)
    if kept.open(path):
        say(f"using the activations in {path}")
        return kept
    with Progress("lower layers", "rows", len(every), say, bar=processes.first) as progress:
        kept.make(path, workers, processes, progress.reach)
    return kept


def _engine_scores(
    model: Model, revision: Revision, chosen: Sequence[Example], threads: int
) -> tuple[list[np.ndarray], float]:
    """Scores by option of each example, and their mean allowed_token_mass."""
    with Engine(model, revision, threads) as engine:
        answers = [engine.decide([example.label.decision])[0] for example in chosen]
    scores = [
        np.array([answer.logits[id_] for id_ in example.ids])
        for answer, example in zip(answers, chosen, strict=True)
    ]
    return scores, float(np.mean([answer.allowed_token_mass for answer in answers]))


@torch.no_grad()
def _apart(tower: Tower, chosen: Sequence[Example], engine: Sequence[np.ndarray]) -> float:
    """The largest difference between the whole network in torch and the engine, in logits."""
    apart = 0.0
    for example, expected in zip(chosen, engine, strict=True):
        (scores,) = tower.scores([example.row])
        found = option_scores(scores, example.row.options).cpu().numpy()
        apart = max(apart, float(np.abs(found - expected).max()))
    return apart


def _finish(
    model: Model, start: Revision, loop: Loop, plan: Plan, data_sha256: str, out: Path
) -> Path:
    """Write the revision: adapter, then what the engine makes of it on the held-out rows."""
    folder = out / "work" / "revision"
    folder.mkdir(exist_ok=True)
    adapter = folder / DECIDE
    tower = loop.tower
    lora.write(adapter, tower.adapter(), tower.heads, tower.kind.name)
    old = start.contents
    draft = msgspec.structs.replace(
        old,
        parent=start.id,
        adapters=Adapters(sha256_file(adapter), old.adapters.writing),
        thresholds={"contains_request": 0.5, "interrupt": 0.5, "predict": 0.5} | old.thresholds,
        data_sha256=data_sha256,
    )
    loop.say(f"measuring {len(loop.held)} rows with the engine")
    engine, mass = _engine_scores(model, Revision("draft", draft, folder), loop.held, plan.threads)
    apart = _apart(loop.tower, loop.held[:50], engine[:50])
    loop.say(f"torch and engine agree within {apart:.3f} on {len(loop.held[:50])} rows")
    found = scored(loop.held, engine)
    measured = {row.phase for row in found}
    fits = fit(found, {p: bias for p, bias in old.none_bias.items() if p not in measured})
    biases = old.none_bias | {phase: f.none_bias for phase, f in fits.items()}
    contents = msgspec.structs.replace(
        draft,
        temperatures=old.temperatures | {phase: f.temperature for phase, f in fits.items()},
        none_bias={phase: bias for phase, bias in biases.items() if bias},
        metrics={
            **metrics(found, fits),
            # Temperatures were fitted, and the weights chosen, on the very rows measured here.
            "measured_on": "validation rows, by the engine",
            "allowed_token_mass": round(mass, 4),
            "torch_apart": round(apart, 4),
            # The adapter for writing goes along, and so does what it was measured at.
            **{name: old.metrics[name] for name in (WRITING, ACT) if name in old.metrics},
        },
    )
    return out / write(contents, {DECIDE: adapter, WRITE: start.write_path}, out).id
