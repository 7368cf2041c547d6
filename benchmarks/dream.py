"""A night on a new category: what a person's own words cost before and after they are learned.

    .venv/bin/python -m benchmarks.dream [--home DIR] [--threads 2] [--tiny]

Prints one JSON object. 60 requests of one household (data/house/) are worked by the pinned
revision: what it finds is verified, and up to 20 that it does not find are corrected. A dream
learns from that, with as many replayed rows, and is proven. `before` and `after`: the share of 40
unseen requests that find their skill. The parent's golden figures are read from where they are
kept, and asked before the clock starts where they are not. `--home` keeps everything, and what was
killed goes on; `--tiny` takes a random model, few golden rows and a gate of that size, to see that
it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import house
from benchmarks.machine import machine
from semif import revision as revisions
from sia.dream.dream import Dreams, Recipe

CORRECTED, MINUTES = 20, 20.0


def goal(before: float, after: float, golden_lost: float, minutes: float) -> bool:
    """20 points more where the start is at most 0.75, else half the error gone."""
    better = after >= before + 0.2 if before <= 0.75 else 1 - after <= (1 - before) / 2
    return better and golden_lost <= 0.005 and minutes <= MINUTES


def measured(home: Path, threads: int, tiny: bool) -> dict[str, object]:
    at = house.setting(home, tiny, threads)
    tree, examiner, parent = house.tree(home), at.examiner(), at.registry.current()
    logged, unseen = house.requests("logged"), house.requests("unseen")
    if at.limit:
        logged, unseen = logged[:: 60 // at.limit], unseen[::8]
    engine = examiner.engine(parent)
    before = house.accuracy(engine, tree, unseen)
    worked = house.work(home, engine, tree, logged, "h", 60 if tiny else CORRECTED)
    engine.close()
    dreams = Dreams(home / ".sia/dreams", at.registry, _say, str(at.model.path))
    recipe = Recipe(minutes=MINUTES / 2, least=1, **(house.TINY if tiny else {}))
    with dreams.lock():
        examiner.golden(parent, dreams.folder / "golden")
        began = time.monotonic()
        outcome = dreams.run([home], recipe, examiner)
        minutes = (time.monotonic() - began) / 60
    result: dict[str, object] = {
        "before": before, "worked": worked, "outcome": outcome.status, "why": outcome.text,
        "minutes": round(minutes, 2), "parent": parent.id,
    }  # fmt: skip
    if outcome.folder is None:
        return result
    candidate = revisions.load(outcome.folder / "out" / outcome.candidate)
    proof = json.loads((outcome.folder / "proof.json").read_bytes())
    with examiner.engine(candidate) as engine:
        after = house.accuracy(engine, tree, unseen)
    lost = proof["golden"]["before"]["accuracy"]["mean"]
    lost -= proof["golden"]["after"]["accuracy"]["mean"]
    reached = goal(before["accuracy"], after["accuracy"], lost, minutes)
    learned = len((outcome.folder / "train.jsonl").read_bytes().splitlines())
    return {
        **result, "after": after, "golden_lost": round(lost, 4), "learned_rows": learned,
        "goal": reached, "proof": proof,
    }  # fmt: skip


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(args.home or Path(folder), args.threads, args.tiny)
    print(house.line({**found, "tiny": args.tiny, "machine": before}))


if __name__ == "__main__":
    main()
