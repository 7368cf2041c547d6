"""Turns of an agent with the replies that a person stands by: what a generator learns to answer.

A turn has its prompt in full, as the generator is given it, so that a reply is learned where it
will be written. The loss is on the reply alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from semif.chat import Part
from semif.errors import DecisionError
from semif.writing import pairs
from semif.writing.pairs import Pair

if TYPE_CHECKING:
    import numpy as np

    from semif.llama import Session

TASK = "act"
LIMIT = 2048  # tokens of a prompt and its reply that are learned where no other limit is said
_VALIDATED = 8  # one thing in so many
_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Turn:
    """A prompt and its reply. `about`: turns about one thing are learned from, or not, together."""

    parts: tuple[Part, ...]
    output: str
    about: str

    task: ClassVar[str] = TASK

    @classmethod
    def from_json(cls, value: Mapping[str, Any], row: str) -> Turn:
        """DecisionError naming the row and what is wrong with it."""
        if unknown := value.keys() - {"task", "parts", "output", "about"}:
            raise DecisionError(row, sorted(unknown)[0], "is unknown")
        parts, output, about = (value.get(key) for key in ("parts", "output", "about"))
        if not isinstance(parts, list) or not parts:
            raise DecisionError(row, "parts", "must be a list that is not empty")
        if not isinstance(output, str) or not output or not isinstance(about, str):
            raise DecisionError(row, "output", "and about must be texts, and output not empty")
        return cls(tuple(_part(part, row) for part in parts), output, about)

    def to_json(self) -> dict[str, Any]:
        parts = [{"role": part.role, "text": part.text} for part in self.parts]
        return {"task": TASK, "parts": parts, "output": self.output, "about": self.about}

    @property
    def held_out(self) -> bool:
        """Whether a run validates on it. Other digits than those that hold a turn out of a dream,
        else all or none of what is learned there would be."""
        return int(hashlib.sha256(self.about.encode()).hexdigest()[8:16], 16) % _VALIDATED == 0


def _part(value: object, row: str) -> Part:
    if (
        not isinstance(value, dict)
        or value.keys() != {"role", "text"}
        or value["role"] not in _ROLES
        or not isinstance(value["text"], str)
    ):
        raise DecisionError(row, "parts", f"each need a text and a role of {', '.join(_ROLES)}")
    return Part(value["role"], value["text"])


def lesson(value: Mapping[str, Any], row: str) -> Pair | Turn:
    """What one line of a file teaches."""
    return (Turn if value.get("task") == TASK else Pair).from_json(value, row)


def read(path: Path) -> list[Pair | Turn]:
    """All pairs and turns of a file; FileError and DecisionError as of `pairs.read`."""
    found, problems = pairs.sift([path], lesson)
    if problems:
        raise problems[0]
    return found


def dumps(lessons: Sequence[Pair | Turn]) -> bytes:
    """The same as JSON lines."""
    lines = (json.dumps(one.to_json(), ensure_ascii=False) for one in lessons)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def nll(session: Session, tokens: Sequence[int], start: int) -> float:
    """Mean negative log likelihood of `tokens[start:]`, in nats a token, token by token as they
    are written. The session is cleared before."""
    session.clear()
    total, at = 0.0, 0
    for i in range(start, len(tokens)):
        part = tokens[at:i]
        session.decode(part, range(at, i), [(0,)] * len(part), [len(part) - 1])
        total += surprise(session.logits(len(part) - 1), tokens[i])
        at = i
    return total / (len(tokens) - start)


def surprise(logits: np.ndarray, token: int) -> float:
    """Negative log likelihood of a token under logits [n_vocab], in nats."""
    import numpy as np

    exact = logits.astype(np.float64)
    top = exact.max()
    return float(top + math.log(np.exp(exact - top).sum()) - exact[token])
