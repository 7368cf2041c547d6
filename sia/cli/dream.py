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
from semif.jsonl import write_whole
from semif.llama import Model
from semif.revision import Registry
from sia import home as homes
from sia.brain import pinned, threads
from sia.cli.guard import AGAIN
from sia.dream import pairs, status
from sia.dream.child import step_back
from sia.dream.dataset import collect
from sia.dream.dream import Dreams, Outcome, Recipe
from sia.dream.pause import MakesWay
from sia.dream.report import Report, read_nights, report
from sia.errors import DONE, SOME_FAILED, SiaError
from sia.home import Home
from sia.shell.text import clean, columns, shorten

WORST_SHOWN = 5


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    registry = Registry(home.revisions)
    chosen = getattr(options, "model", None) or home.config.model.path or None
    logs = [home.folder, *(path.expanduser().resolve() for path in options.homes)]
    if options.status:
        return _status(home, options.json)
    if not _asked(options):
        return _report(home, logs, options)
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


def _asked(options: argparse.Namespace) -> bool:
    """Whether more than the report is wanted; UsageError for a template that is none."""
    if options.on is not None:
        from sia.dream.away import words

        words(options.on)
        return True
    return bool(options.now) or options.result is not None


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
    from sia.dream.away import Away, words
    from sia.dream.measured import Examiner
    from sia.dream.scribe import Scribe
    from sia.dream.writing import Writing

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
    scribe = Scribe(
        model,
        threads(home.config),
        home.config.generator.context,
        home.config.generator.max_tokens,
        dreams.told,
        way.wait,
    )
    registry = Registry(home.revisions)
    writing = Writing(dreams, registry, scribe)
    away = Away(dreams, registry, writing, examiner)
    if options.on is not None:
        return away.hand_over(words(options.on), logs, recipe)
    if options.result:
        return away.bring_in(options.result, logs)
    return writing.after(dreams.run(logs, recipe, examiner), logs, recipe, examiner)


def _status(home: Home, as_json: bool) -> int:
    now, last = status.running(home.dreams), status.last(home.dreams)
    if as_json:
        ended = {**asdict(last), "ended": last.ended.isoformat()} if last else None
        print(json.dumps({"running": asdict(now) if now else None, "last": ended}))
        return DONE
    print(status.told(home.dreams))
    return DONE


def _report(home: Home, logs: list[Path], options: argparse.Namespace) -> int:
    """What the labelled decisions cost: in words or JSON, and as a page where one is asked for."""
    nights = read_nights(options.nights) if options.nights else []
    found = report(collect(logs, _say), home.dreams, nights)
    stood = pairs.collect(logs, _say)
    if options.json:
        print(json.dumps({**found.to_json(), **_responses(stood)}))
    else:
        print("\n".join(told(found)))
        print(
            f"{len(stood.every)} responses that a person approved or edited, {len(stood.held)} of "
            f"them held out; {stood.rejected} rejected"
        )
    target = options.html or (home.dreams / "report.html" if options.report else None)
    if target:
        from sia.dream.page import page

        home.dreams.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(target, page(found, datetime.now(home.zone)).encode())
        _say(f"the report is in {target}")
    return DONE


def _responses(stood: pairs.Pairs) -> dict[str, int]:
    """What the generator learns from."""
    return {
        "responses": len(stood.every),
        "responses_held_out": len(stood.held),
        "responses_rejected": stood.rejected,
    }


def told(found: Report) -> list[str]:
    """The report in lines."""
    if not found.rows:
        lines = ["no decision has a label yet (/right, /wrong, sia review)"]
    else:
        sources = ", ".join(f"{count} {source}" for source, count in found.sources.items())
        lines = [
            f"{found.rows} labelled decisions ({sources}), {found.held_out} of them held out, "
            f"{len(found.corrections)} corrected by a person",
            *_phases(found),
            "  in brackets: 95 % bounds",
        ]
        if found.forgotten:
            lines.append(f"{found.forgotten} rows were forgotten, and are left out")
    dearest = found.worst[:WORST_SHOWN]
    if dearest:
        lines += ["", "the dearest:"]
        cells = [
            (
                row.phase,
                _option(row.selected, row.p),
                _option(row.outcome, row.right_p),
                shorten(clean(row.text), 50),
            )
            for row in dearest
        ]
        heads = ("phase", "selected", "it is", "")
        lines += [f"  {''.join(line).rstrip()}" for line in columns([heads, *cells])]
    if found.dreams:
        lines.append("")
    for dream in found.dreams:
        failed = [line["name"] for line in dream["lines"] if not line["passed"]]
        verdict = f"rejected ({', '.join(failed)})" if failed else "proven"
        kind = "  generator" if dream["kind"] == "turns" else ""
        lines.append(f"{dream['dream']}  {dream['candidate']}{kind}  {verdict}")
        fixed = dream.get("corrections")
        if fixed and fixed["rows"]:
            lines.append(
                f"  of {fixed['rows']} corrections {fixed['right before']} were right before, "
                f"{fixed['right now']} with it"
            )
    return lines


def _option(name: str, p: float | None) -> str:
    return name if p is None else f"{name} {p:.2f}"


def _phases(found: Report) -> list[str]:
    """A table: accuracy; loss, Brier score and ECE with their 95 % bounds."""
    whole = {**found.phases, "all": found.whole} if len(found.phases) > 1 else found.phases
    rows = [("phase", "rows", "right", "loss", "Brier", "ECE")]
    for phase, cost in whole.items():
        figures = (
            f"{cost[name]['mean']:.3f} ({cost[name]['low']:.2f} to {cost[name]['high']:.2f})"
            for name in ("nll", "brier", "ece")
        )
        right = f"{100 * cost['accuracy']['mean']:.0f} %"
        rows.append((phase, str(cost["rows"]), right, *figures))
    return [f"  {''.join(line).rstrip()}" for line in columns(rows)]


def _say(line: object) -> None:
    print(f"sia: {line}", file=sys.stderr)
