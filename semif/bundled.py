"""Training what a bundle asks for, in one process or several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from semif import bundle, revision, train
from semif.bundle import PARENT, Bundle
from semif.errors import ModelError
from semif.llama import Model
from semif.revision import DECIDE, WRITE, Revision
from semif.training.processes import Processes
from semif.training.progress import Say
from semif.writing import train as writing
from semif.writing import turns


@dataclass(frozen=True)
class Machine:
    """What the machine decides, not the bundle."""

    threads: int = 2
    minutes: float | None = None  # of each adapter
    precision: Literal["auto", "float32", "bfloat16"] = "auto"


def run(
    model: Model,
    parent: Revision,
    folder: Path,
    out: Path,
    machine: Machine,
    resume: bool,
    say: Say,
) -> Path:
    """Train all that the bundle asks for; the path of result.json in `out`.

    What was trained before a run was cut off is taken as it is when it resumes. Raises what the
    trainers raise, and ModelError for a bundle that is not whole.
    """
    asked = bundle.read(folder)
    if parent.id != asked.parent:
        raise ModelError(f"{folder / PARENT} is revision {parent.id}, not {asked.parent}")
    names: list[str] = []
    made: str | None = None
    if asked.decisions:
        made = _decisions(model, parent, folder, asked, out, machine, resume, say).name
        names += [f"{made}/{name}" for name in ("revision.json", DECIDE)]
        names += [f"{made}/{WRITE}"] if parent.write_path else []
    if asked.turns:
        _turns(model, parent, folder, asked, out, machine, resume, say)
        names += [WRITE, "training.json"]
    processes = Processes()
    if processes.first:
        bundle.write_result(out, folder, names, made, WRITE if asked.turns else None)
    processes.wait()
    return out / bundle.RESULT


def _decisions(
    model: Model,
    parent: Revision,
    folder: Path,
    asked: Bundle,
    out: Path,
    machine: Machine,
    resume: bool,
    say: Say,
) -> Path:
    recipe = asked.decisions
    assert recipe is not None
    done = [path.parent for path in out.glob("*/revision.json")] if resume else []
    for path in done:
        if revision.load(path).contents.parent == parent.id:
            return path
    plan = train.Plan(
        epochs=recipe.epochs,
        layers=recipe.layers,
        rate=recipe.rate,
        seed=recipe.seed,
        precision=machine.precision,
        minutes=machine.minutes,
        threads=machine.threads,
    )
    again = resume and any((out / "work").glob("*.checkpoint"))
    return train.train(model, parent, folder / recipe.rows, out, plan, again, say)


def _turns(
    model: Model,
    parent: Revision,
    folder: Path,
    asked: Bundle,
    out: Path,
    machine: Machine,
    resume: bool,
    say: Say,
) -> None:
    recipe = asked.turns
    assert recipe is not None
    if resume and (out / "training.json").is_file():
        return
    plan = writing.Plan(
        epochs=recipe.epochs,
        batch=recipe.batch,
        rate=recipe.rate,
        seed=recipe.seed,
        limit=recipe.limit,
        bfloat16=None if machine.precision == "auto" else machine.precision == "bfloat16",
        minutes=machine.minutes,
        threads=machine.threads,
    )
    lessons = turns.read(folder / recipe.pairs)
    work = out / "turns"
    again = resume and any((work / "work").glob("*.checkpoint"))
    writing.train(model, parent.write_path, lessons, work, plan, again, say)
    if Processes().first:
        for name in (WRITE, "training.json"):  # in this order: it is done when the last is there
            (work / name).replace(out / name)
