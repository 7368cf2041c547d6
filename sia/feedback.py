"""What persons said of responses: that one is right, what it should have been, or that it is wrong.

Each is a row of ``.sia/feedback.jsonl``, append only; the last one on an iteration counts. A
response that a person changed also stands in the iteration's file, marked ``edited``, so that a
replay of it answers as the person would have.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import msgspec

from semif.errors import DecisionError
from semif.jsonl import append, numbered_rows, write_whole
from semif.log import timestamp
from semif.types import converted
from sia import actions, record
from sia.context import ContextError, to_xml
from sia.entries import ILLEGAL, Iteration, Response
from sia.errors import SiaError, UsageError
from sia.prompt import prompt
from sia.redact import redact

Kind = Literal["approved", "edited", "rejected"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one person said of one response.

    iteration: ``SESSION/N``. before: the response as it was; after: as it should be, which is
    ``before`` where it was approved and "" where it was rejected. time: RFC 3339, UTC.
    """

    id: str
    iteration: str
    kind: Kind
    before: str
    after: str
    by: str
    time: str


def read(path: Path, report: Callable[[object], None]) -> Iterator[Feedback]:
    """The rows of a log, in order; what cannot be read goes to ``report``."""
    for number, row in numbered_rows(path, report):
        try:
            yield converted(row, Feedback, f"{path} line {number}")
        except DecisionError as error:
            report(error)


def name(iteration: Iteration) -> str:
    return f"{iteration.session}/{iteration.n}"


def path_of(contexts: Path, iteration: str) -> Path:
    """The file of ``SESSION/N``; UsageError when that names none."""
    if path := record.named(contexts, iteration):
        return path
    raise UsageError(f"there is no iteration {iteration}; sia history lists them as SESSION/N")


def give(
    log: Path, contexts: Path, iteration: str, kind: Kind, by: str, text: str | None = None
) -> Feedback:
    """Record what a person says of a response, and the new one (``text``) where it is edited.

    The row is on disk before the file changes; what a crash leaves out of the file is taken from
    the row. UsageError for an iteration without a response, or a text that is no core action.
    """
    path = path_of(contexts, iteration)
    try:
        found = record.read(path)
    except ContextError as error:
        raise SiaError(str(error)) from None
    if found.response is None:
        raise UsageError(f"iteration {iteration} has no response")
    before = redact(found.response.text)
    after = {"approved": before, "rejected": ""}.get(kind)
    if after is None:
        after = _checked(text or "", found)
    if kind == "approved" and not trainable(found):
        raise UsageError(
            f"the response of {iteration} was made by {found.response.by}, or cannot be shown "
            "whole; there is nothing to learn from it"
        )
    now = timestamp(datetime.now(UTC))
    row = Feedback(uuid.uuid4().hex[:12], name(found), kind, before, after, by, now)
    append(log, [msgspec.to_builtins(row)])
    if kind == "edited":
        changed = replace(found, response=Response(after, "person", edited=True))
        write_whole(path, to_xml(changed))
    return row


def trainable(iteration: Iteration) -> bool:
    """Whether a loss may be taken on the response."""
    return prompt(iteration).trained[-1]


def _checked(text: str, iteration: Iteration) -> str:
    """The text, which must be one core action in the iteration's context and hold no secret."""
    text = text.strip()
    try:
        actions.parse(text, [entry.id for entry in iteration.entries])
    except actions.ActionError as error:
        at = f"line {error.line}, column {error.column}"
        raise UsageError(f"the new response is no core action: {error} ({at})") from None
    if redact(text) != text or ILLEGAL.search(text):
        raise UsageError("the new response holds what looks like a secret, or no XML can hold")
    return text
