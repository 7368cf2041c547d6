"""The readout `branches`: one yes/no branch per option after a shared prefix, in one decode.

Sequences 0..63 belong to the branches of the decode at hand. The sequences above them keep
criteria (question and described options) from call to call: a branch that shares a kept criterion
starts behind it and evaluates only the state and itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from semif.errors import ModelError
from semif.llama import Adapter, Model, Session
from semif.prompting import BranchesPrompt
from semif.readout import Reading, batches, mass, too_long
from semif.types import Decision

MAX_BRANCHES = 64
MAX_CRITERIA = 32


@dataclass(frozen=True)
class _Unit:
    """A decision, or as many branches of a long one as go into one decode.

    `criterion` + `state` are the tokens of criterion and state as one text; `criterion` is the
    part of them that the criterion alone has too, and so can be kept. `branches`: (id, tokens).
    """

    index: int
    criterion: tuple[int, ...]
    state: tuple[int, ...]
    branches: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def cells(self) -> int:
        branches = sum(len(tokens) for _, tokens in self.branches)
        return len(self.criterion) + len(self.state) + branches


@dataclass
class _Batch:
    """Tokens gathered for one decode; `ends` maps (unit index, option id) to a token."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    seqs: list[Sequence[int]] = field(default_factory=list)
    ends: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, tokens: Sequence[int], start: int, seqs: Sequence[int]) -> None:
        self.tokens += tokens
        self.positions += range(start, start + len(tokens))
        self.seqs += [seqs] * len(tokens)


@dataclass
class _Tally:
    """What one decision has gathered over its decodes."""

    sha256: str
    prompt_tokens: int
    logits: dict[str, float] = field(default_factory=dict)
    mass: float = 1.0
    tokens: int = 0
    splits: tuple[int, ...] = ()
    neighbours: int = 0


