"""Writing one text: greedy, held to the task's grammar, in a llama context of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from semif.errors import Aborted, DecisionError
from semif.llama import Adapter, Model, Session
from semif.writing import grammar
from semif.writing.tasks import Prompts, Value, load

if TYPE_CHECKING:
    from semif.sampling import Marks

N_CTX = 1024


@dataclass(frozen=True)
class Written:
    """What was written: the line as it came, and its value, None where it is not well formed.

    `whole`: it ended by itself; else it was closed at its budget (`tokens` of it), or cut where it
    went on behind its last sentence. `ms` is without what the context costs.
    """

    text: str
    value: Value | None
    whole: bool
    prompt_tokens: int
    tokens: int
    ms: float


class Writer:
    """Writes the tasks of `prompts` with a loaded model. One thread at a time.

    n_ctx: tokens of prompt and text together; the context, about 23 kB a token for the embedded
    model, is taken from memory by `open` or the first text and given back by `close`.
    """

    def __init__(
        self,
        model: Model,
        adapter: Adapter | None = None,
        *,
        threads: int = 2,
        n_ctx: int = N_CTX,
        prompts: Prompts | None = None,
    ) -> None:
        self.prompts = prompts or load()
        self._model = model
        self._adapter = adapter
        self._threads, self._n_ctx = threads, n_ctx

    @cached_property
    def _session(self) -> Session:
        return Session(self._model, self._n_ctx, threads=self._threads, adapter=self._adapter)

    @cached_property
    def _marks(self) -> Marks:
        from semif.sampling import marks

        return marks(self._model)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Take the context now."""
        _ = self._session

    def close(self) -> None:
        """Give the context back; the next text takes it anew."""
        if "_session" in self.__dict__:
            self.__dict__.pop("_session").close()

    def write(
        self, name: str, given: Mapping[str, str], abort: Callable[[], bool] | None = None
    ) -> Written:
        """The text of a task. `abort` is asked all the while; when it says True, Aborted is raised.

        DecisionError when the input is not the task's, or longer than the context; nothing is
        ever truncated.
        """
        from semif.sampling import Sampler

        task = self.prompts.task(name)
        prompt = self.prompts.tokens(self._model, name, given, tuned=self._adapter is not None)
        room = self._n_ctx - task.max_tokens
        if len(prompt) > room:
            raise DecisionError(name, "input", f"has {len(prompt)} tokens; {room} fit the context")
        session, text, tokens, whole = self._session, "", 0, False
        started = time.perf_counter()
        sampler = Sampler(self._model, self._marks, grammar.of(task), 0.0, 0)
        session.abort = abort
        try:
            session.clear()
            logits_of, at = prompt, 0
            cut: str | None = None
            while cut is None and tokens < task.max_tokens:
                if abort is not None and abort():
                    raise Aborted
                span = range(at, at + len(logits_of))
                session.decode(logits_of, span, [(0,)] * len(span), [len(span) - 1])
                at = span.stop
                picked = sampler.pick(session.logits(len(span) - 1))
                if picked is None:
                    whole = True
                    break
                tokens += 1
                text += picked[1]
                logits_of = [picked[0]]
                cut = grammar.finished(task, text)
        finally:
            session.abort = None
            sampler.close()
        if not whole:
            text = cut or grammar.close(task, text)
        text = text.strip()
        ms = (time.perf_counter() - started) * 1000
        return Written(text, task.parse(text), whole, len(prompt), tokens, ms)
