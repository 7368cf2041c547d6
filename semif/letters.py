"""The readout `letters`: the published SemIf prompt, one letter per option in the model's chat."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from semif.errors import DecisionError, ModelError
from semif.llama import Adapter, Model, Session
from semif.prompting import LettersPrompt, chat
from semif.readout import Reading, batches, mass, too_long
from semif.types import Decision


class Letters:
    """Reads decisions one after the other; a common beginning of prompts is evaluated once."""

    def __init__(
        self,
        model: Model,
        prompt: LettersPrompt,
        adapter: Adapter | None,
        threads: int,
        n_ctx: int,
    ) -> None:
        template = model.chat_template
        if template is None:
            raise ModelError(
                f"{model.path} has no chat template, which the readout letters needs; try branches"
            )
        self.prompt_version = prompt.prompt_version
        self._prompt = prompt
        self._model = model
        self._slots = self._check_slots()
        bos, eos = (
            model.detokenize([token]) if token >= 0 else "" for token in (model.bos, model.eos)
        )
        self._chat = chat(template, bos, eos)
        self.session = Session(model, n_ctx, 1, threads, adapter=adapter)
        self._limit = min(self.session.n_ctx, model.n_ctx_train)
        self._held: list[int] = []

    def read(self, decisions: Sequence[Decision]) -> list[Reading]:
        """Score each decision by its own prompt; DecisionError when one is too long."""
        prompts = [self.prompt(decision) for decision in decisions]
        return [
            self._read(decision, text, tokens)
            for decision, (text, tokens) in zip(decisions, prompts, strict=True)
        ]

    def prompt(self, decision: Decision) -> tuple[str, list[int]]:
        """The rendered prompt and its tokens, checked for length and slots."""
        user = self._prompt.user(decision)
        text = self._chat(self._prompt.system, user)
        tokens = self._tokens(text, user, decision)
        if len(tokens) > self._limit:
            raise too_long(decision, len(tokens), self._limit)
        for letter, slot in list(self._slots.items())[: len(decision.options)]:
            if self._tokens(text + letter, user, decision) != [*tokens, slot]:
                raise ModelError(
                    f"{self._model.path} joins the answer {letter!r} to the prompt before it, so "
                    "the readout letters cannot be used with it; try branches"
                )
        return text, tokens

    def _check_slots(self) -> dict[str, int]:
        slots: dict[str, int] = {}
        for letter in self._prompt.letters:
            tokens = self._model.tokenize(letter, special=False)
            if len(tokens) != 1 or self._model.piece(tokens[0]) != letter.encode():
                raise ModelError(
                    f"{self._model.path} has no token of its own for {letter!r}, so the readout "
                    "letters cannot be used with it; try branches"
                )
            slots[letter] = tokens[0]
        return slots

    def _tokens(self, text: str, user: str, decision: Decision) -> list[int]:
        """Tokens of a prompt in which nothing inside the user's part can be a control token."""
        tokenize = self._model.tokenize
        if tokenize(user, special=True) == tokenize(user, special=False):
            return tokenize(text, special=True)
        head, found, tail = text.rpartition(user)
        if not found:  # the template rewrites what it is given
            raise DecisionError(decision.id, "state", "holds a control token of the model")
        return (
            tokenize(head, special=True)
            + tokenize(user, special=False)
            + tokenize(tail, special=True)
        )

    def _read(self, decision: Decision, text: str, tokens: list[int]) -> Reading:
        shared = 0
        while shared < min(len(self._held), len(tokens) - 1) and (
            self._held[shared] == tokens[shared]
        ):
            shared += 1
        self.session.keep(0, shared)
        self._held = self._held[:shared]
        new = tokens[shared:]
        positions = range(shared, len(tokens))
        self.session.decode(new, positions, [(0,)] * len(new), [len(new) - 1])
        self._held = tokens
        row = self.session.logits(len(new) - 1)
        slots = list(self._slots.values())[: len(decision.options)]
        return Reading(
            logits={
                option.id: float(row[slot])
                for option, slot in zip(decision.options, slots, strict=True)
            },
            mass=mass(row, slots),
            prompt_sha256=hashlib.sha256(text.encode("utf-8")).hexdigest(),
            tokens=len(new),
            prompt_tokens=len(tokens),
            splits=(shared, *batches(len(new), self.session.n_batch)),
            neighbours=0,
        )
