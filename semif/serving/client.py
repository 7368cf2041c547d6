"""Deciders that ask a server: in the System One form, or an OpenAI-compatible one by letters."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import msgspec

from semif.engine import select, softmax
from semif.errors import DecisionError, RemoteError, SemifError, one_line
from semif.prompting import letters_prompt
from semif.serving import systemone
from semif.serving.fallback import Live
from semif.serving.remote import Remote, Reply, words
from semif.serving.systemone import MAX_QUESTIONS, Full
from semif.types import Answer, Decision

TIMEOUT = 10.0  # seconds for one reply
LETTERS = "direct-options-v1"
TOP = 20  # the most that OpenAI's interface gives
AT_ONCE = 4  # requests for one call of `decide`
TOO_LARGE = 413
# How servers of the other dialect say that a prompt is too long: context_length_exceeded,
# exceed_context_size_error, "maximum context length".
_CONTEXT = re.compile("context.(length|size|window)", re.IGNORECASE)
# What a letter that is not among the top ones may have of the probability: less is no difference
# that verification and replay would see.
UNSEEN = 0.01
_SURE = 1e-3  # a log probability that was rounded on its way; above it is none


class _Identity(msgspec.Struct, frozen=True):
    """What a server says of itself; one that says nothing is not ours."""

    engine: str = ""
    revision: str = ""
    thresholds: dict[str, float] = {}

    @property
    def ours(self) -> bool:
        return self.engine == "semif"


class RemoteDecider:
    """Asks `POST {url}/systemone`; url usually ends in `/v1`. Any thread may call.

    A `semif serve` is known by `GET {url}/revision` and asked in full: its answers are those of an
    engine here, under its own revision. Of any other server the probabilities are all there is:
    logits are log p, tokens 0, the mass 1, and the revision is what it says or `model@host`.

    `revision` and `thresholds` are what the server last said of itself, on whatever thread; they
    stand while it cannot be asked.

    thresholds: those of a server that names none. See `Remote` for the rest.
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        insecure: bool = False,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        # The whole address of the endpoint does as well.
        self._remote = Remote(url.rstrip("/").removesuffix("/systemone"), token, timeout, insecure)
        self._model = model
        self._default = dict(thresholds or {})
        self._identity: _Identity | None = None
        self._stale = False  # whether it may be another server by now
        self._name = f"{model or 'systemone'}@{self._remote.place}"
        self.revision = self._name
        self.thresholds: Mapping[str, float] = Live(self._thresholds)

    def __enter__(self) -> RemoteDecider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._remote.close()

    def connect(self) -> None:
        """Ask the server what it is, unless it is known; RemoteError when it cannot be asked."""
        self._who()

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision, in order; those on one state go in one request.

        Raises DecisionError for what is no decision here or there, RemoteError for the rest.
        """
        for decision in decisions:
            decision.check()
        who = self._who()
        found: dict[int, Answer] = {}
        for indices in _by_state(decisions):
            of_state = [decisions[i] for i in indices]
            answers = self._ask(of_state, who)
            found |= zip(indices, answers, strict=True)
        return [found[i] for i in range(len(decisions))]

    def _thresholds(self) -> Mapping[str, float]:
        known = self._identity
        return known.thresholds if known and known.ours else self._default

    def _who(self) -> _Identity:
        if self._identity is not None and not self._stale:
            return self._identity
        reply = self._remote.call("GET", "/revision")
        if reply.status in (401, 403):
            raise self._remote.refusal(reply, {})
        try:
            if reply.status != 200:
                raise msgspec.ValidationError
            found = msgspec.convert(reply.body, _Identity)
        except msgspec.ValidationError:  # another kind of server, with pages of its own
            found = _Identity()
        if found.ours:
            self.revision = found.revision
        self._identity, self._stale = found, False
        return found

    def _ask(self, decisions: Sequence[Decision], who: _Identity) -> list[Answer]:
        """The answers to decisions on one state."""
        asked = {f"q{i}": systemone.question(d, who.ours) for i, d in enumerate(decisions)}
        body = {"state": decisions[0].state, "questions": asked}
        if self._model:
            body["model"] = self._model
        start = time.perf_counter()
        try:
            reply = self._remote.call("POST", "/systemone", body)
        except RemoteError:
            self._stale = True  # what comes back may be another server
            raise
        ms = round((time.perf_counter() - start) * 1000, 3)
        if reply.status == TOO_LARGE and len(decisions) > 1:
            half = len(decisions) // 2
            return self._ask(decisions[:half], who) + self._ask(decisions[half:], who)
        if reply.status != 200:
            raise self._refused(reply, decisions)
        said = reply.body if isinstance(reply.body, Mapping) else {}
        answers = said.get("answers")
        if not isinstance(answers, Mapping):
            raise self._remote.fault(f"answered without an object of answers: {reply.text}")
        revision = self._note(said, who)
        read = self._full if who.ours else self._plain
        try:
            return [
                read(decision, answers.get(key), revision, ms, len(decisions))
                for key, decision in zip(asked, decisions, strict=True)
            ]
        except (ValueError, msgspec.ValidationError) as error:
            raise self._remote.fault(f"answered what is no answer: {error}") from error

    def _note(self, said: Mapping[str, Any], who: _Identity) -> str:
        """The revision that answered: a server may be given another while it is known."""
        revision = said.get("revision")
        if who.ours and revision != who.revision:
            self._stale = True
            who = self._who()
        if isinstance(revision, str) and revision:
            name = one_line(revision, 100)
        else:
            name = who.revision if who.ours else self._name
        self.revision = name
        return name

    def _refused(self, reply: Reply, decisions: Sequence[Decision]) -> SemifError:
        """The error for a refusal: of a decision, where the server names one."""
        error = reply.body.get("error") if isinstance(reply.body, Mapping) else None
        if reply.status == TOO_LARGE:
            message = f"is too much for the server: {words(reply.text)}"
            return DecisionError(decisions[0].id, "row", one_line(message))
        if reply.status == 400 and isinstance(error, Mapping):
            key, message = error.get("question"), str(error.get("message"))
            by_key = {f"q{i}": decision for i, decision in enumerate(decisions)}
            if key in by_key:
                name = str(error.get("field") or "row")
                message = message.removeprefix(f"question {key!r}: ").removeprefix(f"{name}: ")
                return DecisionError(by_key[key].id, name, one_line(message))
        return self._remote.refusal(reply, {404: "; should the url end in /v1?"})

    def _full(
        self, decision: Decision, value: object, revision: str, ms: float, together: int
    ) -> Answer:
        said = msgspec.convert(value, Full)
        probs = systemone.probabilities(decision, value)
        missing = sorted(probs.keys() - said.logits.keys())
        if missing:
            raise ValueError(f"gives no logit of {missing[0]!r}")
        return Answer(
            decision=decision,
            probs=probs,
            logits={id_: said.logits[id_] for id_ in probs},
            selected=select(probs),
            prompt_version=said.prompt_version,
            prompt_sha256=said.prompt_sha256,
            revision=revision,
            tokens=said.tokens,
            prompt_tokens=said.prompt_tokens,
            ms=said.ms,
            allowed_token_mass=said.allowed_token_mass,
            plan={**said.plan, "remote": self._remote.url, "request_ms": ms},
        )

    def _plain(
        self, decision: Decision, value: object, revision: str, ms: float, together: int
    ) -> Answer:
        probs = systemone.probabilities(decision, value)
        sent = {"state": decision.state, "question": systemone.question(decision, False)}
        return _foreign(
            decision,
            probs,
            {id_: round(math.log(max(p, 1e-12)), 6) for id_, p in probs.items()},
            prompt_version="systemone",
            prompt_sha256=_sha256(sent),
            revision=revision,
            ms=round(ms / together, 3),
            plan={"remote": self._remote.url, "request_ms": ms},
        )


class LogprobsDecider:
    """Asks `POST {url}/chat/completions` for one token and its likeliest rivals; url usually ends
    in `/v1`. The published letters prompt, in the server's own chat form. Any thread may call.

    logits are the letters' log probabilities, `allowed_token_mass` their sum; tokens stay 0. A
    letter that is not among the top ones has at most the probability of the last of these: where
    that could matter it is a DecisionError, else it is taken for that and named in the plan.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT,
        insecure: bool = False,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        self._remote = Remote(url, token, timeout, insecure)
        self._model = model
        self._prompt = letters_prompt(LETTERS)
        self.revision = f"{model}@{self._remote.place}"
        self.thresholds: Mapping[str, float] = dict(thresholds or {})

    def __enter__(self) -> LogprobsDecider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._remote.close()

    def connect(self) -> None:
        """Nothing: what such a server can do shows when it is asked."""

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision, in order, a few requests at a time.

        Raises DecisionError for what is no decision, has more than 16 options or is not answered
        by letter, RemoteError for the rest.
        """
        messages = []
        for decision in decisions:
            decision.check()
            messages.append(self._messages(decision))
        if len(decisions) == 1:
            return [self._ask(decisions[0], messages[0])]
        with ThreadPoolExecutor(min(AT_ONCE, len(decisions) or 1)) as pool:
            return list(pool.map(self._ask, decisions, messages))

    def _messages(self, decision: Decision) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": self._prompt.system},
            {"role": "user", "content": self._prompt.user(decision)},
        ]

    def _ask(self, decision: Decision, messages: list[dict[str, str]]) -> Answer:
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP,
        }
        start = time.perf_counter()
        reply = self._remote.call("POST", "/chat/completions", body)
        ms = round((time.perf_counter() - start) * 1000, 3)
        if reply.status == TOO_LARGE or (reply.status == 400 and _CONTEXT.search(reply.text)):
            message = f"is too long for the server: {words(reply.text)}"
            raise DecisionError(decision.id, "state", one_line(message))
        if reply.status != 200:
            hint = f"; is there a model {self._model!r}, and should the url end in /v1?"
            raise self._remote.refusal(reply, {404: hint})
        logits, unseen = self._read(decision, reply)
        plan = {"remote": self._remote.url, "request_ms": ms}
        return _foreign(
            decision,
            softmax(logits),
            logits,
            prompt_version=self._prompt.prompt_version,
            prompt_sha256=_sha256(messages),
            revision=self.revision,
            ms=ms,
            mass=min(1.0, sum(math.exp(x) for id_, x in logits.items() if id_ not in unseen)),
            plan={**plan, "unseen": unseen} if unseen else plan,
        )

    def _read(self, decision: Decision, reply: Reply) -> tuple[dict[str, float], list[str]]:
        """Log probabilities by option id, and the options that are not among the top ones."""
        try:
            first = msgspec.convert(reply.body, _Completion).choices[0].logprobs
            top = first.content[0].top_logprobs if first else []
        except (msgspec.ValidationError, IndexError) as error:
            what = f"answered what is no chat completion with logprobs ({error}): {reply.text}"
            raise self._remote.fault(what) from error
        if not top:
            raise self._remote.fault("gives no top_logprobs, which decisions are read from")
        seen: dict[str, float] = {}
        for token in top:
            # Rounded, a sure token can come out a little above it.
            seen[token.token] = max(min(token.logprob, 0.0), seen.get(token.token, -math.inf))
        letters = dict(zip((o.id for o in decision.options), self._prompt.letters, strict=False))
        least = min(seen.values())
        logits = {id_: round(seen.get(letter, least), 6) for id_, letter in letters.items()}
        unseen = [id_ for id_, letter in letters.items() if letter not in seen]
        # Of one another, as all of them may be too small for a number.
        probs = softmax(logits)
        if sum(probs[id_] for id_ in unseen) > UNSEEN:
            names = ", ".join(f"{letters[id_]} ({id_})" for id_ in unseen[:3])
            raise DecisionError(
                decision.id,
                "options",
                f"the server gives {len(seen)} top_logprobs and not that of {names}; choose a "
                "model that answers by letter, or fewer options",
            )
        return logits, unseen


class _Token(msgspec.Struct, frozen=True):
    token: str
    logprob: Annotated[float, msgspec.Meta(le=_SURE)]


class _Position(msgspec.Struct, frozen=True):
    top_logprobs: list[_Token] = []


class _Logprobs(msgspec.Struct, frozen=True):
    content: list[_Position]


class _Choice(msgspec.Struct, frozen=True):
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


def _by_state(decisions: Sequence[Decision]) -> Iterator[list[int]]:
    """Indices of decisions that one request can hold."""
    groups: dict[str, list[int]] = {}
    for i, decision in enumerate(decisions):
        groups.setdefault(json.dumps(decision.state, default=dict), []).append(i)
    for indices in groups.values():
        for start in range(0, len(indices), MAX_QUESTIONS):
            yield indices[start : start + MAX_QUESTIONS]


def _foreign(
    decision: Decision,
    probs: Mapping[str, float],
    logits: Mapping[str, float],
    *,
    prompt_version: str,
    prompt_sha256: str,
    revision: str,
    ms: float,
    plan: Mapping[str, Any],
    mass: float = 1.0,
) -> Answer:
    """The answer of a server that does not say what it evaluated."""
    return Answer(
        decision=decision,
        probs=probs,
        logits=logits,
        selected=select(probs),
        prompt_version=prompt_version,
        prompt_sha256=prompt_sha256,
        revision=revision,
        tokens=0,
        prompt_tokens=0,
        ms=ms,
        allowed_token_mass=mass,
        plan=plan,
    )


def _sha256(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()
