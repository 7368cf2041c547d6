"""Prompt texts of the two readouts, rendered strictly from data files in `prompts/`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

import msgspec

from semif.errors import DecisionError, ModelError
from semif.types import Decision, Option

_WORDS = 4
# Whatever a reader could take for the end of a line: a value must not forge the next one.
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True)
class Rendered:
    """The texts of one decision for `branches`, in the order in which they are read.

    `head` is what other decisions are likely to share, and so is kept; `body` is the rest that
    all branches share.
    """

    head: str
    body: str
    branches: tuple[tuple[Option, str], ...]

    @cached_property
    def sha256(self) -> str:
        """sha256 of head, body and all branches, one after the other."""
        return _sha256(self.head + self.body + "".join(text for _, text in self.branches))


class BranchesPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The readout `branches`: a head, a body, then a branch per option.

    `first` says which part is the head: the criterion (question, and options where `option`
    shows them), for one question on many states, or the state, for many questions on one.
    In `branch` and `option`, `{text}` is the description, or the id where there is none, and
    `{words}` its first words.
    """

    prompt_version: str
    first: Literal["criterion", "state"]
    criterion: str
    option: str
    state: str
    text_key: str
    branch: str
    yes: str
    no: str

    def render(self, decision: Decision) -> Rendered:
        """Options sorted by id, so that their order cannot matter; values on one line each."""
        options = sorted(decision.options, key=lambda option: option.id)
        criterion = self.criterion.format(question=_line(decision.question)) + "".join(
            self.option.format_map(_fields(option)) for option in options
        )
        state = "".join(
            self.state.format(key=key, value=_line(value)) for key, value in self._pairs(decision)
        )
        head, body = (criterion, state) if self.first == "criterion" else (state, criterion)
        branches = tuple((option, self.branch.format_map(_fields(option))) for option in options)
        return Rendered(head, body, branches)

    def _pairs(self, decision: Decision) -> list[tuple[str, str]]:
        state = decision.state
        if isinstance(state, str):
            return [(self.text_key, state)]
        if not isinstance(state, Mapping):
            raise DecisionError(decision.id, "state", "must be a text or an object of texts")
        for key, value in state.items():
            if not key.strip() or _line(key) != key:
                raise DecisionError(decision.id, "state", f"the key {key!r} is empty or no line")
            if not isinstance(value, str):
                raise DecisionError(decision.id, f"state.{key}", "must be a string")
        return list(state.items())


class LettersPrompt(msgspec.Struct, frozen=True):
    """The published SemIf prompt: a chat whose answer is one letter."""

    prompt_version: str
    system: str
    payload_keys: tuple[str, str, str]
    option_keys: tuple[str, str]
    letters: str

    def user(self, decision: Decision) -> str:
        """The user message: state, question and lettered options as JSON."""
        if len(decision.options) > len(self.letters):
            message = f"{len(decision.options)} are more than the readout letters takes (16)"
            raise DecisionError(decision.id, "options", message)
        evidence, criterion, options = self.payload_keys
        letter, description = self.option_keys
        for i, option in enumerate(decision.options):
            if not option.description.strip():
                raise DecisionError(decision.id, f"options[{i}].description", "is empty")
        lettered = [
            {letter: self.letters[i], description: option.description}
            for i, option in enumerate(decision.options)
        ]
        payload = {evidence: decision.state, criterion: decision.question, options: lettered}
        return json.dumps(payload, ensure_ascii=False, default=dict)


@cache
def load_prompt(version: str) -> BranchesPrompt | LettersPrompt:
    """The prompt a revision pins, checked; ModelError 78 for a version this program lacks."""
    folder = files("semif").joinpath("prompts")
    known = sorted(path.name.removesuffix(".json") for path in folder.iterdir())
    if version not in known:
        raise ModelError(f"prompt version {version!r} is unknown; this program has {known}")
    data = folder.joinpath(f"{version}.json").read_bytes()
    if version.startswith("direct-"):
        return msgspec.json.decode(data, type=LettersPrompt)
    return msgspec.json.decode(data, type=BranchesPrompt)


def branches_prompt(version: str) -> BranchesPrompt:
    """The same for the readout `branches`; ModelError 78 for a prompt of another readout."""
    prompt = load_prompt(version)
    if not isinstance(prompt, BranchesPrompt):
        raise ModelError(f"the prompt {version} is not made for the readout branches")
    return prompt


def letters_prompt(version: str) -> LettersPrompt:
    """The same for the readout `letters`."""
    prompt = load_prompt(version)
    if not isinstance(prompt, LettersPrompt):
        raise ModelError(f"the prompt {version} is not made for the readout letters")
    return prompt


def chat(template: str, bos: str, eos: str) -> Callable[[str, str], str]:
    """Render (system, user) with a model's own chat template, ready for the answer's first token.

    ModelError 78 when the template is broken or refuses a system message.
    """
    from jinja2 import TemplateError
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    try:
        formatter = Jinja2ChatFormatter(template, eos_token=eos, bos_token=bos)
    except TemplateError as error:
        raise ModelError(f"the model's chat template is broken: {error}") from error

    def render(system: str, user: str) -> str:
        messages: list[Any] = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ]
        try:
            return str(formatter(messages=messages, enable_thinking=False).prompt)
        except (TemplateError, ValueError) as error:
            raise ModelError(f"the model's chat template failed: {error}") from error

    return render


def _fields(option: Option) -> dict[str, str]:
    description = _line(option.description)
    text = description.strip() or option.id
    words = " ".join(text.split()[:_WORDS])
    return {"id": option.id, "description": description, "text": text, "words": words}


def _line(text: str) -> str:
    return _LINE_BREAK.sub(" ", text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
