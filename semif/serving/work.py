"""What decisions take, in tokens, said before any of them is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from semif.encoding import common
from semif.llama import Model
from semif.prefixes import units
from semif.prompting import branches_prompt, letters_prompt
from semif.revision import Revision
from semif.types import Decision


def tokens(
    model: Model, revision: Revision, limit: int, decisions: Sequence[Decision], most: int
) -> int:
    """About how many tokens an engine with nothing kept evaluates for decisions read together.

    Counted decision by decision until they are more than `most`. limit: of the prompt of one
    decision (`Engine.limit`); what is longer counts nothing, as the engine refuses it. Raises
    DecisionError for what has no prompt.
    """
    count = _branches if revision.contents.readout == "branches" else _letters
    return count(model, revision, limit, decisions, most)


def _branches(
    model: Model, revision: Revision, limit: int, decisions: Sequence[Decision], most: int
) -> int:
    @cache  # a state, or a criterion, stands in many prompts
    def size(text: str) -> int:
        return len(model.tokenize(text, special=False))

    total = 0
    heads: set[str] = set()
    for decision in decisions:
        rendered = branches_prompt(revision.prompt_for(decision.phase)).render(decision)
        head, body = size(rendered.head), size(rendered.body)
        branches = [(0,) * size(text) for text in {text for _, text in rendered.branches}]
        if head + body + max(map(len, branches)) > limit:
            continue
        # Options that do not fit into one decode have the body evaluated again.
        parts = list(units(0, (0,) * head, (0,) * body, branches, limit))
        total += sum(part.cells - head for part in parts)
        total += head if rendered.head not in heads else 0
        heads.add(rendered.head)
        if total > most:
            break
    return total


def _letters(
    model: Model, revision: Revision, limit: int, decisions: Sequence[Decision], most: int
) -> int:
    """Of each prompt what the one before it has not; the template around it is not counted."""
    prompt = letters_prompt(revision.contents.prompt_version)
    total = 0
    last: list[int] = []
    for decision in decisions:
        own = model.tokenize(prompt.user(decision), special=False)
        if len(own) > limit:
            continue
        total += len(own) - common(own, last)
        last = own
        if total > most:
            break
    return total
