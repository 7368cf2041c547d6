"""What mistakes cost, by phase: which threshold the positive option of a phase must reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from semif.errors import DecisionError


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The option that counts from the threshold on, and what taking or leaving it wrongly costs."""

    positive: str
    false_positive: float
    false_negative: float

    @property
    def bayes(self) -> float:
        """The threshold of least expected cost for calibrated probabilities.

        C. Elkan, The Foundations of Cost-Sensitive Learning, IJCAI 2001, equation 2.
        """
        return self.false_positive / (self.false_positive + self.false_negative)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    costs_version: str
    phases: dict[str, Cost]


@dataclass(frozen=True)
class Costs:
    """Costs by phase; `named` are the phases whose costs somebody gave, not the shipped ones."""

    phases: Mapping[str, Cost]
    named: frozenset[str] = frozenset()


@cache
def shipped_costs() -> Costs:
    """The costs that come with the package, `data/costs-v1.json`."""
    data = files("semif").joinpath("data", "costs-v1.json").read_bytes()
    return Costs(msgspec.json.decode(data, type=_File).phases)


def with_costs(given: Iterable[str]) -> Costs:
    """The shipped costs, and those given as `phase=FALSE_POSITIVE:FALSE_NEGATIVE` in their place.

    Raises DecisionError for what is not of that form, or not two costs above 0.
    """
    phases, named = dict(shipped_costs().phases), set()
    for text in given:
        phase, _, costs = text.partition("=")
        try:
            positive, negative = map(float, costs.split(":"))
        except ValueError as error:
            raise _wrong(text) from error
        if not phase or not 0 < positive < math.inf or not 0 < negative < math.inf:
            raise _wrong(text)
        known = phases.get(phase)
        phases[phase] = Cost(known.positive if known else "yes", positive, negative)
        named.add(phase)
    return Costs(phases, frozenset(named))


def _wrong(text: str) -> DecisionError:
    message = "must be PHASE=FALSE_POSITIVE:FALSE_NEGATIVE with costs above 0"
    return DecisionError("--costs", repr(text), message)
