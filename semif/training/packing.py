"""Labelled rows as sequences for training: what they share is computed once, where it can be.

`Tree` packs rows into one sequence without padding: heads, each followed by the bodies and branches
of its rows. A token sees what the engine lets it see: its head, the body of its own row, its own
branch. Positions go on from the head's end for each row, and from the body's end for each branch.
Linear layers see the sequence as it is; attention sees it in spans, a head or a row's own tokens
each, because a mask over the whole sequence would cost a multiple of what it lets through.

`Sequences` gives every branch a sequence of its own with all that comes before it, for models whose
layers carry a state along the sequence, which no mask can part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from semif.encoding import Tokens

# How much larger than what is needed padding may make the attention of some spans.
_PADDING = 1.5
# How much more than its share a worker may get before a head is evaluated twice.
_UNEVEN = 1.25


@dataclass(frozen=True)
class Row:
    """A decision in tokens. A score is read at the end of each branch, in the row's slots.

    `slots` are the indexes of the tower's slots: one for all branches, or several for the only
    branch. `options`: by option, the index of its score; several options may share one.
    """

    head: Tokens
    body: Tokens
    branches: tuple[Tokens, ...]
    slots: tuple[int, ...]
    options: tuple[int, ...]

    @property
    def own(self) -> int:
        """Number of tokens behind the head."""
        return len(self.body) + sum(map(len, self.branches))


@dataclass(frozen=True)
class Spans:
    """Queries of some spans and the keys that they may see, padded to the longest.

    queries [S, Q] and keys [S, K] are places in the sequence; hidden [S, Q, K] is true where a
    query does not see a key, and distance [S, Q, K] says how many positions it looks back.
    """

    queries: Tensor
    keys: Tensor
    hidden: Tensor
    distance: Tensor


@dataclass(frozen=True)
class Layout:
    """Where N tokens of some rows stand in B sequences of T tokens.

    tokens and positions [B, T]; places [N] of the tokens in B * T, None where they are all of it.
    reads [M, 2]: place and slot of each score, those of one place together; counts and together:
    by row, how many scores it has, and how many of them at one place. pieces: the key of each run
    of tokens (a head, or the index of a row) and its length, in order. spans cover every token of
    a packed sequence once, and order [T] is where each stands in all their padded queries; without
    spans every token sees those before it.
    """

    tokens: Tensor
    positions: Tensor
    places: Tensor | None
    reads: Tensor
    counts: list[int]
    together: list[int]
    pieces: list[tuple[int | Tokens, int]]
    spans: tuple[Spans, ...] = ()
    order: Tensor | None = None


class Packing(Protocol):
    """A way of laying out rows."""

    def pieces(self, index: int, row: Row) -> list[tuple[int | Tokens, int]]:
        """Key and length of the runs of tokens of a row; what is shared has the same key."""
        ...

    def layout(self, rows: Sequence[Row], indexes: Sequence[int]) -> Layout:
        """The layout of rows evaluated together; `indexes` name them in `pieces`."""
        ...


def packs(
    packing: Packing, rows: Sequence[Row], order: Iterable[int], size: int
) -> list[list[int]]:
    """Indexes of `rows` in packs of at most `size` tokens, or of one row; those of one head
    together, heads in the order in which they are first met."""
    by_head: dict[Tokens, list[int]] = {}
    for index in order:
        by_head.setdefault(rows[index].head, []).append(index)
    done: list[list[int]] = []
    held: set[int | Tokens] = set()
    tokens = 0
    for index in (index for indexes in by_head.values() for index in indexes):
        pieces = packing.pieces(index, rows[index])
        more = sum(length for key, length in pieces if key not in held)
        if not done or tokens + more > size:
            done.append([])
            held, tokens = set(), 0
            more = sum(length for _, length in pieces)
        done[-1].append(index)
        held |= {key for key, _ in pieces}
        tokens += more
    return done


def spread(
    packing: Packing, rows: Sequence[Row], indexes: Sequence[int], parts: int, size: int
) -> list[list[list[int]]]:
    """The packs of so many workers for one step: rows of one head together, unless they are well
    over a worker's share, and tokens about alike."""
    if parts == 1:
        return [packs(packing, rows, indexes, size)]

    def tokens(pack: Sequence[int]) -> int:
        return sum(dict(piece for i in pack for piece in packing.pieces(i, rows[i])).values())

    share = round(_UNEVEN * tokens(indexes) / parts)
    by_head: dict[Tokens, list[int]] = {}
    for index in indexes:
        by_head.setdefault(rows[index].head, []).append(index)
    groups = [pack for same in by_head.values() for pack in packs(packing, rows, same, share)]
    held: list[list[int]] = [[] for _ in range(parts)]
    for group in sorted(groups, key=tokens, reverse=True):
        min(held, key=tokens).extend(group)
    return [packs(packing, rows, part, size) for part in held]


class Sequences:
    """Every branch by itself."""

    def pieces(self, index: int, row: Row) -> list[tuple[int | Tokens, int]]:
        before = len(row.head) + len(row.body)
        return [(index, sum(before + len(branch) for branch in row.branches))]

    def layout(self, rows: Sequence[Row], indexes: Sequence[int]) -> Layout:
        whole = [(row, (*row.head, *row.body, *branch)) for row in rows for branch in row.branches]
        longest = max(len(tokens) for _, tokens in whole)
        tokens = torch.zeros(len(whole), longest, dtype=torch.long)
        places: list[int] = []
        reads: list[tuple[int, int]] = []
        for number, (row, sequence) in enumerate(whole):
            start = number * longest
            tokens[number, : len(sequence)] = torch.tensor(sequence)
            places += range(start, start + len(sequence))
            reads += [(places[-1], slot) for slot in row.slots]
        return Layout(
            tokens=tokens,
            positions=torch.arange(longest).expand(len(whole), -1),
            places=torch.tensor(places),
            reads=torch.tensor(reads),
            counts=[len(row.branches) * len(row.slots) for row in rows],
            together=[len(row.slots) for row in rows],
            pieces=[
                piece for i, row in zip(indexes, rows, strict=True) for piece in self.pieces(i, row)
            ],
        )


