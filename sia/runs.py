"""A run: one request worked by a code skill, an action a turn.

Actions run in a worker process; this answers their calls. What a call gave is stored by (run,
action, ordinal) and given back when the action is entered again. Effects are committed before and
after they happen, reminders and cancellations with their result; everything else is kept with the
turn, or when the action stops to ask.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from semif.errors import DecisionError
from semif.log import Label
from semif.types import Decider, Decision, Option
from sia.errors import OverLimit
from sia.events import Asked, Ended, Notice
from sia.generator.types import Generator, GeneratorError, GeneratorUnavailable, Unfit
from sia.home import Home
from sia.questions import View, state
from sia.redact import redact
from sia.reminders import CANCELLED, Reminders
from sia.skills.api import Failed, Unproven
from sia.skills.calls import Outcome, Payload, Suspended
from sia.skills.host import WorkerPool
from sia.skills.manifest import Manifest
from sia.skills.tree import Tree
from sia.sources import SOURCES
from sia.store import Run, Store
from sia.turn import Result, Turn

VERIFY_SECONDS = 10.0
ASKED_SHOWN = 200  # characters of a request inside a question


@dataclass
class Runs:
    """Works runs of code skills. ``answerable()``: somebody is there who can answer a question;
    ``hand_over(text, within)``: keeps a request of a skill's own; its run. ``yes``: confirmations
    are given in advance."""

    home: Home
    store: Store
    decider: Decider
    generator: Generator
    reminders: Reminders
    pool: WorkerPool
    new_id: Callable[[], str]
    answerable: Callable[[], bool]
    cancel_run: Callable[[Run], None]
    hand_over: Callable[[str, Callable[[str], None]], str]
    yes: bool = False

    def act(
        self,
        run: Run,
        skill: Manifest,
        tree: Tree,
        turn: Turn,
        now: datetime,
        cancel: threading.Event,
    ) -> Outcome:
        """Run the next action of ``run``; ``turn.run`` is the run as it stands afterwards."""
        action = skill.actions[run.step]
        calls = Calls(self, run, action, tree, turn, cancel)
        payload = self._payload(run, now)
        seconds = max(0.1, skill.budget.seconds - run.seconds)
        outcome = self.pool.run(skill, action, payload, calls.answer, seconds, cancel)
        run = replace(run, seconds=run.seconds + outcome.seconds)
        turn.run = self._after(run, skill, action, outcome, calls, turn, now)
        if outcome.kind != "cancelled":
            turn.results += calls.results
        return outcome

    def _payload(self, run: Run, now: datetime) -> Payload:
        zone = now.tzinfo
        return Payload(
            request=run.text,
            run=run.id,
            now=run.arrived.astimezone(zone),
            answered=run.heard.astimezone(zone),
            present=now,
            person=self.home.person,
            folders=self.home.folders,
            settings=self.home.settings(run.skill.split("/")[0]),
            state=json.loads(run.state),
        )

    def _after(
        self,
        run: Run,
        skill: Manifest,
        action: str,
        outcome: Outcome,
        calls: Calls,
        turn: Turn,
        now: datetime,
    ) -> Run:
        if outcome.kind != "cancelled":
            turn.messages += [(run.id, text) for text in calls.said]
        match outcome.kind:
            case "suspended":
                asking = replace(run, status="asking", requeued=now)
                asking = replace(asking, question=json.dumps(calls.question))
                turn.after.append(asked(asking))
                return asking
            case "cancelled":
                return run  # the loop puts it back into the queue and enters the action again
            case "done":
                run = replace(run, state=json.dumps(outcome.state), step=run.step + 1)
                if run.step < len(skill.actions):
                    return run
                return self._finish(run, skill, calls, turn, now)
            case "finished":
                run = replace(run, state=json.dumps(outcome.state))
                if outcome.message:
                    turn.say(run.id, outcome.message)
                return self._ended(run, "done", "", turn)
        message = outcome.message or f"{skill.name}: {action} {outcome.kind}"
        turn.say(run.id, message)
        return self._ended(run, "failed", message, turn)

    def _finish(self, run: Run, skill: Manifest, calls: Calls, turn: Turn, now: datetime) -> Run:
        """Ask the world, where the skill can; only its plain no is a failure."""
        if not skill.has_verify:
            return self._ended(run, "done", "", turn)
        checks = calls.beside(run, "verify")
        payload = self._payload(run, now)
        outcome = self.pool.run(
            skill, "verify", payload, checks.answer, VERIFY_SECONDS, checks.cancel
        )
        verdict = outcome.value if outcome.kind == "done" else None
        if verdict is True:
            turn.labels += [
                Label.new(row, run.id, "is", option, "verified", by=skill.id)
                for row, option in self._decided(run)
            ]
            return self._ended(run, "done", "verified", turn)
        if verdict is False:
            message = "the check afterwards found that it did not work"
            turn.say(run.id, f"That did not work: {message}.")
            return self._ended(run, "failed", message, turn)
        return self._ended(run, "done", "", turn)

    def _ended(self, run: Run, status: str, outcome: str, turn: Turn) -> Run:
        turn.after.append(Ended(run.id, status, outcome))
        return replace(run, status=status, outcome=outcome, question="", preempts=False)

    def _decided(self, run: Run) -> list[tuple[str, str]]:
        """(row id, chosen option) of the decisions that led here."""
        rows = json.loads(self.store.meta(f"rows_{run.id}", "[]"))
        return [(row, option) for row, option in rows]


def asked(run: Run) -> Asked:
    """The question that a run waits with."""
    question = run.open_question
    text = question.get("text") or f"More input is wanted for: {run.text}"
    return Asked(run.id, text, tuple(question.get("options") or ()))


class Calls:
    """Answers the calls of one action."""

    def __init__(
        self, runs: Runs, run: Run, action: str, tree: Tree, turn: Turn, cancel: threading.Event
    ) -> None:
        self._runs, self._run, self._action = runs, run, action
        self._tree, self._turn, self.cancel = tree, turn, cancel
        self.said: list[str] = []
        self.results: list[Result] = []
        self.question: dict[str, Any] | None = None

    def beside(self, run: Run, action: str) -> Calls:
        """For another function of the same skill in the same turn."""
        return Calls(self._runs, run, action, self._tree, self._turn, self.cancel)

    def answer(self, method: str, args: dict[str, Any]) -> Any:
        """The reply to one call; raises Failed, Unproven or Suspended."""
        ordinal = int(args.pop("ordinal"))
        if method.startswith("effect"):
            return getattr(self, f"_{method}")(ordinal, **args)
        stored = self._runs.store.result(self._run.id, self._action, ordinal)
        if stored is not None and stored[0] == method:
            return _opened(method, stored[2])
        handler = getattr(self, f"_call_{method}", None)
        if handler is None:
            raise Failed(f"unknown call {method}")
        value = handler(ordinal, **args)
        self.results.append(Result(self._action, ordinal, method, value))
        return _opened(method, value)

    # words

    def _call_say(self, ordinal: int, text: str) -> None:
        self.said.append(text)

    def _call_ask(self, ordinal: int, question: str, options: list[str] | None) -> str:
        self._suspend(ordinal, "ask", question, options)

    def _call_confirm(self, ordinal: int, question: str) -> bool:
        if self._runs.yes and SOURCES[self._run.source].confirmed:
            return True
        self._suspend(ordinal, "confirm", question, ["yes", "no"])

    def _suspend(
        self, ordinal: int, method: str, question: str, options: Sequence[str] | None
    ) -> None:
        if not self._runs.answerable():
            raise Failed(f"nobody is there to answer: {question}", "environment")
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
            id=self._runs.new_id(),
            phase="read_next",
            state=seen or state_of(self._run),
            question=redact(question),
            options=tuple(offered),
        )
        try:
            (answer,) = self._runs.decider.decide([decision])
        except DecisionError as error:
            raise Failed(str(error), "text") from error
        if self._tree.skill(self._run.skill).decision_log:
            self._turn.decided.append((answer, self._run.id))
        return answer.selected

    def _call_generate(self, ordinal: int, task: str, fields: dict[str, str]) -> dict[str, Any]:
        """A refusal is kept like a text: what the person was then asked must stay the answer."""
        generator = self._runs.generator
        if task not in generator.proven:
            return {"unproven": f"the generator {generator.name} is not proven for {task}"}
        for name, text in fields.items():
            if redact(text) != text:  # a text without the secret would not be the person's
                return {"unproven": f"the {name} holds what looks like a secret"}
        try:
            value = generator.compose(task, fields, cancel=self.cancel)
        except (Unfit, GeneratorUnavailable) as error:
            return {"unproven": str(error)}
        except GeneratorError as error:
            raise Failed(str(error), "environment") from error
        if value is None:
            raise Failed("the writing was interrupted", "environment")
        return {"written": value}

    # effects

    def _effect_begin(self, ordinal: int, name: str) -> dict[str, Any]:
        store, run = self._runs.store, self._run
        key = f"{run.id}-{self._action}-{ordinal}"
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
        store, run = self._runs.store, self._run
        outside = self._tree.skill(run.skill).effects == "outside"
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
        self._runs.store.save_result(self._run.id, self._action, ordinal, name, value)

    def _effect_unknown(self, ordinal: int, name: str, checked: bool | None) -> str:
        skill = self._tree.skill(self._run.skill)
        if skill.effects != "outside":
            return "do"
        # An answer to this question is kept beside the effect, under a name of its own.
        asked = self._runs.store.result(self._run.id, f"{self._action}?", ordinal)
        if asked is not None:
            # Used once: if the repeat is cut off too, the person is asked anew.
            self._runs.store.drop_results(self._run.id, f"{self._action}?")
            return "do" if asked[2] else "skip"
        question = f"I was cut off and cannot tell whether this was done: {name}. Do it again?"
        self._action = f"{self._action}?"
        self._suspend(ordinal, "confirm", question, ["yes", "no"])
        return "skip"

    # reminders, skills, displaced runs

    def _call_remind(self, ordinal: int, due: str, text: str) -> str:
        # Committed at once with its result, so that a crash in between sets no second one.
        with self._runs.store.transaction():
            id = self._runs.reminders.add(datetime.fromisoformat(due), text, self._run.id)
            self._runs.store.save_result(self._run.id, self._action, ordinal, "remind", id)
        return id

    def _call_reminders(self, ordinal: int) -> list[dict[str, str]]:
        return [
            {"id": item.id, "due": item.due.isoformat(), "text": item.text, "status": item.status}
            for item in self._runs.reminders.waiting()
        ]

    def _call_cancel_reminder(self, ordinal: int, id: str) -> bool:
        with self._runs.store.transaction():
            done = self._runs.reminders.set_status(id, CANCELLED)
            self._runs.store.save_result(
                self._run.id, self._action, ordinal, "cancel_reminder", done
            )
        return done

    def _call_hand_over(self, ordinal: int, request: str) -> str:
        # Committed at once with its result, so that a crash in between hands over nothing twice.
        place = self._run.id, self._action, ordinal, "hand_over"
        try:
            return self._runs.hand_over(
                request, lambda run: self._runs.store.save_result(*place, run)
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
        open_runs = self._runs.store.runs()
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
        displaced = self._displaced()
        texts = [run.text for run in displaced]
        # Committed at once with its result: entered again after a crash it says the same.
        with self._runs.store.transaction():
            for run in displaced:
                self._runs.cancel_run(run)
            self._runs.store.save_result(
                self._run.id, self._action, ordinal, "cancel_interrupted", texts
            )
        for run in displaced:
            self._turn.after.append(Notice(f"cancelled: {run.text}"))
            self._turn.after.append(Ended(run.id, "cancelled"))
        return texts


def _opened(method: str, value: Any) -> Any:
    """What a call gives back, of what is kept of it; raises Unproven for a refusal."""
    if method != "generate":
        return value
    if "unproven" in value:
        raise Unproven(value["unproven"])
    return value["written"]


def state_of(run: Run) -> dict[str, str]:
    return state("read_next", View(run.text))
