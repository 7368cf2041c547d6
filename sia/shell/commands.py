"""The commands typed with a slash: they look, change the queue or correct what was decided, and
never wait for a model."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from sia import report
from sia.dream import status
from sia.errors import SiaError, UsageError
from sia.home import Home
from sia.shell.concerns import ConcernCommands
from sia.shell.menu import COMMANDS as CORRECTIONS
from sia.shell.menu import Menu
from sia.shell.text import Paint, clean, columns, shorten
from sia.shell.views import paragraph
from sia.store import Store

if TYPE_CHECKING:
    from sia.agent import Agent

COMMANDS = {
    "/help": "what can be typed here",
    "/status": "what the agent does now",
    "/queue": "what waits, and why; /queue show, raise or drop ID, raise ID URGENCY",
    "/skills": "what it can do; /skills NAME tells more",
    "/concerns": "what matters to it between requests; /concerns add, edit, drop, discharge, why",
    "/quiet": "nothing is begun unasked for so many hours; /quiet off",
    "/suggestions": "what was asked for and no skill covers",
    "/why": "the last decisions, with their probabilities",
    **CORRECTIONS,
    "/dream": "how far the dream is that runs, and what the last came to; /dream now",
    "/context": "what the agent saw last, and how much room it takes",
    "/quit": "end; what waits goes on at the next start",
}
KEYS = (
    ("Ctrl-C", "clears the line; twice on an empty line quits"),
    ("Ctrl-R", "searches the lines typed before"),
    ("Alt-Enter", "starts a new line"),
)
QUEUE = ("show", "raise", "drop")
ALIASES = {"/exit": "/quit", "/q": "/quit", "/?": "/help"}


def is_command(text: str) -> bool:
    """Whether a line is a command, not a request that begins with a path (``/etc/hosts``)."""
    first = text.split(maxsplit=1)[0]
    return first.startswith("/") and "/" not in first[1:]


@dataclass(frozen=True)
class Commands:
    """``store``: a connection of the shell's own. ``width``: cells of a line now."""

    home: Home
    store: Store
    agent: Agent
    menu: Menu
    paint: Paint
    width: Callable[[], int]

    def run(self, text: str) -> str | None:
        """What a command shows; None for /quit."""
        name, *words = text.split()
        name = ALIASES.get(name, name)
        if name == "/quit":
            return None
        if name in CORRECTIONS:
            return self.menu.start(name, words)
        own = ConcernCommands(self.agent, self.paint, self.width)
        shows = {
            "/help": self._help,
            "/status": self._status,
            "/queue": self._queue,
            "/skills": self._skills,
            "/suggestions": self._suggestions,
            "/concerns": own.concerns,
            "/quiet": own.quiet,
            "/why": self._why,
            "/dream": self._dream,
            "/context": self._context,
        }
        if name not in shows:
            return self._unknown(name)
        try:
            return shows[name](words)
        except SiaError as error:
            return "  " + self.paint("error", clean(str(error)))

    @staticmethod
    def _nearest(word: str, words: Sequence[str]) -> str:
        near = difflib.get_close_matches(word, words, 1, 0.5)
        return near[0] if near else ""

    def _unknown(self, name: str) -> str:
        near = self._nearest(name, list(COMMANDS))
        return self._missing(name, near and f"{near} is the nearest", "/help lists what there is")

    def _missing(self, name: str, nearest: str, otherwise: str) -> str:
        text = f"there is no {name}; {nearest or otherwise}"
        return "  " + self.paint("warning", shorten(clean(text), self.width() - 3))

    def _help(self, words: list[str]) -> str:
        rows = [*COMMANDS.items(), *KEYS]
        lines = [f"  {self.paint('accent', name)}{text}" for name, text in columns(rows)]
        lines.insert(len(COMMANDS), "")
        first = paragraph(
            "Anything else is said to the agent: a request, an answer, or just a word.",
            self.width(),
        )
        return "\n".join([first, "", *lines])

    def _status(self, words: list[str]) -> str:
        return report.render_status(
            report.status(self.home, self.store), self.width(), self.paint
        )

    def _queue(self, words: list[str]) -> str:
        now, rate = datetime.now(self.home.zone), self.home.config.queue.rate
        tree = self.agent.holder.tree
        match words:
            case []:
                rows = report.queue(self.store, rate, now, tree)
                return report.render_queue(rows, self.width(), self.paint)
            case ["show", id]:
                row = report.request(self.store, rate, now, id, tree)
                return report.render_request(row, self.width(), self.paint)
            case ["drop", id]:
                return paragraph(self.agent.drop(id), self.width())
            case ["raise", id, *urgency] if len(urgency) < 2:
                return paragraph(self._raise(id, *urgency), self.width())
        raise UsageError("/queue takes show ID, drop ID, raise ID or raise ID URGENCY")

    def _raise(self, id: str, urgency: str = "1") -> str:
        try:
            return self.agent.raise_urgency(id, float(urgency))
        except ValueError:
            raise UsageError(f"the urgency {urgency} is no number from 0 to 1") from None

    def _skills(self, words: list[str]) -> str:
        data = report.skills(self.agent.holder.tree, self.home.setting)
        if not words:
            return report.render_skills(data, self.width(), self.paint)
        skills = {skill["id"]: skill for category in data for skill in category["skills"]}
        names = [id for id in skills if words[0] in (id, id.split("/")[1])]
        if names:
            return report.render_skill(skills[names[0]], self.width(), self.paint)
        short = {name: id for id in skills for name in (id, id.split("/")[1])}
        near = self._nearest(words[0], list(short))
        nearest = f"{short[near]} is the nearest" if near else ""
        return self._missing(f"skill {words[0]}", nearest, "/skills lists them")

    def _suggestions(self, words: list[str]) -> str:
        data = report.suggestions(self.home)
        return report.render_suggestions(data, self.width(), self.paint)

    def _why(self, words: list[str]) -> str:
        return report.render_why(report.why(self.home), self.width(), self.paint)

    def _dream(self, words: list[str]) -> str:
        match words:
            case []:
                text = status.told(self.home.dreams)
            case ["now"]:
                text = self.agent.nights.now()
            case _:
                raise UsageError("/dream takes nothing, or now")
        return paragraph(text, self.width())

    def _context(self, words: list[str]) -> str:
        brain = self.agent.brain
        data = report.context(self.home, brain.count if brain else None)
        return report.render_context(data, self.width(), self.paint, whole=False)


