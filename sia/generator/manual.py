"""A person plays the generator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sia.generator.types import TASKS, Finish, Part, Reply, Usage


class ManualGenerator:
    """Asks a person for every text.

    read(cancel) waits for the person's text and gives up with None as soon as cancel is set, or
    when the person will write nothing more. show, when given, is handed the prompt before.
    """

    name = "manual"
    # What a person thinks of a run they say of its decisions; they are not examined after each.
    proven = TASKS - {"judge"}
    used = Usage()  # a person's words cost no tokens

    def __init__(
        self,
        read: Callable[[threading.Event], str | None],
        show: Callable[[Sequence[Part]], None] | None = None,
    ) -> None:
        self._read = read
        self._show = show

    def reply(
        self,
        parts: Sequence[Part],
        *,
        ids: Sequence[str],
        cancel: threading.Event,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """What the person typed, unchanged; they saw it already, so on_text hears nothing."""
        return self._ask(parts, cancel)

    def write(
        self,
        parts: Sequence[Part],
        *,
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None = None,
    ) -> Reply:
        """What the person typed, unchanged."""
        return self._free(parts, cancel)

    def compose(
        self, task: str, fields: Mapping[str, str], *, cancel: threading.Event
    ) -> str | dict[str, Any] | None:
        """What the person typed, where it has the task's form; a person may add facts."""
        from sia.generator import writing

        return writing.read(task, self._free(writing.parts(task, fields), cancel))

    def close(self) -> None:
        """Nothing is held."""

    def _free(self, parts: Sequence[Part], cancel: threading.Event) -> Reply:
        """A text that is no core action."""
        return self._ask(parts, cancel)

    def _ask(self, parts: Sequence[Part], cancel: threading.Event) -> Reply:
        started = time.perf_counter()
        if self._show is not None:
            self._show(parts)
        text = self._read(cancel)
        ms = (time.perf_counter() - started) * 1000
        finish: Finish = "cancelled" if text is None else "stop"
        return Reply(text or "", finish, None, None, None, ms, self.name)
