"""``sia dream``: learn from what was logged, now; or say what dreams came to."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from semif.llama import Model
from semif.revision import Registry
from sia import home as homes
from sia.brain import pinned, threads
from sia.cli.guard import AGAIN
from sia.dream.dataset import collect
from sia.dream.dream import Dreams, Outcome, Recipe, by_phase
from sia.errors import DONE, SOME_FAILED
from sia.home import Home

LOWEST = 19  # of priority: whatever else the machine does goes first


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    registry = Registry(home.revisions)
    chosen = getattr(options, "model", None) or home.config.model.path or None
    dreams = Dreams(home.dreams, registry, _say, chosen)
    logs = [home.folder, *(path.expanduser().resolve() for path in options.homes)]
    if not options.now:
        return _report(dreams, logs, options.json)
    _step_back()
    with dreams.lock():
        outcome = _dream(home, dreams, logs, options)
    if outcome.status == "proven" and home.config.dream.swap:
        registry.swap(outcome.candidate)
        _say("the next start takes it up, and goes back if it does not work")
    if options.json:
        print(json.dumps({**vars(outcome), "folder": str(outcome.folder or "")}))
    else:
        print(f"{outcome.status}: {outcome.text}")
    return DONE if outcome.status != "rejected" else SOME_FAILED


def _dream(home: Home, dreams: Dreams, logs: list[Path], options: argparse.Namespace) -> Outcome:
    from sia.dream.measured import Examiner

    chosen = home.config.dream
    recipe = Recipe(
        epochs=chosen.epochs,
        layers=chosen.layers,
        minutes=chosen.minutes,
        replay=chosen.replay,
        least=chosen.rows,
    )
    model, _ = pinned(home, getattr(options, "model", None))
    assert isinstance(model, Model)
    examiner = Examiner(model, threads(home.config), home.config.model.context)
    return dreams.run(logs, recipe, examiner)


def _report(dreams: Dreams, logs: list[Path], as_json: bool) -> int:
    dataset = collect(logs, _say)
    said = [row.said() for row in dataset.rows]
    costs = by_phase(said)
    past = dreams.past()
    data = {
        "rows": len(said),
        "held_out": len(dataset.held),
        "alike_dropped": dataset.dropped,
        "corrections": len(dataset.corrections),
        "phases": costs,
        "dreams": past,
    }
    if as_json:
        print(json.dumps(data))
        return DONE
    print(
        f"{len(said)} labelled decisions, {len(dataset.held)} of them held out, "
        f"{len(dataset.corrections)} corrected by a person"
    )
    for phase, cost in costs.items():
        nll = cost["nll"]
        print(
            f"  {phase:<18} {cost['rows']:>5}  right {100 * cost['accuracy']['mean']:>3.0f} %  "
            f"loss {nll['mean']:.2f} ({nll['low']:.2f} to {nll['high']:.2f})"
        )
    for dream in past:
        verdict = "proven" if dream["passed"] else f"rejected ({', '.join(dream['failed'])})"
        print(f"{dream['dream']}  {dream['candidate']}  {verdict}")
    return DONE


def _step_back() -> None:
    """What a person asks for meanwhile goes first."""
    os.environ.pop(AGAIN, None)
    os.nice(LOWEST)


def _say(line: object) -> None:
    print(f"sia: {line}", file=sys.stderr)
