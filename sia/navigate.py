"""From a request to a skill: one choice a level of the tree, then a guard where it is proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from semif.types import Answer, Decider
from sia.questions import Questions, View
from sia.scheduler import TAU
from sia.skills.tree import Tree

UNCOVERED = "-"


@dataclass(frozen=True)
class Route:
    """skill: ``category/name``, or ``-``. suggestion: create_category | create_skill | "".
    nearest: the category that came closest."""

    skill: str
    p: float = 1.0
    answers: tuple[Answer, ...] = ()
    suggestion: str = ""
    nearest: str = ""


@dataclass
class Navigator:
    decider: Decider
    thresholds: Mapping[str, float]
    questions: Questions
    new_id: Callable[[], str]
    guard: bool = True
    _answers: list[Answer] = field(default_factory=list)

    def route(self, text: str, tree: Tree) -> Route:
        """The skill for ``text``; every decision made on the way is in ``answers``."""
        self._answers = []
        ranked = self._rank_categories(text, tree)
        if ranked[0][0] == "create_category":
            return self._end(UNCOVERED, ranked[0][1], "create_category", _second(ranked))
        category, p = ranked[0]
        skill, p = self._skill(text, tree, category)
        if skill == UNCOVERED:
            return self._end(UNCOVERED, p, "create_skill", category)
        if self._covers(text, tree, skill):
            return self._end(skill, p)
        second = _second(ranked)
        if second:
            other, p_other = self._skill(text, tree, second)
            if other != UNCOVERED and self._covers(text, tree, other):
                return self._end(other, p_other)
        return self._end(UNCOVERED, p, "create_skill", category)

    def _end(self, skill: str, p: float, suggestion: str = "", nearest: str = "") -> Route:
        return Route(skill, p, tuple(self._answers), suggestion, nearest)

    def _decide(self, phase: str, view: View, options: list[tuple[str, str]]) -> Answer:
        decision = self.questions.decision(phase, view, self.new_id(), options)
        (answer,) = self.decider.decide([decision])
        self._answers.append(answer)
        return answer

    def _rank_categories(self, text: str, tree: Tree) -> list[tuple[str, float]]:
        options = [(c.name, c.description) for c in tree.categories if c.skills]
        if not options:
            return [("create_category", 1.0)]
        answer = self._decide("navigate_category", View(text), options)
        return sorted(answer.probs.items(), key=lambda item: -item[1])

    def _skill(self, text: str, tree: Tree, category: str) -> tuple[str, float]:
        found = tree.category(category)
        options = [(skill.name, skill.description) for skill in found.skills]
        if not options:
            return UNCOVERED, 1.0
        answer = self._decide("navigate_skill", View(text), options)
        name, p = answer.selected, answer.probs[answer.selected]
        return (UNCOVERED if name == "create_skill" else f"{category}/{name}"), p

    def _covers(self, text: str, tree: Tree, skill: str) -> bool:
        if "cover" not in self.thresholds or not self.guard:
            return True
        view = View(text, skill=f"{skill}: {tree.skill(skill).description}")
        answer = self._decide("cover", view, [])
        # Looked up last: another decider may have stood in, and it has thresholds of its own.
        return answer.probs["yes"] >= self.thresholds.get("cover", TAU)


def _second(ranked: list[tuple[str, float]]) -> str:
    names = [name for name, _ in ranked[1:] if name != "create_category"]
    return names[0] if names else ""
