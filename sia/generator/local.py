"""The generator in this process: llama.cpp, its KV cache kept from turn to turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semif.chat import Chat, Part
from semif.errors import Aborted, DecisionError, ModelError
from semif.llama import Adapter, Model, Session
from sia.generator import grammar as grammars
from sia.generator import writing
from sia.generator.types import Finish, GeneratorError, Reply, Unfit, Usage

if TYPE_CHECKING:
    import numpy as np

    from semif.sampling import Marks
    from semif.writing.tasks import Prompts
    from semif.writing.writer import Writer


class LocalGenerator:
    """Writes with a model that is loaded already, in llama contexts of its own.

    n_ctx: tokens of the context for core actions, taken from memory at the first of them.
    max_tokens: the budget of one core action. adapter: the revision's adapter for the writing
    tasks, prompts: what it was tuned with. acts: the one for core actions and free text, where it
    learned them (see ``semif.writing.turns``), else they are written without. One thread at a time.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        threads: int,
        max_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        proven: frozenset[str] = frozenset(),
        adapter: Adapter | None = None,
        prompts: Prompts | None = None,
        acts: Adapter | None = None,
    ) -> None:
        if not grammars.MIN_TOKENS <= max_tokens < n_ctx:
            raise ValueError(
                f"max_tokens must be {grammars.MIN_TOKENS} or more and less than n_ctx ({n_ctx}), "
                f"not {max_tokens}"
            )
        self.name = model.path.stem + (f"+{adapter.path.stem}" if adapter else "")
        self.proven = proven
        self.used = Usage()
        self._model = model
        self._adapter, self._prompts, self._acts = adapter, prompts, acts
        self._n_ctx, self._threads = n_ctx, threads
        self._max_tokens = max_tokens
        self._temperature, self._seed = temperature, seed
        self._cached: list[int] = []  # the tokens the session holds

    @cached_property
    def _session(self) -> Session:
        return Session(self._model, self._n_ctx, threads=self._threads, adapter=self._acts)

    @cached_property
    def _writer(self) -> Writer:
        from semif.writing.writer import Writer

        return Writer(self._model, self._adapter, threads=self._threads, prompts=self._prompts)

    @cached_property
    def _chat(self) -> Chat:
        return Chat(self._model)

    @cached_property
    def _marks(self) -> Marks:
        from semif.sampling import marks

        return marks(self._model)

    def count(self, text: str) -> int:
        """Tokens of a text inside a prompt."""
        return len(self._model.tokenize(text, special=False))

    def reply(
        self,
        parts: Sequence[Part],
        *,
        ids: Sequence[str],
        cancel: threading.Event,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """One core action, held to the grammar; at the budget it is closed by force."""
        grammar = grammars.core_action(ids)
        return self._generate(parts, self._max_tokens, cancel, grammar, on_text, action=tuple(ids))

    def write(
        self,
        parts: Sequence[Part],
        *,
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None = None,
    ) -> Reply:
        """Free text, cut on a character at the budget."""
        return self._generate(parts, max_tokens, cancel, grammar)

    def nll(self, parts: Sequence[Part], reply: str) -> float:
        """Mean negative log likelihood of a reply and its end, in nats a token.

        Raises GeneratorError when both are longer than the context."""
        from semif.writing.turns import surprise

        prompt, tokens = self._tokens(parts), self._model.tokenize(reply, special=False)
        tokens = [*tokens, self._model.eos]
        self._check_room(len(prompt), len(tokens))
        kept = self._keep_common(prompt)
        logits, total = self._evaluate(prompt[kept:]), 0.0
        for number, token in enumerate(tokens, start=1):
            total += surprise(logits, token)
            if number < len(tokens):
                logits = self._evaluate([token])
        return total / len(tokens)

    def compose(
        self, task: str, fields: Mapping[str, str], *, cancel: threading.Event
    ) -> str | dict[str, Any] | None:
        """A writing task, greedy and with the adapter; see ``Generator.compose``.

        Its context is given back at once: a new one costs some 20 ms, one that stays 30 MB.
        """
        try:
            written = self._writer.write(task, fields, cancel.is_set)
        except Aborted:
            return None
        except DecisionError as error:
            raise Unfit(str(error)) from error
        except ModelError as error:
            raise GeneratorError(str(error)) from error
        finally:
            self._writer.close()
        self.used += Usage(written.prompt_tokens, written.tokens)
        return writing.checked(task, fields, written.value, written.whole)

    def close(self) -> None:
        """Free the context; the model stays with whoever loaded it."""
        if "_session" in self.__dict__:
            self._session.close()

    def _generate(
        self,
        parts: Sequence[Part],
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None,
        on_text: Callable[[str], None] | None = None,
        action: tuple[str, ...] | None = None,
    ) -> Reply:
        """action: the ids that may be deleted where the text is a core action, else None."""
        from semif.sampling import Sampler  # loads numpy and llama.cpp

        started = time.perf_counter()
        prompt = self._tokens(parts)
        self._check_room(len(prompt), max_tokens)
        kept = self._keep_common(prompt)
        texts: list[str] = []
        generated = 0
        finish: Finish = "length"

        def show(text: str) -> None:
            texts.append(text)
            if text and on_text is not None:
                on_text(text)

        try:
            sampler = Sampler(self._model, self._marks, grammar, self._temperature, self._seed)
        except ModelError as error:
            raise GeneratorError(str(error)) from error
        self._session.abort = cancel.is_set
        try:
            logits = self._evaluate(prompt[kept:])
            while generated < max_tokens and finish == "length":
                if cancel.is_set():
                    finish = "cancelled"
                elif (picked := sampler.pick(logits)) is None:
                    finish = "stop"
                else:
                    generated += 1
                    show(picked[1])
                    if action is not None and sampler.may_end():
                        finish = "stop"
                    elif generated < max_tokens:
                        logits = self._evaluate([picked[0]])
        except Aborted:
            finish = "cancelled"
        finally:
            self._session.abort = None
            sampler.close()
        if finish == "length" and action is not None:
            show(grammars.close_action("".join(texts), action))
        evaluated = min(len(self._cached), len(prompt)) - kept
        ms = (time.perf_counter() - started) * 1000
        self.used += Usage(len(prompt), generated)
        return Reply("".join(texts), finish, len(prompt), evaluated, generated, ms, self.name)

    def _tokens(self, parts: Sequence[Part]) -> list[int]:
        try:
            return self._chat.tokens(parts)
        except ModelError as error:  # no template, or one that does not take these turns
            raise GeneratorError(str(error)) from error

    def _check_room(self, prompt_tokens: int, max_tokens: int) -> None:
        room = self._n_ctx - max_tokens
        if prompt_tokens > room:
            raise GeneratorError(
                f"the prompt has {prompt_tokens} tokens, {prompt_tokens - room} more than the "
                f"{room} that a context of {self._n_ctx} leaves with {max_tokens} for the reply; "
                "shorten the prompt or raise n_ctx"
            )

    def _keep_common(self, prompt: Sequence[int]) -> int:
        """Cut the cache back to what it shares with the prompt; how many tokens that is.

        The prompt's last token is evaluated in any case: its logits are where the text begins.
        """
        common = 0
        for ours, theirs in zip(self._cached, prompt[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        try:
            self._session.keep(0, common)
        except ModelError:  # a recurrent memory cannot go back, only begin anew
            self._session.clear()
            common = 0
        del self._cached[common:]
        return common

    def _evaluate(self, tokens: Sequence[int]) -> np.ndarray:
        """Append tokens to the cache; float32 [n_vocab], the logits after the last.

        Batch by batch, so that a cancelled prefill keeps the batches it has done.
        """
        batch = self._session.n_batch
        for start in range(0, len(tokens), batch):
            part = tokens[start : start + batch]
            at = len(self._cached)
            positions = range(at, at + len(part))
            self._session.decode(part, positions, [(0,)] * len(part), [len(part) - 1])
            self._cached += part
        return self._session.logits(len(part) - 1)