class Branches:
    """Reads decisions by branches; keeps criteria in its session's memory."""

    def __init__(
        self,
        model: Model,
        prompt: BranchesPrompt,
        adapter: Adapter | None,
        threads: int,
        n_ctx: int,
    ) -> None:
        self.prompt_version = prompt.prompt_version
        self._prompt = prompt
        self._model = model
        self._yes, self._no = (self._slot(text) for text in (prompt.yes, prompt.no))
        n_seq = MAX_BRANCHES + MAX_CRITERIA
        self.session = Session(model, n_ctx, n_seq, threads, adapter=adapter)
        # Attention is paid over every cell in use, so a full memory would slow each decision:
        # a quarter of it holds the criteria of a dozen phases.
        self._criteria = _Criteria(self.session, self.session.n_ctx // 4)
        self._limit = min(self.session.n_ctx, model.n_ctx_train)

    def read(self, decisions: Sequence[Decision]) -> list[Reading]:
        """Score decisions, as many as fit into each decode; DecisionError when one is too long."""
        units: list[_Unit] = []
        tallies: list[_Tally] = []
        for index, decision in enumerate(decisions):
            units += self._units(index, decision, tallies)
        for group in self._groups(units):
            self._decode(group, tallies)
        self._criteria.trim()
        return [
            Reading(t.logits, t.mass, t.sha256, t.tokens, t.prompt_tokens, t.splits, t.neighbours)
            for t in tallies
        ]

    def _slot(self, text: str) -> int:
        """The one token of an answer; it must not change the tokens of a branch before it."""
        tokens = self._model.tokenize(text, special=False)
        stem = self._prompt.branch.format(id="a")
        before = self._model.tokenize(stem, special=False)
        after = self._model.tokenize(stem + text, special=False)
        if len(tokens) != 1 or after != before + tokens:
            raise ModelError(
                f"{self._model.path} has no token of its own for {text!r}, so the readout "
                "branches cannot be used with it; try letters"
            )
        return tokens[0]

    def _units(self, index: int, decision: Decision, tallies: list[_Tally]) -> list[_Unit]:
        rendered = self._prompt.render(decision)
        alone = self._model.tokenize(rendered.criterion, special=False)
        joint = self._model.tokenize(rendered.criterion + rendered.state, special=False)
        shared = 0
        # The last token of the criterion may merge with the state: only what agrees is kept.
        while shared < min(len(alone), len(joint)) and alone[shared] == joint[shared]:
            shared += 1
        branches = [
            (option.id, tuple(self._model.tokenize(text, special=False)))
            for option, text in rendered.branches
        ]
        longest = len(joint) + max(len(tokens) for _, tokens in branches)
        if longest > self._limit:
            raise too_long(decision, longest, self._limit)
        prompt_tokens = len(joint) + sum(len(tokens) for _, tokens in branches)
        tallies.append(_Tally(rendered.sha256, prompt_tokens))
        units: list[_Unit] = []
        while branches:
            room = self._limit - len(joint)
            count = 0
            while count < min(len(branches), MAX_BRANCHES) and room >= len(branches[count][1]):
                room -= len(branches[count][1])
                count += 1
            part, branches = tuple(branches[:count]), branches[count:]
            units.append(_Unit(index, tuple(joint[:shared]), tuple(joint[shared:]), part))
        return units

    def _groups(self, units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
        """Units for one decode each: at most 64 branches, and all cells they could need."""
        group: list[_Unit] = []
        for unit in units:
            together = [*group, unit]
            branches = sum(len(u.branches) for u in together)
            cells = sum(u.cells for u in together)
            if group and (branches > MAX_BRANCHES or cells > self._limit):
                yield group
                together = [unit]
            group = together
        if group:
            yield group

    def _decode(self, group: Sequence[_Unit], tallies: Sequence[_Tally]) -> None:
        owned: list[tuple[int, ...]] = []
        for unit in group:
            start = owned[-1][-1] + 1 if owned else 0
            owned.append(tuple(range(start, start + len(unit.branches))))
        busy = [unit.criterion for unit in group]
        kept = self._criteria.find(busy)
        fresh: dict[tuple[int, ...], list[int]] = {}
        for unit, seqs in zip(group, owned, strict=True):
            if unit.criterion not in kept:
                fresh.setdefault(unit.criterion, []).extend(seqs)
        done = False
        try:
            self._criteria.make_room(sum(unit.cells for unit in group), busy)
            for criterion, holders in fresh.items():
                holders.append(self._criteria.add(criterion, busy))
            for unit, seqs in zip(group, owned, strict=True):
                for seq in seqs if unit.criterion in kept else ():
                    self.session.copy(kept[unit.criterion], seq)
            batch = _gather(group, owned, fresh)
            self.session.decode(batch.tokens, batch.positions, batch.seqs, batch.ends.values())
            self._take(group, batch, kept, tallies)
            done = True
        finally:
            if not done:
                self._criteria.drop(fresh)
            for seq in range(owned[-1][-1] + 1):
                self.session.clear(seq)

    def _take(
        self,
        group: Sequence[_Unit],
        batch: _Batch,
        kept: Collection[tuple[int, ...]],
        tallies: Sequence[_Tally],
    ) -> None:
        sizes = batches(len(batch.tokens), self.session.n_batch)
        paid = set(kept)
        for unit in group:
            tally = tallies[unit.index]
            cached = len(unit.criterion) if unit.criterion in paid else 0
            paid.add(unit.criterion)
            tally.tokens += unit.cells - cached
            tally.splits += (cached if unit.criterion in kept else 0, *sizes)
            tally.neighbours = max(tally.neighbours, len({u.index for u in group}) - 1)
            for id_, _ in unit.branches:
                row = self.session.logits(batch.ends[unit.index, id_])
                tally.logits[id_] = float(row[self._yes] - row[self._no])
                tally.mass = min(tally.mass, mass(row, (self._yes, self._no)))


def _gather(
    group: Sequence[_Unit],
    owned: Sequence[Sequence[int]],
    fresh: Mapping[tuple[int, ...], Sequence[int]],
) -> _Batch:
    """The tokens of one decode: criteria not kept yet, then each unit's state and branches."""
    batch = _Batch()
    for criterion, seqs in fresh.items():
        batch.add(criterion, 0, seqs)
    for unit, seqs in zip(group, owned, strict=True):
        depth = len(unit.criterion) + len(unit.state)
        batch.add(unit.state, len(unit.criterion), seqs)
        for seq, (id_, tokens) in zip(seqs, unit.branches, strict=True):
            batch.add(tokens, depth, [seq])
            batch.ends[unit.index, id_] = len(batch.tokens) - 1
    return batch


class _Criteria:
    """Criteria kept in a session's memory, by their tokens; the longest unused goes first."""

    def __init__(self, session: Session, cells: int) -> None:
        self._session = session
        self._cells = cells
        self._seqs: OrderedDict[tuple[int, ...], int] = OrderedDict()

    def find(self, criteria: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
        """Sequences of those that are kept, which makes them the last used."""
        found = {c: self._seqs[c] for c in criteria if c in self._seqs}
        for criterion in found:
            self._seqs.move_to_end(criterion)
        return found

    def add(self, criterion: tuple[int, ...], busy: Collection[tuple[int, ...]]) -> int:
        """A sequence to keep a new criterion in."""
        if len(self._seqs) == MAX_CRITERIA:
            self._evict(busy)  # never in vain: a decode has at most 32 decisions
        numbers = range(MAX_BRANCHES, MAX_BRANCHES + MAX_CRITERIA)
        self._seqs[criterion] = next(n for n in numbers if n not in self._seqs.values())
        return self._seqs[criterion]

    def trim(self) -> None:
        """Go back to the cells that criteria may hold between calls; the last used one stays."""
        while len(self._seqs) > 1 and sum(map(len, self._seqs)) > self._cells:
            self._evict(())

    def make_room(self, cells: int, busy: Collection[tuple[int, ...]]) -> None:
        """Leave `cells` for a decode that counts the busy criteria in."""
        while sum(len(c) for c in self._seqs if c not in busy) + cells > self._session.n_ctx:
            if not self._evict(busy):
                return

    def drop(self, criteria: Iterable[tuple[int, ...]]) -> None:
        """Forget criteria whose evaluation failed."""
        for criterion in criteria:
            if criterion in self._seqs:
                self._session.clear(self._seqs.pop(criterion))

    def _evict(self, busy: Collection[tuple[int, ...]]) -> bool:
        oldest = next((c for c in self._seqs if c not in busy), None)
        if oldest is None:
            return False
        self.drop([oldest])
        return True
