"""Where the agent stands: what the prompt and the toolbar show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sia import report
from sia.navigate import UNCOVERED
from sia.shell.terminal import Fragments
from sia.shell.text import clean, shorten, width_of
from sia.shell.transcript import ASK, PROMPT, options_words
from sia.skills.tree import UnknownSkill
from sia.store import Run, Store

if TYPE_CHECKING:
    from sia.agent import Agent

ID_SHOWN = 8  # characters of a revision's id


@dataclass(frozen=True)
class Standing:
    """dreaming: how far a dream is. question: one is open. options: what may be answered to it.
    wanted: the person's reply as the generator. unread: inputs not yet admitted."""

    loading: bool = True
    ending: bool = False
    wanted: bool = False
    process: str = ""
    waiting: int = 0
    unread: int = 0
    question: bool = False
    options: tuple[str, ...] = ()
    dreaming: str = ""
    revision: str = ""
    n: int = 0

    def prompt(self) -> str:
        if not self.question:
            return PROMPT
        return f"{ASK}{options_words(self.options)} {PROMPT}" if self.options else ASK + PROMPT

    def toolbar(self, width: int) -> Fragments:
        """One line: what happens at the left, which agent it is at the right."""
        left: Fragments = [("class:dim", " "), self._doing()]
        left.append(("class:dim", f" · queue {self.waiting}"))
        if self.unread:
            left.append(("class:dim", f" · {self.unread} unread"))
        if self.dreaming:
            left.append(("class:dim", f" · dream: {self.dreaming}"))
        if self.question:
            left += [("class:dim", " · "), ("class:warning", "answer wanted")]
        right = ""
        if self.revision:
            right = f"revision {self.revision[:ID_SHOWN]} · iteration {self.n} "
        used = sum(width_of(part[1]) for part in left)
        gap = width - used - width_of(right)
        if gap < 1:
            right, gap = "", 0
        return [*left, ("class:dim", " " * gap + right)]

    def _doing(self) -> tuple[str, str]:
        if self.ending:
            return "class:warning", "ending…"
        if self.loading:
            return "class:warning", "loading model…"
        if self.wanted:
            return "class:warning", "you are the generator"
        return ("class:prompt", self.process) if self.process else ("class:dim", "idle")


def look(agent: Agent, store: Store, *, ending: bool, wanted: bool, approving: bool) -> Standing:
    """Where ``agent`` stands now. store: a connection of the caller's own."""
    current = agent.loop.current if agent.loop else None
    question = report.question(store)
    options: Sequence[str] = question["options"] if question else ()
    return Standing(
        loading=agent.brain is None,
        ending=ending,
        wanted=wanted,
        process=process_words(agent, current) if current else "",
        waiting=store.waiting_count(),
        unread=len(store.inputs()),
        question=approving or question is not None,
        options=("yes", "no") if approving else tuple(options),
        dreaming=shorten(clean(agent.nights.words()), 36),
        revision=agent.brain.decide.revision if agent.brain else "",
        n=int(store.meta("session_n", "0")),
    )


def process_words(agent: Agent, run: Run) -> str:
    """Skill and action of a run, or what is done instead."""
    if not run.skill:
        return "finding a skill"
    if run.skill == UNCOVERED:
        return f"generator, turn {run.turns + 1}"
    try:
        actions = agent.holder.tree.skill(run.skill).actions
    except UnknownSkill:
        actions = ()
    action = f" {actions[run.step]}" if run.step < len(actions) else ""
    return shorten(clean(run.skill + action), 40)
