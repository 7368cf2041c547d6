"""What a person says about decisions: which ones led a run where it went, and labels for them.

Only a person names the right option, here. Labels are appended to ``.sia/labels.jsonl`` under its
lock, with a running agent or without; one is taken back by another that supersedes it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

import msgspec

from semif import jsonl
from semif.errors import DecisionError
from semif.export import in_force, read_labels
from semif.log import Label, append_labels, timestamp
from semif.types import Decision
from sia.errors import UsageError
from sia.home import Home
from sia.navigate import UNCOVERED
from sia.redact import MARK
from sia.skills.tree import Tree
from sia.store import Run, Store
from sia.turn import Again, Result

LOOK_BACK = 200  # rows
GUARDS = ("cover", "same_action")
NAVIGATES = ("navigate_category", "navigate_skill")
Polarity = Literal["is", "not"]


@dataclass(frozen=True)
class Offered:
    """An option as it stood to be chosen. p: its probability."""

    id: str
    description: str
    p: float


@dataclass(frozen=True)
class Choice:
    """A decision as a person judges it.

    taken: the option that was acted on; a gate's threshold can take another than the likeliest.
    led: the outcome of the run rests on it. options: likeliest first.
    """

    row: str
    run: str
    phase: str
    state: Any
    question: str
    taken: str
    options: tuple[Offered, ...]
    time: str = ""
    led: bool = False

    @property
    def about(self) -> str:
        """The words that it was made from."""
        if isinstance(self.state, dict):
            return str(self.state.get("input", ""))
        return str(self.state)

    @property
    def asked(self) -> int:
        """The same for decisions that were asked the same about the same."""
        ids = sorted(option.id for option in self.options)
        return hash(json.dumps([self.phase, self.state, self.question, ids], sort_keys=True))

    @property
    def margin(self) -> float:
        """By how much the likeliest option is likelier than the next."""
        return self.options[0].p - self.options[1].p

    @property
    def argument(self) -> bool:
        return self.phase == "read_next"

    @property
    def shown(self) -> bool:
        """Whether it is worth a place in one line about its run."""
        navigates = self.phase in NAVIGATES
        return navigates or self.argument or (self.phase in GUARDS and self.taken == "no")

    def option(self, id: str) -> Offered:
        """Raises UsageError naming the options that there are."""
        for option in self.options:
            if option.id == id:
                return option
        names = ", ".join(option.id for option in self.options)
        raise UsageError(f"the decision {self.row} has no option {id!r}; it has: {names}")

    @classmethod
    def of(cls, row: dict[str, Any]) -> Choice | None:
        """Of a row of the log; None when it is damaged."""
        try:
            decision = Decision.from_json(row, "decisions.jsonl")
            probs = {
                option.id: float(row["predicted_probs"][option.id]) for option in decision.options
            }
        except (DecisionError, KeyError, TypeError, ValueError):
            return None  # `semif export` names it
        options = [Offered(o.id, o.description, probs[o.id]) for o in decision.options]
        taken = row.get("selected")
        if taken not in probs:
            return None
        options.sort(key=lambda option: -option.p)
        return cls(
            row=decision.id,
            run=str(row.get("run", "")),
            phase=decision.phase,
            state=decision.state,
            question=decision.question,
            taken=str(taken),
            options=tuple(options),
            time=str(row.get("time", "")),
        )


def last_run(home: Home) -> str:
    """The run that was last led anywhere, else the one that anything was last decided about."""
    last = list(islice(jsonl.read_backwards(home.decisions), LOOK_BACK))
    led = [row for row in last if row.get("phase") in (*NAVIGATES, "read_next")]
    return str((led or last)[0].get("run", "")) if last else ""


def choices(home: Home, store: Store, run: str) -> list[Choice]:
    """The decisions about a run among the last of the log, oldest first."""
    last = islice(jsonl.read_backwards(home.decisions), LOOK_BACK)
    made = [choice for row in last if row.get("run") == run and (choice := Choice.of(row))]
    found = store.run(run)
    return _led(made[::-1], found.skill if found else None)


def _led(made: Sequence[Choice], skill: str | None) -> list[Choice]:
    """The same with what was acted on, seen from the ``skill`` that was found: ``-`` when none
    covers the request, None when there was no request."""
    names = skill.split("/") if skill and skill != UNCOVERED else []
    last = {choice.phase: choice.row for choice in made}
    judged = [_judged(choice, skill, names, last[choice.phase] == choice.row) for choice in made]
    if "answers" in last:  # what was said in answer is no request, whatever it read like
        judged = [replace(c, led=c.led and c.phase != "contains_request") for c in judged]
    return judged


def _judged(choice: Choice, skill: str | None, names: list[str], last: bool) -> Choice:
    ids = [option.id for option in choice.options]
    match choice.phase:
        case "contains_request" if "yes" in ids and "no" in ids:
            return replace(choice, taken="no" if skill is None else "yes", led=True)
        case "navigate_category" | "navigate_skill" if names:
            # After a guard's no the second likeliest category was tried: what counts is where it
            # came to, and the skills looked at before are no longer part of the way.
            taken = [id for id in ids if id in names]
            if not taken or (choice.phase == "navigate_skill" and not last):
                return choice
            return replace(choice, taken=taken[0], led=True)
        case "navigate_category" | "navigate_skill":
            return replace(choice, led=choice.taken.startswith("create_"))
        case "cover" | "same_action" if "yes" in ids and "no" in ids:
            return replace(choice, taken="yes" if names and last else "no", led=True)
        case "read_next":
            return replace(choice, led=True)
    return choice


class Corrections:
    """A person's labels in one home; every method that says something appends it first."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def right(self, made: Iterable[Choice]) -> list[Choice]:
        """Name what was acted on as right, of the decisions that the outcome rests on; those that
        were not named so before."""
        named = self.named()
        new = [
            choice
            for choice in made
            if choice.led and named.get(choice.row) != ("is", choice.taken)
        ]
        self._append([self._label(choice, choice.taken, "is") for choice in new])
        return new

    def name(self, choice: Choice, option: str, polarity: Polarity = "is") -> None:
        """Say what a decision should ("is") or should not ("not") have been. Raises UsageError
        for an option that it has not."""
        self._append([self._label(choice, choice.option(option).id, polarity)])

    def undo(self) -> list[Label]:
        """Take back what was said last, which may be several labels; these, none when there is
        nothing left to take back."""
        mine = self.in_force()
        last = [label for label in mine if (label.time, label.by) == (mine[-1].time, mine[-1].by)]
        self._append(
            Label.new(
                label.row, label.run, label.polarity, label.option, "human", self._by,
                weight=0.0, supersedes=label.id,
            )
            for label in last
        )  # fmt: skip
        return last

    def in_force(self) -> list[Label]:
        """What persons have said and not taken back, in order."""
        return [label for label in self.labels() if label.source == "human"]

    def labels(self) -> list[Label]:
        """All labels in force, in order."""
        return in_force(read_labels(self._home.labels, lambda problem: None))

    def named(self) -> dict[str, tuple[Polarity, str]]:
        """What a person said last of each row."""
        return {label.row: (label.polarity, label.option) for label in self.in_force()}

    @property
    def _by(self) -> str:
        return self._home.person.name or "person"

    def _label(self, choice: Choice, option: str, polarity: Polarity) -> Label:
        return Label.new(choice.row, choice.run, polarity, option, "human", self._by)

    def _append(self, labels: Iterable[Label]) -> None:
        """What is said at once has one time, by which it is taken back together."""
        now = timestamp(datetime.now(UTC))
        append_labels(
            self._home.labels, [msgspec.structs.replace(label, time=now) for label in labels]
        )


