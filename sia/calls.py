"""The agent's answers to the calls of one action.

What a call gave is stored by (run, action, ordinal) and given back when the action is entered
again. Effects are committed before and after they happen, reminders and cancellations with their
result; everything else is kept with the turn, or when the action stops to ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from semif.errors import DecisionError
from semif.types import Answer, Decider, Decision, Option
from sia import questions, queue, repeats
from sia.account import Account, Prices
from sia.errors import OverLimit
from sia.events import Ended, Notice
from sia.generator.types import Generator, GeneratorError, GeneratorUnavailable, Unfit, Usage
from sia.questions import Questions, View
from sia.redact import redact
from sia.reminders import CANCELLED, Reminders, utc_now
from sia.skills.api import Failed
from sia.skills.calls import Suspended, opened, reminder_json
from sia.skills.manifest import Manifest
from sia.skills.tree import Tree
from sia.sources import SOURCES
from sia.store import Run, Store
from sia.turn import Result, Turn

ASKED_SHOWN = 200  # characters of a request inside a question
RUNG = timedelta(hours=12)  # how long after a reminder went off it can be snoozed


class OverBudget(Exception):
    """The run has used up what its skill allows; says what."""


@dataclass
class Services:
    """What calls are answered from. ``answerable()``: somebody is there who can answer a question;
    ``hand_over(text, within)``: keeps a request of a skill's own; its run. ``yes``: confirmations
    are given in advance."""

    store: Store
    decider: Decider
    generator: Generator
    reminders: Reminders
    questions: Questions
    prices: Prices
    new_id: Callable[[], str]
    answerable: Callable[[], bool]
    end_work: Callable[[str], None]
    hand_over: Callable[[str, Callable[[str], None]], str]
    yes: bool = False


class Calls:
    """Answers the calls of one action. ``account``: what the run has cost by now. ``free``: calls
    that end no run over its budget."""

    def __init__(
        self,
        services: Services,
        run: Run,
        skill: Manifest,
        action: str,
        tree: Tree,
        turn: Turn,
        cancel: threading.Event,
        free: bool = False,
    ) -> None:
        self._services, self._run, self._skill, self._action = services, run, skill, action
        self._tree, self._turn, self.cancel = tree, turn, cancel
        self.account = Account.of(run)
        self._free = free
        self.said: list[str] = []
        self.results: list[Result] = []
        self.question: dict[str, Any] | None = None

    def answer(self, method: str, args: dict[str, Any]) -> Any:
        """The reply to one call; raises Failed, Unproven, Suspended or OverBudget."""
        ordinal = int(args.pop("ordinal"))
        if method.startswith("effect"):
            return getattr(self, f"_{method}")(ordinal, **args)
        stored = self._services.store.result(self._run.id, self._action, ordinal)
        if stored is not None and stored[0] == method:
            return opened(method, stored[2])
        handler = getattr(self, f"_call_{method}", None)
        if handler is None:
            raise Failed(f"unknown call {method}")
        value = handler(ordinal, **args)
        self.results.append(Result(self._action, ordinal, method, value))
        return opened(method, value)

    # words

    def _call_say(self, ordinal: int, text: str) -> str:
        self.said.append(text)
        return text

    def _call_ask(self, ordinal: int, question: str, options: list[str] | None) -> str:
        self._suspend(ordinal, "ask", question, options)

    def _call_confirm(self, ordinal: int, question: str) -> bool:
        if self._services.yes and SOURCES[self._run.source].confirmed:
            return True
        self._suspend(ordinal, "confirm", question, ["yes", "no"])

    def _suspend(
        self, ordinal: int, method: str, question: str, options: Sequence[str] | None
    ) -> NoReturn:
        if not self._services.answerable():
            raise Failed(f"nobody is there to answer: {question}")
        self.question = {
            "action": self._action,
            "ordinal": ordinal,
            "method": method,
            "text": question,
            "options": list(options) if options else None,
        }
        raise Suspended

    # decisions and text

    def _call_choose(
        self,
        ordinal: int,
        question: str,
        options: list[list[str]],
        state: dict[str, str],
        none: bool,
    ) -> str:
        offered = [Option(id, redact(description)) for id, description in options]
        if none:
            offered.append(Option("none", "None of these.", none=True))
        if len(offered) == 1:
            return offered[0].id
        seen = {name: redact(str(value)) for name, value in state.items()}
        decision = Decision(
            id=self._services.new_id(),
            phase="read_next",
            state=seen or questions.state("read_next", View(self._run.text)),
            question=redact(question),
            options=tuple(offered),
        )
        try:
            (answer,) = self._services.decider.decide([decision])
        except DecisionError as error:
            raise Failed(str(error), "text") from error
        self._log(answer)
        return answer.selected

    def _call_predict(self, ordinal: int, observed: str) -> dict[str, Any]:
        """Not for skills: whether the run will succeed, seen from where it stands."""
        skill = f"{self._skill.id}: {self._skill.description}"
        view = View(self._run.text, skill=skill, observed=observed)
        decision = self._services.questions.decision("predict", view, self._services.new_id())
        (answer,) = self._services.decider.decide([decision])
        self._log(answer)
        return {"selected": answer.selected, "p": answer.probs["succeed"]}

    def _log(self, answer: Answer) -> None:
        if self._skill.decision_log:
            self._turn.decided.append((answer, self._run.id))

    def _call_generate(self, ordinal: int, task: str, fields: dict[str, str]) -> dict[str, Any]:
        """A refusal is kept like a text: what the person was then asked must stay the answer."""
        generator = self._services.generator
        if task not in generator.proven:
            return {"unproven": f"the generator {generator.name} is not proven for {task}"}
        for name, text in fields.items():
            if redact(text) != text:  # a text without the secret would not be the person's
                return {"unproven": f"the {name} holds what looks like a secret"}
        self._check(self.account.charge(Usage(written=1), self._services.prices))
        before = generator.used
        try:
            value = generator.compose(task, fields, cancel=self.cancel)
        except (Unfit, GeneratorUnavailable) as error:
            return {"unproven": str(error)}
        except GeneratorError as error:
            raise Failed(str(error), "environment") from error
        finally:
            used = generator.used - before
            self.account = self.account.charge(used, self._services.prices)
            self._check(self.account)
        if value is None:
            raise Failed("the writing was interrupted")
        return {"written": value}

    def _check(self, account: Account) -> None:
        over = account.over(self._skill.budget)
        if over and not self._free:
            raise OverBudget(over)

    # effects

    def _effect_begin(self, ordinal: int, name: str) -> dict[str, Any]:
        store, run = self._services.store, self._run
        again = f".{self.account.began}" if self.account.began else ""
        key = f"{run.id}{again}-{self._action}-{ordinal}"
        stored = store.result(run.id, self._action, ordinal)
        if stored is None:
            self._grant(ordinal, name)
            store.save_result(run.id, self._action, ordinal, name, None, "intended")
            return {"status": "new", "key": key, "value": None}
        _, known, value = stored
        status = "confirmed" if known == "done" else "unknown"
        return {"status": status, "key": key, "value": value}

    def _grant(self, ordinal: int, name: str) -> None:
        """Let an effect outside be done that no person asked for, once the person said yes to it,
        or to another question of its run. Raises Failed at a no."""
        store, run = self._services.store, self._run
        outside = self._skill.effects == "outside"
        if not outside or SOURCES[run.source].confirmed or store.confirmed(run.id):
            return
        if any(result.method == "confirm" and result.value for result in self.results):
            return
        # An answer to this question is kept beside the effect, under a name of its own.
        if store.result(run.id, f"{self._action}!", ordinal):
            raise Failed(f"not done, as you said: {name}")
        asker = f"the source {run.source} asks for it, not you: {run.text[:ASKED_SHOWN]}"
        self._action = f"{self._action}!"
        self._suspend(ordinal, "confirm", f"Shall I do this: {name}? ({asker})", ["yes", "no"])

    def _effect_end(self, ordinal: int, name: str, value: Any) -> None:
        self._services.store.save_result(self._run.id, self._action, ordinal, name, value)

    def _effect_unknown(self, ordinal: int, name: str, checked: bool | None) -> str:
        if self._skill.effects != "outside":
            return "do"
        # An answer to this question is kept beside the effect, under a name of its own.
        asked = self._services.store.result(self._run.id, f"{self._action}?", ordinal)
        if asked is not None:
            # Used once: if the repeat is cut off too, the person is asked anew.
            self._services.store.drop_results(self._run.id, f"{self._action}?")
            return "do" if asked[2] else "skip"
        question = f"I was cut off and cannot tell whether this was done: {name}. Do it again?"
        self._action = f"{self._action}?"
        self._suspend(ordinal, "confirm", question, ["yes", "no"])

    # reminders, skills, displaced runs

    def _call_remind(self, ordinal: int, due: str, text: str, repeat: str, timer: bool) -> str:
        moment = datetime.fromisoformat(due)
        try:
            rule = repeats.check(repeat) if repeat else ""
        except ValueError as error:
            raise Failed(str(error), "text") from None
        # Committed at once with its result, so that a crash in between sets no second one.
        with self._services.store.transaction():
            id = self._services.reminders.add(moment, text, self._run.id, rule, timer)
            self._services.store.save_result(self._run.id, self._action, ordinal, "remind", id)
        return id

    def _call_reminders(self, ordinal: int) -> list[dict[str, Any]]:
        return [reminder_json(item) for item in self._services.reminders.waiting()]

    def _call_rung(self, ordinal: int) -> list[dict[str, Any]]:
        since = utc_now() - RUNG
        return [reminder_json(item) for item in self._services.reminders.rung(since)]

    def _call_cancel_reminder(self, ordinal: int, id: str) -> bool:
        with self._services.store.transaction():
            done = self._services.reminders.set_status(id, CANCELLED)
            self._services.store.save_result(
                self._run.id, self._action, ordinal, "cancel_reminder", done
            )
        return done

    def _call_hand_over(self, ordinal: int, request: str) -> str:
        # Committed at once with its result, so that a crash in between hands over nothing twice.
        place = self._run.id, self._action, ordinal, "hand_over"
        try:
            return self._services.hand_over(
                request, lambda run: self._services.store.save_result(*place, run)
            )
        except OverLimit as error:
            raise Failed(str(error), "environment") from error

    def _call_skills(self, ordinal: int) -> list[list[str]]:
        return [
            [f"{category.name}/{skill.name}", skill.description]
            for category in self._tree.categories
            for skill in category.skills
        ]

    def _displaced(self) -> list[Run]:
        """Open runs that this one displaced, and what those had displaced before (a second "stop"
        displaces the first one and means the same work); else the run that asked last."""
        open_runs = self._services.store.runs()
        found: dict[str, Run] = {}
        by = {self._run.id}
        while more := [run for run in open_runs if run.displaced_by in by and run.id not in found]:
            found |= {run.id: run for run in more}
            by = {run.id for run in more}
        if not found:  # nothing ran, so it is the open question that is meant
            asking = [run for run in open_runs if run.status == "asking"]
            return sorted(asking, key=lambda run: run.requeued)[-1:]
        return list(found.values())

    def _call_interrupted(self, ordinal: int) -> list[str]:
        return [run.text for run in self._displaced()]

    def _call_cancel_interrupted(self, ordinal: int) -> list[str]:
        # Committed at once with its result: entered again after a crash it says the same.
        with self._services.store.transaction():
            displaced = self._displaced()
            texts = [run.text for run in displaced]
            for run in displaced:
                queue.cancel(self._services.store, run)
            self._services.store.save_result(
                self._run.id, self._action, ordinal, "cancel_interrupted", texts
            )
        for run in displaced:  # not in the commit: what is typed meanwhile is kept all the same
            self._services.end_work(run.id)
            self._turn.after.append(Notice(f"cancelled: {run.text}"))
            self._turn.after.append(Ended(run.id, "cancelled"))
        return texts
