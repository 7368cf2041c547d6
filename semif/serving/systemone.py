"""The wire form of decisions: typed questions about one state, `POST /v1/systemone`.

A request is `{model, state, questions: {key: {type, instructions, criteria}}}`, its reply
`{model, revision, answers: {key: answer}}`. Three types of question:

    noul     yes or no, no criteria                  -> {"noul": p(yes)}
    choice   criteria {option id: description}       -> {"probabilities": {option id: p}}
    score    criteria [lowest level, ..., highest]   -> {"probabilities": {"0": p, ..., "n-1": p}}

Our own clients ask for more with a question's `phase`: the state is then read as it stands,
`none` names the options that mean "none of these", and the answer holds all that `Answer` does.
A key only ever names its answer: no prompt shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from semif.errors import DecisionError, SemifError, one_line
from semif.inputs import find, is_infinite
from semif.types import MAX_OPTIONS, Answer, Decision, Option, State

TYPES = ("noul", "choice", "score")
MAX_QUESTIONS = 256  # in one request
# Described in one word each, as whoever asks the same as a choice or a score would.
YES_NO = (Option("yes", "Yes"), Option("no", "No"))
_ONE = 1 + 1e-6  # a probability that was rounded on its way
# How the engine's fields are called on the wire.
_FIELDS = {"id": "key", "question": "instructions", "options": "criteria"}


class RequestError(SemifError):
    """A request that cannot be answered: which question and field, where it is one's fault."""

    def __init__(self, message: str, question: str | None = None, field: str | None = None) -> None:
        place = f"question {question!r}: " if question is not None else ""
        super().__init__(place + (f"{field}: " if field else "") + message)
        self.question = question
        self.field = field

    @classmethod
    def of(cls, error: DecisionError) -> RequestError:
        """The engine's error about the decision of a question."""
        of_option = re.fullmatch(r"options\[(\d+)\]\.(\w+)", error.field)
        if of_option:
            number, part = int(of_option[1]) + 1, of_option[2]
            return cls(f"the {part} of option {number} {error.message}", error.row, "criteria")
        return cls(error.message, error.row, _FIELDS.get(error.field, error.field))

    def to_json(self) -> dict[str, Any]:
        """The body of the reply that refuses the request."""
        field = one_line(self.field) if self.field is not None else None
        line = one_line(str(self))
        return {"error": {"message": line, "question": self.question, "field": field}}


@dataclass(frozen=True)
class Asked:
    """A question as a decision whose id is its key; `full`: answer with all there is to know."""

    type: str
    decision: Decision
    full: bool = False


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Full(msgspec.Struct, frozen=True):
    """The answer to a question that carries a phase."""

    probabilities: dict[str, float]
    logits: dict[str, float]
    prompt_version: str
    prompt_sha256: str
    tokens: _Count
    prompt_tokens: _Count
    ms: Annotated[float, msgspec.Meta(ge=0)]
    allowed_token_mass: Annotated[float, msgspec.Meta(ge=0, le=_ONE)]
    plan: dict[str, Any]


