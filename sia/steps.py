"""What a turn does: navigate, run the next action of a skill, or let the generator act."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from semif.errors import DecisionError
from sia import actions, commands, record
from sia.budget import NOTICE, Budget, relieve
from sia.concerns.keeper import Keeper
from sia.declined import Declined
from sia.entries import (
    ErrorEntry,
    Iteration,
    Mode,
    Note,
    ProcessView,
    QueuedView,
    ReadStdin,
    Reasoning,
    Response,
    Script,
    Step,
    Text,
    WriteStdout,
)
from sia.errors import RESTART
from sia.events import Ended, Notice, Routed
from sia.generator.types import Generator, GeneratorError
from sia.halts import Halts
from sia.home import Home
from sia.machine import Machine
from sia.navigate import CREATE_CATEGORY, CREATE_SKILL, UNCOVERED, Navigator, Route
from sia.prompt import prompt
from sia.redact import redact
from sia.runs import Runs, asked
from sia.scheduler import Preemption
from sia.scripts import Cancel, Refused, Scripts, ScriptState, Until
from sia.scripts.policy import Author
from sia.session import Session, seen
from sia.skills.api import NOT_COVERED
from sia.skills.manifest import Manifest
from sia.skills.tree import Tree, UnknownSkill
from sia.store import Run, Store
from sia.turn import BROKEN_OFF, Turn
from sia.uncovered import Uncovered

NO_SKILL = (
    'I have no skill for that yet, so I did nothing. Ask "what can you do" to see what I can; a '
    "folder dropped into skills/ teaches me more."
)


@dataclass
class Steps:
    """The steps of one session. ``tree``: gives the present skill tree. ``revision``: names who
    decides at present. ``since``: when this process began."""

    home: Home
    store: Store
    session: Session
    scripts: Scripts
    machine: Machine
    navigator: Navigator
    runs: Runs
    generator: Generator
    budget: Budget
    uncovered: Uncovered
    concerns: Keeper
    declined: Declined
    halts: Halts
    tree: Callable[[], Tree]
    revision: Callable[[], str]
    since: datetime
    turns: int = 12

    # the context

    def context(
        self,
        run: Run | None,
        process: ProcessView | None,
        waiting: Sequence[QueuedView],
        depth: int,
        now: datetime,
        cancel: Cancel,
    ) -> Iteration:
        """The context of the coming turn, after the scripts it waits for."""
        self._await_scripts(run, cancel)
        self._refresh_scripts()
        percent = self._relieve()
        stdin = self.store.stdin_count(run.id) if run else 0
        return Iteration(
            session=self.session.name,
            n=self.session.n + 1,
            parent=self.session.parent,
            figures=self.machine.figures(now, percent, stdin),
            entries=self.session.entries,
            process=replace(process, text=redact(process.text)) if process else None,
            queue=tuple(replace(item, text=redact(item.text)) for item in waiting),
            queue_depth=depth,
            decision_revision=self.revision(),
        )

    def _await_scripts(self, run: Run | None, cancel: Cancel) -> None:
        """Single shots of this process, and for a turn that the generator reads, the repeats."""
        wanted = [
            script.id
            for script in self.session.scripts()
            if script.mode == "single_shot" and script.status == "running"
            and run is not None and script.run == run.id
        ]
        if self.session.n == 0 or (run is not None and self.reads(run)):
            for script in self.session.scripts():
                if script.mode == "repeat" and script.status != "refused":
                    self._repeat(script)
                    wanted.append(script.id)
        if wanted:
            self.scripts.wait(wanted, cancel)

    def _repeat(self, script: Script) -> None:
        """Start a repeat anew, unless it still runs: new, or from a turn that was cut short."""
        state = self._state(script)
        if state is None or state.status != "running":
            # The entry shows the command without its secrets; what was started knows it whole.
            command = state.command if state else script.command.text
            self._start(script.id, "repeat", command, "generator" if script.run else "person")

    def _start(self, id: str, mode: Mode, command: str, by: Author) -> None:
        try:
            self.scripts.start(id, mode, command, by=by)
        except Refused as error:
            entry = self.session.get(id)
            self.session.update(replace(entry, status="refused", note=str(error)))

    def _state(self, script: Script) -> ScriptState | None:
        try:
            return self.scripts.state(script.id)
        except KeyError:  # it is on record, but no turn came to start it
            return None

    def _refresh_scripts(self) -> None:
        for script in self.session.scripts():
            if script.status == "running" or (
                script.mode == "repeat" and script.status != "refused"
            ):
                state = self._state(script)
                if state:
                    self.session.update(self._kept(seen(script, state)))

    def _kept(self, script: Script) -> Script:
        """A script that is over, its exact bytes kept with the coming iteration."""
        return record.kept(script, self._sidecar(), self.home.state)

    def _sidecar(self) -> Path:
        """Where exact bytes of the coming iteration go."""
        return self.home.contexts / self.session.name / f"{self.session.n + 1:06d}.d"

    def _relieve(self) -> int:
        """Percent of the budget in use, after relief where it was needed."""
        percent = self.budget.percent(self.session.entries)
        if percent >= self.budget.limit and self.session.n:
            note = self.session.new_id()
            session = self.session
            lighter = relieve(session.entries, self.budget, session.file, note, session.filed)
            self.session.replace_all(lighter)
            percent = self.budget.percent(self.session.entries)
        if percent > self.budget.notice and not self._noticed():
            text = NOTICE.format(percent=percent)
            self.session.add(lambda id: Note(id, Text.of(text)))
        return percent

    def _noticed(self) -> bool:
        """Whether the notice stands in the context: it is for the agent to delete."""
        start = NOTICE.partition("{")[0]
        return any(
            isinstance(entry, Note) and entry.text.text.startswith(start)
            for entry in self.session.entries
        )

    # the step

    def step(self, turn: Turn, iteration: Iteration, cancel: Cancel) -> None:
        run = turn.run
        if cancel.is_set():
            return
        if run is None:
            if self.uncovered.unreviewed(self.tree()):
                self.uncovered.review(turn, self.tree(), cancel)
            else:
                self.concerns.look(turn)
            return
        if not run.skill:
            now = iteration.figures.time
            if self.declined.wanted(turn, run, now):
                self._navigate(turn, run, now, cancel)
            else:
                self._note_messages(turn, run)
            return
        tree = self.tree()  # one for all of the turn: another may come at any moment
        skill = _worked_by(run, tree)
        if skill is None or not skill.has_code:
            self._write(turn, run, skill, iteration, cancel)
        else:
            self._act(turn, run, skill, tree, iteration, cancel)

    def wants_turn(self) -> bool:
        """Whether an idle turn is wanted: skills are new, and requests wait for one, or a concern
        is due."""
        return self.uncovered.unreviewed(self.tree()) or self.concerns.due()

    def reads(self, run: Run) -> bool:
        """Whether the generator works this run: no skill covers it, or the skill is a prompt."""
        if not run.skill:
            return False
        skill = _worked_by(run, self.tree())
        return skill is None or not skill.has_code

    def preemption(self, run: Run) -> Preemption:
        """What it takes to displace ``run``."""
        tree = self.tree()
        skill = _worked_by(run, tree)
        if skill is None:
            return Preemption(run.source)
        brakes = [
            (other.id, other.description)
            for other in tree.category(skill.category).skills
            if other.brakes and other.id != skill.id
            and not tree.available(other, self.home.setting)
        ]
        tau = self.home.config.intake.high_stakes if skill.stakes == "high" else 0.0
        return Preemption(run.source, skill.interrupted_by, tau, tuple(brakes), skill.declines)

    def _navigate(self, turn: Turn, run: Run, now: datetime, cancel: Cancel) -> None:
        tree = self.tree()  # one for all of the way: another may come at any moment
        try:
            found = self._find(turn, run, tree, now, cancel)
        except DecisionError as error:
            self._end(turn, run, "failed", f"I could not decide what to do: {error}")
            return
        if found is None:  # a question about a new category is open, or something goes first
            return
        route, noted = found
        skill = tree.skill(route.skill) if route.skill != UNCOVERED else None
        missing = tree.available(skill, self.home.setting) if skill else ""
        self._add_step(run, route.skill, "", "done", route.suggestion)
        run = replace(run, skill=route.skill)
        if missing:
            self._end(turn, run, "failed", f"I cannot do that yet: {missing}.")
        elif skill and skill.has_code:
            turn.run = run
        elif "act" not in self.generator.proven:
            words = f"{NO_SKILL} It is noted as {noted}." if noted else NO_SKILL
            self._end(turn, run, "failed", words)
        else:
            turn.run = run
            if skill:
                text = Text.of(f"How to do {skill.id}:\n{skill.body}")
                self.session.add(lambda id: Note(id, text))

    def _find(
        self, turn: Turn, run: Run, tree: Tree, now: datetime, cancel: Cancel
    ) -> tuple[Route, str] | None:
        """The way of a request, and the id of the suggestion where no skill covers it; None when
        it is not found in this turn."""
        source = self.session.request(run.id)
        route, proposal = self.uncovered.begun(run), None
        new = route is None
        if route is None:
            route = self.navigator.route(run.text, tree)
            turn.decided += [(answer, source) for answer in route.answers]
        if route.suggestion == CREATE_CATEGORY:
            found = self.uncovered.categorise(turn, run, route, tree, now, cancel)
            if found and found[0] is not route:
                turn.decided += [(answer, source) for answer in found[0].answers]
            if found is None:
                if new:
                    turn.before.append(Routed(run.id, UNCOVERED, route.p))
                return None
            route, proposal = found
        if new or route.skill != UNCOVERED:
            turn.before.append(Routed(run.id, route.skill, route.p))
        if route.skill == UNCOVERED:
            return route, self.uncovered.note(turn, run, route, proposal).id
        self.uncovered.keep_way(turn, route)
        return route, ""

    def _add_step(self, run: Run, skill: str, action: str, status: str, text: str) -> None:
        words = Text.of(redact(text))
        self.session.add(lambda id: Step(id, skill, action, status, run.id, words))

    def _end(self, turn: Turn, run: Run, status: str, text: str) -> None:
        """End a run from code, with words for the person."""
        self._say(turn, run, text, "code")
        turn.run = replace(run, status=status, outcome=text, preempts=False)
        turn.after.append(Ended(run.id, status, text))

    def _say(self, turn: Turn, run: Run, text: str, by: str) -> None:
        turn.say(run.id, text)
        turn.response = Response(actions.to_xml(actions.Say(redact(text))), by)
        self._note_said(run, text)

    def _note_messages(self, turn: Turn, run: Run) -> None:
        for _, text in turn.messages:
            self._note_said(run, text)

    def _note_said(self, run: Run, text: str) -> None:
        words = Text.of(redact(text))
        self.session.add(lambda id: WriteStdout(id, run.id, words))

    def _act(
        self,
        turn: Turn,
        run: Run,
        skill: Manifest,
        tree: Tree,
        iteration: Iteration,
        cancel: Cancel,
    ) -> None:
        action = self.runs.next(run, skill)
        if not action:
            self._end(turn, run, "failed", f"The skill {skill.id} changed meanwhile: ask again.")
            return
        now = iteration.figures.time
        outcome = self.runs.act(run, skill, tree, turn, now, cancel)
        if outcome.cause == NOT_COVERED:
            route = Route(UNCOVERED, 1.0, (), CREATE_SKILL, skill.category)
            noted = self.uncovered.note(turn, run, route)
            turn.after.append(Notice(f"noted as {noted.id}; see sia suggestions"))
        status = "waiting" if outcome.kind == "suspended" else outcome.kind
        self._add_step(run, run.skill, action, status, outcome.message)
        self._note_messages(turn, run)
        if turn.messages:
            text = "\n".join(text for _, text in turn.messages)
            turn.response = Response(actions.to_xml(actions.Say(redact(text))), "skill")

    # the generator's turns

    def _write(
        self,
        turn: Turn,
        run: Run,
        skill: Manifest | None,
        iteration: Iteration,
        cancel: Cancel,
    ) -> None:
        # Asked again here: since its navigation the skill, or the generator, may have changed.
        if run.skill != UNCOVERED and skill is None:
            self._end(turn, run, "failed", f"The skill {run.skill} is gone: ask again.")
            return
        if "act" not in self.generator.proven:
            self._end(turn, run, "failed", NO_SKILL)
            return
        if run.turns >= self.turns:
            text = f"I stopped after {run.turns} turns without coming to an end: {run.text}"
            self._end(turn, replace(run, cut=True), "failed", text)
            return
        if skill and (why := self.runs.over(run, skill)):
            self._over_budget(turn, run, skill, why, iteration.figures.time)
            return
        ids = [entry.id for entry in iteration.entries]
        begun, used = time.monotonic(), self.generator.used
        left = skill.budget.seconds - run.seconds if skill else math.inf
        try:
            with Until(cancel, left) as until:
                reply = self.generator.reply(prompt(iteration).parts, ids=ids, cancel=until)
        except GeneratorError as error:
            self._end(turn, run, "failed", f"I could not go on: {error}")
            return
        turn.generator = self.generator.name
        spent = time.monotonic() - begun
        run = turn.run = self.runs.charged(run, self.generator.used - used, spent)
        if reply.finish == "cancelled":
            return  # preempted, or out of time, which the next turn says
        turn.run = replace(run, turns=run.turns + 1)
        shown = Text.of(redact(reply.text)).text
        turn.response = Response(shown, "generator", lossy=shown != reply.text)
        try:
            action = actions.parse(reply.text, ids)
        except actions.ActionError as error:
            self._error(str(error), error.line, error.column)
            return
        if reply.finish == "length" and isinstance(action, actions.RunScript):
            self._error("the script was cut off at the reply's budget and not run; write less")
            return
        self._apply(turn, turn.run, action, iteration.figures.time)

    def _over_budget(
        self, turn: Turn, run: Run, skill: Manifest, why: str, now: datetime
    ) -> None:
        touched = any(script.run == run.id for script in self.session.scripts())
        turn.run = self.runs.over_budget(run, skill, why, turn, now, touched)
        self._note_messages(turn, run)

    def _error(self, text: str, line: int = 0, column: int = 0) -> None:
        words = Text.of(redact(text))
        self.session.add(lambda id: ErrorEntry(id, words, line, column))

    def _apply(self, turn: Turn, run: Run, action: actions.Action, now: datetime) -> None:
        match action:
            case actions.Think(text):
                words = Text.of(redact(text))
                self.session.add(lambda id: Reasoning(id, words))
            case actions.RunScript(mode, command):
                words = Text.of(redact(command))
                script = self.session.add(lambda id: Script(id, mode, words, run=run.id))
                turn.start.append((script.id, mode, command))
            case actions.Delete(id):
                entry = self.session.get(id)
                if isinstance(entry, Script) and entry.status == "running":
                    self.scripts.end(id, "deleted")
                self.session.delete(id)
            case actions.TakeInput():
                self._take_input(turn, run, now)
            case actions.Say(text):
                turn.say(run.id, text)
                self._note_said(run, text)
                turn.run = replace(run, status="done", preempts=False)
                turn.after.append(Ended(run.id, "done"))
            case actions.Stop():
                turn.exit_code = RESTART

    def _take_input(self, turn: Turn, run: Run, now: datetime) -> None:
        found = self.store.oldest_stdin(run.id)
        if found is None:
            turn.run = replace(run, status="asking", requeued=now, question='{"method": "stdin"}')
            turn.after.append(asked(turn.run))
            return
        number, text = found
        turn.taken.append(number)
        words = record.keep_text(text, f"input{number}", self._sidecar())
        self.session.add(lambda id: ReadStdin(id, words))

    def follow(self, turn: Turn) -> None:
        """Start what the turn asked for, and halt what it ended, now that it is on record."""
        self.concerns.follow()
        for id, mode, command in turn.start:
            self._start(id, mode, command, "generator")
        run = turn.run
        if run and run.status in BROKEN_OFF:
            self.halts.halt(run.id)
        elif run and run.status == "done" and run.skill != UNCOVERED:
            self.uncovered.done(run)

    # runs that end from outside

    def end_work(self, run: str) -> None:
        """End what a run has set going, which may take some seconds; on any thread."""
        self.halts.halt(run)
        for script in self.session.scripts():
            if script.run == run and script.status == "running":
                self.scripts.end(script.id, "cancelled")
        commands.end(self.home.folder, run)

    def end_cancelled(self) -> None:
        """End what runs have set going that were ended while no agent ran, or before a crash."""
        self.halts.rest()
        known = {script.run for script in self.session.scripts() if script.run}
        for run in known | commands.runs(self.home.folder):
            found = self.store.run(run)
            if found and found.status == "cancelled":
                self.end_work(run)

    def give_up_questions(self) -> bool:
        """Nobody will answer any more what was asked here: enter those runs again, so that they end
        or say so. False when there are none."""
        # A question of an earlier session stays: whoever was asked may come back to it.
        with self.store.transaction():  # what is cancelled or answered meanwhile stays so
            asking = [run for run in self.store.runs("asking") if run.requeued >= self.since]
            for run in asking:
                if run.open_question.get("method") == "stdin":
                    self._error("no more input will come; end with <write_stdout>")
                self.store.save_run(replace(run, status="waiting", question=""))
        return bool(asking)


def _worked_by(run: Run, tree: Tree) -> Manifest | None:
    """The skill that was found for ``run``; None where there is none, or it is gone."""
    if run.skill in ("", UNCOVERED):
        return None
    try:
        return tree.skill(run.skill)
    except UnknownSkill:
        return None
