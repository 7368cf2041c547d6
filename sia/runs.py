"""A run: one request worked by a code skill, an action a turn.

Observe, predict, act, observe, assess, label. Actions run in a worker process; ``calls`` answers
what they ask for. What a turn leads to is gathered in the turn and kept by its record.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from semif.errors import DecisionError
from semif.log import Label
from sia import assess
from sia.account import Account
from sia.assess import Verdict
from sia.calls import Calls, OverBudget, Services
from sia.events import Asked, Ended, Notice
from sia.generator.types import Usage
from sia.home import Home
from sia.looks import looking, payload, touched
from sia.redact import redact
from sia.scheduler import TAU
from sia.scripts import Cancel, Until
from sia.skills.api import Failed, Unproven
from sia.skills.calls import Outcome, Payload, Suspended
from sia.skills.host import WorkerPool
from sia.skills.manifest import Manifest
from sia.skills.tree import Tree
from sia.store import Run, RunVerdict
from sia.turn import Result, Turn

LOOK_SECONDS = 10.0  # for observe and verify
UPDATES = 3  # times a run may begin anew with an updated request
OBSERVE, PREDICT, ASSESS, VERIFY = "observe", "predict", "assess", "verify"
SEEN = (OBSERVE, 0)  # where the observations of a run are kept
JUDGE = "judge"
CAUSES = {"choice": "which"}  # as that writing task calls it


@dataclass
class Runs:
    """Works runs of code skills. thresholds: of whoever decides, by phase. labelled: reads the
    labels given so far."""

    home: Home
    services: Services
    pool: WorkerPool
    thresholds: Mapping[str, float]
    labelled: Callable[[], Iterable[Label]]

    def next(self, run: Run, skill: Manifest) -> str:
        """The coming action; "assess" when only that is left; "" when there is none."""
        if run.step < len(skill.actions):
            return skill.actions[run.step]
        return ASSESS if self.services.store.result(run.id, ASSESS, 0) else ""

    def act(
        self,
        run: Run,
        skill: Manifest,
        tree: Tree,
        turn: Turn,
        now: datetime,
        cancel: Cancel,
    ) -> Outcome:
        """Take the next action of ``run``; ``turn.run`` is the run as it stands afterwards."""
        work = _Work(self, run, skill, tree, turn, now, cancel)
        outcome = work.take()
        turn.run = work.run
        return outcome

    # budgets, also of what the generator works

    def over(self, run: Run, skill: Manifest) -> str:
        """What the skill's budget has not left for another turn, in words, or ""."""
        account = Account.of(run).entered().charge(Usage(written=1), self.services.prices)
        return account.over(skill.budget, run.seconds)

    def charged(self, run: Run, usage: Usage, seconds: float) -> Run:
        """After a turn of the generator."""
        account = Account.of(run).charge(usage, self.services.prices)
        return replace(run, spent=account.entered().text(), seconds=run.seconds + seconds)

    def over_budget(
        self, run: Run, skill: Manifest, why: str, turn: Turn, now: datetime, touched: bool
    ) -> Run:
        """End a run that may take no more, or queue it once with the skill's lesser goal, where
        nothing in the world was touched yet."""
        account = Account.of(run)
        if skill.degrade and not account.degraded and not touched:
            goal = skill.degrade.replace("{request}", run.text)
            turn.after.append(Notice(f"{skill.id}: {why}; again with less: {goal}"))
            turn.anew = True
            return begun_anew(run, goal, account.anew(degraded=True), now)
        again = ", with less too" if account.degraded else ""
        message = f"I gave up on this: {run.text} ({why}{again})."
        turn.say(run.id, message)
        return ended(replace(run, cut=True), "failed", message, turn)


def begun_anew(run: Run, text: str, account: Account, now: datetime) -> Run:
    """``run`` back in the queue from its start, with another goal."""
    return replace(
        run,
        text=text,
        step=0,
        turns=0,
        state="{}",
        question="",
        preempts=False,
        seconds=0.0,
        spent=account.text(),
        status="waiting",
        requeued=now,
        attempt=run.attempt + 1,
    )


def ended(run: Run, status: str, outcome: str, turn: Turn) -> Run:
    turn.after.append(Ended(run.id, status, outcome))
    return replace(run, status=status, outcome=outcome, question="", preempts=False)


def asked(run: Run) -> Asked:
    """The question that a run waits with."""
    question = run.open_question
    text = question.get("text") or f"More input is wanted for: {run.text}"
    return Asked(run.id, text, tuple(question.get("options") or ()))