class _Object(dict[str, Any]):
    """A JSON object that remembers a key which stood twice."""

    twice: str | None = None

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, Any]]) -> _Object:
        result = cls(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    result.twice = key
                    break
                seen.add(key)
        return result


def decode(body: bytes) -> list[Asked]:
    """The questions of a request, in order; RequestError for what is none."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_Object.of)
        return _request(value)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise RequestError(f"the body is no JSON: {error.msg} at {where}") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise RequestError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise RequestError("the body is nested too deep") from None


def _request(value: Any) -> list[Asked]:
    _once(value, None, None)
    if not isinstance(value, dict):
        raise RequestError("the body must be an object with state and questions")
    if not isinstance(value.get("model", ""), str):
        raise RequestError("must be a string", field="model")
    for name in ("state", "questions"):
        if name not in value:
            raise RequestError("is missing", field=name)
    state, questions = value["state"], value["questions"]
    _check_state(state)
    _once(questions, None, "questions")
    if not isinstance(questions, dict) or not questions:
        raise RequestError("must be an object of at least one question", field="questions")
    if len(questions) > MAX_QUESTIONS:
        message = f"{len(questions)} are more than {MAX_QUESTIONS}; send several requests"
        raise RequestError(message, field="questions")
    text = _state(state)
    return [_question(key, value, state, text) for key, value in questions.items()]


def _check_state(state: Any) -> None:
    """Refuse what is no JSON or no state before any question is looked at."""
    found = find(state, lambda item: is_infinite(item) or _twice(item) is not None, "state")
    if found is not None:
        path, item = found
        _once(item, None, path)
        raise RequestError("is no finite number", field=path)
    if state is None or (isinstance(state, str | list | dict) and not state):
        raise RequestError("is empty", field="state")


def _state(state: Any) -> State:
    """A text as it is, an object of scalars as texts by key, any other JSON as one line of it."""
    if isinstance(state, str):
        return state
    if isinstance(state, dict) and not any(isinstance(v, dict | list) for v in state.values()):
        return {key: v if isinstance(v, str) else json.dumps(v) for key, v in state.items()}
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def _question(key: str, value: Any, state: Any, text: State) -> Asked:
    _once(value, key, None)
    if not isinstance(value, dict):
        raise RequestError("must be an object", key)
    type_, question = value.get("type"), value.get("instructions")
    if type_ not in TYPES:
        raise RequestError(f"must be one of {', '.join(TYPES)}", key, "type")
    if not isinstance(question, str):
        raise RequestError("must be a string", key, "instructions")
    phase, full = value.get("phase", type_), "phase" in value
    if not isinstance(phase, str):
        raise RequestError("must be a string", key, "phase")
    options = _options(key, type_, value.get("criteria"))
    if full:
        options = _with_none(key, options, value.get("none", []))
    decision = Decision(key, phase, state if full else text, question, options)
    _check(key, decision)
    return Asked(type_, decision, full)


def _options(key: str, type_: str, criteria: Any) -> tuple[Option, ...]:
    _once(criteria, key, "criteria")
    if type_ == "noul":
        if criteria not in (None, {}):
            raise RequestError("a noul takes none; ask a choice instead", key, "criteria")
        return YES_NO
    if type_ == "choice" and isinstance(criteria, dict):
        pairs = list(criteria.items())
    elif type_ == "score" and isinstance(criteria, list):
        pairs = [(str(i), text) for i, text in enumerate(criteria)]
    else:
        wanted = "an object of option ids" if type_ == "choice" else "a list of levels"
        raise RequestError(f"a {type_} needs {wanted}", key, "criteria")
    for id_, text in pairs:
        if not isinstance(text, str):
            raise RequestError("must be a string", key, f"criteria.{id_}")
    if len(pairs) > MAX_OPTIONS:  # before anything is done with each of them
        raise RequestError(f"{len(pairs)} are more than {MAX_OPTIONS}", key, "criteria")
    return tuple(Option(id_, text) for id_, text in pairs)


def _with_none(key: str, options: tuple[Option, ...], none: Any) -> tuple[Option, ...]:
    ids = {option.id for option in options}
    # In this order: a list of a hundred thousand is not looked at.
    if (
        not isinstance(none, list)
        or len(none) > len(ids)
        or not all(isinstance(id_, str) and id_ in ids for id_ in none)
    ):
        raise RequestError("must be a list of option ids", key, "none")
    return tuple(replace(option, none=option.id in none) for option in options)


def _check(key: str, decision: Decision) -> None:
    if not key.strip():
        raise RequestError("a question has an empty key", field="questions")
    try:
        decision.check()
    except DecisionError as error:
        raise RequestError.of(error) from None


def _twice(value: object) -> str | None:
    return value.twice if isinstance(value, _Object) else None


def _once(value: object, question: str | None, field: str | None) -> None:
    twice = _twice(value)
    if twice is not None:
        raise RequestError(f"{twice!r} stands twice", question, field)


def encode(asked: Asked, answer: Answer) -> dict[str, Any]:
    """The answer to a question, as it is sent."""
    probs = {option.id: answer.probs[option.id] for option in asked.decision.options}
    said: dict[str, Any] = {"type": asked.type}
    said |= {"noul": probs["yes"]} if asked.type == "noul" else {"probabilities": probs}
    if not asked.full:
        return {**said, "prompt_version": answer.prompt_version}
    full = Full(
        probs,
        dict(answer.logits),
        answer.prompt_version,
        answer.prompt_sha256,
        answer.tokens,
        answer.prompt_tokens,
        answer.ms,
        answer.allowed_token_mass,
        dict(answer.plan),
    )
    return {**said, **msgspec.to_builtins(full)}


def question(decision: Decision, full: bool) -> dict[str, Any]:
    """A decision as a choice; `full` for a server of ours, which then answers with `Full`."""
    asked: dict[str, Any] = {
        "type": "choice",
        "instructions": decision.question,
        "criteria": {
            # Others may want a description; where there is none, the id is what there is to say.
            option.id: option.description if full else option.description or option.id
            for option in decision.options
        },
    }
    if full:
        none = [option.id for option in decision.options if option.none]
        asked |= {"phase": decision.phase, **({"none": none} if none else {})}
    return asked


def probabilities(decision: Decision, answer: object) -> dict[str, float]:
    """Those of a choice by option id, summing to 1; ValueError saying what is wrong with it."""
    found = answer.get("probabilities") if isinstance(answer, Mapping) else None
    if not isinstance(found, Mapping):
        raise ValueError("gives no probabilities")
    result = {}
    for option in decision.options:
        p = found.get(option.id)
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= _ONE:
            raise ValueError(f"gives {one_line(repr(p), 40)} as the probability of {option.id!r}")
        result[option.id] = float(p)
    total = sum(result.values())
    if total <= 0:
        raise ValueError("gives no option a probability above 0")
    return {id_: p / total for id_, p in result.items()}
