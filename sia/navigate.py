"""From a request to a skill: one choice a level of the tree, then a guard where it is proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from semif.types import Answer, Decider
from sia.questions import Questions, View
from sia.scheduler import TAU
from sia.skills.tree import Tree

UNCOVERED = "-"
CREATE_CATEGORY, CREATE_SKILL = "create_category", "create_skill"


@dataclass(frozen=True)
class Route:
    """skill: ``category/name``, or ``-``; ``p`` is the probability of the last decision on the way.
    suggestion: create_category | create_skill | "". nearest: the category that came closest."""

    skill: str
    p: float = 1.0
    answers: tuple[Answer, ...] = ()
    suggestion: str = ""
    nearest: str = ""


@dataclass(frozen=True)
class _Leaf:
    """Where a category leads. refused: a skill was chosen and the guard said no."""

    skill: str
    p: float
    refused: bool = False


@dataclass
class Navigator:
    """thresholds: by phase, of whoever decides at the moment. guard: the phases `cover` and
    `same_action` are asked, each only where it has a threshold."""

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
        first, p = ranked[0]
        if first == CREATE_CATEGORY:
            return self._end(_Leaf(UNCOVERED, p), CREATE_CATEGORY, _second(ranked))
        leaf = self._leaf(text, tree, first)
        second = _second(ranked)
        if leaf.refused and second:
            other = self._leaf(text, tree, second)
            if other.skill != UNCOVERED:
                return self._end(other)
        return self._end(leaf, CREATE_SKILL, first)

    def within(self, text: str, tree: Tree, category: str) -> Route:
        """The same, the category being known."""
        self._answers = []
        return self._end(self._leaf(text, tree, category), CREATE_SKILL, category)

    def overlapping(self, words: str, tree: Tree) -> tuple[str, tuple[Answer, ...]]:
        """The category that covers what ``words`` describe, "" where none does or it is not asked;
        and the decisions, one a category."""
        if not self._guarded("cover") or not tree.categories:
            return "", ()
        views = [View(words, skill=f"{c.name}: {c.description}") for c in tree.categories]
        chosen, answers = self._likeliest("cover", views)
        return tree.categories[chosen].name if chosen >= 0 else "", answers

    def repeated(self, text: str, earlier: Sequence[str]) -> tuple[int, tuple[Answer, ...]]:
        """Which of the ``earlier`` requests asks for the same action, -1 where none does or it is
        not asked; and the decisions, one a request."""
        if not self._guarded("same_action") or not earlier:
            return -1, ()
        return self._likeliest("same_action", [View(text, earlier=other) for other in earlier])

    def _likeliest(self, phase: str, views: Sequence[View]) -> tuple[int, tuple[Answer, ...]]:
        decisions = [self.questions.decision(phase, view, self.new_id()) for view in views]
        answers = tuple(self.decider.decide(decisions))
        best = max(range(len(answers)), key=lambda n: answers[n].probs["yes"])
        return (best if self._passes(answers[best]) else -1), answers

    def _end(self, leaf: _Leaf, suggestion: str = "", nearest: str = "") -> Route:
        if leaf.skill != UNCOVERED:
            suggestion = nearest = ""
        return Route(leaf.skill, leaf.p, tuple(self._answers), suggestion, nearest)

    def _decide(self, phase: str, view: View, options: list[tuple[str, str]]) -> Answer:
        decision = self.questions.decision(phase, view, self.new_id(), options)
        (answer,) = self.decider.decide([decision])
        self._answers.append(answer)
        return answer

    def _rank_categories(self, text: str, tree: Tree) -> list[tuple[str, float]]:
        options = [(c.name, c.description) for c in tree.categories]
        if not options:
            return [(CREATE_CATEGORY, 1.0)]
        answer = self._decide("navigate_category", View(text), options)
        return sorted(answer.probs.items(), key=lambda item: -item[1])

    def _leaf(self, text: str, tree: Tree, category: str) -> _Leaf:
        skills = tree.category(category).skills
        if not skills:
            return _Leaf(UNCOVERED, 1.0)
        name, p = skills[0].name, 1.0
        # Of a single skill the guard asks all there is to ask; without one the choice is needed.
        if len(skills) > 1 or not self._guarded("cover"):
            options = [(skill.name, skill.description) for skill in skills]
            answer = self._decide("navigate_skill", View(text), options)
            name, p = answer.selected, answer.probs[answer.selected]
        if name == CREATE_SKILL:
            return _Leaf(UNCOVERED, p)
        return self._covered(text, tree, f"{category}/{name}", p)

    def _covered(self, text: str, tree: Tree, skill: str, p: float) -> _Leaf:
        if not self._guarded("cover"):
            return _Leaf(skill, p)
        view = View(text, skill=f"{skill}: {tree.skill(skill).description}")
        answer = self._decide("cover", view, [])
        yes = answer.probs["yes"]
        if self._passes(answer):
            return _Leaf(skill, yes)
        return _Leaf(UNCOVERED, 1 - yes, refused=True)

    def _guarded(self, phase: str) -> bool:
        return self.guard and phase in self.thresholds

    def _passes(self, answer: Answer) -> bool:
        # Looked up last: another decider may have stood in, and it has thresholds of its own.
        return answer.probs["yes"] >= self.thresholds.get(answer.decision.phase, TAU)


def _second(ranked: list[tuple[str, float]]) -> str:
    names = [name for name, _ in ranked[1:] if name != CREATE_CATEGORY]
    return names[0] if names else ""
