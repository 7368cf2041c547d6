"""What a dream learns from: decisions with what they should have been, of one home or several.

A row without a label teaches nothing, and the model's own pick is no label. Rows of one text, and
of texts near it, stand on one side for ever: those that are learned from, or those held out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semif import similar
from semif.export import LabelledRow, Report, join, read_labels
from semif.jsonl import iter_rows
from semif.measuring.paired import Said
from semif.rows import build, focus, normal_text, shipped_data, split
from sia.forget import stones

HELD_OUT = 4  # one text in so many: 40 rows must be held out before anything can be proven
NEAR = 0.6  # texts that share so much are twins, and stay together
SAME = 0.7  # rows of one phase, options and outcome that share so much are one


def held_out(text: str) -> bool:
    """The side of a text, for ever."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return int(digest[:8], 16) % HELD_OUT == 0


@dataclass(frozen=True)
class Logged:
    """A labelled decision as it was logged. `text`: of the first of its twins."""

    row: LabelledRow
    run: str
    time: str
    probs: Mapping[str, float]
    text: str = ""

    @property
    def held_out(self) -> bool:
        return held_out(self.text)

    def said(self) -> Said:
        """What was decided then."""
        return Said.of(self.row, self.probs, self.text)


@dataclass(frozen=True)
class Dataset:
    """`dropped`: rows that say what another says. `forgotten`: those with a tombstone in one of
    the homes, which another still has."""

    taught: tuple[Logged, ...]
    held: tuple[Logged, ...]
    dropped: int
    forgotten: int = 0

    @property
    def rows(self) -> tuple[Logged, ...]:
        return self.taught + self.held

    @property
    def corrections(self) -> tuple[Logged, ...]:
        """Those that a person labelled otherwise than was decided."""
        return tuple(row for row in self.rows if row.row.source == "human" and not row.said().right)

    @property
    def sha256(self) -> str:
        """Of what is learned from and what is held out."""
        return sides_sha256(*((row.row.to_json() for row in s) for s in (self.taught, self.held)))


def sides_sha256(*sides: Iterable[Mapping[str, Any]]) -> str:
    """One sha256 of rows, as JSON, and of the side that each stands on."""
    digest = hashlib.sha256()
    for side in sides:
        for row in side:
            digest.update(json.dumps(row, sort_keys=True).encode() + b"\n")
        digest.update(b"\0")
    return digest.hexdigest()


def collect(homes: Sequence[Path], report: Report) -> Dataset:
    """The labelled rows of homes, merged by row id; what cannot be read goes to `report`."""
    found: dict[str, Logged] = {}
    gone = frozenset().union(*(stones.rows(home / ".sia") for home in homes))
    forgotten: set[str] = set()
    for home in homes:
        for row in _logged(home, report):
            if row.row.decision.id in gone:
                forgotten.add(row.row.decision.id)
            else:
                found.setdefault(row.row.decision.id, row)
    kept, dropped = _distinct(_with_twins(sorted(found.values(), key=lambda row: row.time)))
    return Dataset(
        taught=tuple(row for row in kept if not row.held_out),
        held=tuple(row for row in kept if row.held_out),
        dropped=dropped,
        forgotten=len(forgotten),
    )


def replay(count: int, seed: int) -> list[LabelledRow]:
    """About `count` of the shipped training rows, so that nothing they taught is forgotten."""
    return focus(split(build(shipped_data(), seed))[0], count, seed) if count else []


def _logged(home: Path, report: Report) -> Iterator[Logged]:
    seen: dict[str, tuple[str, str, Mapping[str, float]]] = {}

    def noted() -> Iterator[dict[str, Any]]:
        for value in iter_rows(home / ".sia" / "decisions.jsonl", report):
            if isinstance(id_ := value.get("id"), str):
                probs = value.get("predicted_probs")
                seen[id_] = (
                    str(value.get("run", "")),
                    str(value.get("time", "")),
                    probs if isinstance(probs, dict) else {},
                )
            yield value

    labels = read_labels(home / ".sia" / "labels.jsonl", report)
    for row in join(noted(), labels, report):
        run, time, probs = seen[row.decision.id]
        options = {option.id for option in row.decision.options}
        if set(probs) != options:
            report(f"{row.decision.id}: predicted_probs are not of its options; left out")
            continue
        yield Logged(row, run, time, {id_: float(p) for id_, p in probs.items()})


def _with_twins(rows: Sequence[Logged]) -> list[Logged]:
    heads = twins(normal_text(row.row.decision.state) for row in rows)
    return [replace(row, text=head) for row, head in zip(rows, heads, strict=True)]


def twins(texts: Iterable[str]) -> Iterator[str]:
    """Of each text, earliest first, the earliest that it is near to.

    What comes later cannot change that, so that a row stays on its side when more is logged.
    """
    first: dict[str, str] = {}
    heads: list[tuple[str, frozenset[str]]] = []
    for text in texts:
        if text not in first:
            grams = similar.grams(text)
            twin = next((head for head, of in heads if similar.near(grams, of, NEAR)), None)
            if twin is None:
                heads.append((text, grams))
            first[text] = twin or text
        yield first[text]


def _distinct(rows: Sequence[Logged]) -> tuple[list[Logged], int]:
    """(rows without those that say what another says, how many those are), in their order.

    Of two on the same text the one of more weight counts, then the later one: a label that a
    person gave afterwards may be another outcome.
    """
    ranked = sorted(rows, key=lambda row: (row.row.weight, row.time), reverse=True)
    kept: dict[tuple[object, ...], list[tuple[Logged, frozenset[str]]]] = {}
    for row in ranked:
        decision = row.row.decision
        options = tuple(sorted(option.id for option in decision.options))
        known = kept.setdefault((decision.phase, decision.question, options, row.text), [])
        text = normal_text(decision.state)
        grams = similar.grams(text)
        if not any(_one(row, grams, *other) for other in known):
            known.append((row, grams))
    left = {row.row.decision.id for group in kept.values() for row, _ in group}
    result = [row for row in rows if row.row.decision.id in left]
    return result, len(rows) - len(result)


def _one(row: Logged, grams: frozenset[str], other: Logged, others: frozenset[str]) -> bool:
    if row.row.decision.state == other.row.decision.state:
        return True
    outcome = (row.row.outcome, row.row.not_outcomes)
    same = outcome == (other.row.outcome, other.row.not_outcomes)
    return same and similar.near(grams, others, SAME)
