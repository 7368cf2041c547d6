"""The life of concerns beside the loop: when to look, what follows, what is said, how it ended.

A timer wakes the loop at the computed moment; it looks in an idle turn of its own, so the decision
is on record before anything follows from it, and nothing that a person asked for waits for it. All
but ``when`` and ``ring`` happens on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from semif.errors import SemifError
from semif.types import Decider
from sia.concerns import dynamics, triage
from sia.concerns.hours import midnight, opens
from sia.concerns.table import Concerns
from sia.concerns.triage import Facts
from sia.concerns.values import DEEPEST, NOTE_LIMIT, SAID_KEPT, Concern
from sia.config import ConcernsConfig
from sia.errors import OverLimit
from sia.events import Admitted, Asked, Ended, Event
from sia.questions import Questions
from sia.redact import redact
from sia.scheduler import TAU
from sia.skills.tree import Tree, UnknownSkill
from sia.store import Run
from sia.turn import Turn

FIRES, LOOKS = 2, 4  # at most, each time it looks
AGAIN = timedelta(minutes=1)  # then it looks at the rest
LINE = 300  # characters of what one fire came to, in the note
TOLD = "concerns_told"  # in the store: the day, and how much was said unasked on it
PARTIAL = "This is partial work: {concern} was cut off ({run}). What was done is below."
_OVER = ("done", "failed", "cancelled")

Submit = Callable[[str, Callable[[str], None]], str]


@dataclass(frozen=True)
class _Outcome:
    """What is to follow once the turn is on record. row: of the decision, "" without one."""

    concern: str
    verdict: str
    why: str
    row: str = ""


@dataclass
class Keeper:
    """autonomy: whether anything may fire. ``clock``: now, in the person's zone. submit: keeps an
    input of the source concern, the second argument being called within its commit. note: adds to
    the context. say: tells the person beside the process. stays: whether more may be begun at all.
    wake: has the loop look; thresholds: of whoever decides."""

    concerns: Concerns
    config: ConcernsConfig
    autonomy: bool
    decider: Decider
    thresholds: Mapping[str, float]
    questions: Questions
    new_id: Callable[[], str]
    facts: Facts
    tree: Callable[[], Tree]
    clock: Callable[[], datetime]
    submit: Submit
    note: Callable[[str], None]
    say: Callable[[str, str], None]
    stays: Callable[[], bool]
    wake: Callable[[], None]
    _called: bool = False
    _again: datetime | None = None
    _outcomes: list[_Outcome] = field(default_factory=list)
    _spoken: dict[str, str] = field(default_factory=dict)  # by run, what it said last

    # the clock

    def when(self) -> datetime | None:
        """When there is something to look at; None for never, or while the loop is called."""
        return None if self._called else self._when()

    def _when(self) -> datetime | None:
        due = self.concerns.next() if self.autonomy else None
        return max(due, self._opens()) if due else None

    def _opens(self) -> datetime:
        """The first moment from now on at which something may be begun unasked."""
        now = self.clock()
        moments = [now, self._again or now, self.concerns.quiet() or now]
        if self._told(now) >= self.config.messages:
            moments.append(midnight(now))
        return opens(self.config.quiet, max(moments).astimezone(now.tzinfo))

    def ring(self) -> None:
        """On the alarm's thread: the moment may have come."""
        moment = self.when()
        if moment and moment <= self.clock():
            self._called = True
            self.wake()

    def due(self) -> bool:
        """Whether the loop is to look, now that it is idle."""
        return self._called and self.stays()

    # looking

    def look(self, turn: Turn) -> None:
        """Decide about what is due; what follows waits for ``follow``."""
        if not self._called:
            return
        self._called = False
        moment, now = self._when(), self.clock()
        if moment is None or moment > now or not self.stays():
            return
        fires, facts = 0, self.facts.words(now)
        waiting = self.concerns.due(now)
        for number, concern in enumerate(waiting):
            if number == LOOKS or fires == FIRES:
                self._again = now + AGAIN
                break
            outcome = self._decided(turn, concern, facts, now)
            self._outcomes.append(outcome)
            if outcome.verdict == "fire":
                fires += 1
                self.note(context_note(concern))

    def _decided(self, turn: Turn, concern: Concern, facts: str, now: datetime) -> _Outcome:
        view = triage.view(concern, facts, now)
        decision = self.questions.decision("triage", view, self.new_id())
        try:
            (answer,) = self.decider.decide([decision])
        except SemifError as error:
            return self._undecided(concern, str(error))
        turn.decided.append((answer, concern.id))
        verdict = triage.verdict(answer, self.thresholds.get("triage", TAU))
        why = ", ".join(f"{name} {p:.2f}" for name, p in sorted(answer.probs.items()))
        if verdict == "defer" and concern.defers + 1 >= dynamics.DEFERS:
            verdict, why = "fire", f"put off {dynamics.DEFERS} times in a row ({why})"
        return _Outcome(concern.id, verdict, f"{why}; {facts}", decision.id)

    def _undecided(self, concern: Concern, error: str) -> _Outcome:
        """Without a decision only what stays on this machine may be done."""
        if self._reach(concern) in ("none", "local"):
            return _Outcome(concern.id, "fire", f"nobody could decide ({error})")
        return _Outcome(concern.id, "hold", error)

    def _reach(self, concern: Concern) -> str:
        """The effects of the skill that worked its last fire; "" where that is not known."""
        try:
            return self.tree().skill(concern.skill).effects if concern.skill else ""
        except UnknownSkill:
            return ""

    # after the record

    def follow(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for outcome in outcomes:
            concern = self.concerns.get(outcome.concern)
            moment = dynamics.candidate(concern)
            if moment is None or moment > self.clock():  # a person changed it meanwhile
                continue
            self._apply(concern, outcome)

    def _apply(self, concern: Concern, outcome: _Outcome) -> None:
        now, save = self.clock(), self.concerns.save
        details = {"why": outcome.why} | ({"row": outcome.row} if outcome.row else {})
        match outcome.verdict:
            case "fire":
                self._fire(concern, now, details)
            case "defer":
                save(dynamics.deferred(concern, now), "defer", **details)
            case "reset":
                save(dynamics.reset(concern, now), "reset", **details)
            case "hold":
                save(dynamics.failed(concern, now), "held", **details)
                words = (
                    f"I hold this back, for I could not decide whether it is time and do not know "
                    f"that it stays on this machine: {concern.text} ({concern.id}): {outcome.why}"
                )
                self._tell(concern.id, words)

    def _fire(self, concern: Concern, now: datetime, details: dict[str, str]) -> None:
        def within(run: str) -> None:
            self.concerns.save(dynamics.fired(concern, now, run), "fire", run=run, **details)

        try:
            self.submit(concern.instruction, within)
        except OverLimit as error:
            self.concerns.save(dynamics.failed(concern, now), "held", why=str(error))

    # what is said

    def _told(self, now: datetime) -> int:
        day, _, number = self.concerns.store.meta(TOLD).partition(" ")
        return int(number) if day == now.date().isoformat() else 0

    def _count(self, now: datetime) -> None:
        value = f"{now.date().isoformat()} {self._told(now) + 1}"
        self.concerns.store.set_meta(TOLD, value)

    def _tell(self, id: str, text: str) -> None:
        """Say something beside the process, if it may be said."""
        with self.concerns.store.transaction():
            passed = self.tells([(id, text)])
        for of, words in passed:
            self.say(of, words)

    def tells(self, messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of (run, text) that reach the person: of a concern none twice, word for word, and
        no more in a day than the cap. In the commit that keeps them."""
        return [(run, text) for run, text in messages if self._passes(run, text)]

    def _passes(self, run: str, text: str) -> bool:
        concern = self.concerns.of(run)
        if concern is None:
            return True
        now = self.clock()
        why = "told before, word for word" if text in concern.said else ""
        if not why and self._told(now) >= self.config.messages:
            why = f"{self.config.messages} messages were said unasked today"
        if why:
            self.concerns.save(concern, "unsaid", text=text, why=why)
            self.note(f"{concern.id}: what it said last did not reach the person ({why})")
            return False
        said = (*concern.said, text)[-SAID_KEPT:]
        self.concerns.save(replace(concern, said=said), "said", text=text)
        self._spoken[run] = text
        self._count(now)
        return True

    # how a fire ended

    def hear(self, event: Event) -> None:
        """Of every event of the agent."""
        match event:
            case Ended(run=run) | Admitted(run=run, action="reject"):
                if concern := self._of_fire(run):
                    self._settle(concern, self.concerns.store.run(run))
            case Asked(run=run, text=text):
                if concern := self._of_fire(run):  # it is an unasked word too
                    with self.concerns.store.transaction():
                        self._count(self.clock())
                        self.concerns.save(concern, "asked", text=text)

    def _of_fire(self, run: str) -> Concern | None:
        concern = self.concerns.of(run) if run else None
        return concern if concern and concern.fire == run else None

    def reconcile(self) -> None:
        """At the start: fires that ended, or were lost, while nobody looked."""
        unadmitted = {item.run for item in self.concerns.store.inputs()}
        for concern in self.concerns.firing():
            run = self.concerns.store.run(concern.fire)
            if (run is None and concern.fire not in unadmitted) or (run and run.status in _OVER):
                self._settle(concern, run)

    def _settle(self, concern: Concern, run: Run | None) -> None:
        now, status = self.clock(), run.status if run else "failed"
        note = rewritten(concern, run, self._spoken.pop(concern.fire, ""), now)
        concern = replace(concern, skill=_found(run), note=note)
        details = {"run": concern.fire, "outcome": run.outcome if run else "it never began"}
        if run is not None and status == "failed" and run.cut:
            self._cut(concern, run, now, details)
        elif status == "failed":
            self.concerns.save(dynamics.failed(concern, now), "error", **details)
        else:  # cancelled by a person is as good as done: they do not want it now
            self.concerns.save(dynamics.served(concern, now), status, **details)

    def _cut(self, concern: Concern, run: Run, now: datetime, details: dict[str, str]) -> None:
        """Cut off: the rest is a concern of its own, as often as it may be."""
        with self.concerns.store.transaction():
            kept = self.concerns.save(dynamics.cut(concern, now), "cut", **details)
            if concern.depth < DEEPEST:
                self.concerns.add(successor(kept, run, now), "successor", of=concern.id)
        if concern.depth >= DEEPEST:
            self._tell(
                concern.id,
                f"I give this up, for it was cut off {DEEPEST + 1} times: {concern.text} "
                f"({concern.id}). `sia concerns why {concern.id}` says how far it came.",
            )


def successor(concern: Concern, run: Run, now: datetime) -> Concern:
    """What does the rest of a fire that was cut off."""
    start = PARTIAL.format(concern=concern.id, run=run.id)
    return Concern(
        id="",
        text=concern.text,
        instruction=concern.instruction,
        rhythm=concern.rhythm,
        kind="one_shot",
        value=dynamics.THRESHOLD,
        grown=now,
        held=now + dynamics.backoff(concern),
        held_for="cut",
        note=_limited([start, *concern.note.splitlines()]),
        said=concern.said,
        skill=concern.skill,
        successor_of=concern.id,
        depth=concern.depth + 1,
    )


def rewritten(concern: Concern, run: Run | None, said: str, now: datetime) -> str:
    """The work-in-progress note after a fire: how it ended or what it said, the latest first."""
    status = "cut off" if run and run.cut else run.status if run else "lost"
    words = " ".join((said or (run.outcome if run else "")).split())
    line = f"{now:%Y-%m-%d %H:%M} {status}: {words or 'nothing said'}"[:LINE]
    start = [old for old in concern.note.splitlines() if old.startswith(PARTIAL[:20])]
    rest = [old for old in concern.note.splitlines() if old not in start]
    return _limited([*start, redact(line), *rest])


def _limited(lines: Sequence[str]) -> str:
    """Whole lines, as many as the note may hold."""
    kept, length = [], 0
    for line in lines:
        length += len(line) + 1
        if length > NOTE_LIMIT + 1:
            break
        kept.append(line)
    return "\n".join(kept)


def context_note(concern: Concern) -> str:
    """What the context says before the instruction of a fire comes in."""
    lines = [f"{concern.id} fires, a concern of your own: {concern.text}"]
    lines += concern.note.splitlines()
    lines += [f"Told before, not to be told again: {text}" for text in concern.said]
    return "\n".join(lines)


def _found(run: Run | None) -> str:
    return run.skill if run and "/" in run.skill else ""
