"""The agent's events as blocks of text for the screen: what is said about one request stands
together, and its words are repeated when something else came in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sia.events import Admitted, Asked, Ended, Event, Notice, Routed, Said
from sia.shell.text import Paint, clean, shorten, width_of, wrap

PROMPT, GUTTER, ASK = "› ", "│ ", "? "
INDENT = "  "
OPTIONS_ROOM = 24  # cells of options that still stand in one line or in the prompt
NARROWEST = 20

EXAMPLE = "remind me to feed the cat tomorrow at 9"
GREETING = (
    "SIA keeps your reminders, notes, files and mail. Say it in your own words.",
    f"Try: {EXAMPLE}      /help shows the rest",
)


def options_words(options: Sequence[str]) -> str:
    """The options as a prompt names them: ``yes/no``, or ``1-5`` where the words are long."""
    words = "/".join(clean(option) for option in options)
    return words if width_of(words) <= OPTIONS_ROOM else f"1-{len(options)}"


class Transcript:
    """Makes the blocks. ``width``: cells of a line now. ``request_of``: the words of a run that
    was admitted before this start."""

    def __init__(
        self, paint: Paint, width: Callable[[], int], request_of: Callable[[str], str]
    ) -> None:
        self._paint, self._width, self._request_of = paint, width, request_of
        self._group = ""  # the run that the last block was about
        self._started = False
        self._requests: dict[str, str] = {}
        self._skills: dict[str, str] = {}
        self._said = ("", "")  # run and words of the last message

    # blocks from the shell itself

    def greeting(self) -> str:
        first, second = GREETING
        return self._block([*self._lines(first), *self._lines(second, "dim")])

    def typed(self, mark: str, text: str) -> str:
        """What the person just sent, above a new line."""
        first, *more = wrap(clean(text), self._room(len(mark))) or [""]
        lines = [self._paint("accent", mark) + self._paint("bold", first)]
        lines += [" " * len(mark) + self._paint("bold", line) for line in more]
        self._group = ""
        return self._block(lines, apart=True)

    def sent(self, run: str, text: str) -> None:
        """The line just typed became this run."""
        self._group = run
        self._requests[run] = text

    def note(self, text: str, style: str = "dim") -> str:
        return self._block(self._lines(text, style))

    def ready(self, text: str) -> str:
        """Text that is laid out already."""
        self._group = ""
        return self._block(text.split("\n"))

    def decided(self, run: str, line: str) -> str:
        """How a run that is over was decided; laid out already."""
        return self._about(run, [line])

    # events

    def event(self, event: Event) -> str:
        """The block of an event; empty when there is nothing to show."""
        match event:
            case Said(run, text, again):
                self._said = (run, text)
                return self._about(run, self._said_lines(text, again))
            case Asked(run, text, options):
                return self._about(run, self._asked_lines(text, options))
            case Admitted(run, "answer"):
                self._requests.pop(self._group, None)  # the line just typed is no request
                self._group = run
            case Admitted(run, action, text, urgency):
                self._requests.setdefault(run, text)
                words = self._admitted(action, urgency)
                block = self._about(run, self._lines(words, "dim")) if words else ""
                if action == "ignore":
                    del self._requests[run]
                return block
            case Routed(run, skill):
                self._skills[run] = skill
                name = "no skill covers this" if skill == "-" else skill
                return self._about(run, self._lines(name, "dim"))
            case Ended(run, status, text):
                return self._ended(run, status, text)
            case Notice(text, level):
                return self.note(text, "dim" if level == "info" else level)
        return ""

    @staticmethod
    def _admitted(action: str, urgency: float) -> str:
        match action:
            case "ignore":
                return "heard, nothing to do"
            case "queue":
                return f"queued · urgency {urgency:.2f}"
            case "decline":
                return f"not now · urgency {urgency:.2f}"
            case "preempt":
                return f"goes first · urgency {urgency:.2f}"
            case "stdin":
                return "handed to what is running"
        return ""

    def _said_lines(self, text: str, again: bool) -> list[str]:
        gutter = self._paint("accent", GUTTER)
        mark = "(again) " if again else ""
        lines = wrap(mark + clean(text).rstrip("\n"), self._room(len(GUTTER)))
        if again:
            lines[0] = self._paint("dim", mark.rstrip()) + lines[0][len(mark) - 1 :]
        return [gutter + line for line in lines]

    def _asked_lines(self, text: str, options: Sequence[str]) -> list[str]:
        first, *more = wrap(clean(text).rstrip("\n"), self._room(len(ASK)))
        lines = [self._paint("accent", ASK) + self._paint("bold", first)]
        lines += [INDENT + self._paint("bold", line) for line in more]
        words = " · ".join(clean(option) for option in options)
        if width_of(words) <= OPTIONS_ROOM:
            return [*lines, *([INDENT + self._paint("dim", words)] if words else [])]
        for number, option in enumerate(options, 1):
            mark = f"{number:>2}  "
            rows = wrap(clean(option), self._room(len(INDENT) + len(mark)))
            lines += [
                INDENT + self._paint("dim", mark if i == 0 else " " * len(mark)) + row
                for i, row in enumerate(rows)
            ]
        return lines

    def _ended(self, run: str, status: str, text: str) -> str:
        skill = self._skills.pop(run, "")
        if status == "done":
            self._requests.pop(run, None)
            return ""
        told = self._said[0] == run and text in self._said[1]
        if told and skill == "-":
            return ""  # the message itself says that nothing was done
        words = f"{status} · {skill}" if skill not in ("", "-") else status
        if text and not told:
            words += f": {text}"
        block = self._about(run, self._lines(words, "error" if status == "failed" else "dim"))
        self._requests.pop(run, None)
        return block

    # layout

    def _room(self, used: int) -> int:
        # One cell stays free: a full last column wraps on some terminals and not on others.
        return max(NARROWEST, self._width() - used - 1)

    def _lines(self, text: str, style: str = "") -> list[str]:
        return [
            INDENT + self._paint(style, line) for line in wrap(clean(text), self._room(len(INDENT)))
        ]

    def _about(self, run: str, lines: list[str]) -> str:
        """``lines`` below the words of their request, unless these stand there already."""
        if run == self._group:
            return self._block(lines)
        self._group = run
        request = self._requests.get(run) or self._request_of(run)
        if request:
            words = shorten(clean(request), self._room(len(PROMPT)))
            lines = [self._paint("dim", PROMPT + words), *lines]
        return self._block(lines, apart=True)

    def _block(self, lines: list[str], apart: bool = False) -> str:
        gap = "\n" if apart and self._started else ""
        self._started = True
        return gap + "\n".join(lines) + "\n"
