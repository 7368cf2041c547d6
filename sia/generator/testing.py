"""A generator that follows a script, for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sia.generator.types import TASKS, GeneratorError, Part, Reply, Usage

# A reply, or what makes it from the prompt; None: cancelled.
Scripted = str | Callable[[Sequence[Part], threading.Event], str | None]


@dataclass(frozen=True)
class Call:
    """One request to the generator: kind is ``reply`` (with ids), ``write`` or ``compose``."""

    kind: str
    parts: tuple[Part, ...]
    ids: tuple[str, ...] = ()


class ScriptedGenerator:
    """Gives the replies in order, whatever is called, and keeps every call."""

    name = "scripted"

    def __init__(self, replies: Iterable[Scripted] = (), proven: frozenset[str] = TASKS) -> None:
        self.proven = proven
        self.used = Usage()
        self.calls: list[Call] = []
        self._replies = iter(replies)

    def reply(
        self,
        parts: Sequence[Part],
        *,
        ids: Sequence[str],
        cancel: threading.Event,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """The next reply, unchanged."""
        reply = self._next(Call("reply", tuple(parts), tuple(ids)), cancel)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return reply

    def write(
        self,
        parts: Sequence[Part],
        *,
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None = None,
    ) -> Reply:
        """The next reply, unchanged."""
        return self._next(Call("write", tuple(parts)), cancel)

    def compose(
        self, task: str, fields: Mapping[str, str], *, cancel: threading.Event
    ) -> str | dict[str, Any] | None:
        """The next reply, checked as that of a model is."""
        from sia.generator import writing

        parts = writing.parts(task, fields)
        value = writing.read(task, self._next(Call("compose", tuple(parts)), cancel))
        return None if value is None else writing.checked(task, fields, value)

    def close(self) -> None:
        """Nothing is held."""

    def _next(self, call: Call, cancel: threading.Event) -> Reply:
        self.calls.append(call)
        scripted = next(self._replies, None)
        if scripted is None:
            raise GeneratorError(f"the script holds no reply for call {len(self.calls)}")
        text = scripted if isinstance(scripted, str) else scripted(call.parts, cancel)
        prompt = sum(len(part.text.split()) for part in call.parts)
        if text is None or cancel.is_set():
            return Reply(text or "", "cancelled", prompt, prompt, 0, 0.0, self.name)
        reply = Reply(text, "stop", prompt, prompt, len(text.split()), 0.0, self.name)
        self.used += reply.usage(call.parts)
        return reply


def until_cancelled(_parts: Sequence[Part], cancel: threading.Event) -> None:
    """A scripted reply that never comes."""
    cancel.wait()
