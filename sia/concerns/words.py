"""What a person may say about concerns, as arguments: the same for ``sia concerns`` and for
``/concerns``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from sia import times
from sia.concerns.table import Concerns
from sia.concerns.triage import owed
from sia.concerns.values import MOVERS, Concern, snapped
from sia.errors import UsageError

ACTIONS = {
    "list": "those that are open; --all: also those that are over",
    "add": "a new one",
    "edit": "change one; what has built up stays",
    "drop": "it matters no more",
    "discharge": "an obligation is met",
    "why": "one in full, and what became of it",
}
LOOKS = ("list", "why")
_UNITS = {"hour": 1.0, "day": 24.0, "week": 168.0}
_WEEK = "week"


def arguments(parser: argparse.ArgumentParser, parents: Sequence[Any] = ()) -> None:
    """Add the actions and what each takes; no action at all is ``list``."""
    kind = type(parser)
    actions = parser.add_subparsers(dest="action", metavar="[ACTION]", parser_class=kind)
    parser.set_defaults(action="list", all=False)
    subs = {
        name: actions.add_parser(
            name, help=text, description=text, parents=list(parents), allow_abbrev=False
        )
        for name, text in ACTIONS.items()
    }
    subs["list"].add_argument("--all", action="store_true", help="also those that are over")
    subs["add"].add_argument(
        "text", nargs="+", metavar="TEXT", help="what it is about, in at most 120 characters"
    )
    for name in ("edit", "drop", "discharge", "why"):
        subs[name].add_argument("id", metavar="ID", help="as `sia concerns` names it, such as c3")
    subs["edit"].add_argument("--text", nargs="+", metavar="WORD", help="what it is about")
    for name in ("add", "edit"):
        sub = subs[name]
        sub.add_argument(
            "--do",
            nargs="*",
            metavar="WORD",
            help="the request that it makes when it fires; without one it never does",
        )
        sub.add_argument(
            "--every",
            metavar="RHYTHM",
            help="hour, day, week (default) or hours; the nearest of 1, 2, 4, 8, 12, "
            "24, 168 is taken",
        )
        sub.add_argument("--until", nargs="+", metavar="WORD", help="when an obligation is due")
        sub.add_argument(
            "--owed",
            nargs="+",
            metavar="NAME",
            help="to whom something is owed, or "
            "who owes it: an obligation, which ends only when discharged",
        )
        sub.add_argument("--mover", choices=MOVERS, help="who must move: me (default) or them")
    subs["add"].add_argument("--once", action="store_true", help="it is over once it was done")


class _Parser(argparse.ArgumentParser):
    """One that ends no program."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"/concerns: {message}; it takes {', '.join(ACTIONS)}")


def parsed(text: str) -> argparse.Namespace:
    """What was typed behind ``/concerns``. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe is no quote
        words = text.split()
    parser = _Parser(prog="/concerns", add_help=False, allow_abbrev=False)
    arguments(parser)
    return parser.parse_args(words)


def given(values: dict[str, Any]) -> argparse.Namespace:
    """What another process parsed, as a JSON object. Raises UsageError for what it cannot be."""
    names = {"action": "", "id": "", "once": False}
    names |= dict.fromkeys(("text", "do", "every", "until", "owed", "mover"))
    listed = ("text", "do", "until", "owed")
    for name, value in values.items():
        words = value if name in listed and isinstance(value, list) else [value]
        plain = all(isinstance(word, str | bool | None) for word in words)
        if not plain or (name in listed and value is not None and not isinstance(value, list)):
            raise UsageError(f"{name}: not what was expected")
    return argparse.Namespace(**{**names, **{k: v for k, v in values.items() if k in names}})


def change(concerns: Concerns, options: argparse.Namespace, now: datetime) -> str:
    """Do what was asked for; what was done, in words. ``now``: in the person's zone. Raises
    SiaError."""
    match options.action:
        case "add":
            return f"added {_told(concerns.add(_new(options, now)), now)}"
        case "edit":
            changes = _changes(options, now)
            if not changes:
                raise UsageError("edit what? name --text, --do, --every, --until or another")
            return f"changed {_told(concerns.edit(options.id, **changes), now)}"
        case "drop":
            return f"dropped {_told(concerns.end(options.id, 'dropped'), now)}"
        case "discharge":
            return f"discharged {_told(concerns.end(options.id, 'done'), now)}"
    raise UsageError(f"{options.action} changes nothing")


def _told(concern: Concern, now: datetime) -> str:
    parts = [f"{concern.id}: {concern.text}"]
    if concern.status == "open":
        never = "no instruction, so it never fires"
        parts.append(rhythm(concern) if concern.instruction else never)
    return ", ".join([*parts, *filter(None, [owed(concern, now)])])


def rhythm(concern: Concern) -> str:
    hours = {1: "every hour", 24: "every day", 168: "every week"}
    return hours.get(concern.rhythm, f"every {concern.rhythm} hours")


def _new(options: argparse.Namespace, now: datetime) -> Concern:
    given = _changes(options, now)
    kind = "obligation" if options.owed else "one_shot" if options.once else "durable"
    if options.owed:
        given.setdefault("mover", "me")
    return Concern(
        **{
            "id": "",
            "text": " ".join(options.text),
            "instruction": "",
            "rhythm": snapped(_UNITS[_WEEK]),
            "kind": kind,
            "value": 0,
            "grown": now,
            **given,
        }
    )


def _changes(options: argparse.Namespace, now: datetime) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, option in (("text", "text"), ("instruction", "do"), ("owed", "owed")):
        words = getattr(options, option)
        if words is not None:
            found[name] = " ".join(words).strip()
    if options.every is not None:
        found["rhythm"] = _rhythm(options.every)
    if options.until is not None:
        found["until"] = _moment(" ".join(options.until), now)
    if options.mover is not None:
        found["mover"] = options.mover
    return found


def _rhythm(text: str) -> int:
    try:
        return snapped(_UNITS.get(text) or float(text))
    except ValueError:
        raise UsageError(f"{text!r} is no rhythm: hour, day, week, or a number of hours") from None


def _moment(text: str, now: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    except ValueError:
        found = times.understand(text, now, str(now.tzinfo))
    if found is None:
        raise UsageError(f"{text!r} is no time that I understand; e.g. friday at 18:00")
    return found.due
