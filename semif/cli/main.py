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

from semif.cli import measure as cli_measure
from semif.cli import train as cli_train
from semif.cli import write as cli_write
from semif.cli.arguments import add_model, add_readout, add_revision
from semif.cli.serve import add_remote, add_serve, remote
from semif.cli.terminal import EXIT_USAGE, put, reporter, say
from semif.errors import EXIT_FAILED, DecisionError, SemifError

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
        say(error)
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
    for add in (add_model, add_revision, add_readout):
        add(decide)
    add_remote(decide)
    decide.set_defaults(run=_decide)

    add_serve(commands)

    export = commands.add_parser(
        "export",
        help="write the labelled rows of a home",
        description="Join decisions.jsonl and labels.jsonl of a home into rows with "
        "observed_outcome: the latest human label, else verified, else assessed. Rows of which "
        "only is known what they are not are counted on stderr.",
    )
    export.add_argument("--home", metavar="DIR", type=Path, required=True)
    export.set_defaults(run=_export)

    cli_train.add(commands)
    cli_measure.add(commands)

    cli_write.add(commands)

    revisions = commands.add_parser("revisions", help="list revisions or show one")
    which = revisions.add_subparsers(required=True, metavar="COMMAND")
    listing = which.add_parser("list", help="one line per revision, * marks the pinned one")
    show = which.add_parser("show", help="print a revision as JSON")
    show.add_argument("id", nargs="?", help="default: the pinned one")
    for sub, run in ((listing, _list), (show, _show)):
        sub.add_argument("--home", metavar="DIR", type=Path, help="default: only what is shipped")
        sub.set_defaults(run=run)
    return parser


def _decide(args: argparse.Namespace) -> int:
    from semif.engine import Engine, load
    from semif.inputs import entries
    from semif.log import MassAlarm, row
    from semif.types import Decision

    bad: list[DecisionError] = []
    report = reporter(bad)

    with ExitStack() as stack:
        lines: BinaryIO = sys.stdin.buffer
        if args.file != "-":
            try:
                lines = stack.enter_context(open(args.file, "rb"))
            except OSError as error:
                say(f"{args.file} cannot be read: {error.strerror}")
                return EXIT_USAGE
        decider: Any
        if args.url:
            decider = stack.enter_context(remote(args))
        else:
            decider = stack.enter_context(Engine(*load(args.model, args.revision, args.readout)))
        alarm = MassAlarm(say)
        name = "stdin" if args.file == "-" else args.file
        for entry in entries(lines, name, Decision.from_json, report):
            try:
                (answer,) = decider.decide([entry.value])
            except DecisionError as error:
                report(entry.error(error))
                continue
            put(row(answer, "", datetime.now(UTC)))
            alarm.look([answer])
    return EXIT_FAILED if bad else 0


def _export(args: argparse.Namespace) -> int:
    from semif.export import labelled

    if not args.home.is_dir():
        say(f"{args.home} is no folder")
        return EXIT_USAGE
    problems: list[object] = []
    only_not = 0
    for row in labelled(args.home, problems.append):
        if row.outcome is None:
            only_not += 1
        else:
            put(row.to_json())
    for problem in problems:
        say(problem)
    if only_not:
        say(f"{only_not} rows are only known not to be something, and left out")
    return EXIT_FAILED if problems else 0


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
                say(error)
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
        say(f"no revision {args.id} is shipped; name its home with --home")
        return EXIT_USAGE
    print(json.dumps({"id": revision.id, **msgspec.to_builtins(revision.contents)}, indent=1))
    return 0