# rows by id, and those to be looked at


def find(home: Home, row: str) -> Choice:
    """The decision of a row anywhere in the log. Raises UsageError where there is none."""
    for found in jsonl.read_backwards(home.decisions):
        if found.get("id") == row:
            choice = Choice.of(found)
            if choice is None:
                raise UsageError(f"the row {row} in {home.decisions} is damaged")
            return choice
    raise UsageError(f"there is no decision {row!r} in this home; `sia decisions` lists them")


def skipped(home: Home) -> frozenset[str]:
    """Rows that a person looked at and had nothing to say about."""
    return frozenset(str(row.get("row")) for row in jsonl.read(home.skipped).rows)


def skip(home: Home, choice: Choice) -> None:
    jsonl.append(home.skipped, [{"row": choice.row, "time": timestamp(datetime.now(UTC))}])


def unsure(home: Home, labels: Iterable[Label], phase: str, limit: int) -> list[Choice]:
    """The ``limit`` decisions with the smallest margin of which nobody has named the right option,
    no person has said anything, and which were not skipped; the same question about the same state
    once. phase: "" for all."""
    done = {label.row for label in labels if label.polarity == "is" or label.source == "human"}
    done |= skipped(home)
    least: dict[int, tuple[float, str]] = {}  # margin and row, by what was asked
    said: set[int] = set()
    for choice in logged(home, phase):
        if choice.row in done:
            said.add(choice.asked)
        else:
            least.setdefault(choice.asked, (choice.margin, choice.row))
    left = (place for asked, place in least.items() if asked not in said)
    wanted = {row for _, row in heapq.nsmallest(limit, left)}
    found = {choice.row: choice for choice in logged(home, phase) if choice.row in wanted}
    return sorted(found.values(), key=lambda choice: (choice.margin, choice.row))


