"""The agent of one home, put together: models, loop, intake, alarm, skills and scripts.

Front ends submit inputs and hear events; they never touch the parts.
"""

from __future__ import annotations

import os
import secrets
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import SimpleQueue

from semif.export import read_labels
from semif.log import DecisionLog
from semif.revision import Registry
from sia import brain as models
from sia import changes, record, trial
from sia import queue as queues
from sia.account import Prices
from sia.bell import Bell, announce
from sia.brain import Brain
from sia.calls import Services
from sia.concerns import words as concern_words
from sia.concerns.keeper import Keeper
from sia.concerns.table import Concerns
from sia.concerns.triage import Facts
from sia.declined import Declined
from sia.dream.nights import Nights
from sia.entries import Note, Text
from sia.errors import RESTART, SOME_FAILED, UsageError
from sia.events import (
    Admitted,
    Emit,
    Ended,
    Event,
    Notice,
    Ready,
    Routed,
    Said,
    Traced,
    TurnEnded,
)
from sia.generator.manual import ManualGenerator
from sia.halts import Halts
from sia.home import Home
from sia.inlets import Inlets
from sia.intake import Intake
from sia.loop import Arrival, Loop
from sia.machine import Machine, on_mains
from sia.navigate import Navigator
from sia.opening import opened_budget, opened_scripts, opened_session
from sia.questions import Questions
from sia.queue import Queue
from sia.recorder import Recorder
from sia.redact import redact
from sia.reminders import Reminders
from sia.runs import Runs, asked
from sia.scheduler import Admission, Scheduler
from sia.scripts import Scripts
from sia.session import Session, lost_scripts
from sia.skills.host import WorkerPool, passed_environment
from sia.skills.tree import Tree, TreeHolder
from sia.steps import Steps
from sia.store import Input, Run, Store
from sia.suggestions import Suggestions
from sia.turn import Again
from sia.uncovered import Uncovered

AGAIN_URGENCY = 0.5  # of what was taken for no request, and is worked on a person's word


@dataclass(frozen=True)
class Options:
    """yes: confirmations are given in advance. interactive: a person sits there. autonomy: concerns
    may fire. manual: a person plays the generator. approve: asks the person whether a script may
    run."""

    yes: bool = False
    autonomy: bool = False
    interactive: bool = False
    manual: ManualGenerator | None = None
    model: str | None = None
    approve: Callable[[str], bool] | None = None


