"""Many prompts in one decode, and the beginnings they share kept from call to call.

Sequences 0..63 belong to the branches of the decode at hand. The sequences above them keep heads:
a branch whose head is kept starts behind it and evaluates only the rest. A head that is not kept
starts behind the longest kept beginning of it, so the kept ones act as a tree of prefixes. Memory
that cannot be cut back (recurrent layers) is only ever copied whole and cleared whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semif.encoding import Tokens, common
from semif.errors import ModelError
from semif.llama import Session

if TYPE_CHECKING:
    import numpy as np

MAX_BRANCHES = 64
MAX_KEPT = 32
# Of one decode: each may be kept, and one more that a new one begins like must stay meanwhile.
_MAX_HEADS = MAX_KEPT - 1
N_SEQ = MAX_BRANCHES + MAX_KEPT
# A shorter common beginning saves less than its bookkeeping costs.
_LEAST = 8


@dataclass(frozen=True)
class Unit:
    """Branches that share `head` and `body`; `index` says which decision they belong to."""

    index: int
    head: Tokens
    body: Tokens
    branches: tuple[Tokens, ...]

    @property
    def cells(self) -> int:
        return len(self.head) + len(self.body) + sum(map(len, self.branches))


@dataclass(frozen=True)
class Evaluated:
    """The logits [n_vocab] at the end of each branch of a unit, and what they cost.

    `tokens` were evaluated for this unit; `splits` are the tokens taken from memory, then the
    sizes of the batches of its decode; `neighbours` are the other decisions in it.
    """

    rows: tuple[np.ndarray, ...]
    tokens: int
    splits: tuple[int, ...]
    neighbours: int


def units(
    index: int, head: Tokens, body: Tokens, branches: Sequence[Tokens], limit: int
) -> Iterator[Unit]:
    """A decision's branches in units that fit into one decode of at most `limit` cells each."""
    left = list(branches)
    while left:
        room = limit - len(head) - len(body)
        count = 0
        while count < min(len(left), MAX_BRANCHES) and room >= len(left[count]):
            room -= len(left[count])
            count += 1
        if not count:
            raise ValueError(f"a branch of {len(left[0])} tokens does not fit {limit} cells")
        yield Unit(index, head, body, tuple(left[:count]))
        left = left[count:]


