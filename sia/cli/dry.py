"""``sia admit`` and ``sia route``: what would be decided, with probabilities, and nothing done."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from semif import DecisionError
from semif.engine import Engine
from semif.types import Answer
from sia import brain, deciders
from sia import home as homes
from sia.agent import new_row_id
from sia.entries import ProcessView
from sia.errors import DONE, SOME_FAILED, UsageError
from sia.navigate import Navigator
from sia.questions import Questions
from sia.scheduler import Scheduler, Situation
from sia.skills import tree
from sia.sources import SOURCES


def run(options: argparse.Namespace, folder: Path) -> int:
    """Print one decision a line (or in words); 1 when a line could not be decided."""
    texts = list(_texts(options))
    if not texts:
        raise UsageError(f"sia {options.command} needs a TEXT or --file")
    home = homes.open_home(folder)
    weights, revision = brain.pinned(home, getattr(options, "model", None))
    config = home.config
    code = DONE
    (decider,) = deciders.make(
        home,
        lambda: Engine(weights, revision, brain.threads(config), config.model.context),
        revision,
        lambda line: print(f"sia: {line}", file=sys.stderr),
    )
    decide = _admit if options.command == "admit" else _route
    work = decide(options, home, decider, deciders.thresholds(decider, revision))
    try:
        for text in texts:
            try:
                result = work(text)
            except DecisionError as error:
                print(f"sia: {error}", file=sys.stderr)
                code = SOME_FAILED
                continue
            print(json.dumps(result, ensure_ascii=False) if options.json else _words(result))
    finally:
        deciders.close(decider)
    return code


def _texts(options: argparse.Namespace) -> Iterator[str]:
    if options.text:
        yield " ".join(options.text)
    if options.file is None:
        return
    try:
        data = sys.stdin.buffer.read() if str(options.file) == "-" else options.file.read_bytes()
        lines = data.decode("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{options.file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{options.file} is not UTF-8 at byte {error.start}") from None
    yield from (line.strip() for line in lines if line.strip())


def _admit(options, home, decider, thresholds):
    scheduler = Scheduler(decider, thresholds, Questions.load(), new_row_id)
    process = ProcessView("", 0, "", options.process) if options.process else None
    situation = Situation(process=process)

    def admit(text: str) -> dict[str, Any]:
        admission = scheduler.admit(text, SOURCES["typed"], situation)
        return {
            "text": text,
            "action": admission.action,
            "urgency": round(admission.urgency, 4),
            "decisions": decisions(admission.answers),
        }

    return admit


def _route(options, home, decider, thresholds):
    roots = (options.skills,) if options.skills else home.skill_roots
    if options.skills and not options.skills.is_dir():
        raise UsageError(f"{options.skills} is not a folder of skills")
    found = tree.load(roots).offered(home.setting)
    for problem in found.problems:
        print(f"sia: {problem}", file=sys.stderr)
    navigator = Navigator(
        decider, thresholds, Questions.load(), new_row_id, home.config.skills.guard
    )

    def route(text: str) -> dict[str, Any]:
        result = navigator.route(text, found)
        return {
            "text": text,
            "skill": None if result.skill == "-" else result.skill,
            "suggestion": result.suggestion or None,
            "nearest": result.nearest or None,
            "decisions": decisions(result.answers),
        }

    return route


def decisions(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    return [
        {
            "phase": answer.decision.phase,
            "selected": answer.selected,
            "probs": {name: round(p, 4) for name, p in answer.probs.items()},
            "tokens": answer.tokens,
            "ms": answer.ms,
            "revision": answer.revision,
            "prompt_sha256": answer.prompt_sha256,
        }
        for answer in answers
    ]


def _words(result: dict[str, Any]) -> str:
    if "action" in result:
        head = f"{result['action']}  urgency {result['urgency']:.2f}  {result['text']}"
    else:
        target = result["skill"] or result["suggestion"]
        head = f"{target}  {result['text']}"
    lines = [head]
    for decision in result["decisions"]:
        ranked = sorted(decision["probs"].items(), key=lambda item: -item[1])
        probs = "  ".join(f"{name} {p:.2f}" for name, p in ranked[:5])
        lines.append(f"  {decision['phase']:<18} {probs}")
    return "\n".join(lines)
