"""What no skill covers: a category is made where none fits, the request is noted as a suggestion,
and when skills are new the open suggestions are looked at again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from semif.errors import DecisionError, FileError
from semif.types import Answer
from sia.events import Notice, Traced
from sia.generator.types import Generator, GeneratorError
from sia.home import Home
from sia.navigate import CREATE_CATEGORY, CREATE_SKILL, UNCOVERED, Navigator, Route
from sia.questions import View, state
from sia.redact import redact
from sia.runs import asked
from sia.scheduler import match_option
from sia.scripts import Cancel
from sia.skills.calls import Suspended
from sia.skills.category import Proposal, save
from sia.skills.tree import Tree
from sia.store import Run, Store
from sia.suggestions import Suggestion, Suggestions, output
from sia.turn import Result, Turn

YES_NO = ("yes", "no")
# Results of the making of a category, kept by these ordinals of one action.
ACTION = CREATE_CATEGORY
ROUTE, WRITTEN, MAY, TITLE, DESCRIPTION, WAY = range(6)
ASKABLE = ("typed",)  # sources behind which a person sits who knows what was asked
SHOWN = ("navigate_category", "navigate_skill", "cover", "same_action")
EARLIER = 16  # open suggestions that a request is compared with
REVIEWED = 100  # open suggestions that are looked at again
SEEN = "skills_seen"  # in the store: the skills that open suggestions were compared with

MAKE_ONE = "No category covers this. Make a new one for it?"
NAME_IT = "A title, and what belongs to it? Such as Travel: trips, flights and hotels (or no)"


@dataclass
class Uncovered:
    """reload: reads the skill folders again. answerable: somebody is there who can answer."""

    home: Home
    store: Store
    navigator: Navigator
    generator: Generator
    suggestions: Suggestions
    reload: Callable[[], Tree]
    answerable: Callable[[], bool]
    yes: bool = False
    _reviewed: Tree | None = None

    # a category where none fits

    def begun(self, run: Run) -> Route | None:
        """The route that was found before a question about a new category was asked."""
        stored = self.store.result(run.id, ACTION, ROUTE)
        if stored is None:
            return None
        return Route(UNCOVERED, stored[2]["p"], (), CREATE_CATEGORY, stored[2]["nearest"])

    def categorise(
        self, turn: Turn, run: Run, route: Route, tree: Tree, now: datetime, cancel: Cancel
    ) -> tuple[Route, Proposal | None] | None:
        """Where the request goes on: in the new category, in the one that a new one would overlap
        with, or as it was, with what was proposed. None: ``turn.run`` asks, or was interrupted."""
        if self.home.config.skills.create_category == "deny":
            return route, None
        if self._kept(run, ROUTE) is None:
            kept = {"p": route.p, "nearest": route.nearest, "decisions": _outputs(route.answers)}
            turn.results.append(Result(ACTION, ROUTE, "route", kept))
        try:
            proposal = self._proposal(turn, run, now, cancel)
        except Suspended:
            return None
        if cancel.is_set():
            turn.run = run
            return None
        if proposal is None:
            return route, None
        same = self._overlap(proposal, tree, turn, run)
        if same:
            turn.after.append(Notice(f"no new category: {same} covers {proposal}"))
            return self.navigator.within(run.text, tree, same), proposal
        try:
            allowed = self._may(turn, run, proposal, now)
        except Suspended:
            return None
        return (self._make(turn, proposal) if allowed else None) or route, proposal

    def _proposal(self, turn: Turn, run: Run, now: datetime, cancel: Cancel) -> Proposal | None:
        """By the generator where it is proven, else by the person; None: there is none."""
        written = self._kept(run, WRITTEN)
        if written is None:
            written = self._write(run, cancel)
            if cancel.is_set():
                return None
            turn.results.append(Result(ACTION, WRITTEN, "generate", written))
        if written:
            return Proposal.of(written["title"], written["description"], written["id"])
        if self._ask(turn, run, MAY, MAKE_ONE, now, YES_NO) != "yes":
            return None
        title, _, words = self._ask(turn, run, TITLE, NAME_IT, now).partition(":")
        if _declined(title):
            return None
        if not words.strip():
            question = f"What belongs to {title.strip()}? A few words (or no)"
            words = self._ask(turn, run, DESCRIPTION, question, now)
        proposal = None if _declined(words) else Proposal.of(title, words)
        if proposal and redact(str(proposal)) != str(proposal):
            turn.after.append(Notice("no new category: its words look like a secret", "warning"))
            return None
        return proposal

    def _write(self, run: Run, cancel: Cancel) -> dict[str, str]:
        """Name, title and description; empty where the generator must not or cannot."""
        if "name" not in self.generator.proven or redact(run.text) != run.text:
            return {}
        try:
            value = self.generator.compose("name", {"requests": run.text}, cancel=cancel)
        except GeneratorError:  # unfit, or away: as if it were not proven
            return {}
        return value if isinstance(value, dict) else {}

    def _may(self, turn: Turn, run: Run, proposal: Proposal, now: datetime) -> bool:
        """Whether it may be made: the person named it, or said yes to it, or need not be asked."""
        named = not self._kept(run, WRITTEN, turn)
        if named or self.yes or self.home.config.skills.create_category == "allow":
            return True
        question = f"{MAKE_ONE} {proposal}"
        return self._ask(turn, run, MAY, question, now, YES_NO) == "yes"

    def _ask(
        self,
        turn: Turn,
        run: Run,
        ordinal: int,
        question: str,
        now: datetime,
        options: Sequence[str] = (),
    ) -> str:
        """The answer, "no" where nobody can give one or is asked the like already; else the run
        waits (Suspended). Without options, whatever is said next is the answer."""
        answer = self._kept(run, ordinal)
        if answer is not None:
            return answer
        others = (other.open_question.get("action") for other in self.store.runs("asking"))
        if run.source not in ASKABLE or not self.answerable() or ACTION in others:
            return "no"
        asking = {
            "action": ACTION,
            "ordinal": ordinal,
            "method": "ask",
            "text": question,
            "options": list(options) or None,
            "literal": not options,
        }
        turn.run = replace(run, status="asking", requeued=now, question=json.dumps(asking))
        turn.after.append(asked(turn.run))
        raise Suspended

    def _kept(self, run: Run, ordinal: int, turn: Turn | None = None) -> Any:
        for result in turn.results if turn else ():
            if (result.action, result.ordinal) == (ACTION, ordinal):
                return result.value
        stored = self.store.result(run.id, ACTION, ordinal)
        return stored[2] if stored else None

    def _overlap(self, proposal: Proposal, tree: Tree, turn: Turn, run: Run) -> str:
        """The category that is there already for this; "" where there is none."""
        if any(category.name == proposal.name for category in tree.categories):
            return proposal.name
        same, answers = self.navigator.overlapping(str(proposal), tree)
        turn.decided += [(answer, run.id) for answer in answers]
        return same

    def _make(self, turn: Turn, proposal: Proposal) -> Route | None:
        """Save it and have it in the tree; None where that fails."""
        try:
            save(self.home.skill_roots[-1], proposal)
        except FileError as error:
            turn.after.append(Notice(f"no new category: {error}", "error"))
            return None
        self.reload()
        turn.after.append(Notice(f"new category {proposal.name}: {proposal.description}"))
        return Route(UNCOVERED, 1.0, (), CREATE_SKILL, proposal.name)

    # suggestions

    def note(
        self, turn: Turn, run: Run, route: Route, proposal: Proposal | None = None
    ) -> Suggestion:
        """Note the request as what a skill, or a category, is missing for."""
        here = [answer for answer, _ in turn.decided if answer.decision.phase in SHOWN]
        before = self._kept(run, ROUTE) or self._kept(run, WAY)
        decisions = [*(before["decisions"] if before else ()), *_outputs(here)]
        item, row = self.suggestions.suggest(
            run,
            route.suggestion,
            route.nearest,
            state("navigate_category", View(run.text)),
            decisions,
            asdict(proposal) if proposal and route.suggestion == CREATE_CATEGORY else None,
            lambda items: self._same(turn, run, items),
        )
        if row is not None:
            turn.after.append(Traced(f"suggestion {json.dumps(row.to_json(), ensure_ascii=False)}"))
        return item

    def keep_way(self, turn: Turn, route: Route) -> None:
        """What led to a skill, in case that finds only then that nothing covers the request."""
        way = {"decisions": _outputs(route.answers)}
        turn.results.append(Result(ACTION, WAY, "route", way))

    def done(self, run: Run) -> None:
        """A skill did what was asked: a suggestion of these words is no longer open."""
        self.suggestions.done(run.text, run.skill)

    def _same(self, turn: Turn, run: Run, items: list[Suggestion]) -> int:
        last = items[-EARLIER:]
        try:
            number, answers = self.navigator.repeated(run.text, [item.query for item in last])
        except DecisionError:  # one of them is too long to be read beside this one
            return -1
        turn.decided += [(answer, run.id) for answer in answers]
        return number if number < 0 else len(items) - len(last) + number

    # new skills

    def unreviewed(self, tree: Tree) -> bool:
        """Whether skills are there that open suggestions were not yet compared with."""
        if tree is self._reviewed:
            return False
        if self._new(tree) and self.suggestions.open():
            return True
        self._see(tree)
        return False

    def review(self, turn: Turn, tree: Tree, cancel: Cancel) -> None:
        """Say of each open suggestion that a new skill covers that it can be done now."""
        new = self._new(tree)
        for item in self.suggestions.open()[-REVIEWED:]:
            if cancel.is_set():
                return  # what goes first is here; the rest is looked at in the next idle turn
            text = item.text(self.store)
            try:
                route = self.navigator.route(text, tree)
            except DecisionError:  # too long for a model of today
                continue
            turn.decided += [(answer, item.id) for answer in route.answers]
            if route.skill in new and route.skill != item.skill:
                self.suggestions.mark(item.id, "covered", route.skill)
                words = f"{route.skill} seems to do what you asked for ({item.query}): "
                turn.after.append(Notice(f"{words}sia suggestions run {item.id}"))
        self._see(tree)

    def _new(self, tree: Tree) -> set[str]:
        """Skills that are new, or new in their description."""
        seen = set(json.loads(self.store.meta(SEEN, "[]")))
        return {skill.id for skill in tree.skills if f"{skill.id}: {skill.description}" not in seen}

    def _see(self, tree: Tree) -> None:
        self._reviewed = tree
        seen = json.dumps([f"{skill.id}: {skill.description}" for skill in tree.skills])
        if seen != self.store.meta(SEEN):
            self.store.set_meta(SEEN, seen)


def _declined(text: str) -> bool:
    return not text.strip() or match_option(text, YES_NO) is not None


def _outputs(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    return [output(answer) for answer in answers]