class ShellCompleter(Completer):
    """Completes commands, names of skills, the options of an open question, and the tags of a
    reply; nothing else."""

    def __init__(
        self,
        skills: Callable[[], Sequence[str]],
        options: Callable[[], Sequence[str]],
        tags: Callable[[], Sequence[str]],
    ) -> None:
        self._skills, self._options, self._tags = skills, options, tags

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("/skills "):
            word = text.removeprefix("/skills ").lstrip()
            yield from _completions(word, [name for name in self._skills() if word in name])
        elif text.startswith("/queue "):
            word = text.removeprefix("/queue ").lstrip()
            yield from _completions(word, [name for name in QUEUE if name.startswith(word)])
        elif text.startswith("/"):
            for name, help in COMMANDS.items():
                if name.startswith(text):
                    yield Completion(name, -len(text), display_meta=help)
        elif text.startswith("<"):
            yield from _completions(text, [tag for tag in self._tags() if tag.startswith(text)])
        elif text or complete_event.completion_requested:
            start = text.casefold()
            options = [name for name in self._options() if name.casefold().startswith(start)]
            yield from _completions(text, options)


def _completions(typed: str, words: Sequence[str]) -> Iterator[Completion]:
    for word in words:
        if word != typed:
            yield Completion(word, -len(typed))
