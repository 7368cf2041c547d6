"""The readout `letters`: the published SemIf prompt, one letter per option in the model's chat."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from semif.encoding import Tokens, common
from semif.errors import DecisionError, ModelError
from semif.llama import Adapter, Model, Session
from semif.prefixes import N_SEQ, Evaluated, Prefixes, Unit
from semif.prompting import LettersPrompt, chat
from semif.readout import Reading, mass, too_long
from semif.types import Decision


class Letters:
    """Reads decisions by one letter each; a common beginning of prompts is evaluated once."""

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
        self._prompt = prompt
        self._model = model
        self._slots = self._check_slots()
        bos, eos = (
            model.detokenize([token]) if token >= 0 else "" for token in (model.bos, model.eos)
        )
        self._chat = chat(template, bos, eos)
        self.session = Session(model, n_ctx, N_SEQ, threads, adapter=adapter, flash=True)
        self.limit = min(self.session.n_ctx, model.n_ctx_train)
        self._prefixes = Prefixes(self.session, self.limit)
        self._last: Tokens = ()

    def read(self, decisions: Sequence[Decision]) -> list[Reading]:
        """Score decisions, as many as fit into each decode; DecisionError when one is too long.

        What prompts have in common, such as one state under many questions, is evaluated once.
        """
        prompts = [self.prompt(decision) for decision in decisions]
        texts = [text for text, _ in prompts]
        tokens = [tuple(of_prompt) for _, of_prompt in prompts]
        every = _shared(tokens) if len(tokens) > 1 else ()
        first = self._prefixes.hold(every)
        wanted = []
        for index, head in enumerate(self._heads(decisions, tokens, every)):
            wanted.append(Unit(index, head, (), (tokens[index][len(head) :],)))
        found = {
            unit.index: self._reading(decisions[unit.index], texts[unit.index], unit, evaluated)
            for unit, evaluated in self._prefixes.evaluate(wanted)
        }
        if tokens:
            self._last = tokens[-1]
            # What was evaluated for all counts for the first.
            found[0] = replace(found[0], tokens=found[0].tokens + first)
        return [found[index] for index in range(len(decisions))]

    def forget(self) -> None:
        self._prefixes.forget()
        self._last = ()

    def prompt(self, decision: Decision) -> tuple[str, list[int]]:
        """The rendered prompt and its tokens, checked for length and slots."""
        user = self._prompt.user(decision)
        text = self._chat(self._prompt.system, user)
        tokens = self._tokens(text, user, decision)
        if len(tokens) > self.limit:
            raise too_long(decision, len(tokens), self.limit)
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

    def _heads(
        self, decisions: Sequence[Decision], tokens: Sequence[Tokens], every: Tokens
    ) -> list[Tokens]:
        """What to keep of each prompt, where `every` one begins so.

        Of prompts read together what those on one state have in common. Of a prompt read alone
        all but its end, where it can be cut back to what the next one shares; else what it shares
        with the one before.
        """
        if len(tokens) < 2:
            whole = [own if self.session.can_cut else _shared((own, self._last)) for own in tokens]
            return [head[: len(own) - 1] for head, own in zip(whole, tokens, strict=True)]
        by_state: dict[str, list[int]] = {}
        for index, decision in enumerate(decisions):
            state = json.dumps(decision.state, sort_keys=True, default=dict)
            by_state.setdefault(state, []).append(index)
        heads = [every] * len(tokens)
        for indexes in by_state.values():
            if len(indexes) > 1:
                head = _shared([tokens[index] for index in indexes])
                for index in indexes:
                    heads[index] = head
        return heads

    def _reading(self, decision: Decision, text: str, unit: Unit, evaluated: Evaluated) -> Reading:
        (row,) = evaluated.rows
        slots = list(self._slots.values())[: len(decision.options)]
        return Reading(
            logits={
                option.id: float(row[slot])
                for option, slot in zip(decision.options, slots, strict=True)
            },
            mass=mass(row, slots),
            prompt_version=self._prompt.prompt_version,
            prompt_sha256=hashlib.sha256(text.encode("utf-8")).hexdigest(),
            tokens=evaluated.tokens,
            prompt_tokens=unit.cells,
            splits=evaluated.splits,
            neighbours=evaluated.neighbours,
        )


def _shared(prompts: Sequence[Tokens]) -> Tokens:
    """The common beginning of prompts, short of the end of each."""
    first, *others = prompts
    length = min(map(len, prompts)) - 1
    for other in others:
        length = min(length, common(first, other))
    return first[: max(0, length)]