class Prefixes:
    """Evaluates units on a session of `N_SEQ` sequences, which nothing else may use.

    ModelError for a model without attention: the memory of a purely recurrent one does not hold
    several branches of one beginning.
    """

    def __init__(self, session: Session, limit: int) -> None:
        if session.model.recurrent and not session.model.hybrid:
            raise ModelError(
                f"{session.model.path} is a purely recurrent model, which cannot read options side "
                "by side; take one with attention layers"
            )
        self._session = session
        self._limit = limit
        # Attention is paid over every cell in use, so a full memory would slow each decision:
        # a quarter of it holds the criteria of a dozen phases.
        self._kept = _Kept(session, session.n_ctx // 4)

    def evaluate(self, wanted: Sequence[Unit]) -> Iterator[tuple[Unit, Evaluated]]:
        """Each unit with its logits; units with one head come one after the other."""
        order: dict[Tokens, list[Unit]] = {}
        for unit in wanted:
            order.setdefault(unit.head, []).append(unit)
        for group in self._groups([unit for same in order.values() for unit in same]):
            yield from self._decode(group)
        self._kept.trim()

    def forget(self) -> None:
        """Drop every head: the next units are evaluated as the first ones were."""
        self._session.clear()
        self._kept = _Kept(self._session, self._session.n_ctx // 4)

    def hold(self, head: Tokens) -> int:
        """Keep a head that many are about to begin with; how many tokens that evaluated."""
        if len(head) < _LEAST or self._kept.longest(head)[1] == len(head):
            return 0
        ((_, evaluated),) = self._decode([Unit(0, head, (), (head[-1:],))])
        return evaluated.tokens - 1

    def _groups(self, wanted: Sequence[Unit]) -> Iterator[list[Unit]]:
        """Units for one decode each: at most 64 branches, and all cells they could need."""
        group: list[Unit] = []
        heads: set[Tokens] = set()
        branches = cells = 0
        for unit in wanted:
            more = unit.cells - (len(unit.head) if unit.head in heads else 0)
            full = branches + len(unit.branches) > MAX_BRANCHES
            many = unit.head not in heads and len(heads) == _MAX_HEADS
            if group and (full or many or cells + more > self._limit):
                yield group
                group, heads, branches, cells, more = [], set(), 0, 0, unit.cells
            group.append(unit)
            heads.add(unit.head)
            branches += len(unit.branches)
            cells += more
        if group:
            yield group

    def _decode(self, group: Sequence[Unit]) -> list[tuple[Unit, Evaluated]]:
        owned: list[range] = []
        for unit in group:
            start = owned[-1].stop if owned else 0
            owned.append(range(start, start + len(unit.branches)))
        by_head: dict[Tokens, list[int]] = {}
        for unit, seqs in zip(group, owned, strict=True):
            by_head.setdefault(unit.head, []).extend(seqs)
        own = sum(unit.cells - len(unit.head) for unit in group)
        self._kept.make_room(own + sum(map(len, by_head)), by_head)
        fresh: list[Tokens] = []
        batch = _Batch()
        done = False
        try:
            cached = {}
            for head, of_head in by_head.items():
                cached[head] = self._place(head, of_head, by_head, batch, fresh)
            ends = [batch.grow(unit, seqs) for unit, seqs in zip(group, owned, strict=True)]
            wanted = [end for of_unit in ends for end in of_unit]
            self._session.decode(batch.tokens, batch.positions, batch.seqs, wanted)
            result = self._taken(group, ends, cached, batch)
            done = True
        finally:
            if not done:
                self._kept.drop(fresh)
            for seq in range(owned[-1].stop):
                self._session.clear(seq)
        return result

    def _place(
        self,
        head: Tokens,
        seqs: list[int],
        busy: Collection[Tokens],
        batch: _Batch,
        fresh: list[Tokens],
    ) -> int:
        """Give `seqs` the head: as far as it is kept by copying, the rest in the batch.

        The number of tokens that are copied.
        """
        source, shared = self._kept.longest(head, but=fresh)
        holders = seqs
        if shared < len(head) and len(head) >= _LEAST:
            fresh.append(head)
            holders = [*seqs, self._kept.add(head, busy, source)]
        for seq in holders if shared else ():
            self._kept.share(source, seq, shared)
        if shared < len(head):
            batch.add(head[shared:], shared, holders)
        return shared

    def _taken(
        self,
        group: Sequence[Unit],
        ends: Sequence[Sequence[int]],
        cached: dict[Tokens, int],
        batch: _Batch,
    ) -> list[tuple[Unit, Evaluated]]:
        n_batch, count = self._session.n_batch, len(batch.tokens)
        sizes = tuple(min(n_batch, count - start) for start in range(0, count, n_batch))
        others = len({unit.index for unit in group}) - 1
        paid: set[Tokens] = set()
        result = []
        for unit, of_unit in zip(group, ends, strict=True):
            taken = len(unit.head) if unit.head in paid else cached[unit.head]
            paid.add(unit.head)
            evaluated = Evaluated(
                rows=tuple(self._session.logits(end) for end in of_unit),
                tokens=unit.cells - taken,
                splits=(cached[unit.head], *sizes),
                neighbours=others,
            )
            result.append((unit, evaluated))
        return result


@dataclass
class _Batch:
    """Tokens gathered for one decode."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    seqs: list[Sequence[int]] = field(default_factory=list)

    def add(self, tokens: Sequence[int], start: int, seqs: Sequence[int]) -> None:
        self.tokens += tokens
        self.positions += range(start, start + len(tokens))
        self.seqs += [seqs] * len(tokens)

    def grow(self, unit: Unit, seqs: Sequence[int]) -> list[int]:
        """Add body and branches; where the last token of each branch stands in the batch."""
        start = len(unit.head) + len(unit.body)
        self.add(unit.body, len(unit.head), seqs)
        ends = []
        for seq, tokens in zip(seqs, unit.branches, strict=True):
            self.add(tokens, start, [seq])
            ends.append(len(self.tokens) - 1)
        return ends


class _Kept:
    """Heads kept in a session's memory, by their tokens; the longest unused goes first."""

    def __init__(self, session: Session, cells: int) -> None:
        self._session = session
        self._cells = cells
        self._seqs: OrderedDict[Tokens, int] = OrderedDict()

    def longest(self, head: Tokens, but: Collection[Tokens] = ()) -> tuple[Tokens, int]:
        """The kept head that begins like this one for longest, and for how many tokens.

        Those in `but` are not evaluated yet. The one found counts as used.
        """
        if head in self._seqs and head not in but:
            best = head, len(head)
        else:
            best = (), 0
            for kept in self._seqs:
                shared = common(kept, head)
                # What cannot be cut back is of use only as a whole.
                whole = shared == len(kept) or self._session.can_cut
                # Of equals the last used, so that a chance resemblance saves no old one.
                if shared >= max(best[1], _LEAST) and whole and kept not in but:
                    best = kept, shared
        if best[1]:
            self._seqs.move_to_end(best[0])
        return best

    def share(self, source: Tokens, seq: int, count: int) -> None:
        """Let a sequence begin with the first `count` tokens of a kept head."""
        self._session.copy(self._seqs[source], seq, 0, -1 if count == len(source) else count)

    def add(self, head: Tokens, busy: Collection[Tokens], source: Tokens) -> int:
        """A sequence to keep a new head in."""
        if len(self._seqs) == MAX_KEPT:
            self._evict({*busy, source})  # never in vain: a decode has at most 31 heads
        numbers = range(MAX_BRANCHES, N_SEQ)
        self._seqs[head] = next(n for n in numbers if n not in self._seqs.values())
        return self._seqs[head]

    def trim(self) -> None:
        """Go back to the cells that heads may hold between calls; the last used one stays."""
        while len(self._seqs) > 1 and sum(map(len, self._seqs)) > self._cells:
            self._evict(())

    def make_room(self, cells: int, busy: Collection[Tokens]) -> None:
        """Leave `cells` for a decode that counts the busy heads in."""
        while sum(len(c) for c in self._seqs if c not in busy) + cells > self._session.n_ctx:
            if not self._evict(busy):
                return

    def drop(self, heads: Iterable[Tokens]) -> None:
        """Forget heads whose evaluation failed."""
        for head in heads:
            if head in self._seqs:
                self._session.clear(self._seqs.pop(head))

    def _evict(self, busy: Collection[Tokens]) -> bool:
        oldest = next((c for c in self._seqs if c not in busy), None)
        if oldest is None:
            return False
        self.drop([oldest])
        return True