class _Instead(Exception):
    """The turn ends like this, and the action is not entered."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


@dataclass
class _Work:
    """One turn of one run; ``run`` is it as it stands."""

    runs: Runs
    run: Run
    skill: Manifest
    tree: Tree
    turn: Turn
    now: datetime
    cancel: Cancel
    question: dict[str, Any] | None = field(default=None)

    def take(self) -> Outcome:
        action = self.runs.next(self.run, self.skill)
        try:
            if action == ASSESS and self.run.step >= len(self.skill.actions):
                self.run = self._closed()
                return Outcome("done")
            self._observe_before()
            if action == self.skill.predict:
                self._predict()
            outcome = self._enter(action)
        except _Instead as instead:
            outcome = instead.outcome
        self.run = self._after(outcome, action)
        return outcome

    # before the action

    def _observe_before(self) -> None:
        """The baseline; after an interruption, whether the world is still as it was left."""
        if not self.skill.has_observe:
            return
        seen = self._seen()
        if seen and seen["attempt"] == self.run.attempt:
            return
        outcome = self._look()
        if outcome.kind != "done":
            raise _Instead(outcome)
        value = outcome.value
        if seen and "last" in seen and value != seen["last"]:
            changed = assess.changes(seen["last"], value)
            what = f"While this was interrupted, something changed ({changed})."
            self._agreed(OBSERVE, self.run.attempt, f"{what} Go on with: {self.run.text}?")
        self._keep_seen(seen["first"] if seen else value, last=value)

    def _predict(self) -> None:
        """Whether this will work, before it is done; where it matters and that is in doubt, the
        person is asked, unless they confirmed something in this run already."""
        skill, thresholds = self.skill, self.runs.thresholds
        # Asked only where the revision was taught it, and where there is something to see.
        if "predict" not in thresholds or not (skill.has_observe or skill.careful):
            return
        # What the skill observes is what matters; where it does not, its arguments are known.
        seen = (self._seen() or {}).get("last") or self._state()
        if not seen:
            return
        calls = self._calls(PREDICT)
        try:
            given = {"ordinal": 1, "observed": assess.words(seen)}
            said = calls.answer("predict", given)
        except DecisionError as error:
            raise _Instead(Outcome("failed", str(error), "text")) from error
        self.turn.results += calls.results
        # Looked up last: another decider may have stood in, and it has thresholds of its own.
        doubt = said["p"] < thresholds.get("predict", TAU)
        if doubt and skill.careful and not self._confirmed():
            question = f"I doubt that this will work ({said['p']:.0%}): {self.run.text}. Go on?"
            self._agreed(PREDICT, 2, question)

    def _agreed(self, action: str, ordinal: int, question: str) -> None:
        if not self._ask(action, ordinal, question):
            raise _Instead(Outcome("declined", f"All right, I leave it: {self.run.text}"))

    def _ask(self, action: str, ordinal: int, question: str) -> bool:
        """Yes or no of the person; raises _Instead while there is no answer."""
        calls = self._calls(action)
        try:
            given = {"ordinal": ordinal, "question": redact(question)}
            return calls.answer("confirm", given)
        except Suspended:
            self.question = calls.question
            raise _Instead(Outcome("suspended")) from None
        except Failed as error:
            raise _Instead(Outcome("failed", str(error), error.cause)) from error
        finally:
            self.turn.results += calls.results

    def _confirmed(self) -> bool:
        found = self._store.results(self.run.id)
        return any(
            method == "confirm" and value is True and action in self.skill.actions
            for action, _, method, _, value in found
        )

    # the action

    def _enter(self, action: str) -> Outcome:
        budget, run = self.skill.budget, self.run
        account = Account.of(run).entered()
        self.run = run = replace(run, spent=account.text())
        if why := account.over(budget, run.seconds):
            return Outcome("limit", why)
        seconds = budget.seconds - run.seconds
        begun = time.monotonic()
        payload = self._payload()
        with Until(self.cancel, seconds) as until:
            calls = self._calls(action, until)
            try:
                outcome = self.runs.pool.run(
                    self.skill, action, payload, calls.answer, seconds, self.cancel
                )
            except OverBudget as error:
                outcome = Outcome("limit", str(error))
            if outcome.kind == "failed" and until.is_set() and not self.cancel.is_set():
                # A text in the making was cut off just before the worker's own limit struck.
                why = f"{action} took longer than {seconds:.3g} s and was ended"
                outcome = replace(outcome, kind="limit", message=why)
        spent = run.seconds + time.monotonic() - begun
        self.run = replace(run, seconds=spent, spent=calls.account.text())
        if outcome.kind != "cancelled":
            self.turn.results += calls.results
            self.turn.messages += [(run.id, text) for text in calls.said]
        self.question = calls.question
        return outcome

    def _payload(self) -> Payload:
        return payload(self.runs.home, self.run, self.now)

    # after the action

    def _after(self, outcome: Outcome, action: str) -> Run:
        run, turn = self.run, self.turn
        match outcome.kind:
            case "suspended":
                asking = replace(run, status="asking", requeued=self.now)
                asking = replace(asking, question=json.dumps(self.question))
                turn.after.append(asked(asking))
                return asking
            case "cancelled":
                return run  # the loop puts it back into the queue and enters the action again
            case "declined":
                turn.say(run.id, outcome.message)
                return ended(run, "cancelled", "", turn)
            case "done":
                self.run = replace(run, state=json.dumps(outcome.state), step=run.step + 1)
                return self._followed()
            case "finished":
                run = replace(run, state=json.dumps(outcome.state))
                if outcome.message:
                    turn.say(run.id, outcome.message)
                return ended(run, "done", "", turn)
            case "limit":
                why, effects = outcome.message, touched(self._store, self.run.id)
                return self.runs.over_budget(run, self.skill, why, turn, self.now, effects)
        message = outcome.message or f"{self.skill.name}: {action} {outcome.kind}"
        turn.say(run.id, message)
        if outcome.cause in ("which", "environment"):
            self._settle([Verdict(False, "verified", self.skill.id, outcome.cause)])
        return ended(run, "failed", message, turn)

    def _followed(self) -> Run:
        """The run after an action that is done: on to the next, or to its end."""
        if self.run.step < len(self.skill.actions):
            if self.skill.has_observe:
                self._observe_after()
            return self.run
        if not self._judges():
            try:
                return self._closed()
            except _Instead:  # interrupted: what was done is checked when it goes on
                pass
        # In a turn of its own: what was done is said meanwhile.
        self.turn.results.append(Result(ASSESS, 0, ASSESS, True))
        return self.run

    def _observe_after(self) -> None:
        """How the world was left; not known where the look was interrupted or failed, so that what
        the run did itself is not taken for a change by another."""
        outcome, seen = self._look(), self._seen()
        if seen:
            last = {"last": outcome.value} if outcome.kind == "done" else {}
            self._keep_seen(seen["first"], **last)

    # the end

    def _closed(self) -> Run:
        """Judge what was done, label what led there, and end the run or begin it anew."""
        verified = self._verified() if self.skill.has_verify else None
        judged = self._judged() if self._judges() else None
        text = self._updated(judged.summary) if judged and self._failed(verified, judged) else ""
        self._settle([verdict for verdict in (verified, judged) if verdict])
        verdict = verified or judged
        if verdict is None or verdict.success:
            outcome = verdict.summary or verdict.source if verdict else ""
            return ended(self.run, "done", outcome, self.turn)
        if judged and text:
            self.turn.say(self.run.id, f"That did not work: {judged.summary} I try again: {text}")
            self.turn.anew = True
            account = Account.of(self.run).anew(updated=1)
            return replace(begun_anew(self.run, text, account, self.now), skill="")
        message = verdict.summary or "the check afterwards found that it did not work."
        self.turn.say(self.run.id, f"That did not work: {message}")
        return ended(self.run, "failed", message, self.turn)

    @staticmethod
    def _failed(verified: Verdict | None, judged: Verdict) -> bool:
        """By the world, where it could be asked, and by the judge, who says what went wrong."""
        return not judged.success and not (verified and verified.success)

    def _verified(self) -> Verdict | None:
        """The skill's own check of the world; only its plain no, or a Failed that names a cause, is
        a failure. Raises _Instead when cut off."""
        calls = self._calls(VERIFY)
        outcome = self.runs.pool.run(
            self.skill, VERIFY, self._payload(), calls.answer, LOOK_SECONDS, self.cancel
        )
        if outcome.kind == "cancelled":
            raise _Instead(outcome)
        by = self.skill.id
        if outcome.kind == "done" and isinstance(outcome.value, bool):
            return Verdict(outcome.value, "verified", by, "" if outcome.value else "unknown")
        if outcome.kind == "failed" and outcome.cause != "unknown":
            return Verdict(False, "verified", by, outcome.cause, outcome.message)
        return None

    def _judges(self) -> bool:
        """Whether the generator is to judge: where the skill cannot tell, and beside one that can
        until it is known how far it is to be trusted."""
        if JUDGE not in self.runs.services.generator.proven:
            return False
        return not self.skill.has_verify or self._agreement()[1] < assess.RUNS

    def _judged(self) -> Verdict | None:
        seen = self._seen()
        outcome = self._look() if self.skill.has_observe else None
        after = assess.words(outcome.value) if outcome and outcome.kind == "done" else "unknown"
        before = [assess.words(seen["first"]) if seen else "unknown"]
        found = self._store.results(self.run.id)
        before += [
            f"predicted: {value['selected']} ({value['p']:.2f})"
            for action, _, method, _, value in found
            if (action, method) == (PREDICT, PREDICT)
        ]
        said = [value for _, _, method, _, value in found if method == "say" and value]
        fields = {
            "request": redact(self.run.text),
            "skill": f"{self.skill.id}: {self.skill.description}",
            "before": "\n".join(before),
            "after": after,
            "output": redact("\n".join(said)) or "nothing",
        }
        value = self._write(1, JUDGE, fields)
        if value is None:
            return None
        cause = "" if value["success"] else CAUSES.get(value["cause"], value["cause"])
        by = self.runs.services.generator.name
        return Verdict(value["success"], "assessed", by, cause, value["summary"])

    def _updated(self, summary: str) -> str:
        """What to try instead, in the words of a request; "" when there is nothing, it was tried
        often enough, or the person would rather not."""
        account = Account.of(self.run)
        if account.updated >= UPDATES:
            return ""
        text = self._write(2, "rewrite", {"request": redact(self.run.text), "change": summary})
        if not text or text.split() == self.run.text.split():
            return ""
        if self.skill.careful:  # a yes in advance was given to the request, not to a second try
            if self.runs.services.yes or not self.runs.services.answerable():
                return ""
            question = f"That did not work: {summary} Shall I try again: {text}?"
            if not self._ask(ASSESS, 3, question):
                return ""
        return text

    def _write(self, ordinal: int, task: str, fields: Mapping[str, str]) -> Any:
        """What the generator writes, None where it cannot; raises _Instead when cut off."""
        calls = self._calls(ASSESS, free=True)
        try:
            given = {"ordinal": ordinal, "task": task, "fields": dict(fields)}
            value = calls.answer("generate", given)
        except (Unproven, Failed):
            value = None
        self.turn.results += calls.results
        self.run = replace(self.run, spent=calls.account.text())
        if self.cancel.is_set():
            raise _Instead(Outcome("cancelled"))
        return value

    def _settle(self, verdicts: list[Verdict]) -> None:
        """Keep the verdicts, and label the decisions by them."""
        rows = json.loads(self._store.meta(f"rows_{self.run.id}", "[]")) + self.turn.way()
        decided = [(row, option, phase) for row, option, phase in rows]
        for verdict in verdicts:
            weight = None
            if verdict.source == "assessed":
                weight = assess.trust(*self._agreement())
            self.turn.labels += assess.labels(decided, verdict, self.run.id, weight)
            kept = RunVerdict(self.run.id, verdict.source, verdict.success, tuple(decided))
            self.turn.verdicts.append(kept)

    def _agreement(self) -> tuple[int, int]:
        return assess.agreement(self._store.verdicts(), self.runs.labelled())

    # parts

    @property
    def _store(self) -> Any:
        return self.runs.services.store

    def _state(self) -> dict[str, Any]:
        return json.loads(self.run.state)

    def _calls(
        self, action: str, cancel: threading.Event | None = None, free: bool = False
    ) -> Calls:
        services, cancel = self.runs.services, cancel or self.cancel
        return Calls(services, self.run, self.skill, action, self.tree, self.turn, cancel, free)

    def _look(self) -> Outcome:
        """``observe``, which may only look."""
        calls = self._calls(OBSERVE)
        answer = looking(OBSERVE, calls.answer)
        return self.runs.pool.run(
            self.skill, OBSERVE, self._payload(), answer, LOOK_SECONDS, self.cancel
        )

    def _seen(self) -> dict[str, Any] | None:
        """What was observed: first, last (if that is known), and in which attempt."""
        fresh = [item.value for item in self.turn.results if (item.action, item.ordinal) == SEEN]
        kept = self._store.result(self.run.id, *SEEN)
        return fresh[-1] if fresh else kept[2] if kept else None

    def _keep_seen(self, first: Any, **last: Any) -> None:
        value = {"attempt": self.run.attempt, "first": first, **last}
        self.turn.results.append(Result(*SEEN, OBSERVE, value))
