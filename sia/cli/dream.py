"""``sia dream``: learn from what was logged, now; or say what dreams came to."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil

from semif.errors import SemifError
from semif.llama import Model
from semif.revision import Registry
from sia import home as homes
from sia.brain import pinned, threads
from sia.cli.guard import AGAIN
from sia.dream import status
from sia.dream.child import step_back
from sia.dream.dataset import collect
from sia.dream.dream import Dreams, Outcome, Recipe, by_phase
from sia.dream.pause import MakesWay
from sia.errors import DONE, SOME_FAILED, SiaError
from sia.home import Home


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    registry = Registry(home.revisions)
    chosen = getattr(options, "model", None) or home.config.model.path or None
    logs = [home.folder, *(path.expanduser().resolve() for path in options.homes)]
    if options.status:
        return _status(home, options.json)
    if not options.now:
        return _report(Dreams(home.dreams, registry, _say, chosen), logs, options.json)
    os.environ.pop(AGAIN, None)
    step_back()
    with Dreams(home.dreams, registry, _say).lock():
        outcome = _kept(home, registry, chosen, logs, options)
    if outcome.status == "proven" and home.config.dream.swap:
        registry.swap(outcome.candidate)
        _say("the next start takes it up, and goes back if it does not work")
    if options.json:
        print(json.dumps({**vars(outcome), "folder": str(outcome.folder or "")}))
    else:
        print(f"{outcome.status}: {outcome.text}")
    return DONE if outcome.status != "rejected" else SOME_FAILED


def _kept(
    home: Home,
    registry: Registry,
    chosen: str | None,
    logs: list[Path],
    options: argparse.Namespace,
) -> Outcome:
    """Dream, and keep how it ended: until the labels are more, it is not tried again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    told = status.Writer(home.dreams)

    def say(line: object) -> None:
        told.hear(str(line))
        _say(line)

    limit = home.config.dream.memory_gb * 1024**3 or psutil.virtual_memory().total / 2
    with MakesWay(home.dreams / "busy", int(limit), told.paused) as way:
        dreams = Dreams(home.dreams, registry, say, chosen, way)
        try:
            outcome = _dream(home, dreams, way, logs, options)
        except (SiaError, SemifError) as error:
            last = status.Last(datetime.now(UTC), "failed", str(error))
            status.keep_last(home.dreams, last)
            raise
    status.keep_last(home.dreams, status.Last(datetime.now(UTC), outcome.status, outcome.text))
    return outcome


def _dream(
    home: Home, dreams: Dreams, way: MakesWay, logs: list[Path], options: argparse.Namespace
) -> Outcome:
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
    examiner = Examiner(model, threads(home.config), home.config.model.context, way.wait)
    return dreams.run(logs, recipe, examiner)


def _status(home: Home, as_json: bool) -> int:
    now, last = status.running(home.dreams), status.last(home.dreams)
    if as_json:
        ended = {**asdict(last), "ended": last.ended.isoformat()} if last else None
        print(json.dumps({"running": asdict(now) if now else None, "last": ended}))
        return DONE
    print(status.told(home.dreams))
    return DONE


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


def _say(line: object) -> None:
    print(f"sia: {line}", file=sys.stderr)
