"""What every readout gives the engine: the raw reading of a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from semif.errors import TooLong
from semif.llama import Session
from semif.types import Decision

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Reading:
    """Scores by option id, before temperature, and what they cost (see `Answer`).

    `splits` are the tokens taken from memory, then the sizes of the batches evaluated.
    """

    logits: Mapping[str, float]
    mass: float
    prompt_version: str
    prompt_sha256: str
    tokens: int
    prompt_tokens: int
    splits: tuple[int, ...]
    neighbours: int


class Readout(Protocol):
    """A way of reading decisions off a session, which it owns; `limit`: tokens of a prompt."""

    session: Session
    limit: int

    def read(self, decisions: Sequence[Decision]) -> list[Reading]:
        """One reading per decision, in order. Not thread-safe."""
        ...

    def forget(self) -> None:
        """Empty the session's memory."""
        ...


def mass(row: np.ndarray, tokens: Sequence[int]) -> float:
    """Probability of `tokens` together under the logits of one row."""
    import numpy as np

    weights = np.exp(row - row.max())
    return float(weights[list(tokens)].sum() / weights.sum())


def sizes(decision: Decision) -> dict[str, int]:
    """Length in characters of each field that goes into the prompt; state by its keys."""
    state = decision.state
    by_field = {
        "question": len(decision.question),
        "options": sum(len(option.id) + len(option.description) for option in decision.options),
    }
    if isinstance(state, Mapping):
        return by_field | {f"state.{key}": len(str(value)) for key, value in state.items()}
    return by_field | {"state": len(str(state))}


def too_long(decision: Decision, tokens: int, limit: int) -> TooLong:
    """The error for a prompt of at least `tokens` tokens, naming its longest field."""
    longest = max(sizes(decision).items(), key=lambda item: item[1])[0]
    return TooLong(decision.id, longest, tokens, limit)
