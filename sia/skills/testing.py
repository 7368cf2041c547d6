"""Deterministic doubles for the tests of skills: no agent, no model, no process.

``FakeCtx`` shares ``CallCtx`` with the worker, so a skill's calls are checked as in real life; what
the agent would answer is scripted and recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from semif.writing import tasks as prompts
from sia.skills.api import Failed, Finished, Folders, Person, Reminder, Secret, Unproven
from sia.skills.calls import (
    NO,
    YES,
    CallCtx,
    Outcome,
    Payload,
    dumps,
    failure,
    in_zone,
    load_module,
    matching,
    opened,
    reminder_json,
)
from sia.skills.manifest import parse_skill

Answers = Sequence[str] | Callable[[str, Sequence[str] | None], str]
Choices = Sequence[str] | Callable[[str, Sequence[tuple[str, str]]], str]
Proven = Iterable[str] | Mapping[str, Callable[[Mapping[str, str]], Any]]


class Cut(BaseException):
    """The agent died right after it recorded a call."""


@dataclass
class _Effect:
    name: str
    status: str = "unknown"  # unknown | confirmed
    value: Any = None
    tries: int = 0


@dataclass
class _Script:
    """Answers in order, from a list or a function; running out names what was asked."""

    source: Sequence[str] | Callable[[str, Any], str]
    used: int = field(default=0)

    def next(self, question: str, options: Any, what: str) -> str:
        if callable(self.source):
            return self.source(question, options)
        if self.used == len(self.source):
            raise AssertionError(f"no {what} left for {question!r} with options {options!r}")
        self.used += 1
        return self.source[self.used - 1]


def _joined(fields: Mapping[str, str]) -> str:
    return " ".join(fields.values())


class FakeCtx(CallCtx):
    """The agent as a skill sees it, scripted.

    answers: for ``ask`` and ``confirm``, in order, or ``f(question, options) -> str``; none left
    is an AssertionError. choices: ids for ``choose`` with more than one option, or
    ``f(question, options) -> id``. proven: tasks that ``generate`` may do; it gives the fields back
    as one text, or what the function of a mapping makes of them (it may raise Unproven: not fit);
    fields that are not the task's are a DecisionError. outside: effects of unknown fate
    are asked about. secrets: for ``secret``, by name.

    Records: ``said`` and ``asked`` (texts), ``chosen`` (question, options, id), ``effects``
    (name, key, value), ``reminders_set``, ``timers`` (ids of those that are), ``handed``
    (requests). ``waiting`` are the reminders at the start, those that rang among them.
    """

    def __init__(
        self,
        request: str,
        *,
        now: datetime,
        folders: Folders,
        person: Person,
        settings: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        answers: Answers = (),
        choices: Choices = (),
        proven: Proven = (),
        skills: Sequence[tuple[str, str]] = (),
        waiting: Sequence[Reminder] = (),
        interrupted: Sequence[str] = (),
        yes: bool = False,
        outside: bool = False,
    ) -> None:
        payload = Payload(request, "r1", now, person, folders, settings or {})
        given = {name: Secret(value) for name, value in (secrets or {}).items()}
        super().__init__(replace(payload, secrets=given), self._answer)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.chosen: list[tuple[str, list[tuple[str, str]], str]] = []
        self.effects: list[tuple[str, str, Any]] = []
        self.reminders_set: list[Reminder] = []
        self.handed: list[str] = []
        self.timers: list[str] = []
        self.cuts = False  # die once after every call that is recorded
        self.lose: set[str] = set()  # effects whose confirmation is lost once
        self.outside = outside
        self._answers, self._choices = _Script(answers), _Script(choices)
        makes = proven if isinstance(proven, Mapping) else dict.fromkeys(proven, _joined)
        self._proven: Mapping[str, Callable[[Mapping[str, str]], Any]] = makes
        self._skills, self._displaced, self._yes = list(skills), list(interrupted), yes
        self._reminders = list(waiting)
        self._action = ""
        self._stored: dict[tuple[str, int], tuple[str, str]] = {}
        self._fates: dict[str, _Effect] = {}

    def enter(self, action: str) -> None:
        """From the top of action: its calls replay what they gave before."""
        self._action, self._ordinal = action, 0

    def tried(self) -> list[tuple[str, str, int]]:
        """(name, key, how often it was done) of every effect begun."""
        return [(fate.name, key, fate.tries) for key, fate in self._fates.items()]

    def _answer(self, method: str, args: dict[str, Any]) -> Any:
        args = json.loads(dumps(args, f"ctx.{method}"))
        if method.startswith("effect_"):
            return getattr(self, f"_on_{method}")(args)
        place = (self._action, args["ordinal"])
        if place in self._stored:
            before, value = self._stored[place]
            if before != method:
                raise AssertionError(f"call {place} was {before} the first time, now {method}")
            return opened(method, json.loads(value))
        value = dumps(getattr(self, f"_on_{method}")(args), f"the answer to ctx.{method}")
        self._stored[place] = (method, value)
        if self.cuts:
            raise Cut
        return opened(method, json.loads(value))

    def _on_choose(self, args: dict[str, Any]) -> str:
        options = [(id, description) for id, description in args["options"]]
        ids = [id for id, _ in options] + ["none"] * args["none"]
        if len(ids) == 1:
            return ids[0]
        id = self._choices.next(args["question"], options, "choice")
        if id not in ids:
            raise AssertionError(f"scripted choice {id!r} is none of {ids} ({args['question']})")
        self.chosen.append((args["question"], options, id))
        return id

    def _on_generate(self, args: dict[str, Any]) -> dict[str, Any]:
        """A refusal is kept like a text, as the agent does."""
        task, fields = args["task"], args["fields"]
        prompts.load().task(task).body(task, fields)
        if task not in self._proven:
            return {"unproven": f"the generator is not proven for {task}"}
        try:
            return {"written": self._proven[task](fields)}
        except Unproven as error:
            return {"unproven": str(error)}

    def _on_say(self, args: dict[str, Any]) -> None:
        self.said.append(args["text"])

    def _on_ask(self, args: dict[str, Any]) -> str:
        question, options = args["question"], args["options"]
        self.asked.append(question)
        answer = self._answers.next(question, options, "answer")
        if options is None:
            return answer
        option = matching(answer, options)
        if option is None:
            raise AssertionError(f"scripted answer {answer!r} is none of {options} ({question})")
        return option

    def _on_confirm(self, args: dict[str, Any]) -> bool:
        return self._yes or self._on_ask({**args, "options": [YES, NO]}) == YES

    def _on_effect_begin(self, args: dict[str, Any]) -> dict[str, Any]:
        key = f"{self.run}-{self._action}-{args['ordinal']}"
        if key not in self._fates:
            self._fates[key] = _Effect(args["name"], tries=1)
            return {"status": "new", "key": key, "value": None}
        fate = self._fates[key]
        if fate.name != args["name"]:
            raise AssertionError(f"effect {key} was {fate.name} the first time, now {args['name']}")
        return {"status": fate.status, "key": key, "value": fate.value}

    def _on_effect_unknown(self, args: dict[str, Any]) -> str:
        again = True
        if self.outside:
            question = f"{args['name']} may have happened already. Do it again?"
            again = self._on_confirm({"question": question})
        self._fate(args).tries += again
        return "do" if again else "skip"

    def _on_effect_end(self, args: dict[str, Any]) -> None:
        if args["name"] in self.lose:
            self.lose.discard(args["name"])
            raise Cut
        fate = self._fate(args)
        fate.status, fate.value = "confirmed", args["value"]
        key = f"{self.run}-{self._action}-{args['ordinal']}"
        self.effects.append((args["name"], key, args["value"]))
        if self.cuts:
            raise Cut

    def _fate(self, args: dict[str, Any]) -> _Effect:
        return self._fates[f"{self.run}-{self._action}-{args['ordinal']}"]

    def _on_remind(self, args: dict[str, Any]) -> str:
        due = in_zone(args["due"], self.person.timezone)
        id = f"m{len(self._reminders) + 1}"
        reminder = Reminder(id, due, args["text"], "waiting", args["repeat"])
        self.timers += [id] * args["timer"]
        self._reminders.append(reminder)
        self.reminders_set.append(reminder)
        return reminder.id

    def _on_reminders(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        rows = sorted((row for row in self._reminders if row.status == "waiting"), key=_due)
        return [reminder_json(row) for row in rows]

    def _on_rung(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        rang = [(row.rang, row) for row in self._reminders if row.rang]
        return [reminder_json(row) for _, row in sorted(rang, key=lambda pair: pair[0])[::-1]]

    def _on_cancel_reminder(self, args: dict[str, Any]) -> bool:
        for place, row in enumerate(self._reminders):
            if row.id == args["id"] and row.status == "waiting":
                self._reminders[place] = replace(row, status="cancelled")
                return True
        return False

    def _on_hand_over(self, args: dict[str, Any]) -> str:
        self.handed.append(args["request"])
        return f"r{len(self.handed) + 1}"

    def _on_skills(self, args: dict[str, Any]) -> list[tuple[str, str]]:
        return self._skills

    def _on_interrupted(self, args: dict[str, Any]) -> list[str]:
        return self._displaced

    def _on_cancel_interrupted(self, args: dict[str, Any]) -> list[str]:
        displaced, self._displaced = self._displaced, []
        return displaced


def _due(reminder: Reminder) -> datetime:
    return reminder.due


def run_actions(skill: ModuleType | Path, ctx: FakeCtx) -> Outcome:
    """All actions of a skill (its folder, or its module) in order, in this process.

    Ends early at Failed and Finished, like the agent. ``value`` is what ``verify`` gave after
    actions that are done or finished, None without one. Another exception than Failed is a fault
    of the skill and is raised.
    """
    folder = Path(str(skill.__file__)).parent if isinstance(skill, ModuleType) else Path(skill)
    manifest = parse_skill(folder)
    module = skill if isinstance(skill, ModuleType) else load_module(folder, manifest.code)
    ctx.outside = manifest.effects == "outside"
    outcome = Outcome("done")
    for action in manifest.actions:
        outcome = _enter(module, folder, action, ctx)
        if outcome.kind != "done":
            break
    if outcome.kind == "failed" or not manifest.has_verify:
        return outcome
    ctx.cuts = False
    ctx.enter("verify")
    return replace(outcome, value=module.verify(ctx))


def _enter(module: ModuleType, folder: Path, action: str, ctx: FakeCtx) -> Outcome:
    """One action, entered again from its top and from its first state after every cut."""
    first = deepcopy(ctx.state)
    while True:
        ctx.state = deepcopy(first)
        ctx.enter(action)
        try:
            getattr(module, action)(ctx)
            kind, message, cause = "done", "", ""
        except Cut:
            continue
        except Finished as end:
            kind, message, cause = "finished", str(end), ""
        except Failed as error:
            kind = "failed"
            message, cause = failure(error, folder)
        ctx.state = json.loads(dumps(ctx.state, f"ctx.state after {action}"))
        return Outcome(kind, message, cause, state=deepcopy(ctx.state))


def run_interrupted(
    skill: Path, make: Callable[[], FakeCtx], lose: Iterable[str] = ()
) -> tuple[FakeCtx, Outcome]:
    """``run_actions`` with the agent dying after every single call: ask, say, effect and the rest.

    Each action is entered again and again from its top with what its calls gave before, as after
    an answer or a restart. lose: names of effects cut off between doing and recording, whose fate
    is then unknown. Asserts that the same calls came in the same order each time and that every
    effect was done once (unless lost); an effect outside ``ctx.effect`` is the test's to look for.
    """
    lost = frozenset(lose)
    ctx = make()
    ctx.cuts, ctx.lose = True, set(lost)
    outcome = run_actions(skill, ctx)
    twice = [effect for effect in ctx.tried() if effect[2] > 1 and effect[0] not in lost]
    assert not twice, f"effects done more than once (name, key, times): {twice}"
    return ctx, outcome
