"""Tuning the adapter: how long a small run takes, and what keeping the lower layers' output saves.

    .venv/bin/python -m benchmarks.train [--quick] [--rows 500] [--epochs 3] [--layers 8]

Prints one JSON object. ``run`` is one whole `semif train` on the embedded model in this process,
from rows to the measured revision, nothing of it extrapolated. ``ratio`` compares a step with the
kept output of the lower layers with the same step that evaluates them anew, in turns. Run it on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.machine import machine, summary
from semif.engine import load
from semif.llama import Model
from semif.revision import Revision
from semif.rows import build, focus, shipped_data, split

if TYPE_CHECKING:
    from semif.export import LabelledRow
    from semif.train import Plan


def chosen(count: int) -> list[LabelledRow]:
    """Rows of all phases, of which about `count` are trained on."""
    return focus(build(shipped_data(), 0), round(count / 0.9), 0)


def run(model: Model, parent: Revision, rows: list[LabelledRow], plan: Plan) -> dict[str, object]:
    """One whole run: seconds in all and by part."""
    from semif import revision
    from semif.train import tune

    began, used = time.perf_counter(), time.process_time()
    marks: dict[str, float] = {}

    def mark(line: str) -> None:
        marks.setdefault(line.split(":")[0].split(" at ")[0].split(" ")[0], time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        made = tune(model, parent, rows, "0" * 64, Path(folder), plan, False, mark)
        metrics = revision.load(made).contents.metrics
    ended = time.perf_counter()
    return {
        "minutes": round((ended - began) / 60, 2),
        "cpu_minutes": round((time.process_time() - used) / 60, 2),
        "seconds": {
            "rows, model into torch, check against the engine": round(marks["torch"] - began, 1),
            "lower layers of all rows, once": round(marks["validation"] - marks["torch"], 1),
            "steps and validations": round(marks["measuring"] - marks["validation"], 1),
            "measuring with the engine": round(ended - marks["measuring"], 1),
        },
        "under_10_minutes": ended - began < 600,
        "accuracy": metrics["accuracy"],
        "nll": metrics["nll"],
        "torch_apart": metrics["torch_apart"],
    }


def steps(
    model: Model, parent: Revision, rows: list[LabelledRow], plan: Plan, times: int
) -> dict[str, object]:
    """Seconds of a step of `plan.batch` rows with and without the kept activations."""
    from semif.training.activations import Activations
    from semif.training.examples import examples
    from semif.training.loop import Loop
    from semif.training.processes import Processes
    from semif.training.tower import Tower, Tuning
    from semif.training.workers import Workers

    found = examples(model, parent, *split(rows))
    tuning = Tuning(plan.layers, plan.rank, plan.seed, plan.resolved())
    tower = Tower(model, parent.decide_path, found.slots, tuning)
    processes, workers = Processes(), Workers(plan.threads, 10**6)
    seconds: dict[str, list[float]] = {"kept": [], "anew": []}
    cpu: dict[str, list[float]] = {"kept": [], "anew": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "activations"
        kept = Activations([e.row for e in (*found.taught, *found.held)], tower)
        kept.make(path, workers, processes, lambda count: None)
        loops = {
            name: Loop(
                tower,
                held,
                found,
                plan.settings(parent),
                workers,
                processes,
                path,
                lambda line: None,
            )
            for name, held in (("kept", kept), ("anew", None))
        }
        for number in range(times + 1):
            for name, loop in loops.items():
                begun, used = time.perf_counter(), time.process_time()
                loop._step(loop._steps[number])
                if number:  # the first pays for what is made once
                    seconds[name].append(time.perf_counter() - begun)
                    cpu[name].append(time.process_time() - used)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "rows_a_step": plan.batch,
        "kept_s": summary(seconds["kept"]),
        "anew_s": summary(seconds["anew"]),
        "kept_cpu_s": summary(cpu["kept"]),
        "anew_cpu_s": summary(cpu["anew"]),
        "ratio": round(medians["kept"] / medians["anew"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="60 rows, one epoch, five steps")
    args = parser.parse_args()
    count, epochs = (60, 1) if args.quick else (args.rows, args.epochs)
    before = machine()
    model, parent = load()
    # Only now: torch must find the thread settings that the engine has made.
    from semif.train import Plan

    plan = Plan(epochs=epochs, layers=args.layers, threads=args.threads, patience=99)
    rows = chosen(count)
    report = {
        "benchmark": "train",
        "machine": before,
        "rows": len(split(rows)[0]),
        "epochs": epochs,
        "layers": args.layers,
        "threads": args.threads,
        "precision": plan.resolved(),
        "run": run(model, parent, rows, plan),
        "step": steps(model, parent, rows, plan, 5 if args.quick else 30),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