class Agent:
    """Opens the home's state at once; the models are loaded by ``run``."""

    def __init__(
        self, home: Home, options: Options, emit: Emit, load: Callable[..., Brain] = models.load
    ) -> None:
        """load: gives the models (home, manual generator, model path)."""
        self.home, self.options = home, options
        self._load = load
        self._listeners: list[Emit] = [emit]
        problems: list[str] = []
        self.store = Store(home.database, problems)
        problems += record.reconcile(self.store, home.contexts)
        self._guard = threading.Lock()
        self._closing = False
        self._early_stop: int | None = None
        self._stop_watch = threading.Event()
        self._intake: Intake | None = None
        self._inlets: Inlets | None = None
        self._declined: Declined | None = None
        self._scripts_over: SimpleQueue[str | None] = SimpleQueue()
        self.loop: Loop | None = None
        self.brain: Brain | None = None
        self.holder = TreeHolder(home.skill_roots)
        self.reminders = Reminders(
            self.store, home.tasks / "reminders", str(home.zone), self._reset_bell
        )
        self.reminders.restore()
        self.concerns = Concerns(self.store, home.autonomy, self._reset_bell, self.now)
        self.concerns.restore()
        self._tree = self.holder.tree
        self._end_work: Callable[[str], None] = lambda run: None  # at the start, see `_build`
        self._problems = [*problems, *(str(item) for item in self.holder.tree.problems)]
        self._bell: Bell | None = None
        self.nights = Nights(
            home, self.emit, self.now, ("--model", options.model) if options.model else (),
            options.interactive,
        )  # fmt: skip
        self._watched: list[changes.Watched] = []
        self.changed = False  # what it runs on, and it ends for that

    # events

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def listen(self, listener: Emit) -> Callable[[], None]:
        """Hear every event from now on; the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _warn(self, text: str) -> None:
        self.emit(Notice(text, "warning"))

    def now(self) -> datetime:
        return datetime.now(self.home.zone)

    # input

    def submit(self, text: str, source: str) -> str:
        """Keep an input; it is admitted as soon as the models are there. Its run id."""
        self.nights.working()
        with self._guard:
            if self._intake:
                run = self._intake.submit(text, source)
            else:
                run = self.store.add_input(source, text, datetime.now(UTC)).run
        self.concerns.heard(text, source)
        return run

    def drop(self, id: str) -> str:
        """Cancel a request that waits; what was done, in words. Raises SiaError."""
        with self._guard:
            loop = self.loop
            if loop is None:
                run = queues.drop(self.store, id)
        if loop:  # unguarded: it may take some seconds to end its scripts
            run = loop.drop(id)
        self.emit(Ended(id, "cancelled"))
        return queues.dropped(run)

    def raise_urgency(self, id: str, urgency: float) -> str:
        """Let a waiting request go sooner; what was done, in words. Raises SiaError."""
        with self._guard:
            if self.loop:
                run = self.loop.raise_urgency(id, urgency)
            else:
                run = queues.raise_urgency(self.store, id, urgency)
        return queues.raised(run)

    def change_concern(self, options: Namespace) -> str:
        """What was done, in words (see ``sia.concerns.words``). Raises SiaError."""
        return concern_words.change(self.concerns, options, self.now())

    def again(self, wanted: Again) -> str:
        """Work a request anew; its run id. A run whose place it takes is cancelled where it still
        waits for an answer. Raises UsageError where the skill is not there or lacks something."""
        tree = self._offered()
        skill = tree.skill(wanted.skill) if wanted.skill else None
        missing = tree.available(skill, self.home.setting) if skill else ""
        if missing:
            raise UsageError(f"I cannot do that yet: {missing}")
        now = datetime.now(UTC)
        with self._guard, self.store.transaction():
            old = self.store.run(wanted.instead) if wanted.instead else None
            cancelled = old if old and old.status == "asking" else None
            if cancelled:
                queues.cancel(self.store, cancelled)
            item = Input(
                self.store.next_id("i"), self.store.next_id("r"), "typed", wanted.text, now
            )
            run = Run(
                item.run, item.source, item.text, old.urgency if old else AGAIN_URGENCY, now, now,
                skill=wanted.skill,
            )  # fmt: skip
            self.store.save_run(run)
            if found := wanted.result:
                self.store.save_result(
                    run.id, found.action, found.ordinal, found.method, found.value
                )
        if cancelled:
            self._end_work(cancelled.id)  # unguarded: it may take some seconds
            self.emit(Ended(cancelled.id, "cancelled"))
        self.emit(Admitted(run.id, "run", run.text, run.urgency))
        if run.skill:
            self.emit(Routed(run.id, run.skill, 1.0))
        if self.loop:
            self.loop.deliver(Arrival(item, Admission("run", run.urgency)))
        return run.id

    def close_input(self) -> None:
        """Nothing more will be submitted; the agent ends when all is done."""
        with self._guard:
            self._closing = True
            if self._intake:
                self._intake.close()

    def stop(self, code: int, cut: bool = True) -> None:
        """See ``Loop.stop``."""
        with self._guard:
            if self.loop:
                self.loop.stop(code, cut)
            self._early_stop = code

    # life

    def run(self) -> int:
        """Load the models and work until the end; the exit code. Raises SiaError, SemifError."""
        for text in self._problems:
            self.emit(Notice(text, "warning"))
        self._tell_undelivered()
        self._tell_rolled_back()
        if cut := Registry(self.home.revisions).undo():
            self._warn(f"the swap to revision {cut} was cut off; sia revisions use {cut} tries it")
        self._watched = self._watch_itself()
        self.brain = self._load(self.home, self.options.manual, self.options.model, self._warn)
        session = opened_session(self.home, self.store)
        self.home.learn_secrets()  # before anything is shown to a model or written
        pool = WorkerPool(self.home.log / "skills.log", passed_environment(os.environ))
        scripts = opened_scripts(
            self.home, self.options.interactive, self.options.approve, self._scripts_over.put
        )
        try:
            self._build(self.brain, session, pool, scripts)
            code = self._work(pool)
        finally:
            self._stop_watch.set()
            bell, self._bell = self._bell, None
            if bell:
                bell.stop()
            pool.close()
            scripts.close(keep_background=self.store.meta("ended") != "1")
            self.brain.close()
        return code

    def close(self) -> None:
        """After ``run`` and the last ``submit``."""
        self.nights.rested()
        self.store.close()

    def _work(self, pool: WorkerPool) -> int:
        pool.warm()
        self.listen(self._after_turn)
        self.holder.watch(self._stop_watch, self._skills_changed)
        self._bell.start()
        for watched in self._watched:
            changes.watch(watched, self._stop_watch, self._warn, self._changed)
        self.nights.start()
        self._intake.start()
        self._inlets.start()
        self.emit(Ready(self.brain.decide.revision))
        # The one asked last comes last: it is the one that an answer goes to.
        for run in sorted(self.store.runs("asking"), key=lambda run: run.requeued):
            self.emit(asked(run))
        try:
            code = self.loop.run()
        finally:
            self._intake.stop()
            self._inlets.stop()
            self.nights.stop()
            self._declined.stop()
        if code == 0:
            self.store.set_meta("ended", "1")
            # Told to stop, it did as told; left to end by itself, what failed counts.
            if not self.loop.stopped and (self.loop.failed or self._intake.refused):
                code = SOME_FAILED
        return code

    def _offered(self) -> Tree:
        """What may be chosen here; the same object as long as that is the same."""
        tree = self.holder.tree.offered(self.home.setting)
        if tree != self._tree:
            self._tree = tree
        return self._tree

    def _build(self, brain: Brain, session: Session, pool: WorkerPool, scripts: Scripts) -> None:
        known = [state.id for state in scripts.adopt()]
        lost_scripts(session, lambda id: (self.home.scripts / id / "script.json").exists())
        if session.n == 0:
            scripts.forget(known)
        for script in session.scripts():  # one may have ended while nobody looked
            if script.mode == "background" and script.status == "running":
                self._scripts_over.put(script.id)
        decisions = DecisionLog(self.home.decisions, lambda text: self.emit(Traced(text)))
        questions, config = Questions.load(), self.home.config
        guard = config.skills.guard
        runs = Runs(
            home=self.home,
            services=Services(
                store=self.store,
                decider=brain.decide,
                generator=brain.generator,
                reminders=self.reminders,
                questions=questions,
                prices=Prices.of(config.generator),
                new_id=new_row_id,
                answerable=lambda: not self.loop.finished,
                end_work=lambda run: steps.end_work(run),
                hand_over=lambda text, within: self._intake.submit(text, "skill", within),
                yes=self.options.yes,
            ),
            pool=pool,
            thresholds=brain.thresholds(brain.decide),
            labelled=lambda: read_labels(self.home.labels, lambda problem: None),
        )
        navigator = Navigator(
            brain.decide, brain.thresholds(brain.decide), questions, new_row_id, guard
        )
        uncovered = Uncovered(
            home=self.home,
            store=self.store,
            navigator=navigator,
            generator=brain.generator,
            suggestions=Suggestions(self.home.suggestions),
            reload=self.holder.reload,
            answerable=lambda: not self.loop.finished,
            yes=self.options.yes,
        )
        declined = self._declined = Declined(
            store=self.store,
            runs=runs,
            tree=self._offered,
            now=self.now,
            emit=self.emit,
            said=lambda item, text: announce(self.loop, item, text),
            fault=lambda error: self.loop.fail(error),
        )
        keeper = self._keeper(brain, session, questions)
        steps = Steps(
            home=self.home,
            store=self.store,
            session=session,
            scripts=scripts,
            machine=Machine(self.home.folder),
            navigator=navigator,
            uncovered=uncovered,
            concerns=keeper,
            declined=declined,
            halts=Halts(
                self.home, self.store, pool, lambda: self.holder.tree, self.now,
                lambda text: self.emit(Notice(text, "error")),
            ),
            runs=runs,
            generator=brain.generator,
            budget=opened_budget(config, brain.count),
            tree=self._offered,
            revision=lambda: brain.decide.revision,
            turns=config.loop.turns,
            since=datetime.now(UTC),
        )
        steps.end_cancelled()
        self._end_work = steps.end_work
        recorder = Recorder(self.home, self.store, session, decisions, keeper.tells)
        with self._guard:
            queue = Queue(self.store, config.queue.rate, self.now())
            self.loop = Loop(self.store, session, steps, recorder, self.emit, self.now, queue)
            taus = brain.thresholds(brain.admit)
            scheduler = Scheduler(brain.admit, taus, questions, new_row_id)
            self._intake = Intake(
                self.store, self.loop, scheduler, decisions, self.emit, queue, config.queue.limit,
                tell_declined=declined.tell,
            )  # fmt: skip
            self._inlets = Inlets(
                self.home, self._intake, self.store, scripts, self._scripts_over, self._warn,
                self.loop.fail,
            )  # fmt: skip
            self._bell = Bell(self.store, self.reminders, keeper, self.loop, self.now, self.emit)
            if self._closing:
                self._intake.close()
            if self._early_stop is not None:
                self.loop.stop(self._early_stop)
        self.listen(keeper.hear)
        keeper.reconcile()
        registry = Registry(self.home.revisions)
        trial.end(registry, brain.revision.id, brain.decide, self.loop.probe)

    def _keeper(self, brain: Brain, session: Session, questions: Questions) -> Keeper:
        return Keeper(
            concerns=self.concerns,
            config=self.home.config.concerns,
            autonomy=self.options.autonomy,
            decider=brain.decide,
            thresholds=brain.thresholds(brain.decide),
            questions=questions,
            new_id=new_row_id,
            facts=Facts(
                self.store,
                lambda: [(item.due, item.text) for item in self.reminders.waiting()],
                lambda: self.concerns.last_heard,
                on_mains,
            ),
            tree=self._offered,
            clock=self.now,
            submit=lambda text, within: self._intake.submit(text, "concern", within),
            note=lambda text: session.add(lambda id: Note(id, Text.of(redact(text)))),
            say=lambda id, text: self._bell.say(id, text),
            stays=lambda: not self.loop.finished,
            wake=lambda: self.loop.nudge(),
        )

    # what happens beside the loop

    def _after_turn(self, event: Event) -> None:
        """When the loop may have become idle held inputs are looked at again, and a dream goes on
        that made way."""
        if isinstance(event, Admitted) and event.action != "reject":
            self.nights.working()
        elif isinstance(event, TurnEnded | Admitted):
            self._intake.release()
            if self.loop.idle() and not self.store.inputs():
                self.nights.rested()

    def _tell_undelivered(self) -> None:
        """Messages that a crash may have kept from the person."""
        messages = self.store.messages()
        for _, run, text in messages:
            self.emit(Said(run, text, again=True))
        self.store.drop_messages([number for number, _, _ in messages])

    def _tell_rolled_back(self) -> None:
        """What restart.sh put back since the last start."""
        path = self.home.revisions / "rolled_back"
        if path.exists():
            for line in path.read_text("utf-8", "replace").splitlines():
                self.emit(Notice(f"a new revision was put back: {line}", "warning"))
            path.unlink()

    def _watch_itself(self) -> list[changes.Watched]:
        """What this agent runs on, as it is now."""
        registry, chosen = Registry(self.home.revisions), self.home.config.reload
        watched: list[changes.Watched] = [changes.Pinned(registry, registry.current().id)]
        if chosen.config:
            watched.append(changes.ConfigFile(self.home.folder / "sia.toml", self._warn))
        if chosen.code and (roots := changes.code_roots()):
            watched.append(changes.Code(roots, self._stop_watch, self._warn, changes.loaded))
        return watched

    def _changed(self, new: str) -> None:
        """Start again after this turn; what runs goes on with what is new."""
        self.emit(Notice(f"SIA starts again {new}"))
        self.changed = True
        self.stop(RESTART, cut=False)

    def _reset_bell(self) -> None:
        if self._bell:
            self._bell.reset()

    def _skills_changed(self, tree: object, problems: tuple) -> None:
        self.emit(Notice("skills reloaded"))
        self.loop.nudge()
        for problem in problems:
            self.emit(Notice(str(problem), "warning"))


def new_row_id() -> str:
    """Unique across homes, so that their logs can be merged."""
    return f"d{secrets.token_hex(6)}"
