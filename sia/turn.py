"""What one turn gathers before it is recorded: nothing in it has had an effect outside yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from semif.log import Label
from semif.types import Answer
from sia.entries import Response
from sia.events import Event
from sia.store import Run, RunVerdict

BROKEN_OFF = ("failed", "cancelled")  # how a run ends that did not come to its end
WAY = frozenset({"navigate_category", "navigate_skill", "read_next", "predict"})


@dataclass(frozen=True)
class Result:
    """A call's result to keep: see ``Store.save_result``."""

    action: str
    ordinal: int
    method: str
    value: Any


@dataclass(frozen=True)
class Again:
    """A request to be worked anew as a person corrected it: by ``skill``, with one call's
    ``result`` known in advance. ``instead``: the run whose place it takes."""

    text: str
    skill: str = ""
    instead: str = ""
    result: Result | None = None


@dataclass
class Turn:
    """run: the process as it stands now. decided: (answer, id of what it was made from), the first
    ``heard`` of them about what came in.
    messages: words for the person. before and after: events told before and after the words,
    all of it once the record is on disk."""

    run: Run | None = None
    response: Response | None = None
    generator: str = ""
    decided: list[tuple[Answer, str]] = field(default_factory=list)
    heard: int = 0
    messages: list[tuple[str, str]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    verdicts: list[RunVerdict] = field(default_factory=list)
    anew: bool = False  # the run begins anew: what its calls gave is forgotten
    before: list[Event] = field(default_factory=list)
    after: list[Event] = field(default_factory=list)
    start: list[tuple[str, str, str]] = field(default_factory=list)  # script id, mode, command
    taken: list[int] = field(default_factory=list)  # numbers of unread inputs that were read
    exit_code: int | None = None

    def way(self) -> list[list[str]]:
        """[row id, option, phase] of the decisions that the run's outcome says something of: the
        way to the skill, its arguments, the prediction. Where the guard refused the first category,
        the row of categories should have said the second."""
        answers = [a for a, _ in self.decided[self.heard :] if a.decision.phase in WAY]
        category, _, name = (self.run.skill if self.run else "").partition("/")
        names = [a for a in answers if a.decision.phase == "navigate_skill"][-1:]
        led = {"navigate_category": category, "navigate_skill": name}
        return [
            [a.decision.id, option, a.decision.phase]
            for a in answers
            for option in [led.get(a.decision.phase, a.selected)]
            if option in a.probs and (a.decision.phase != "navigate_skill" or a in names)
        ]

    def say(self, run: str, text: str) -> None:
        self.messages.append((run, text))
