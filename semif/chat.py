"""A prompt as tokens, by the model's own chat template, in which typed text stays text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semif.errors import ModelError

if TYPE_CHECKING:
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    from semif.llama import Model

_SLOT = "slot-{}-of-the-prompt"  # nothing a template would trim, escape or say itself


@dataclass(frozen=True)
class Part:
    """One turn of the prompt. Its text is data: no text can open or close a turn."""

    role: Literal["system", "user", "assistant"]
    text: str


class Chat:
    """Renders the template of a model once for each sequence of roles, with slots for the texts.

    Only what the template itself says between the slots is tokenised with special tokens on.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._template = self._formatter()
        self._known: dict[tuple[str, ...], list[list[int]]] = {}

    def _formatter(self) -> Jinja2ChatFormatter:
        # The template is a program from a model file: this formatter runs it in jinja2's sandbox.
        from jinja2 import TemplateError
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        template = self._model.chat_template
        if not template:
            raise ModelError(f"{self._model.path} has no chat template; choose an instruct model")
        bos, eos = (
            self._model.piece(t).decode("utf-8", "replace") if t >= 0 else ""
            for t in (self._model.bos, self._model.eos)
        )
        try:
            return Jinja2ChatFormatter(template, eos_token=eos, bos_token=bos)
        except TemplateError as error:
            raise self._refused(error) from error

    def tokens(self, parts: Sequence[Part]) -> list[int]:
        """The whole prompt, up to where the model's turn begins.

        Raises ModelError when the template does not take these roles.
        """
        roles = tuple(part.role for part in parts)
        if roles not in self._known:
            self._known[roles] = self._between(roles)
        markers = self._known[roles]
        tokens = list(markers[0])
        for part, marker in zip(parts, markers[1:], strict=True):
            tokens += self._model.tokenize(part.text, special=False) + marker
        return tokens

    def _between(self, roles: tuple[str, ...]) -> list[list[int]]:
        """Tokens before, between and after the texts of the parts: [len(roles) + 1] lists."""
        from jinja2 import TemplateError

        slots = [_SLOT.format(i) for i in range(len(roles))]
        messages: list[Any] = [
            {"role": role, "content": slot} for role, slot in zip(roles, slots, strict=True)
        ]
        try:
            text = self._template(messages=messages, enable_thinking=False).prompt
        except (TemplateError, ValueError, TypeError) as error:  # what templates raise themselves
            raise self._refused(error) from error
        pieces = re.split(f"({_SLOT.format('[0-9]+')})", text)
        if pieces[1::2] != slots:
            raise self._refused(f"it does not show {', '.join(roles)} once each and in order")
        markers = [self._model.tokenize(piece, special=True) for piece in pieces[::2]]
        if self._model.adds_bos and markers[0][:1] != [self._model.bos]:
            markers[0].insert(0, self._model.bos)
        return markers

    def _refused(self, reason: object) -> ModelError:
        return ModelError(f"the chat template of {self._model.path} cannot be used: {reason}")
