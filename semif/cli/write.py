"""The command `semif write`: train, eval, check and pin the adapter for writing."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from semif.cli.arguments import above_zero, add_model, count
from semif.cli.terminal import EXIT_USAGE, needs_dream, put, say
from semif.errors import EXIT_FAILED, DecisionError, ModelError
from semif.writing.turns import LIMIT


def add(commands: Any) -> None:
    """Put `write` and its commands on the parser of `semif`."""
    write = commands.add_parser("write", help="the adapter for writing: train, eval, check, pin")
    which = write.add_subparsers(required=True, metavar="COMMAND")
    for make in (_add_train, _add_eval, _add_check, _add_pin):
        make(which)


def _add_train(which: Any) -> None:
    train = which.add_parser(
        "train",
        help="tune an adapter on written pairs",
        description="Tune an adapter in all layers on pairs of input and text; the path of DIR/"
        "write.gguf is printed. Working files stay in DIR/work. Needs the extra dream.",
    )
    train.add_argument("--out", metavar="DIR", type=Path, required=True)
    add_model(train)
    train.add_argument(
        "--pairs",
        metavar="FILE",
        type=Path,
        help="JSON lines: pairs, and turns with their replies (default: the pairs shipped)",
    )
    train.add_argument("--start", metavar="FILE", type=Path, help="an adapter to go on from")
    train.add_argument("--epochs", type=count, default=3)
    train.add_argument("--batch", type=count, default=16, help="pairs a step (default: 16)")
    train.add_argument("--rate", type=above_zero, default=1e-3, help="peak learning rate")
    train.add_argument("--rank", type=count, default=16, help="of a fresh adapter (default: 16)")
    train.add_argument(
        "--limit",
        type=count,
        metavar="N",
        default=LIMIT,
        help=f"tokens that a turn may have with its reply (default: {LIMIT})",
    )
    train.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--threads", type=count, default=2)
    train.add_argument(
        "--minutes", type=above_zero, metavar="N", help="end then, and keep the best"
    )
    train.add_argument("--resume", action="store_true", help="go on from the run's checkpoint")
    train.set_defaults(run=_train)


def _add_eval(which: Any) -> None:
    evaluate = which.add_parser(
        "eval",
        help="measure an adapter on the golden set",
        description="Print one JSON object: figures by task of the adapter, of the base without "
        "it, and of a larger model where one is named, and which tasks reach their bars.",
    )
    add_model(evaluate)
    evaluate.add_argument(
        "--adapter", metavar="FILE", type=Path, help="default: that of the revision"
    )
    evaluate.add_argument(
        "--revision", metavar="DIR", type=Path, help="revision folder (default: the shipped one)"
    )
    evaluate.add_argument(
        "--golden", metavar="FILE", type=Path, help="pairs (default: the golden set)"
    )
    evaluate.add_argument(
        "--limit", type=count, metavar="N", help="only so many rows, of all tasks"
    )
    evaluate.add_argument(
        "--base-rows",
        type=int,
        metavar="N",
        default=60,
        help="rows to measure the untuned base on beside the adapter (default: 60)",
    )
    evaluate.add_argument(
        "--against", metavar="URL", help="an OpenAI-compatible server, up to and with /v1"
    )
    evaluate.add_argument("--against-model", metavar="NAME", default="", help="its model")
    evaluate.add_argument(
        "--against-key-env", metavar="NAME", help="environment variable with its key"
    )
    evaluate.add_argument(
        "--written", metavar="FILE", type=Path, help="keep what was written, as JSON lines"
    )
    evaluate.add_argument("--threads", type=count, default=2)
    evaluate.set_defaults(run=_eval)


def _add_check(which: Any) -> None:
    check = which.add_parser(
        "check",
        help="print the good pairs of some files",
        description="Read pairs, and print those that are well formed, would pass the check that "
        "every live text meets, and are near no other and nothing of the golden set. The rest is "
        "reported on stderr.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    check.add_argument(
        "--golden", metavar="FILE", type=Path, help="what to keep clear of (default: golden set)"
    )
    check.set_defaults(run=_check)


def _add_pin(which: Any) -> None:
    pin = which.add_parser(
        "pin",
        help="put an adapter into a new revision",
        description="Write a revision folder with the parent's adapter for decisions and this one "
        "for writing; the tasks that reach their bars are proven in it. Its path is printed.",
    )
    pin.add_argument("--adapter", metavar="FILE", type=Path, required=True)
    pin.add_argument(
        "--figures", metavar="FILE", type=Path, required=True, help="what eval printed for it"
    )
    pin.add_argument(
        "--parent", metavar="DIR", type=Path, help="revision folder (default: the shipped one)"
    )
    pin.add_argument("--out", metavar="DIR", type=Path, required=True)
    pin.set_defaults(run=_pin)


def _train(args: argparse.Namespace) -> int:
    from semif.engine import load
    from semif.writing import pairs, turns

    model, _ = load(args.model)
    file = args.pairs or pairs.shipped()
    known = turns.read(file)
    written = [one for one in known if isinstance(one, pairs.Pair)]
    if near := pairs.near_any(written, pairs.read(pairs.golden())):
        what = f"{len(near)} pairs are near the golden set, as {dict(near[0].given)}; take them out"
        raise DecisionError(str(file), "input", f"{what} (semif write check)")
    # Only now: torch must find the thread settings that the engine has made.
    with needs_dream():
        from semif.training.processes import Processes
        from semif.writing.train import Plan, train
    plan = Plan(
        epochs=args.epochs,
        batch=args.batch,
        rate=args.rate,
        rank=args.rank,
        limit=args.limit,
        seed=args.seed,
        bfloat16=None if args.precision == "auto" else args.precision == "bfloat16",
        minutes=args.minutes,
        threads=args.threads,
    )
    path = train(model, args.start, known, args.out, plan, args.resume, say)
    if Processes().first:
        print(path)
    return 0


def _eval(args: argparse.Namespace) -> int:
    from semif.engine import load
    from semif.writing import pairs
    from semif.writing.report import Settings, report

    key = None
    if bool(args.against) != bool(args.against_model):
        say("--against and --against-model go together")
        return EXIT_USAGE
    if args.against_key_env and not (key := os.environ.get(args.against_key_env)):
        say(f"--against-key-env names {args.against_key_env}, which is not set")
        return EXIT_USAGE
    model, revision = load(args.model, args.revision)
    settings = Settings(
        adapter=args.adapter or revision.write_path,
        base_rows=args.base_rows,
        against=args.against,
        against_model=args.against_model,
        against_key=key,
        threads=args.threads,
        written=args.written,
    )
    golden = args.golden or pairs.golden()
    rows = pairs.read(golden)
    if args.limit:
        rows = pairs.spread(rows, args.limit)
    found = report(model, revision.contents.base.sha256, rows, settings, say)
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 0


def _check(args: argparse.Namespace) -> int:
    from semif.writing import pairs
    from semif.writing.facts import fault

    found, problems = pairs.sift(args.files, pairs.Pair.from_json)
    for problem in problems:
        say(problem)
    golden = args.golden or pairs.golden()
    kept, near = pairs.distinct(found, pairs.read(golden) if golden.exists() else ())
    for pair in near:
        say(f"{pair.task}: near another or the golden set: {dict(pair.given)}")
    wrong = 0
    for pair in kept:
        if why := fault(pair.task, pair.given, pair.output):
            say(f"{pair.task}: the output {why}: {dict(pair.given)}")
            wrong += 1
        else:
            put(pair.to_json())
    total = len(found) + len(problems)
    say(f"{len(kept)} of {total} are distinct; {wrong} of them would be refused")
    return EXIT_FAILED if problems or near or wrong else 0


def _pin(args: argparse.Namespace) -> int:
    from semif.revision import load, shipped
    from semif.writing.pin import pin, read_figures

    if not args.adapter.is_file():
        raise ModelError.missing(f"no adapter {args.adapter}")
    parent = load(args.parent or shipped())
    print(pin(parent, args.adapter, read_figures(args.figures), args.out))
    return 0
