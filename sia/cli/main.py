"""``sia``: the command line. Each command's work is done elsewhere; here are names and exits."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sia import __version__
from sia.cli.guard import AGAIN, END, mark
from sia.errors import INTERRUPTED, RESTART, SOME_FAILED, UNAVAILABLE, SiaError

if TYPE_CHECKING:
    from sia.shell import Make

COMMANDS = {
    "run": "work for a person at the terminal, or on lines of standard input (the default)",
    "attach": "speak to the agent that is running in this home",
    "status": "what the agent does now",
    "queue": "what waits, why, and when it runs at the latest; drop, raise or show one request",
    "skills": "what it can do",
    "concerns": "what matters to it between requests: list, add, edit, drop, discharge, why",
    "suggestions": "what was asked for and no skill covers",
    "context": "the last context, with tokens per section",
    "history": "the iterations on disk: list, filter, search, show one",
    "replay": "run saved iterations again: do their prompts and decisions still stand?",
    "diff": "two iterations side by side",
    "forget": "rewrite what was kept without a text, a row, a run, an entry or a session",
    "config": "every setting, and where it came from",
    "decisions": "the logged decisions, with the ids of their rows and their labels",
    "correct": "say which option of a logged decision is right, or with --not, wrong",
    "review": "name what is right of the least certain decisions, one key each",
    "feedback": "approve, edit or reject a response; the generator learns from it",
    "admit": "what would be decided about an input; nothing is done",
    "route": "which skill would be chosen for a request; nothing is done",
    "dream": "learn from what was logged, prove it, and take it up",
    "revisions": "which revisions there are: list, show, diff, use, prune",
    "rollback": "go back to the revision that the pinned one came from",
    "setup": "ask what the skills of a category need, such as a mail server, test it, and keep it",
    "service": "install as a service of the user's systemd",
}
QUEUE = {
    "show": "all about one request",
    "raise": "let a waiting request go sooner",
    "drop": "cancel a request that waits",
}
REVISIONS = ("list", "show", "diff", "use", "prune")
WITH_VALUE = ("--home", "--model", "--llm")

EPILOG = """Anything that is not a command is one request: sia remind me to feed the cat at 9

A question that the running agent left open is answered by the next request: sia yes