class Tree:
    """Rows packed into one sequence."""

    def pieces(self, index: int, row: Row) -> list[tuple[int | Tokens, int]]:
        return [(row.head, len(row.head)), (index, row.own)]

    def layout(self, rows: Sequence[Row], indexes: Sequence[int]) -> Layout:
        packed = _Packed()
        heads: dict[Tokens, range] = {}
        pieces: list[tuple[int | Tokens, int]] = []
        for index, row in zip(indexes, rows, strict=True):
            if row.head not in heads:
                heads[row.head] = packed.head(row.head)
                pieces.append((row.head, len(row.head)))
            packed.row(row, heads[row.head])
            pieces.append((index, row.own))
        positions, branch_of = torch.tensor(packed.positions), torch.tensor(packed.branch_of)
        groups = _groups([span for span in packed.spans if span[1]])
        spans = tuple(_padded(group, positions, branch_of) for group in groups)
        return Layout(
            tokens=torch.tensor(packed.tokens)[None],
            positions=positions[None],
            places=None,
            reads=torch.tensor(packed.reads),
            counts=[len(row.branches) * len(row.slots) for row in rows],
            together=[len(row.slots) for row in rows],
            pieces=pieces,
            spans=spans,
            order=_order(groups, spans, len(packed.tokens)),
        )


_Span = tuple[range, range]  # what is seen whole, and the tokens that see it, each other in order


class _Packed:
    """A packed sequence as it grows; branch_of is -1 for what all branches see."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.branch_of: list[int] = []
        self.reads: list[tuple[int, int]] = []
        self.spans: list[_Span] = []

    def head(self, tokens: Tokens) -> range:
        place = self._add(tokens, 0, -1)
        self.spans.append((range(0), place))
        return place

    def row(self, row: Row, head: range) -> None:
        start = len(self.tokens)
        self._add(row.body, len(head), -1)
        for number, branch in enumerate(row.branches):
            place = self._add(branch, len(head) + len(row.body), number)
            # A branch of no tokens is read at the end of what comes before it.
            end = place.stop if place else start + len(row.body) if row.body else head.stop
            self.reads += [(end - 1, slot) for slot in row.slots]
        self.spans.append((head, range(start, len(self.tokens))))

    def _add(self, tokens: Tokens, position: int, branch: int) -> range:
        start = len(self.tokens)
        self.tokens += tokens
        self.positions += range(position, position + len(tokens))
        self.branch_of += [branch] * len(tokens)
        return range(start, len(self.tokens))


def _groups(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Spans of about one length, so that padding adds at most a half to what is computed."""
    groups: list[list[_Span]] = []
    needed = 0
    for span in sorted(spans, key=lambda span: (len(span[1]), len(span[0]))):
        queries = len(span[1])
        more = queries * (len(span[0]) + queries)
        together = [*groups[-1], span] if groups else [span]
        keys = max(len(seen) + len(own) for seen, own in together)
        if not groups or len(together) * queries * keys > _PADDING * (needed + more):
            groups.append([])
            needed = 0
        groups[-1].append(span)
        needed += more
    return groups


def _padded(group: Sequence[_Span], positions: Tensor, branch_of: Tensor) -> Spans:
    longest = max(len(own) for _, own in group)
    widest = max(len(seen) + len(own) for seen, own in group)
    queries = torch.zeros(len(group), longest, dtype=torch.long)
    keys = torch.zeros(len(group), widest, dtype=torch.long)
    hidden = torch.ones(len(group), longest, widest, dtype=torch.bool)
    hidden[:, :, 0] = False  # what is padded sees something, so that its softmax is a number
    for number, (seen, own) in enumerate(group):
        places = torch.tensor([*seen, *own])
        queries[number, : len(own)] = places[len(seen) :]
        keys[number, : len(places)] = places
        branch = branch_of[places]
        visible = (branch == -1) | (branch == branch[len(seen) :, None])
        visible[:, len(seen) :].tril_()
        hidden[number, : len(own), : len(places)] = ~visible
    distance = positions[queries][:, :, None] - positions[keys][:, None]
    return Spans(queries, keys, hidden, distance)


def _order(groups: Sequence[Sequence[_Span]], spans: Sequence[Spans], tokens: int) -> Tensor:
    """Where each token of the sequence stands in the queries of all spans."""
    order = torch.empty(tokens, dtype=torch.long)
    start = 0
    for group, padded in zip(groups, spans, strict=True):
        for _, own in group:
            order[own.start : own.stop] = torch.arange(start, start + len(own))
            start += padded.queries.shape[1]
    return order


def map_tensors(where: Layout, change: Callable[[Tensor], Tensor]) -> Layout:
    """The layout with each tensor replaced, such as by its copy on another device."""
    return Layout(
        tokens=change(where.tokens),
        positions=change(where.positions),
        places=None if where.places is None else change(where.places),
        reads=change(where.reads),
        counts=where.counts,
        together=where.together,
        pieces=where.pieces,
        spans=tuple(
            Spans(change(s.queries), change(s.keys), change(s.hidden), change(s.distance))
            for s in where.spans
        ),
        order=None if where.order is None else change(where.order),
    )
