"""The command `semif`. Data on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from semif.errors import EXIT_FAILED, EXIT_UNAVAILABLE, DecisionError, SemifError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def entry() -> None:
    """Console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; the exit code: 0, 1 some failed, 2 usage, 69, 78, 130."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SemifError as error:
        _say(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has seen enough; without this, closing stdout would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="semif", description="Decisions by option logits: nothing is generated."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    decide = commands.add_parser(
        "decide",
        help="score decisions: JSONL in, JSONL out",
        description="Read one decision a line, {id, phase, state, question, options: [{id, "
        "description}]}, and write it with the probability of each option. A bad line is "
        "reported on stderr and the rest is scored; the exit code is then 1.",
    )
    decide.add_argument("file", nargs="?", default="-", help="JSONL file, - for stdin (default)")
    decide.add_argument("--model", metavar="PATH", help="GGUF model (default: the embedded one)")
    decide.add_argument(
        "--revision",
        metavar="DIR",
        type=Path,
        help="revision folder (default: the shipped one if made for this model, else none)",
    )
    decide.add_argument(
        "--readout", choices=("branches", "letters"), help="another readout than the revision's"
    )
    decide.set_defaults(run=_decide)

    export = commands.add_parser(
        "export",
        help="write the labelled rows of a home",
        description="Join decisions.jsonl and labels.jsonl of a home into rows with "
        "observed_outcome: the latest human label, else verified, else assessed. Rows of which "
        "only is known what they are not are counted on stderr.",
    )
    export.add_argument("--home", metavar="DIR", type=Path, required=True)
    export.set_defaults(run=_export)

    train = commands.add_parser(
        "train",
        help="tune the adapter for decisions",
        description="Tune the parent revision's adapter on labelled texts and write a revision "
        "folder, whose path is printed. Working files stay in DIR/work. Needs the extra dream.",
    )
    train.add_argument("--out", metavar="DIR", type=Path, required=True)
    train.add_argument("--model", metavar="PATH", help="GGUF model (default: the embedded one)")
    train.add_argument(
        "--parent", metavar="DIR", type=Path, help="revision folder (default: the shipped one)"
    )
    train.add_argument(
        "--data", metavar="DIR", type=Path, help="folder of texts (default: those shipped)"
    )
    train.add_argument("--epochs", type=int, default=2)
    train.add_argument("--focus", action="store_true", help="draw them for the main job")
    train.add_argument("--rate", type=float, default=5e-4, help="peak learning rate")
    train.add_argument("--layers", type=int, default=14, help="tuned, from the top (default: 14)")
    train.add_argument("--rows-limit", type=int, metavar="N", help="use a sample of the rows")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--threads", type=int, default=2)
    train.add_argument(
        "--minutes", type=float, metavar="N", help="end training then, and keep the best so far"
    )
    train.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint of the same run"
    )
    train.set_defaults(run=_train)

    revisions = commands.add_parser("revisions", help="list revisions or show one")
    which = revisions.add_subparsers(required=True, metavar="COMMAND")
    listing = which.add_parser("list", help="one line per revision, * marks the pinned one")
    show = which.add_parser("show", help="print a revision as JSON")
    show.add_argument("id", nargs="?", help="default: the pinned one")
    for sub, run in ((listing, _list), (show, _show)):
        sub.add_argument("--home", metavar="DIR", type=Path, help="default: only what is shipped")
        sub.set_defaults(run=run)
    return parser


def _say(message: object) -> None:
    print(f"semif: {message}", file=sys.stderr)


def _put(row: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def _decide(args: argparse.Namespace) -> int:
    from semif.engine import Engine, load

    with ExitStack() as stack:
        lines: BinaryIO = sys.stdin.buffer
        if args.file != "-":
            try:
                lines = stack.enter_context(open(args.file, "rb"))
            except OSError as error:
                _say(f"{args.file} cannot be read: {error.strerror}")
                return EXIT_USAGE
        model, revision = load(args.model, args.revision, args.readout)
        engine = stack.enter_context(Engine(model, revision))
        failed = [not _decide_line(engine, line, n) for n, line in enumerate(lines, start=1)]
    return EXIT_FAILED if any(failed) else 0


def _decide_line(engine: Any, line: bytes, number: int) -> bool:
    from semif.jsonl import parse
    from semif.log import row
    from semif.types import Decision

    if not line.strip():
        return True
    where = f"line {number}"
    try:
        value = parse(line)
        if isinstance(value, str):
            raise DecisionError(where, "row", value)
        answer = engine.decide([Decision.from_json(value, where)])[0]
    except DecisionError as error:
        _say(error)
        return False
    _put(row(answer, "", datetime.now(UTC)))
    return True


def _export(args: argparse.Namespace) -> int:
    from semif.export import labelled

    if not args.home.is_dir():
        _say(f"{args.home} is no folder")
        return EXIT_USAGE
    problems: list[object] = []
    only_not = 0
    for row in labelled(args.home, problems.append):
        if row.outcome is None:
            only_not += 1
        else:
            _put(row.to_json())
    for problem in problems:
        _say(problem)
    if only_not:
        _say(f"{only_not} rows are only known not to be something, and left out")
    return EXIT_FAILED if problems else 0


def _train(args: argparse.Namespace) -> int:
    from semif.engine import load
    from semif.revision import shipped
    from semif.rows import shipped_data

    if min(args.epochs, args.layers, args.threads, args.rows_limit or 1) < 1:
        _say("--epochs, --layers, --threads and --rows-limit must be at least 1")
        return EXIT_USAGE
    model, parent = load(args.model, args.parent or shipped())
    # Only now: torch must find the thread settings that the engine has made.
    try:
        from semif.train import Plan, train
    except ModuleNotFoundError as error:
        _say(f"{error.name} is missing; pip install 'sia-agent[dream]'")
        return EXIT_UNAVAILABLE
    plan = Plan(
        epochs=args.epochs,
        layers=args.layers,
        rows_limit=args.rows_limit,
        focus=args.focus,
        rate=args.rate,
        seed=args.seed,
        minutes=args.minutes,
        threads=args.threads,
    )
    print(train(model, parent, args.data or shipped_data(), args.out, plan, args.resume, _say))
    return 0


def _list(args: argparse.Namespace) -> int:
    from semif.revision import Registry, load, shipped

    rows = [load(shipped())]
    pinned, pending, failed = rows[0].id, None, False
    if args.home:
        registry = Registry(args.home / ".sia" / "revisions")
        pinned, pending = registry.current().id, registry.pending()
        for id_ in registry.ids():
            try:
                rows.append(registry.get(id_))
            except SemifError as error:
                _say(error)
                failed = True
    for revision in rows:
        c = revision.contents
        notes = ["shipped"] if revision.folder == shipped() else [f"from {c.parent}"]
        notes += ["pending"] if revision.id == pending else []
        mark = "*" if revision.id == pinned else " "
        print(f"{mark} {revision.id}  {c.readout:8}  {c.prompt_version}  {', '.join(notes)}")
    return EXIT_FAILED if failed else 0


def _show(args: argparse.Namespace) -> int:
    import msgspec

    from semif.revision import Registry, load, shipped

    revision = load(shipped())
    if args.home and args.id != revision.id:
        registry = Registry(args.home / ".sia" / "revisions")
        revision = registry.get(args.id) if args.id else registry.current()
    elif args.id not in (None, revision.id):
        _say(f"no revision {args.id} is shipped; name its home with --home")
        return EXIT_USAGE
    print(json.dumps({"id": revision.id, **msgspec.to_builtins(revision.contents)}, indent=1))
    return 0
