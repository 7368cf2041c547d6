"""``/right``, ``/wrong`` and ``/undo``: what a person says about the last request.

Questions are numbered lines, which read the same in the shell, piped and attached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sia.corrections import (
    NAVIGATES,
    Choice,
    Corrections,
    Offered,
    again,
    choices,
    find,
    last_run,
)
from sia.errors import SiaError
from sia.events import Admitted, Ended, Event, Routed
from sia.home import Home
from sia.scheduler import match_option
from sia.shell.text import Paint, clean, pad, shorten, width_of
from sia.skills.tree import Tree
from sia.store import Store
from sia.turn import Again

COMMANDS = {
    "/right": "the last request was decided right; it learns from that",
    "/wrong": "choose what should have been decided instead",
    "/undo": "take the last /right or /wrong back",
}
PHASES = {
    "contains_request": "a request",
    "answers": "an answer",
    "navigate_category": "category",
    "navigate_skill": "skill",
    "cover": "skill fits",
    "same_action": "same action",
    "read_next": "choice",
    "predict": "prediction",
}
NOTHING = {
    "create_category": "no category",
    "create_skill": "no skill",
    "none": "none of these",
}
UNSURE = 0.6  # a probability below it is not dimmed
NAME_ROOM = 28  # cells of an option's name
LIST_MOST = 20
LEAVE = ("q", "quit", "cancel", "esc")


def name_of(choice: Choice, option: Offered) -> str:
    """An option in a person's words: what it stands for where its id is made up by a skill."""
    name = NOTHING.get(option.id, option.id)
    if choice.argument and option.description and option.id not in NOTHING:
        name = option.description
    return clean(name)


