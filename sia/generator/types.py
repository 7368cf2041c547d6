"""The seam to whoever writes text: the parts of a prompt, the reply, and ``Generator``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from semif.chat import Part as Part
from sia.errors import SiaError, Unavailable

Finish = Literal["stop", "length", "cancelled"]

# act: answer a turn with a core action; the others: write a text (see semif.writing).
TASKS = frozenset({"act", "message", "judge", "name", "summarise", "report", "rewrite"})


class GeneratorError(SiaError):
    """The generator cannot answer this: the message says why and what to change."""


class Unfit(GeneratorError):
    """What was written must not be used: it is malformed, or loses or invents facts."""


class GeneratorUnavailable(GeneratorError, Unavailable):
    """The server behind the generator is away, busy or refuses; trying later may help."""


@dataclass(frozen=True)
class Usage:
    """Tokens: ``read`` of prompts, ``written`` of texts; a guess where a server does not tell."""

    read: int = 0
    written: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.read + other.read, self.written + other.written)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.read - other.read, self.written - other.written)


@dataclass(frozen=True)
class Reply:
    """What was written, why it ended, and what it cost.

    finish: ``stop`` (whole), ``length`` (cut at the budget; a core action was closed by force and
    parses, but a script in it is half a script and must not be run), ``cancelled`` (the text so
    far). prompt_tokens, evaluated, generated count tokens: of the whole prompt, of the part of it
    that was not in the cache, and sampled; None where a server does not tell. ms is wall time.
    """

    text: str
    finish: Finish
    prompt_tokens: int | None
    evaluated: int | None
    generated: int | None
    ms: float
    model: str

    def usage(self, parts: Sequence[Part]) -> Usage:
        """What it took, given its prompt: told, else guessed at four characters a token."""
        read, written = self.prompt_tokens, self.generated
        if read is None:
            read = sum(len(part.text) for part in parts) // 4
        return Usage(read, (len(self.text) + 3) // 4 if written is None else written)


class Generator(Protocol):
    """Writes core actions and texts, one call at a time.

    name: goes into the iteration file. proven: the writing tasks (of ``TASKS``) it is good
    enough for. used: what all calls so far took. A set ``cancel`` ends a call within a second,
    with finish ``cancelled``.
    """

    name: str
    proven: frozenset[str]
    used: Usage

    def reply(
        self,
        parts: Sequence[Part],
        *,
        ids: Sequence[str],
        cancel: threading.Event,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """One core action as XML; ids are the entries that may be deleted.

        on_text is given the text as it comes, on the calling thread. Where no grammar can be
        enforced (a server, a person) the text may be anything. Raises GeneratorError.
        """

    def write(
        self,
        parts: Sequence[Part],
        *,
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None = None,
    ) -> Reply:
        """Free text for a writing task, held to grammar (GBNF, rule ``root``) where possible."""

    def compose(
        self, task: str, fields: Mapping[str, str], *, cancel: threading.Event
    ) -> str | dict[str, Any] | None:
        """The text of a writing task, or its object (judge, name); None: cancelled.

        fields: the task's, by name (semif/writing). Raises Unfit when the text does not pass the
        check of its form and facts, GeneratorError.
        """

    def close(self) -> None:
        """Free what is held; no call may follow."""
