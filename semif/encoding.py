"""A decision in the tokens of the readout `branches`: one form for engine and trainer."""

from __future__ import annotations

from dataclasses import dataclass

from semif.llama import Model
from semif.prompting import BranchesPrompt
from semif.readout import too_long
from semif.types import Decision

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Encoded:
    """A decision in tokens; `ids` and `branches` by option, sorted by id.

    `head` is the part of head and body, as one text, that the head alone has too: the last token
    of a head may merge with what follows.
    """

    ids: tuple[str, ...]
    head: Tokens
    body: Tokens
    branches: tuple[Tokens, ...]
    sha256: str

    @property
    def cells(self) -> int:
        """Tokens of the whole prompt."""
        return len(self.head) + len(self.body) + sum(map(len, self.branches))


def encode(model: Model, prompt: BranchesPrompt, decision: Decision, limit: int) -> Encoded:
    """The tokens of a decision; DecisionError when a branch with its prefix exceeds `limit`."""
    rendered = prompt.render(decision)
    alone = model.tokenize(rendered.head, special=False)
    joint = model.tokenize(rendered.head + rendered.body, special=False)
    shared = common(alone, joint)
    branches = tuple(tuple(model.tokenize(text, special=False)) for _, text in rendered.branches)
    longest = len(joint) + max(map(len, branches))
    if longest > limit:
        raise too_long(decision, longest, limit)
    return Encoded(
        ids=tuple(option.id for option, _ in rendered.branches),
        head=tuple(joint[:shared]),
        body=tuple(joint[shared:]),
        branches=branches,
        sha256=rendered.sha256,
    )


def common(one: Tokens | list[int], other: Tokens | list[int]) -> int:
    """Length of the common beginning."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
