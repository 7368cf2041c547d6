"""What a run has cost so far, against what its skill allows it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from sia.config import GeneratorConfig
from sia.generator.types import Usage
from sia.skills.manifest import Budget
from sia.store import Run


@dataclass(frozen=True)
class Prices:
    """Of a million tokens read and written, in the currency of ``sia-budget``'s money."""

    read: float = 0.0
    written: float = 0.0

    @classmethod
    def of(cls, config: GeneratorConfig) -> Prices:
        return cls(config.price_read, config.price_written)

    def money(self, usage: Usage) -> float:
        return (self.read * usage.read + self.written * usage.written) / 1e6


@dataclass(frozen=True)
class Account:
    """Tokens written, money, and how often an action was entered, since the run last began anew;
    how often it began anew with an updated request, and whether it did so with the degraded one.
    Seconds stand in the run itself."""

    tokens: int = 0
    money: float = 0.0
    actions: int = 0
    updated: int = 0
    degraded: bool = False

    @classmethod
    def of(cls, run: Run) -> Account:
        return cls(**json.loads(run.spent))

    def text(self) -> str:
        """As ``Run.spent`` holds it."""
        return json.dumps(asdict(self))

    def charge(self, usage: Usage, prices: Prices) -> Account:
        money = self.money + prices.money(usage)
        return replace(self, tokens=self.tokens + usage.written, money=money)

    def anew(self, updated: int = 0, degraded: bool = False) -> Account:
        """Of a run that begins anew: nothing is spent yet, the beginnings are counted."""
        again = self.updated + updated
        return Account(updated=again, degraded=self.degraded or degraded)

    def entered(self) -> Account:
        """With one action more."""
        return replace(self, actions=self.actions + 1)

    def over(self, budget: Budget, seconds: float = 0.0) -> str:
        """What is used up, in words; "" while nothing is."""
        if seconds >= budget.seconds:
            return f"the {budget.seconds:g} seconds are used up"
        if self.tokens > budget.tokens:
            return f"the {budget.tokens:,} tokens are used up"
        if budget.actions and self.actions > budget.actions:
            return f"the {budget.actions} actions are used up"
        if budget.money and self.money > budget.money:
            return f"its money, {budget.money:.6g}, is used up"
        return ""

    @property
    def began(self) -> int:
        """How often the run began anew: keys of effects differ by it."""
        return self.updated + self.degraded
