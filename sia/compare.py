"""Two iterations side by side: what came, what went, what changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sia.entries import DecisionView, Entry, Iteration, Script
from sia.prompt import entry_text

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Change:
    """Of an entry (``what`` is its tag and id), the process, the queue or the response. ``lines``:
    what differs, as difflib's unified diff marks it (``-``, ``+`` and a blank for context)."""

    kind: Kind
    what: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Moved:
    """A decision that both have, or one of them (the other's probabilities are then empty)."""

    phase: str
    state: tuple[str, str]
    selected: tuple[str, str]
    probs: tuple[Mapping[str, float], Mapping[str, float]]

    @property
    def equal(self) -> bool:
        return self.state[0] == self.state[1] and self.probs[0] == self.probs[1]


@dataclass(frozen=True)
class Comparison:
    changes: tuple[Change, ...]
    decisions: tuple[Moved, ...]  # those that differ

    @property
    def equal(self) -> bool:
        return not self.changes and not self.decisions

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "entries": [
                {"kind": change.kind, "what": change.what, "lines": list(change.lines)}
                for change in self.changes
            ],
            "decisions": [
                {
                    "phase": moved.phase,
                    "state": dict(zip("ab", moved.state, strict=True)),
                    "selected": dict(zip("ab", moved.selected, strict=True)),
                    "probs": {side: dict(p) for side, p in zip("ab", moved.probs, strict=True)},
                }
                for moved in self.decisions
            ],
        }


def compare(a: Iteration, b: Iteration) -> Comparison:
    """What differs in ``b`` from ``a``; figures and times of day are no difference."""
    changes = [*_entries(a.entries, b.entries)]
    for name, one, other in (
        ("process", _process(a), _process(b)),
        ("queue", _queue(a), _queue(b)),
        ("response", _response(a), _response(b)),
    ):
        if one != other:
            changes.append(_change(name, one, other))
    return Comparison(tuple(changes), tuple(_decisions(a.decisions, b.decisions)))


def _name(entry: Entry) -> str:
    tag = entry.mode if isinstance(entry, Script) else entry_text(entry)[1:].split(" ", 1)[0]
    return f"{tag} {entry.id}"


def _entries(a: Sequence[Entry], b: Sequence[Entry]) -> Iterator[Change]:
    """By id, in the order of both: what stands only in ``a`` where it stood."""
    before, after = ({entry.id: entry for entry in side} for side in (a, b))
    order = difflib.SequenceMatcher(None, list(before), list(after), autojunk=False)
    for tag, i, j, k, m in order.get_opcodes():
        if tag != "equal":
            for entry in a[i:j]:
                if entry.id not in after:
                    yield _change(_name(entry), entry_text(entry), "")
            for entry in b[k:m]:
                if entry.id not in before:
                    yield _change(_name(entry), "", entry_text(entry))
            continue
        for one, other in zip(a[i:j], b[k:m], strict=True):
            if one != other:
                yield _change(_name(other), entry_text(one), entry_text(other))


def _change(what: str, one: str, other: str) -> Change:
    kind: Kind = "changed" if one and other else "removed" if one else "added"
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), lineterm="", n=1)
    return Change(kind, what, tuple(lines)[2:])  # without the names of two files


def _process(iteration: Iteration) -> str:
    found = iteration.process
    return f"{found.skill} step {found.step} of {found.run}\n{found.text}" if found else ""


def _queue(iteration: Iteration) -> str:
    rows = [f"{item.id} {item.urgency:.2f} {item.text}" for item in iteration.queue]
    return "\n".join([f"depth {iteration.queue_depth}", *rows]) if iteration.queue_depth else ""


def _response(iteration: Iteration) -> str:
    found = iteration.response
    return f"by {found.by}\n{found.text}" if found else ""


def _decisions(a: Sequence[DecisionView], b: Sequence[DecisionView]) -> Iterator[Moved]:
    """Paired in their order by phase: ids are of one run only."""
    for phase in dict.fromkeys(view.phase for view in (*a, *b)):
        sides = [[view for view in side if view.phase == phase] for side in (a, b)]
        for index in range(max(map(len, sides))):
            pair = [side[index] if index < len(side) else None for side in sides]
            state = [view.state if view else "" for view in pair]
            selected = [view.selected if view else "" for view in pair]
            probs = [{id: p for id, _, p in view.options} if view else {} for view in pair]
            moved = Moved(
                phase, (state[0], state[1]), (selected[0], selected[1]), (probs[0], probs[1])
            )
            if not moved.equal:
                yield moved
