"""The command `semif train`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semif.cli.arguments import above_zero, add_model, add_readout, add_revision, count
from semif.cli.terminal import EXIT_USAGE, needs_dream, say

if TYPE_CHECKING:
    from semif.llama import Model
    from semif.revision import Revision


# What a bundle says itself.
_DECIDED = (
    "parent", "readout", "fresh", "rank", "prompt", "phase_prompt", "layers", "data", "rows_limit",
    "focus", "epochs", "batch", "shared", "rate", "brier_weight", "mass_weight", "patience", "seed",
)  # fmt: skip


def add(commands: Any) -> None:
    """Add the parser to those of the command."""
    parser = commands.add_parser(
        "train",
        help="tune the adapter for decisions",
        description="Tune the parent revision's adapter, or a fresh one, on labelled rows and "
        "write a revision folder, whose path is printed. Working files stay in DIR/work. Started "
        "by `accelerate launch` or `torchrun`, it spreads over devices. Needs the extra dream.",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True)
    parser.add_argument(
        "--bundle",
        metavar="DIR",
        type=Path,
        help="train what `sia dream --on` asked for; the path of the result is printed. Parent, "
        "rows and recipe are those of the bundle",
    )
    _add_beginning(parser)
    _add_rows(parser)
    _add_steps(parser)
    parser.set_defaults(run=run, default=parser.get_default)


def _add_beginning(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to begin with")
    add_model(group)
    add_revision(group, "--parent")
    add_readout(group, "how a model without one is read")
    group.add_argument(
        "--fresh", action="store_true", help="a new adapter, even where the parent has one"
    )
    group.add_argument("--rank", type=count, default=16, help="of a fresh adapter (default: 16)")
    group.add_argument("--prompt", metavar="VERSION", help="another prompt than the parent's")
    group.add_argument(
        "--phase-prompt",
        metavar="PHASE=VERSION",
        action="append",
        default=[],
        help="another prompt for one phase; may be given several times",
    )
    group.add_argument("--layers", type=count, default=14, help="tuned, from the top (default: 14)")


def _add_rows(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rows")
    group.add_argument(
        "--data",
        metavar="PATH",
        type=Path,
        help="folder of texts, or a file of SemIf rows (default: the texts shipped)",
    )
    group.add_argument("--rows-limit", type=count, metavar="N", help="use a sample of the rows")
    group.add_argument("--focus", action="store_true", help="draw them for the main job")
    group.add_argument(
        "--older",
        metavar="DIR",
        default="",
        help="a folder of older texts: rows of lines that are not in it come all, and the limit "
        "holds for the others",
    )


def _add_steps(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("steps")
    group.add_argument("--epochs", type=count, default=2)
    group.add_argument("--batch", type=count, default=8, help="rows a step (default: 8)")
    group.add_argument("--shared", type=count, default=4, help="of them with one head (default: 4)")
    group.add_argument("--rate", type=above_zero, default=5e-4, help="peak learning rate")
    group.add_argument(
        "--brier-weight", type=float, default=0.2, help="of the squared error of probabilities"
    )
    group.add_argument(
        "--mass-weight", type=float, default=0.05, help="of -log of the allowed_token_mass"
    )
    group.add_argument(
        "--patience", type=count, default=4, help="end after N validations without a better one"
    )
    group.add_argument(
        "--precision",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="of the frozen weights (auto: bfloat16 where the machine is faster in it)",
    )
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--threads", type=count, default=2)
    group.add_argument(
        "--minutes",
        type=above_zero,
        metavar="N",
        help="end training then, and keep the best so far",
    )
    group.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint of the same run"
    )


def run(args: argparse.Namespace) -> int:
    """Train; the exit code."""
    from semif.rows import shipped_data

    if args.bundle:
        return _bundled(args)
    phase_prompts = dict(said.partition("=")[::2] for said in args.phase_prompt)
    if args.older and args.data and not args.data.is_dir():
        say("--older goes with a folder of texts, not with a file of rows")
        return EXIT_USAGE
    if not all(phase_prompts.values()):
        say("--phase-prompt takes PHASE=VERSION")
        return EXIT_USAGE
    model, parent = _beginning(args)
    # Only now: torch must find the thread settings that the engine has made.
    with needs_dream():
        from semif.train import Plan, train
        from semif.training.processes import Processes
    plan = Plan(
        epochs=args.epochs,
        layers=args.layers,
        rows_limit=args.rows_limit,
        focus=args.focus,
        older=args.older,
        seed=args.seed,
        batch=args.batch,
        shared=args.shared,
        rate=args.rate,
        fresh=args.fresh,
        rank=args.rank,
        prompt=args.prompt,
        phase_prompts=tuple(sorted(phase_prompts.items())),
        brier_weight=args.brier_weight,
        mass_weight=args.mass_weight,
        patience=args.patience,
        precision=args.precision,
        minutes=args.minutes,
        threads=args.threads,
    )
    folder = train(model, parent, args.data or shipped_data(), args.out, plan, args.resume, say)
    if Processes().first:
        print(folder)
    return 0


def _bundled(args: argparse.Namespace) -> int:
    from semif import bundle
    from semif.engine import load

    for name in _DECIDED:
        if getattr(args, name) != args.default(name):
            say(f"the bundle says what is trained: leave out --{name.replace('_', '-')}")
            return EXIT_USAGE
    bundle.read(args.bundle)  # before anything is loaded
    model, parent = load(args.model, args.bundle / bundle.PARENT)
    with needs_dream():
        from semif.bundled import Machine
        from semif.bundled import run as train
        from semif.training.processes import Processes
    machine = Machine(args.threads, args.minutes, args.precision)
    path = train(model, parent, args.bundle, args.out, machine, args.resume, say)
    if Processes().first:
        print(path)
    return 0


def _beginning(args: argparse.Namespace) -> tuple[Model, Revision]:
    """Model and parent; a quantised model without a revision is tuned in its F16 form."""
    import msgspec

    from semif import models, revision
    from semif.engine import load
    from semif.llama import Model

    model, parent = load(args.model, args.parent, args.readout)
    if parent.folder is not None or parent.contents.base.type in ("f32", "f16", "bf16"):
        return model, parent
    path = models.f16(model.path)
    model.close()
    base = revision.Base(parent.contents.base.sha256, "f16")
    contents = msgspec.structs.replace(parent.contents, base=base)
    return Model.open(path), revision.Revision(parent.id, contents)