def logged(home: Home, phase: str = "") -> Iterator[Choice]:
    """Every decision, or those of one phase, last first."""
    for row in jsonl.read_backwards(home.decisions):
        if (not phase or row.get("phase") == phase) and (choice := Choice.of(row)):
            yield choice


# working a request again


def again(
    choice: Choice, option: str, made: Sequence[Choice], run: Run | None, tree: Tree, store: Store
) -> list[Again]:
    """How the request could be worked anew if ``option`` is right for ``choice``: no way, one, or
    one for each skill of a category. ``made``: all decisions about it; ``run``: the request as it
    was worked, None when it was taken for none."""
    text = run.text if run else choice.about
    if run is None:
        wanted = choice.phase == "contains_request" and option == "yes" and MARK not in text
        return [Again(text)] if wanted and text else []
    if run.status in ("running", "waiting"):
        return []  # it is being worked as it is
    skills = {skill.id for skill in tree.skills}
    match choice.phase:
        case "navigate_category":
            ids = sorted(id for id in skills if id.startswith(f"{option}/"))
        case "navigate_skill":
            above = [other for other in made if other.phase == "navigate_category"]
            tried = [id for other in above for id in (other.taken, *map(_id, other.options))]
            ids = [f"{category}/{option}" for category in tried if f"{category}/{option}" in skills]
            # A namesake in another category stood among other skills than these.
            offered = {other.id for other in choice.options}
            ids = sorted(ids, key=lambda id: -len(_siblings(id, skills) & offered))[:1]
        case "cover" if option == "yes" and isinstance(choice.state, dict):
            ids = [str(choice.state.get("skill", "")).partition(":")[0]]
        case "read_next":
            known = [
                Result(action, ordinal, method, option)
                for action, ordinal, method, status, value in store.results(run.id)
                if method == "choose" and status == "done" and value == choice.taken
            ]
            if len(known) != 1 or run.skill not in skills:
                return []
            return [Again(text, run.skill, run.id, known[0])]
        case _:
            ids = []
    return [Again(text, id, run.id) for id in ids if id in skills]


def _id(option: Offered) -> str:
    return option.id


def _siblings(skill: str, skills: Iterable[str]) -> set[str]:
    """The names of a skill and of those beside it."""
    category = skill.rpartition("/")[0]
    return {id.rpartition("/")[2] for id in skills if id.rpartition("/")[0] == category}
