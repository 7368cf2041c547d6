"""How much two texts have in common: the share of their character 5-grams (Jaccard)."""

from __future__ import annotations

_N = 5


def grams(text: str) -> frozenset[str]:
    """5-grams of the characters, without case and runs of blanks."""
    normal = " ".join(text.casefold().split())
    return frozenset(normal[i : i + _N] for i in range(max(1, len(normal) - _N + 1)))


def near(one: frozenset[str], other: frozenset[str], least: float) -> bool:
    """Whether the grams of two texts share at least `least` of their union, 0..1."""
    if min(len(one), len(other)) < least * max(len(one), len(other)):
        return False
    shared = len(one & other)
    return shared >= least * (len(one) + len(other) - shared)