Exit codes: 0 done, 1 some failed or an answer is wanted, 2 usage, 69 unavailable (model, home in
use), 75 restart, 78 configuration, 130 interrupted."""


def parser() -> argparse.ArgumentParser:
    """The whole command line; also what the documentation's check reads."""
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    common.add_argument("--home", type=Path, metavar="DIR", default=argparse.SUPPRESS,
                        help="the agent's folder (default: $SIA_HOME, else the checkout)")
    common.add_argument("--model", metavar="GGUF", default=argparse.SUPPRESS,
                        help="decide and write with this model")
    top = argparse.ArgumentParser(
        prog="sia", description="A local agent in one shell.", epilog=EPILOG, parents=[common],
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sia {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    subs = {
        name: commands.add_parser(
            name, help=text, description=text, parents=[common], allow_abbrev=False
        )
        for name, text in COMMANDS.items()
    }
    run = subs["run"]
    run.add_argument("--llm", choices=("manual",), help="manual: a person plays the generator")
    run.add_argument("--yes", action="store_true", help="confirm everything in advance")
    run.add_argument("--listen", action="store_true",
                     help="read no input; work for the socket and the clock until ended")
    run.add_argument("--autonomy", action="store_true",
                     help="let concerns fire unasked (sia.toml: concerns.autonomy)")
    run.add_argument("text", nargs="*", help="one request")
    for name in COMMANDS.keys() - {"run", "attach", "queue", "concerns", "setup", "rollback",
                                   "service", "correct", "review"}:
        subs[name].add_argument("--json", action="store_true", help="print JSON")
    _add_history(subs["history"])
    _queue_arguments(subs["queue"], common)
    _concern_arguments(subs["concerns"], common)
    for name, limit in (("decisions", 20), ("review", 50)):
        subs[name].add_argument("--phase", help="only this phase, such as navigate_category")
        subs[name].add_argument("--limit", type=_positive, default=limit, metavar="N",
                                help=f"how many (default {limit})")
    subs["decisions"].add_argument("--run", metavar="ID", help="only this run, such as r118")
    correct = subs["correct"]
    correct.add_argument("row", metavar="ROW", help="the decision's id; sia decisions lists them")
    correct.add_argument("option", metavar="OPTION", help="the id of one of its options")
    correct.add_argument("--not", dest="no", action="store_true",
                         help="the option is wrong; which one is right is not said")
    for name in ("admit", "route"):
        subs[name].add_argument("text", nargs="*", metavar="TEXT")
        subs[name].add_argument("--file", type=Path, help="a file of lines, - for standard input")
    subs["admit"].add_argument("--process", metavar="NAME", help="while this process runs")
    subs["route"].add_argument("--skills", type=Path, metavar="DIR", help="over this tree alone")
    forget = subs["forget"]
    forget.add_argument("what", nargs="+", metavar="ID|TEXT",
                        help="an id (row, run, entry, SESSION/N, session), else a text")
    forget.add_argument("--dry-run", action="store_true", help="only show what would change")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    _add_replay(subs["replay"], subs["diff"])
    _add_dream(subs["dream"])
    _add_feedback(subs["feedback"])
    revisions = subs["revisions"]
    revisions.add_argument("action", nargs="?", choices=REVISIONS, default="list")
    revisions.add_argument("ids", nargs="*", metavar="ID", help="show ID, use ID, diff ID ID")
    revisions.add_argument("--keep", type=_positive, default=5, metavar="N",
                           help="prune: how many of the newest stay")
    setup = subs["setup"]
    setup.add_argument("category", nargs="?", metavar="CATEGORY", help="without it: what there is")
    setup.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                       help="an answer in advance; without a terminal all that have no default are "
                       "needed, and the password comes on standard input")
    setup.add_argument("--untested", action="store_true", help="keep it without trying it")
    subs["suggestions"].add_argument("action", nargs="?", choices=("run", "drop"),
                                     help="run: ask for it again; drop: it is not wanted")
    subs["suggestions"].add_argument("id", nargs="?", metavar="ID", help="of a suggestion")
    subs["service"].add_argument("action", choices=("install", "uninstall"))
    return top


def _queue_arguments(
    queue: argparse.ArgumentParser, common: argparse.ArgumentParser
) -> None:
    queue.set_defaults(action=None, json=False)
    asked = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for place in (queue, asked):  # before or after the action
        place.add_argument("--json", action="store_true", default=argparse.SUPPRESS,
                           help="print JSON")
    actions = queue.add_subparsers(dest="action", metavar="[ACTION]")
    for name, text in QUEUE.items():
        action = actions.add_parser(name, help=text, description=text, parents=[common, asked],
                                    allow_abbrev=False)
        action.add_argument("run", metavar="ID", help="as `sia queue` names it, such as r12")
        if name == "raise":
            action.add_argument("urgency", metavar="URGENCY", nargs="?", type=_urgency, default=1.0,
                                help="0 to 1, above what it has; default 1, the highest")


def _concern_arguments(
    concerns: argparse.ArgumentParser, common: argparse.ArgumentParser
) -> None:
    from sia.concerns.words import arguments

    asked = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    concerns.set_defaults(json=False)
    for place in (concerns, asked):
        place.add_argument("--json", action="store_true", default=argparse.SUPPRESS,
                           help="print JSON")
    arguments(concerns, [common, asked])


def _urgency(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError
    return value


_urgency.__name__ = "number from 0 to 1"


def _add_history(history: argparse.ArgumentParser) -> None:
    history.add_argument("action", nargs="?", choices=("show",), help="show: print one whole")
    history.add_argument("iteration", nargs="?", metavar="SESSION/N")
    history.add_argument("--session", help="only this session")
    history.add_argument("--skill", metavar="ID", help="only this skill, or this category's")
    history.add_argument("--outcome", choices=("done", "failed", "cancelled"),
                         help="only of requests that ended so")
    history.add_argument("--text", metavar="WORDS", help="only where all these words stand")
    history.add_argument("--since", metavar="DATE", help="2026-12-01, or 2026-12-01T14:30")
    history.add_argument("--until", metavar="DATE", help="a day counts whole")
    history.add_argument("--edited", action="store_true",
                         help="only where a person changed the response")
    history.add_argument("--limit", type=_positive, default=20, metavar="N",
                         help="how many, newest last (default 20)")


def _add_replay(replay: argparse.ArgumentParser, diff: argparse.ArgumentParser) -> None:
    replay.add_argument("files", nargs="+", metavar="FILE",
                        help="an iteration's file, SESSION/N, or a folder of them")
    replay.add_argument("--revision", metavar="ID", default="",
                        help="decide with this one, or `current`, not the one in the file")
    replay.add_argument("--edit", action="store_true",
                        help="change a copy in $VISUAL or $EDITOR first, then show what the "
                        "decisions and the generator make of it; nothing is done")
    diff.add_argument("a", metavar="A", help="an iteration's file, or SESSION/N")
    diff.add_argument("b", metavar="B")


def _add_dream(dream: argparse.ArgumentParser) -> None:
    what = dream.add_mutually_exclusive_group()
    what.add_argument("--now", action="store_true",
                      help="dream; without it: what was logged costs, and past dreams")
    what.add_argument("--on", metavar="'COMMAND'",
                      help="let a bigger machine train: the command, in which {bundle} is the "
                      "folder to be trained from and {out} the one the result is wanted in")
    what.add_argument("--import", dest="result", metavar="DIR", type=Path,
                      help="prove what came back from there, and take it up")
    what.add_argument("--status", action="store_true", help="how far the dream is that runs now")
    what.add_argument("--report", action="store_true",
                      help="what was logged costs, also as a page in .sia/dreams/report.html")
    dream.add_argument("--html", metavar="FILE", type=Path, help="the page of --report, there")
    dream.add_argument("--nights", metavar="FILE", type=Path,
                       help="a file of accuracies by night, as benchmarks.nights writes it: a plot "
                       "of it in the page")
    dream.add_argument("--from", dest="homes", metavar="DIR", type=Path, action="append",
                       default=[], help="learn from this home's log too; may be given again")


def _add_feedback(feedback: argparse.ArgumentParser) -> None:
    feedback.add_argument("iteration", nargs="?", metavar="SESSION/N",
                          help="as sia history lists them; without it: what was said so far")
    said = feedback.add_mutually_exclusive_group()
    said.add_argument("--approve", dest="kind", action="store_const", const="approved",
                      help="the response is right")
    said.add_argument("--reject", dest="kind", action="store_const", const="rejected",
                      help="it is wrong; what would be right is not said")
    said.add_argument("--edit", metavar="FILE", type=Path,
                      help="what it should have been, one core action; - for standard input")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


_positive.__name__ = "whole number of at least 1"  # how argparse names it in its message


def with_command(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with ``run`` put before a request or before options of ``run``."""
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in ("-h", "--help", "--version") or word in COMMANDS:
            return list(arguments)
        if word == "--" or not word.startswith("-"):
            break
        index += 2 if word in WITH_VALUE else 1
    return ["run", *arguments]


def home_folder(options: argparse.Namespace) -> Path:
    from sia.home import checkout

    chosen = getattr(options, "home", None) or os.environ.get("SIA_HOME")
    return Path(chosen) if chosen else checkout()


def main(arguments: Sequence[str], make: Make | None = None) -> int:
    """Run one command; its exit code. Raises what ``entry`` turns into one line.

    make: builds the agent (one without a model in tests).
    """
    options = parser().parse_args(with_command(arguments))
    if options.command == "run":
        from sia.cli.run import run

        return run(options, home_folder(options), make)
    if options.command == "attach":
        from sia.cli.speak import attach

        return attach(home_folder(options))
    if options.command in ("admit", "route"):
        from sia.cli import dry

        return dry.run(options, home_folder(options))
    if options.command == "queue":
        from sia.cli import queue

        return queue.run(options, home_folder(options))
    if options.command == "concerns":
        from sia.cli import concerns

        return concerns.run(options, home_folder(options))
    if options.command == "forget":
        from sia.cli import forget

        return forget.run(options, home_folder(options))
    if options.command in ("replay", "diff"):
        from sia.cli import replay

        return (replay.run if options.command == "replay" else replay.diff)(
            options, home_folder(options)
        )
    if options.command == "dream":
        from sia.cli import dream

        return dream.run(options, home_folder(options))
    if options.command == "feedback":
        from sia.cli import feedback

        return feedback.run(options, home_folder(options))
    if options.command in ("revisions", "rollback"):
        from sia.cli import revisions

        act = revisions.run if options.command == "revisions" else revisions.rollback
        return act(options, home_folder(options))
    if options.command == "setup":
        from sia.cli.setup import run as set_up

        return set_up(options, home_folder(options))
    if options.command in ("decisions", "correct", "review"):
        from sia.cli import label

        return label.run(options, home_folder(options))
    if options.command == "service":
        from sia.cli.service import service

        return service(options.action, home_folder(options))
    if options.command == "suggestions" and options.action:
        from sia.cli.suggestions import work

        return work(options, home_folder(options), make)
    from sia.cli import show

    return show.run(options, home_folder(options))


def entry(make: Make | None = None) -> None:
    """The console script: every error a person may meet is one line and an exit code."""
    _fill_standard_files()
    code = _guarded(sys.argv[1:], make)
    if code == RESTART and "SIA_RESTART" not in os.environ:
        # Nobody outside restarts us: do it ourselves, as we were started, with the new code.
        sys.stdout.flush()
        os.environ[AGAIN] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if code == SOME_FAILED:
        mark(END)
    sys.exit(code)


def _fill_standard_files() -> None:
    """A closed descriptor 0, 1 or 2 would be given to the next file that is opened."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _guarded(arguments: Sequence[str], make: Make | None) -> int:
    from semif.errors import SemifError

    try:
        return main(arguments, make)
    except (SiaError, SemifError) as error:
        print(f"sia: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("sia: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone; nothing can be said to anybody any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNAVAILABLE
