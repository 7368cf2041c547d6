"""Labelled rows in the tokens that their readout evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semif.branches import answer_token
from semif.encoding import common, encode
from semif.errors import DecisionError
from semif.export import LabelledRow
from semif.letters import Letters
from semif.llama import Model
from semif.prompting import branches_prompt, letters_prompt
from semif.revision import Revision
from semif.training.loss import Target
from semif.training.packing import Row
from semif.training.tower import Slot

# The engine's context: a row that is longer could never be asked.
_LIMIT = 4096


@dataclass(frozen=True)
class Example:
    """A labelled row, the ids of its options in the order of its tokens, and what it teaches."""

    label: LabelledRow
    ids: tuple[str, ...]
    row: Row
    target: Target


@dataclass(frozen=True)
class Examples:
    """Examples to train and to validate on, and the slots that their rows read."""

    taught: tuple[Example, ...]
    held: tuple[Example, ...]
    slots: tuple[Slot, ...]


def examples(
    model: Model, pinned: Revision, taught: Sequence[LabelledRow], held: Sequence[LabelledRow]
) -> Examples:
    """The rows as `pinned` reads them. Rows of no weight teach nothing, and only a known outcome
    can be validated: the others are left out.

    DecisionError for a row that is too long or denies all its options; ModelError when model and
    readout do not fit.
    """
    chosen = [label for label in taught if label.weight > 0]
    known = [label for label in held if label.outcome is not None]
    every = [*chosen, *known]
    by_letters = pinned.contents.readout == "letters"
    read = _letters if by_letters else _branches
    rows, slots = read(model, pinned, every)
    found = tuple(
        Example(label, ids, row, _target(label, ids))
        for label, (ids, row) in zip(every, rows, strict=True)
    )
    return Examples(found[: len(chosen)], found[len(chosen) :], tuple(slots))


_Read = tuple[list[tuple[tuple[str, ...], Row]], list[Slot]]


def _branches(model: Model, pinned: Revision, labels: Sequence[LabelledRow]) -> _Read:
    limit = min(model.n_ctx_train, _LIMIT)
    versions = sorted({pinned.prompt_for(label.decision.phase) for label in labels})
    slots = []
    for prompt in map(branches_prompt, versions):
        yes, no = (answer_token(model, prompt, text) for text in (prompt.yes, prompt.no))
        slots.append(Slot(yes, no))
    rows = []
    for label in labels:
        version = pinned.prompt_for(label.decision.phase)
        encoded = encode(model, branches_prompt(version), label.decision, limit)
        distinct = tuple(dict.fromkeys(encoded.branches))
        row = Row(
            head=encoded.head,
            body=encoded.body,
            branches=distinct,
            slots=(versions.index(version),),
            options=tuple(distinct.index(branch) for branch in encoded.branches),
        )
        rows.append((encoded.ids, row))
    return rows, slots


def _letters(model: Model, pinned: Revision, labels: Sequence[LabelledRow]) -> _Read:
    """Chat prompts: the head is what all have in common, the rest is a row's own."""
    prompt = letters_prompt(pinned.contents.prompt_version)
    letters = Letters(model, prompt, None, 1, min(model.n_ctx_train, _LIMIT))
    try:
        prompts = [tuple(letters.prompt(label.decision)[1]) for label in labels]
    finally:
        letters.session.close()
    slots = [Slot(model.tokenize(letter, special=False)[0]) for letter in prompt.letters]
    shared = min((len(tokens) - 1 for tokens in prompts), default=0)
    for tokens in prompts:
        shared = min(shared, common(tokens, prompts[0]))
    rows = []
    for label, tokens in zip(labels, prompts, strict=True):
        options = label.decision.options
        every = tuple(range(len(options)))
        row = Row(tokens[:shared], tokens[shared:], ((),), every, every)
        rows.append((tuple(option.id for option in options), row))
    return rows, slots


def _target(label: LabelledRow, ids: Sequence[str]) -> Target:
    """What the label says, in indexes of `ids`."""
    if label.outcome is not None:
        return Target(ids.index(label.outcome))
    denied = tuple(i for i, id_ in enumerate(ids) if id_ in label.not_outcomes)
    if not 0 < len(denied) < len(ids):
        raise DecisionError(
            label.decision.id, "not_outcomes", "must name some of the options, not none or all"
        )
    return Target(None, denied)
