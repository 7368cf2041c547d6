"""The readout `branches`: one yes/no branch per option after a shared prefix, in one decode."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from semif.encoding import Encoded, encode
from semif.errors import ModelError
from semif.llama import Adapter, Model, Session
from semif.prefixes import N_SEQ, Evaluated, Prefixes, Unit, units
from semif.prompting import BranchesPrompt
from semif.readout import Reading, mass
from semif.types import Decision


@dataclass
class _Tally:
    """What one decision has gathered over its decodes; `margins` by branch."""

    encoded: Encoded
    prompt_version: str
    margins: list[float] = field(default_factory=list)
    mass: float = 1.0
    tokens: int = 0
    splits: tuple[int, ...] = ()
    neighbours: int = 0

    def reading(self) -> Reading:
        """Options whose branches are one text are one event under several names: they share its
        probability, and their rivals' is what it would be with one of them."""
        margins = dict(zip(_distinct(self.encoded), self.margins, strict=True))
        names = Counter(self.encoded.branches)
        return Reading(
            logits={
                id_: margins[branch] - math.log(names[branch])
                for id_, branch in zip(self.encoded.ids, self.encoded.branches, strict=True)
            },
            mass=self.mass,
            prompt_version=self.prompt_version,
            prompt_sha256=self.encoded.sha256,
            tokens=self.tokens,
            prompt_tokens=self.encoded.cells,
            splits=self.splits,
            neighbours=self.neighbours,
        )


class Branches:
    """Reads decisions by branches; keeps heads in its session.

    `prompts` by phase; that of "" is for all others.
    """

    def __init__(
        self,
        model: Model,
        prompts: Mapping[str, BranchesPrompt],
        adapter: Adapter | None,
        threads: int,
        n_ctx: int,
    ) -> None:
        self._prompts = prompts
        self._model = model
        # By version; a prompt that does not fit the model is refused before anything is read.
        self._answers = {
            prompt.prompt_version: tuple(
                answer_token(model, prompt, text) for text in (prompt.yes, prompt.no)
            )
            for prompt in prompts.values()
        }
        self.session = Session(model, n_ctx, N_SEQ, threads, adapter=adapter, flash=True)
        self.limit = min(self.session.n_ctx, model.n_ctx_train)
        self._prefixes = Prefixes(self.session, self.limit)

    def read(self, decisions: Sequence[Decision]) -> list[Reading]:
        """Score decisions, as many as fit into each decode; DecisionError when one is too long."""
        wanted: list[Unit] = []
        tallies: list[_Tally] = []
        for index, decision in enumerate(decisions):
            prompt = self._prompt_for(decision.phase)
            encoded = encode(self._model, prompt, decision, self.limit)
            tallies.append(_Tally(encoded, prompt.prompt_version))
            branches = _distinct(encoded)
            wanted += units(index, encoded.head, encoded.body, branches, self.limit)
        for unit, evaluated in self._prefixes.evaluate(wanted):
            tally = tallies[unit.index]
            self._take(tally, evaluated, self._answers[tally.prompt_version])
        return [tally.reading() for tally in tallies]

    def forget(self) -> None:
        self._prefixes.forget()

    def _take(self, tally: _Tally, evaluated: Evaluated, answers: tuple[int, ...]) -> None:
        yes, no = answers
        for row in evaluated.rows:
            tally.margins.append(float(row[yes] - row[no]))
            tally.mass = min(tally.mass, mass(row, answers))
        tally.tokens += evaluated.tokens
        tally.splits += evaluated.splits
        tally.neighbours = max(tally.neighbours, evaluated.neighbours)

    def _prompt_for(self, phase: str) -> BranchesPrompt:
        return self._prompts.get(phase) or self._prompts[""]


def answer_token(model: Model, prompt: BranchesPrompt, text: str) -> int:
    """The one token of an answer; it must not change the tokens of a branch before it."""
    tokens = model.tokenize(text, special=False)
    stem = prompt.branch.format(id="a", description="a", text="a", words="a")
    before = model.tokenize(stem, special=False)
    after = model.tokenize(stem + text, special=False)
    if len(tokens) != 1 or after != before + tokens:
        raise ModelError(
            f"{model.path} has no token of its own for {text!r}, so the readout "
            "branches cannot be used with it; try letters"
        )
    return tokens[0]


def _distinct(encoded: Encoded) -> list[tuple[int, ...]]:
    return list(dict.fromkeys(encoded.branches))
