"""``sia decisions``, ``sia correct`` and ``sia review``: the logged decisions, and what a person
says about them. They need no running agent and disturb none."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

from semif.export import RANK
from semif.log import Label
from sia import home as homes
from sia.corrections import Choice, Corrections, find, logged, skip, unsure
from sia.errors import DONE, UsageError
from sia.home import Home
from sia.shell.menu import name_of
from sia.shell.text import Paint, clean, columns, pad, paint_for, plain, shorten, width_of, wrap
from sia.shell.views import bar

KEYS = "123456789abcdefghijklmoprtvwxyz"  # for the options; the other letters do something
BAR = 16  # cells
NAME_ROOM = 32
ESCAPE, END = "\x1b", "\x04"
SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    match options.command:
        case "correct":
            return _correct(home, options)
        case "decisions":
            return _decisions(home, options)
    return _review(home, options)


# one by its id


def _correct(home: Home, options: argparse.Namespace) -> int:
    choice = find(home, options.row)
    polarity: Literal["is", "not"] = "not" if options.no else "is"
    Corrections(home).name(choice, options.option, polarity)
    about = shorten(clean(choice.about), 60)
    words = "not " if options.no else ""
    print(f"noted: {choice.phase} is {words}{clean(options.option)}: {about}")
    return DONE


# the list


def _decisions(home: Home, options: argparse.Namespace) -> int:
    labels = _strongest(Corrections(home).labels())
    found = (
        choice
        for choice in logged(home, options.phase or "")
        if not options.run or choice.run == options.run
    )
    made = list(islice(found, options.limit))[::-1]
    if options.json:
        data = [_json(choice, labels.get(choice.row)) for choice in made]
        print(json.dumps(data, ensure_ascii=False, default=str))
    elif made:
        print(_table(made, labels, shutil.get_terminal_size().columns))
    else:
        print(
            "  no decision is logged that fits"
            if options.run or options.phase
            else "  nothing has been decided yet"
        )
    return DONE


def _strongest(labels: Sequence[Label]) -> dict[str, Label]:
    """The last label of the highest source, by row."""
    return {label.row: label for label in sorted(labels, key=lambda label: RANK[label.source])}


def _json(choice: Choice, label: Label | None) -> dict[str, Any]:
    said = label and {"polarity": label.polarity, "option": label.option, "source": label.source}
    return {
        "id": choice.row,
        "time": choice.time,
        "run": choice.run,
        "phase": choice.phase,
        "state": choice.state,
        "question": choice.question,
        "selected": choice.taken,
        "options": [{**asdict(option), "p": round(option.p, 4)} for option in choice.options],
        "label": said,
    }


def _table(made: Sequence[Choice], labels: dict[str, Label], width: int) -> str:
    rows = []
    for choice in made:
        label = labels.get(choice.row)
        said = (
            f"{label.source}: {'not ' * (label.polarity == 'not')}{label.option}" if label else ""
        )
        taken = f"{shorten(clean(choice.taken), 20)} {choice.option(choice.taken).p:.2f}"
        rows.append([choice.row, choice.run, choice.phase, taken, shorten(clean(said), 28),
                     clean(choice.about)])  # fmt: skip
    return "\n".join(shorten("".join(row), width - 1) for row in columns(rows))


# the least certain ones, a key each


@dataclass
class Review:
    """Walks ``choices``; ``key`` gives the next key, ``say`` shows lines."""

    home: Home
    choices: Sequence[Choice]
    key: Callable[[], str]
    say: Callable[[str], None]
    paint: Paint = plain
    width: int = 80
    said: list[tuple[int, bool]] = field(default_factory=list)  # index, and whether it was labelled

    def work(self) -> None:
        corrections = Corrections(self.home)
        index = 0
        while index < len(self.choices):
            choice = self.choices[index]
            keys = dict(zip(KEYS, (option.id for option in choice.options), strict=False))
            self.say(self._shown(choice, index))
            done = ""
            while not done:
                done = self._pressed(self.key(), choice, keys, corrections)
            if done == "quit":
                break
            if done == "back":
                index, _ = self.said.pop()
                continue
            self.said.append((index, done == "labelled"))
            index += 1
        labelled = sum(labelled for _, labelled in self.said)
        left = len(self.choices) - len(self.said)
        self.say(f"\n  {labelled} said, {len(self.said) - labelled} skipped, {left} left")

    def _pressed(
        self, key: str, choice: Choice, keys: dict[str, str], corrections: Corrections
    ) -> str:
        """labelled | skipped | back | quit, or "" for a key that does nothing."""
        if key in (ESCAPE, END, "", "q"):
            return "quit"
        if key == "s":
            skip(self.home, choice)
            return self._told("skipped", "skipped")
        if key == "u" and self.said:
            if self.said[-1][1]:
                corrections.undo()
            return self._told("back", "taken back")
        if key == "n":
            corrections.name(choice, choice.taken, "not")
            return self._told("labelled", f"not {name_of(choice, choice.option(choice.taken))}")
        if key in keys:
            corrections.name(choice, keys[key])
            return self._told("labelled", name_of(choice, choice.option(keys[key])))
        return ""

    def _told(self, done: str, words: str) -> str:
        self.say("  " + self.paint("dim", f"→ {shorten(words, self.width - 5)}"))
        return done

    def _shown(self, choice: Choice, index: int) -> str:
        paint, width = self.paint, self.width
        head = f"{index + 1} of {len(self.choices)} · {choice.phase} · {choice.row}"
        lines = ["", "  " + paint("dim", shorten(clean(head), width - 3))]
        lines += [
            line for name, value in _state(choice) for line in _fact(name, value, width, paint)
        ]
        lines += ["  " + paint("bold", line) for line in wrap(clean(choice.question), width - 3)]
        room = min(NAME_ROOM, max(8, width - 24))
        options = list(zip(KEYS, choice.options, strict=False))
        names = [shorten(name_of(choice, option), room) for _, option in options]
        wide = max(map(width_of, names))
        for (key, option), name in zip(options, names, strict=True):
            line = f"  {paint('accent', f'{key:>2}')}  {pad(name, wide)}  {option.p:.2f}  "
            lines.append(line + paint("accent", bar(option.p, min(BAR, max(0, width - wide - 15)))))
        if len(choice.options) > len(options):
            more = f"{len(choice.options) - len(options)} less likely: sia correct {choice.row} …"
            lines.append("      " + paint("dim", shorten(more, width - 7)))
        taken = name_of(choice, choice.option(choice.taken))
        keys = f"n not {shorten(taken, 24)} · s skip · u undo · q quit"
        return "\n".join([*lines, "  " + paint("dim", shorten(keys, width - 3))])


def _state(choice: Choice) -> list[tuple[str, str]]:
    if isinstance(choice.state, dict):
        return [(str(name), str(value)) for name, value in choice.state.items()]
    return [("", str(choice.state))]


def _fact(name: str, value: str, width: int, paint: Paint) -> list[str]:
    mark = f"{clean(name)}  " if name else ""
    first, *more = wrap(clean(value), max(20, width - 3 - width_of(mark)))
    return [
        "  " + paint("dim", mark) + first,
        *(" " * (2 + width_of(mark)) + line for line in more),
    ]


def _review(home: Home, options: argparse.Namespace) -> int:
    if not (_terminal(sys.stdin) and _terminal(sys.stdout)):
        raise UsageError(
            "sia review needs a terminal for both input and output; "
            "without one use: sia correct ROW OPTION"
        )
    found = unsure(home, Corrections(home).labels(), options.phase or "", options.limit)
    if not found:
        print("  no decision is left to look at")
        return DONE
    width = shutil.get_terminal_size().columns
    with _keys(sys.stdin.fileno()) as key:
        Review(home, found, key, lambda text: print(text, flush=True), paint_for(os.environ),
               width).work()  # fmt: skip
    return DONE


def _terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


@contextmanager
def _keys(fd: int) -> Iterator[Callable[[], str]]:
    """One key a call from a terminal, without Enter; "" when it is gone. What an arrow or a
    function key sends is passed over."""
    waiting: list[str] = []

    def key() -> str:
        while not waiting:
            try:
                data = os.read(fd, 64)
            except OSError:
                return ""
            if not data:
                return ""
            waiting.extend(SEQUENCE.sub("", data.decode("utf-8", "replace")).casefold())
        return waiting.pop(0)

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
