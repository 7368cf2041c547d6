"""How alike two texts are, by their words."""

from __future__ import annotations

import math
import re

LEAST = 0.5  # the cosine from which a text touches a concern
_SHORT = 3  # letters: "the", "for", "my" say nothing of what a text is about


def words(text: str) -> frozenset[str]:
    """Those that say what it is about; a plural is its singular."""
    found = (word.casefold() for word in re.findall(r"\w+", text))
    return frozenset(
        word.removesuffix("s") for word in found if len(word) > _SHORT or word.isdigit()
    )


def cosine(one: frozenset[str], other: frozenset[str]) -> float:
    """0..1, of the two as vectors of zeros and ones."""
    if not one or not other:
        return 0.0
    return len(one & other) / math.sqrt(len(one) * len(other))
