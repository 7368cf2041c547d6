"""The commands that measure: `semif eval`, `semif calibrate`, `semif verify`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semif.cli.arguments import add_model, add_readout, add_revision, add_threads, count, number
from semif.cli.terminal import EXIT_USAGE, progress, put, reporter, say, table
from semif.errors import EXIT_FAILED, EXIT_UNAVAILABLE, INSTALL, DecisionError, FileError
from semif.log import LOW_MASS

if TYPE_CHECKING:
    from semif.export import LabelledRow
    from semif.inputs import Entry
    from semif.measuring.calibrate import Calibration

Report = Callable[[object], None]


def add(commands: Any) -> None:
    """Add the three parsers to those of the command."""
    _add_eval(commands)
    _add_calibrate(commands)
    _add_verify(commands)


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="measure a revision on labelled rows",
        description="Ask every labelled row and say how often the answer is right, how well its "
        "probabilities are calibrated, and what it costs. A bad line is reported on stderr and "
        "the rest is measured; the exit code is then 1.",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="SemIf rows with observed_outcome (default: golden set)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with definitions")
    parser.add_argument("--limit", type=count, metavar="N", help="a sample of N rows")
    parser.add_argument(
        "--batch", type=count, default=32, metavar="N", help="rows asked together (default: 32)"
    )
    parser.add_argument(
        "--once", action="store_true", help="do not ask again with the options in another order"
    )
    _add_engine(parser)
    add_readout(parser)
    parser.set_defaults(run=_eval)


def _add_calibrate(commands: Any) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="fit temperatures, none biases and thresholds to labelled rows",
        description="Fit a revision's temperature and bias for 'none of these' by phase, and the "
        "thresholds of its phases of two options, and write a new revision with the same adapters. "
        "What is printed as after is cross-fitted: no row is judged by a fit that saw its text.",
    )
    parser.add_argument(
        "rows",
        nargs="?",
        type=Path,
        metavar="FILE|HOME",
        help="SemIf rows, or a home's labelled rows (default: held-out rows of the shipped texts)",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True)
    parser.add_argument(
        "--costs",
        metavar="PHASE=FP:FN",
        nargs="+",
        action="extend",
        default=[],
        help="what a false positive and a false negative cost (default: data/costs-v1.json)",
    )
    parser.add_argument("--folds", type=_folds, default=5, metavar="N", help="default: 5")
    parser.add_argument("--limit", type=count, metavar="N", help="a sample of N rows")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="reliability diagrams")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    _add_engine(parser)
    parser.set_defaults(run=_calibrate)


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="make logged decisions again and compare",
        description="Render the prompt of each logged decision anew, make the decision again alone "
        "on an empty cache with the revision that made it, and list every row that no longer gives "
        "the same selection and probabilities within 0.01. The exit code is then 1.",
    )
    parser.add_argument(
        "log", type=Path, metavar="HOME|FILE", help="a home, or a decision log (JSONL)"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="only the last N rows")
    parser.add_argument("--since", type=_time, metavar="TIME", help="only rows from this time on")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_model(parser)
    add_threads(parser)
    parser.set_defaults(run=_verify)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    for add in (add_model, add_revision, add_threads):
        add(parser)


def _folds(text: str) -> int:
    return number(text, 2)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time such as 2026-11-30 or 2026-11-30T15:00"
        raise argparse.ArgumentTypeError(message) from error
    return time.astimezone()  # one without a zone is local


# eval


def _eval(args: argparse.Namespace) -> int:
    from semif.engine import Engine, load
    from semif.llama import build
    from semif.measuring.evaluate import DEFINITIONS, evaluate, orders, summary
    from semif.rows import golden

    bad: list[object] = []
    found = _read(args.file, reporter(bad)) if args.file else _entries(golden(), "golden")
    rows = _sample(found, args.limit)
    model, revision = load(args.model, args.revision, args.readout)
    pinned = revision.contents
    again = () if args.once else orders(pinned.readout)
    with Engine(model, revision, args.threads) as engine, progress(len(rows), "eval") as advance:
        judged = evaluate(engine, rows, reporter(bad), again, args.batch, advance)
    measured = summary(judged, pinned.thresholds)
    result = {
        "file": str(args.file) if args.file else "golden",
        "failed": len(bad),
        "revision": revision.id,
        "readout": pinned.readout,
        "prompt_versions": sorted({row.answer.prompt_version for row in judged}),
        "base": {"sha256": pinned.base.sha256, "type": pinned.base.type},
        "build": build(),
        "threads": args.threads,
        "batch": args.batch,
        **measured,
        "definitions": DEFINITIONS,
    }
    if args.json:
        put(result)
    else:
        print(_eval_text(result))
    if measured["low_mass"]:
        say(
            f"allowed_token_mass is below {LOW_MASS} in {measured['low_mass']} of "
            f"{measured['rows']} rows: the prompt leads the model "
            "elsewhere than to the answers it is asked for"
        )
    if not judged:
        say("no row could be measured")
    return EXIT_FAILED if bad or not judged else 0


def _read(file: Path, report: Report) -> list[Entry[LabelledRow]]:
    from semif.export import LabelledRow
    from semif.inputs import entries

    try:
        with file.open("rb") as lines:
            return list(entries(lines, str(file), LabelledRow.from_json, report))
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}", EXIT_USAGE) from error


def _entries(rows: list[LabelledRow], where: str) -> list[Entry[LabelledRow]]:
    from semif.inputs import Entry

    return [Entry(where, row.decision.id, row) for row in rows]


def _sample(found: list[Entry[LabelledRow]], limit: int | None) -> list[Entry[LabelledRow]]:
    from semif.rows import sample

    kept = {row.decision.id for row in sample([entry.value for entry in found], limit, 0)}
    return [entry for entry in found if entry.id in kept]


_COLUMNS = {
    "rows": "rows",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "accuracy_at_threshold": "at threshold",
    "nll": "nll",
    "brier": "brier",
    "ece": "ece",
    "order_flips": "flips",
    "ms_per_decision": "ms",
    "tokens_per_decision": "tokens",
    "low_mass": "low mass",
}


def _eval_text(result: dict[str, Any]) -> str:
    lines = [
        [name, *(_cell(values.get(key)) for key in _COLUMNS)]
        for name, values in (*result["phases"].items(), ("all", result))
    ]
    about = (
        f"{result['file']}: {result['rows']} rows, {result['failed']} failed; revision "
        f"{result['revision']} ({', '.join([result['readout'], *result['prompt_versions']])}), "
        f"{result['batch']} at a time, {result['threads']} threads"
    )
    return f"{about}\n\n{table(['phase', *_COLUMNS.values()], lines)}"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        value = value["mean"] if "mean" in value else value["flipped"]
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) and value < 10 else f"{value:.0f}"


# calibrate


_NO_ROW = "there is no row to calibrate on"


def _calibrate(args: argparse.Namespace) -> int:
    from semif.engine import Engine, load
    from semif.measuring.calibrate import calibrate, check_costs, revised, rows_sha256
    from semif.measuring.costs import with_costs
    from semif.measuring.evaluate import evaluate
    from semif.revision import DECIDE, WRITE, write

    if args.plot is not None and find_spec("matplotlib") is None:
        say(f"matplotlib is missing; {INSTALL}")
        return EXIT_UNAVAILABLE
    bad: list[object] = []
    rows = _sample(_calibration_rows(args.rows, reporter(bad)), args.limit)
    if not rows:
        say(_NO_ROW)
        return EXIT_FAILED
    try:
        costs = with_costs(args.costs)
        check_costs((entry.value for entry in rows), costs)
    except DecisionError as error:
        say(error)
        return EXIT_USAGE
    model, parent = load(args.model, args.revision)
    with Engine(model, parent, args.threads) as engine, progress(len(rows), "rows") as advance:
        answered = evaluate(engine, rows, reporter(bad), advance=advance)
    if not answered:
        say(_NO_ROW)
        return EXIT_FAILED
    found = calibrate(answered, parent.contents, costs, args.folds)
    adapters = {DECIDE: parent.decide_path, WRITE: parent.write_path}
    new = write(revised(parent, found, rows_sha256(answered)), adapters, args.out)
    if args.plot is not None:
        _plot(args.plot, found, f"revision {new.id}, calibrated from {parent.id}")
    if args.json:
        head = {"revision": new.id, "folder": str(new.folder), "parent": parent.id}
        put({**head, "failed": len(bad), **_calibration_json(found)})
    else:
        print(f"{_calibration_text(found, len(bad))}\n\n{new.folder}")
    return EXIT_FAILED if bad else 0


def _calibration_rows(source: Path | None, report: Report) -> list[Entry[LabelledRow]]:
    from semif.export import labelled
    from semif.rows import build, shipped_data, split

    if source is None:
        say(
            "without FILE these are the held-out shipped texts, which the weights and temperatures "
            "of a revision trained on the others were chosen by: its figures flatter"
        )
        return _entries(split(build(shipped_data(), 0))[1], "shipped texts")
    if not source.is_dir():
        return _read(source, report)
    rows = list(labelled(source, report))
    known = [row for row in rows if row.outcome is not None]
    if len(known) < len(rows):
        say(f"{len(rows) - len(known)} rows are only known not to be something, and left out")
    return _entries(known, str(source))


def _calibration_json(found: Calibration) -> dict[str, Any]:
    return {
        "folds": found.folds,
        "before": found.before,
        "after": found.after,
        "kept": list(found.kept),
        "fits": {phase: vars(each) for phase, each in found.fits.items()},
        "thresholds": {
            phase: {**vars(each), "value": each.value} for phase, each in found.thresholds.items()
        },
    }


def _calibration_text(found: Calibration, failed: int) -> str:
    head = ["phase", "rows", "temperature", "none bias"]
    head += ["nll", "after", "brier", "after", "ece", "after"]
    pairs = [(p, before, found.after["phases"][p]) for p, before in found.before["phases"].items()]
    lines = []
    for phase, before, after in (*pairs, ("all", found.before, found.after)):
        fit = found.fits.get(phase) if before is not found.before else None
        lines.append(
            [phase, str(before["rows"])]
            + ([f"{fit.temperature:.3f}", f"{fit.none_bias:+.2f}"] if fit else ["", ""])
            + [f"{of[key]:.3f}" for key in ("nll", "brier", "ece") for of in (before, after)]
        )
    text = f"{found.before['rows']} rows, {failed} failed; after: {found.folds}-fold cross-fitted"
    text += f"\n\n{table(head, lines)}"
    if found.kept:
        text += f"\n\nno better, so kept as in the parent: {', '.join(found.kept)}"
    if found.thresholds:
        head = ["threshold", "rows", "Bayes", "costs", "best here", "costs", "taken"]
        lines = [
            [f"{phase} ({each.positive})", str(each.rows)]
            + [f"{each.bayes:.3f}", f"{each.bayes_cost:.3f}"]
            + [f"{each.empirical:.3f}", f"{each.empirical_cost:.3f}", f"{each.value:.3f}"]
            for phase, each in found.thresholds.items()
        ]
        text += f"\n\n{table(head, lines)}"
    return text


def _plot(path: Path, found: Calibration, title: str) -> None:
    from semif.measuring.calibrate import ALL
    from semif.measuring.plots import Panel, reliability

    panels = []
    for phase, (before, after) in found.curves.items():
        one, other = found.before, found.after
        if phase != ALL:
            one, other = one["phases"][phase], other["phases"][phase]
        panels.append(Panel(phase, before, after, one["ece"], other["ece"]))
    reliability(path, panels, title)


# verify


def _verify(args: argparse.Namespace) -> int:
    from semif.jsonl import numbered_rows
    from semif.llama import build
    from semif.measuring.verify import Logged, Revisions, summary, verify

    path: Path = args.log / ".sia" / "decisions.jsonl" if args.log.is_dir() else args.log
    folder = path.absolute().parent
    if not path.is_file():
        say(f"{path} is no decision log")
        return EXIT_USAGE
    bad: list[object] = []
    report = reporter(bad)
    rows = []
    for line, value in numbered_rows(path, report):
        try:
            rows.append(Logged.from_json(value, f"{path}:{line}"))
        except DecisionError as error:
            report(error)
    if args.since:
        rows = [row for row in rows if row.said.time >= args.since]
    rows = rows[-args.limit :] if args.limit else rows
    home = folder.parent if folder.name == ".sia" else None
    with (
        Revisions(home, args.model, args.threads) as find,
        progress(len(rows), "verify") as advance,
    ):
        checked = verify(rows, find, advance)
    result = {"file": str(path), "unreadable": len(bad), **summary(checked, build())}
    if args.json:
        put(result)
    else:
        print(_verify_text(result))
    return EXIT_FAILED if result["unequal"] or bad else 0


def _verify_text(result: dict[str, Any]) -> str:
    lines = [
        f"{row['id']}  {row['time']}  {row['phase']}  {row['revision']}: "
        + "; ".join(f"{kind}: {text}" for kind, text in row["why"].items())
        for row in result["problems"]
    ]
    dp = "" if result["largest_dp"] is None else f"; largest Δp {result['largest_dp']:.4f}"
    lines.append(
        f"{result['rows']} rows, {result['equal']} equal, {result['unequal']} not, "
        f"{result['unreadable']} unreadable{dp}"
    )
    if result["other_build"]:
        lines.append(f"{result['other_build']} rows were made by another build of the engine")
    return "\n".join(lines)