def summary(made: Sequence[Choice], width: int, paint: Paint, hint: bool = False) -> str:
    """The decisions that mattered in one line, each with its probability; "" for none. What was
    unsure stands out, and is told with the commands that correct it, as it is with ``hint``."""
    shown = [choice for choice in made if choice.shown and (choice.led or choice.phase == "cover")]
    if not shown:
        return ""
    parts = [(_acted(choice), choice.option(choice.taken).p) for choice in shown]
    hint = hint or min(p for _, p in parts) < UNSURE
    words = "  /right or /wrong?" if hint else ""
    used = sum(len(" 0.00") for _ in parts) + len(" › ") * (len(parts) - 1) + len(words) + 3
    room = max(8, (width - used) // len(parts))
    if sum(width_of(name) for name, _ in parts) + used > width:
        parts = [(shorten(name, room), p) for name, p in parts]
    texts = [paint("dim" if p >= UNSURE else "warning", f"{name} {p:.2f}") for name, p in parts]
    return "  " + paint("dim", " › ").join(texts) + paint("dim", words)


def _acted(choice: Choice) -> str:
    if choice.phase in PHASES and choice.taken == "no":
        return "no skill fits"
    return name_of(choice, choice.option(choice.taken))


@dataclass(frozen=True)
class _Step:
    """A question with numbered answers. names: each one's. zero: 0 may be said too."""

    names: tuple[str, ...]
    take: Callable[[int], str]
    zero: bool = False


class Menu:
    """One dialogue at a time. ``again`` has a request worked anew; ``tree``: the skills now."""

    def __init__(
        self,
        home: Home,
        store: Store,
        tree: Callable[[], Tree],
        again: Callable[[Again], object],
        paint: Paint,
        width: Callable[[], int],
    ) -> None:
        self._home, self._store, self._tree, self._again = home, store, tree, again
        self._paint, self._width = paint, width
        self._said = Corrections(home)
        self._step: _Step | None = None
        self._last = ""

    # the request that is meant

    def hear(self, event: Event) -> None:
        """What a person last saw something come of."""
        match event:
            case Admitted(_, "answer", to=to) if to:
                self._last = to
            case Admitted(run, "ignore") | Routed(run) | Ended(run):
                self._last = run

    def decisions(self, run: str) -> list[Choice]:
        return choices(self._home, self._store, run)

    # the dialogue

    @property
    def options(self) -> tuple[str, ...]:
        """What may be said now; empty when nothing is asked."""
        return self._step.names if self._step else ()

    @property
    def prompt(self) -> str:
        """How the open question marks the prompt: ``yes/no``, ``0-4``."""
        if not self._step:
            return ""
        if self._step.names == ("yes", "no"):
            return "yes/no"
        first, last = "0" if self._step.zero else "1", str(len(self._step.names))
        return first if first == last else f"{first}-{last}"

    def start(self, command: str, words: Sequence[str]) -> str:
        """What a command shows. words: another run than the last."""
        self._step = None
        try:
            if command == "/undo":
                return self._undo()
            run = words[0] if words else self._last or last_run(self._home)
            made = self.decisions(run)
            if not made:
                which = f"about {clean(run)}" if run else "yet"
                return self._line(f"nothing was decided {which}", "warning")
            return self._right(made) if command == "/right" else self._wrong(made)
        except SiaError as error:
            return self._line(clean(str(error)), "error")

    def answer(self, text: str) -> str | None:
        """What an answer shows; None for what is none, which leaves the question."""
        step = self._step
        word = text.strip()
        if step is None:
            return None
        if word.casefold() in LEAVE:
            return self.leave()
        if word.isascii() and word.isdigit():
            number = int(word)
            if not (0 if step.zero else 1) <= number <= len(step.names):
                return self._line(f"{self.prompt}, or Enter to leave it as it is", "warning")
        else:
            option = match_option(word, step.names)
            if option is None:
                self._step = None
                return None
            number = step.names.index(option) + 1
        self._step = None
        try:
            return step.take(number)
        except SiaError as error:
            return self._line(clean(str(error)), "error")

    def leave(self) -> str:
        """Close the open question; what was said before it stands."""
        self._step = None
        return self._line("left as it is")

    # steps

    def _undo(self) -> str:
        labels = self._said.undo()
        if not labels:
            return self._line("there is nothing to take back", "warning")
        words = {"is": "", "not": "not "}
        said = [
            f"{PHASES.get(self._phase(label.row), 'decision')} "
            f"{words[label.polarity]}{label.option}"
            for label in labels
        ]
        return self._line(f"taken back: {', '.join(said)}")

    def _phase(self, row: str) -> str:
        try:
            return find(self._home, row).phase
        except SiaError:
            return ""

    def _right(self, made: Sequence[Choice]) -> str:
        run = self._store.run(made[0].run)
        if run and run.status in ("waiting", "running"):
            return self._line("it is not done yet; say so when you see what came of it", "warning")
        led = [choice for choice in made if choice.led]
        if not led:
            return self._line("nothing in it can be called right; /wrong names what is", "warning")
        new = self._said.right(led)
        if not new:
            return self._line("that was said before; /undo takes it back")
        names = ", ".join(self._words(choice) for choice in new)
        return self._line(f"right: {names} · /undo takes it back")

    def _words(self, choice: Choice) -> str:
        name = name_of(choice, choice.option(choice.taken))
        if choice.argument or choice.phase in NAVIGATES:
            return name
        return f"{PHASES.get(choice.phase, choice.phase)} {name}"

    def _wrong(self, made: Sequence[Choice]) -> str:
        first = [choice for choice in made if choice.shown]
        listed = [*first, *(choice for choice in made if not choice.shown)]
        if len(listed) == 1:
            return self._choose(listed[0], made)
        rows = [
            (PHASES.get(choice.phase, choice.phase), name_of(choice, option), option.p, "")
            for choice in listed
            for option in (choice.option(choice.taken),)
        ]
        names = tuple(f"{phase} {name}" for phase, name, _, _ in rows)
        self._step = _Step(names, lambda number: self._choose(listed[number - 1], made))
        return self._list("What was wrong?", listed[0].about, rows, "Enter leaves it as it is")

    def _choose(self, choice: Choice, made: Sequence[Choice]) -> str:
        others = [option for option in choice.options if option.id != choice.taken]
        taken = name_of(choice, choice.option(choice.taken))
        rows = [
            (
                "",
                name_of(choice, option),
                option.p,
                "" if choice.argument else clean(option.description),
            )
            for option in others
        ]
        names = tuple(name for _, name, _, _ in rows)
        # Of yes and no, what is not the one is the other.
        several = len(others) > 1 or choice.argument or choice.phase in NAVIGATES
        self._step = _Step(
            names, lambda number: self._named(choice, others, number, made), zero=several
        )
        about = f"not {taken} ({choice.option(choice.taken).p:.2f})"
        foot = "Enter leaves it as it is"
        if len(rows) > LIST_MOST:
            foot = f"{len(rows) - LIST_MOST} less likely ones by their name; {foot}"
        zero = f"just not {taken}" if several else ""
        return self._list(clean(choice.question), about, rows[:LIST_MOST], foot, zero)

    def _named(
        self, choice: Choice, others: Sequence[Offered], number: int, made: Sequence[Choice]
    ) -> str:
        taken = choice.option(choice.taken)
        if number == 0:
            self._said.name(choice, taken.id, "not")
            return self._line(f"noted: not {name_of(choice, taken)} · /undo takes it back")
        right = others[number - 1]
        self._said.name(choice, right.id)
        said = f"noted: {name_of(choice, right)}, not {name_of(choice, taken)}"
        noted = self._line(f"{said} · /undo takes it back")
        run = self._store.run(choice.run)
        ways = again(choice, right.id, made, run, self._tree(), self._store)
        if not ways:
            return noted
        if len(ways) > 1:
            names = tuple(way.skill for way in ways)
            self._step = _Step(names, lambda number: self._work(ways[number - 1]))
            rows = [("", name, None, "") for name in names]
            question = self._list("Run it again, with which skill?", "", rows, "Enter: do not")
            return f"{noted}\n{question}"
        (way,) = ways
        self._step = _Step(
            ("yes", "no"), lambda number: self._work(way) if number == 1 else self.leave()
        )
        by = name_of(choice, right) if choice.argument else way.skill
        by = "" if right.id in NOTHING else by
        question = self._question(f"Run it again{f' with {clean(by)}' if by else ''}?", "")
        return f"{noted}\n{question}\n{self._line('yes · no')}"

    def _work(self, way: Again) -> str:
        self._again(way)
        return ""

    # layout

    def _line(self, text: str, style: str = "dim") -> str:
        return "  " + self._paint(style, shorten(text, self._width() - 3))

    def _question(self, question: str, about: str) -> str:
        head = shorten(question, self._width() - 3)
        rest = shorten(clean(about), max(0, self._width() - width_of(head) - 6)) if about else ""
        line = self._paint("accent", "? ") + self._paint("bold", head)
        return f"{line}  {self._paint('dim', rest)}".rstrip()

    def _list(
        self,
        question: str,
        about: str,
        rows: Sequence[tuple[str, str, float | None, str]],
        foot: str,
        zero: str = "",
    ) -> str:
        """(what, name, probability, description) rows below a question; zero: what 0 says."""
        kinds = max(width_of(kind) for kind, *_ in rows)
        room = min(NAME_ROOM, max(5, self._width() - kinds - 15))
        names = [shorten(name, room) for _, name, _, _ in rows]
        wide = max(map(width_of, names))
        lines = [self._question(question, about)]
        for number, ((kind, _, p, description), name) in enumerate(
            zip(rows, names, strict=True), 1
        ):
            what = self._paint("dim", f"{pad(kind, kinds)}  ") if kinds else ""
            mark = self._paint("accent", f"{number:>2}")
            line = f"  {mark}  {what}{pad(name, wide) if p is not None else name}"
            used = 6 + (kinds + 2 if kinds else 0) + wide
            if p is not None:
                line += "  " + self._paint("dim" if p >= UNSURE else "", f"{p:.2f}")
                used += 6
            left = self._width() - used - 3
            if description and left > 10:
                line += "  " + self._paint("dim", shorten(description, left))
            lines.append(line)
        if zero:
            lines.append(f"  {self._paint('accent', ' 0')}  {shorten(zero, self._width() - 7)}")
        return "\n".join([*lines, self._line(foot)])
