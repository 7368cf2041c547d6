"""Five nights in a row on a simulated user, with the gate and without.

    .venv/bin/python -m benchmarks.nights --out DIR [--nights 5] [--wrong 0.1] [--seed 0] [--tiny]

A day has 12 requests of one household (data/house/), some of them asked on an earlier day already,
and 48 ordinary ones; all are labelled, and `--wrong` of the labels are not so. Each night dreams
over all that was logged. The arm `gate` takes up what is proven, the arm `none` whatever was
learned; in both a night with fewer than 40 held-out rows learns nothing. After each a line is added
to DIR/nights.jsonl, which is also printed, with the share of the 40 unseen requests that find their
skill and the bounds of 90 %: {"night": 1, "arm": "gate", "accuracy": .., "low": .., "high": ..};
night 0 is the start. The last line says where it ran. What was killed goes on with the same DIR.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from benchmarks import house
from benchmarks.machine import machine
from semif import revision as revisions
from semif.jsonl import append, read, write_whole
from sia.dream.dream import Dreams, Outcome, Recipe

ARMS = ("gate", "none")
OWN, ORDINARY = 12, 48  # requests of a day


def day(night: int, seed: int, at: house.Setting, tree: house.Tree) -> list[house.Wanted]:
    """The same for both arms."""
    chance = random.Random(f"{seed}-{night}")
    own = chance.sample(house.requests("logged"), OWN)
    others = chance.sample(house.ordinary(tree), ORDINARY)
    wanted = [*own, *others]
    chance.shuffle(wanted)
    return wanted[: at.limit]


def dreamed(home: Path, at: house.Setting, arm: str, night: int, args: argparse.Namespace) -> str:
    """The id of the revision after the night; kept, so that a kill repeats nothing."""
    kept = home / f"night-{night}.json"
    if kept.exists():
        return str(json.loads(kept.read_bytes())["pinned"])
    examiner, parent, tree = at.examiner(), at.registry.current(), house.tree(home)
    with examiner.engine(parent) as engine:
        wanted = day(night, args.seed, at, tree)
        house.work(home, engine, tree, wanted, f"n{night}", len(wanted), args.wrong, args.seed)
    dreams = Dreams(home / ".sia/dreams", at.registry, _say, str(at.model.path))
    recipe = Recipe(least=1, seed=args.seed + night, **(house.TINY if args.tiny else {}))
    with dreams.lock():
        outcome = dreams.run([home], recipe, examiner)
    pinned = _taken(outcome, arm, at) or parent.id
    whole = {"pinned": pinned, "status": outcome.status, "why": outcome.text}
    write_whole(kept, json.dumps(whole).encode() + b"\n")
    return pinned


def _taken(outcome: Outcome, arm: str, at: house.Setting) -> str:
    """The candidate, where the arm takes it up."""
    if outcome.folder is None or (arm == "gate" and outcome.status != "proven"):
        return ""
    candidate = revisions.load(outcome.folder / "out" / outcome.candidate)
    return at.registry.add(candidate, {}).id


def nights(out: Path, arm: str, args: argparse.Namespace) -> None:
    home, lines = out / arm, out / "nights.jsonl"
    at = house.setting(home, args.tiny, args.threads)
    tree, unseen = house.tree(home), house.requests("unseen")[:: 8 if args.tiny else 1]
    done = {(row["night"], row["arm"]) for row in read(lines).rows}
    for night in range(args.nights + 1):
        if night:
            pinned = dreamed(home, at, arm, night, args)
            if pinned != at.registry.current().id:
                at.registry.swap(pinned)
                at.registry.confirm()
        if (night, arm) in done:
            continue
        with at.examiner().engine(at.registry.current()) as engine:
            found = house.accuracy(engine, tree, unseen)
        row = {"night": night, "arm": arm, **found, "revision": at.registry.current().id}
        append(lines, [row])
        print(house.line(row), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--nights", type=int, default=5)
    parser.add_argument("--wrong", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="a random model, to see that it runs")
    args = parser.parse_args()
    before, began = machine(), time.monotonic()
    for arm in ARMS:
        nights(args.out, arm, args)
    minutes = round((time.monotonic() - began) / 60, 1)
    settings = {"nights": args.nights, "wrong": args.wrong, "seed": args.seed, "tiny": args.tiny}
    print(house.line({**settings, "minutes": minutes, "machine": before}))


if __name__ == "__main__":
    main()
