"""What a skill's ``skill.py`` may use: the ``Ctx`` it is given, and the ways an action may end.

A skill module defines ``observe(ctx) -> JSON`` (optional: what of the world matters to the run; it
may only look, and is called before the first action, between actions, after an interruption and at
the end), one function per action named in ``sia-actions`` (called in order, each may leave things
for the next in ``ctx.state``), ``verify(ctx) -> bool | None`` (optional: asks the world whether
it worked; None: cannot tell; a Failed that names a cause is a no), and ``halt(ctx)`` (optional:
ends what the run has set going and would go on without it, such as a vehicle; called when a run
that has touched the world is ended from outside: cancelled, or over its budget. It may be called
again and, like ``observe``, call nothing of ctx that changes anything; a Failed is told).

An action may be entered again from its top: after a question was answered, after a restart, after
a preemption. What ``choose``, ``generate``, ``say``, ``ask``, ``effect``, ``remind`` and the other
calls below gave the first time is stored by (run, action, ordinal) and given back, so an action
must make the same calls in the same order and keep its own effects inside ``ctx.effect``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

NOT_COVERED = "not covered"  # the cause of NotCovered; no decision is labelled by it


class Failed(Exception):
    """The action could not do its work. ``cause`` as labels name it.

    cause: ``which`` (the wrong skill or argument was chosen), ``environment`` (host down, file
    gone), ``text`` (the words were not understood or not well written), ``unknown``.
    """

    def __init__(self, message: str, cause: str = "unknown") -> None:
        super().__init__(message)
        self.cause = cause


class NotCovered(Failed):
    """No skill does what is asked, as turns out only now: it is noted as a suggestion."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NOT_COVERED)


class Finished(Exception):
    """The run is over early and well (nothing left to do, or the person said no)."""


class Unproven(Exception):
    """``ctx.generate``: not proven for this task, or not fit this time; use code or ask."""


@dataclass(frozen=True)
class Person:
    name: str
    email: str
    timezone: str  # IANA name


@dataclass(frozen=True)
class Folders:
    home: Path
    tasks: Path  # the agent's own notes
    notes: Path  # the person's notes
    files: Path  # where the person's files are looked for


@dataclass(frozen=True)
class Secret:
    """A password or key, or why there is none; the value shows in no repr."""

    value: str = field(default="", repr=False)
    problem: str = ""


@dataclass(frozen=True)
class Reminder:
    id: str
    due: datetime  # aware, in the person's zone
    text: str
    status: str  # waiting | fired | cancelled
    repeat: str = ""  # a rule of sia.repeats; empty: once
    rang: datetime | None = None  # when it last went off; aware, in the person's zone


class Ctx(Protocol):
    """The agent, as an action sees it. Every call is answered by the agent's own process."""

    request: str  # the person's words
    run: str
    now: datetime  # when the request came in, aware, in the person's zone: what its words mean
    answered: datetime  # when the person last answered a question of the run; else as ``now``
    present: datetime  # the moment this action was entered
    state: dict[str, Any]  # JSON; saved after each action
    person: Person
    folders: Folders
    settings: Mapping[str, Any]  # the section of sia.toml named like the category

    def secret(self, name: str) -> str:
        """A secret of the skill's own category ("password"), as ``sia setup`` stored it.

        Raises Failed with what to do where there is none. Keep it out of ``state`` and of texts;
        where it does get there, it is replaced by "[redacted]".
        """

    def choose(
        self,
        question: str,
        options: Sequence[tuple[str, str]],
        state: Mapping[str, str] | None = None,
        none: bool = False,
    ) -> str:
        """Pick an argument (decision ``read_next``): the id of one of (id, description).

        state: what the decision sees, default ``{"input": request}``. none: offer an option
        ``none``. A single option is no decision and comes back as it is.
        """

    def generate(self, task: str, fields: Mapping[str, str]) -> Any:
        """Write: a text, or an object for judge and name.

        fields by task: message (to, request), judge (request, skill, before, after, output), name
        (requests), report (facts), summarise (lines), rewrite (request, change). Raises Unproven
        where the generator is not proven for the task or is away, where a field holds what looks
        like a secret, and where what it wrote does not pass the check (malformed, a fact lost or
        invented): use code or ask.
        """

    def say(self, text: str) -> None:
        """Show text to the person."""

    def ask(self, question: str, options: Sequence[str] | None = None) -> str:
        """Ask the person and suspend the run until they answer; the answer, stripped.

        With options the answer is one of them. Raises Failed when nobody can answer.
        """

    def confirm(self, question: str) -> bool:
        """``ask`` with yes and no; True at once when the agent was started with ``--yes``."""

    def effect(
        self,
        name: str,
        do: Callable[[str], Any],
        check: Callable[[str], Any] | None = None,
    ) -> Any:
        """Do something to the world once: ``do(key)`` -> JSON, recorded before and after.

        key: derived from (run, action, ordinal), the same at every entry and another once the run
        begins anew with an updated request; use it as Message-ID or file name. When an earlier try
        was cut off, ``check(key)`` is asked first: True means it happened (the result is then
        None), another true JSON value is the result; None means that it cannot tell. An outside
        effect whose fate stays unknown is put to the person, never repeated on a guess; a local
        one is done again. ``do`` and ``check`` may not call ctx.
        """

    def remind(self, due: datetime, text: str, repeat: str = "", timer: bool = False) -> str:
        """Keep a reminder (durable; it fires also after a restart); its id.

        repeat: the rule that gave ``due`` (``TimePhrase.repeat``). timer: counted by a stopwatch,
        however the clock is set.
        """

    def reminders(self) -> list[Reminder]:
        """The waiting reminders, by due time."""

    def rung(self) -> list[Reminder]:
        """The reminders that went off in the last 12 hours, the latest first."""

    def cancel_reminder(self, id: str) -> bool: ...

    def hand_over(self, request: str) -> str:
        """Put a request of this skill's own into the queue, in words as a person would use; its
        run. It is worked like any other, but an effect outside is asked first, for no person asked
        for it. Raises Failed when skills hand over more than they may (docs/intake.md).
        """

    def skills(self) -> list[tuple[str, str]]:
        """(category/name, description) of every skill in the tree."""

    def interrupted(self) -> list[str]:
        """The requests of the runs that this run displaced, or of the one with a question open; of
        a request that is declined, the one that runs."""

    def cancel_interrupted(self) -> list[str]:
        """End the displaced runs for good instead of resuming them; their requests."""
