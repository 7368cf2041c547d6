"""The decision log and its labels: two append-only JSONL files.

Every row says which prompt, revision and plan gave it. A label is a row of its own, so that a
correction never rewrites what was decided; the model's own pick is never one.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec

from semif.errors import DecisionError
from semif.jsonl import append
from semif.types import Answer, converted

Source = Literal["human", "verified", "assessed"]
# An assessment counts nothing until its agreement with the other two is proven.
WEIGHTS: dict[Source, float] = {"human": 3.0, "verified": 1.0, "assessed": 0.0}
# Below this the model would rather say something else than any answer it is asked for.
LOW_MASS = 0.5


def timestamp(now: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond; `now` must know its zone."""
    if now.tzinfo is None:
        raise ValueError("a time without a zone says nothing")
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def row(answer: Answer, run: str, now: datetime) -> dict[str, Any]:
    """The log row of an answer."""
    return {
        **answer.decision.to_json(),
        "predicted_probs": dict(answer.probs),
        "logits": dict(answer.logits),
        "selected": answer.selected,
        "prompt_version": answer.prompt_version,
        "prompt_sha256": answer.prompt_sha256,
        "revision": answer.revision,
        "run": run,
        "time": timestamp(now),
        "tokens": answer.tokens,
        "ms": answer.ms,
        "allowed_token_mass": answer.allowed_token_mass,
        "plan": dict(answer.plan),
    }


class MassAlarm:
    """Says once for each prompt version and revision that an allowed_token_mass was below 0.5.

    `warn` hears the line. Calls may come from several threads.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._told: set[tuple[str, str]] = set()
        self._lock = Lock()

    def look(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            kind = answer.prompt_version, answer.revision
            if not answer.allowed_token_mass < LOW_MASS:
                continue
            with self._lock:
                new = kind not in self._told
                self._told.add(kind)
            if new:
                self._warn(
                    f"{answer.decision.id}: allowed_token_mass {answer.allowed_token_mass:.3f} is "
                    f"below {LOW_MASS}: prompt {answer.prompt_version} with revision "
                    f"{answer.revision} leads the model elsewhere than to the answers (said once)"
                )


class DecisionLog:
    """Appends answers to `decisions.jsonl`; `warn` hears of a low allowed_token_mass."""

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda text: None) -> None:
        self.path = path
        self._alarm = MassAlarm(warn)

    def append(self, answers: Sequence[Answer], run: str) -> list[dict[str, Any]]:
        """Write one row per answer, all or none, synced; the rows as written."""
        now = datetime.now(UTC)
        rows = [row(answer, run, now) for answer in answers]
        append(self.path, rows)
        self._alarm.look(answers)
        return rows


class Label(msgspec.Struct, frozen=True):
    """What a decision should ("is") or should not ("not") have been, and who says so.

    `row` is the id of the decision's row, `supersedes` the id of a label this one replaces.
    A label of weight 0 counts for nothing, but can still withdraw another.
    """

    id: str
    row: str
    run: str
    polarity: Literal["is", "not"]
    option: str
    source: Source
    weight: float
    by: str
    time: str
    supersedes: str | None = None

    @classmethod
    def new(
        cls,
        row: str,
        run: str,
        polarity: Literal["is", "not"],
        option: str,
        source: Source,
        by: str,
        weight: float | None = None,
        supersedes: str | None = None,
    ) -> Label:
        """A label made now, with the weight of its source unless another is given."""
        return cls(
            id=uuid.uuid4().hex[:12],
            row=row,
            run=run,
            polarity=polarity,
            option=option,
            source=source,
            weight=WEIGHTS[source] if weight is None else weight,
            by=by,
            time=timestamp(datetime.now(UTC)),
            supersedes=supersedes,
        )

    @classmethod
    def from_json(cls, value: object, where: str) -> Label:
        """Read a row of `labels.jsonl`; DecisionError naming `where` and the field."""
        label = converted(value, cls, where)
        if not 0 <= label.weight < math.inf:
            raise DecisionError(where, "weight", f"{label.weight} is no number from 0 on")
        return label


def append_labels(path: Path, labels: Iterable[Label]) -> None:
    """Append labels to `labels.jsonl`, all or none, synced."""
    append(path, (msgspec.to_builtins(label) for label in labels))
