"""A generator behind any OpenAI-compatible server, read as it streams."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from semif.errors import one_line
from semif.serving.remote import BUSY, checked_host, is_loopback, is_token, retry_after, words
from sia.errors import ConfigError
from sia.generator.grammar import core_action
from sia.generator.types import Finish, GeneratorError, GeneratorUnavailable, Part, Reply, Usage

if TYPE_CHECKING:
    import httpx2

TRIES = 3  # of a request that the server was too busy for
BACKOFF_SECONDS = 0.5  # before the second try, and twice that before the third
LONGEST_WAIT = 60.0  # seconds between tries; a server that asks for more is reported instead
CONNECT_SECONDS = 10.0
LOOK_AT_CANCEL_SECONDS = 0.05
REMOTE_TOKENS = 4  # times the budget of a writing task: another tokenizer may need more
LONGEST_TEXT = 1_000_000  # characters; a server that goes on has forgotten max_tokens


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


@dataclass
class _Stream:
    """What has come so far; it outlives a cancelled request."""

    on_text: Callable[[str], None] | None
    cancel: threading.Event
    texts: list[str] = field(default_factory=list)
    length: int = 0  # of all texts, in characters
    finish: Finish | None = None
    usage: _Usage = field(default_factory=_Usage)

    def take(self, event: _Event) -> None:
        self.usage = event.usage or self.usage
        for choice in event.choices[:1]:
            if choice.delta.content:
                self.texts.append(choice.delta.content)
                self.length += len(choice.delta.content)
                if self.on_text is not None:
                    self.on_text(choice.delta.content)
            if choice.finish_reason:
                self.finish = "length" if choice.finish_reason == "length" else "stop"


class RemoteGenerator:
    """Asks ``POST {url}/chat/completions``; url usually ends in ``/v1``.

    timeout: seconds without a byte. grammar: the server takes a ``grammar`` field (llama.cpp and
    its kin do); otherwise replies come as they are, and whoever parses them judges. api_key never
    shows in a message. http to another machine is refused unless insecure. One thread at a time,
    and not from inside a running asyncio loop.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        grammar: bool = False,
        proven: frozenset[str] = frozenset(),
        max_tokens: int = 1024,
        insecure: bool = False,
    ) -> None:
        try:
            host = checked_host(url, insecure)
        except ValueError as error:
            raise ConfigError(f"the generator's {error}") from error
        if api_key is not None and not is_token(api_key):
            raise ConfigError("the generator's API key is empty or has characters no key has")
        self.name = model
        self.proven = proven
        self.used = Usage()
        self._url = url.rstrip("/") + "/chat/completions"
        self._to_loopback = is_loopback(host)
        self._key = api_key
        self._timeout = timeout
        self._grammar = grammar
        self._max_tokens = max_tokens
        # An event loop of its own, so that a request can be dropped at any point (name lookup,
        # connection, the long silence before the first token), and the connection kept.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None

    def reply(
        self,
        parts: Sequence[Part],
        *,
        ids: Sequence[str],
        cancel: threading.Event,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """What the server says, unchanged."""
        return self._ask(parts, self._max_tokens, cancel, core_action(ids), on_text)

    def write(
        self,
        parts: Sequence[Part],
        *,
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None = None,
    ) -> Reply:
        """Free text; a server without grammars is not held to one."""
        return self._ask(parts, max_tokens, cancel, grammar)

    def compose(
        self, task: str, fields: Mapping[str, str], *, cancel: threading.Event
    ) -> str | dict[str, Any] | None:
        """A writing task; see ``Generator.compose``."""
        from semif.writing import grammar
        from sia.generator import writing

        known = writing.task(task)
        reply = self.write(
            writing.parts(task, fields),
            max_tokens=REMOTE_TOKENS * known.max_tokens,
            cancel=cancel,
            grammar=grammar.of(known),
        )
        value = writing.read(task, reply)
        return None if value is None else writing.checked(task, fields, value)

    def close(self) -> None:
        """Drop the connection, and a request that was interrupted on it."""
        if self._loop is None or self._client is None:
            return
        loop, client, self._loop, self._client = self._loop, self._client, None, None
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()

        async def end() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.aclose()
            await loop.shutdown_asyncgens()

        loop.run_until_complete(end())
        loop.close()

    def _ask(
        self,
        parts: Sequence[Part],
        max_tokens: int,
        cancel: threading.Event,
        grammar: str | None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        body = {
            "model": self.name,
            "messages": [{"role": part.role, "content": part.text} for part in parts],
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._grammar and grammar is not None:
            body["grammar"] = grammar
        started = time.perf_counter()
        stream = _Stream(on_text, cancel)
        self._run(_unless(cancel, self._request(body, stream)))
        usage = stream.usage
        evaluated = usage.prompt_tokens
        if evaluated is not None and usage.prompt_tokens_details is not None:
            evaluated -= usage.prompt_tokens_details.cached_tokens or 0
        reply = Reply(
            "".join(stream.texts),
            stream.finish or "cancelled",
            usage.prompt_tokens,
            evaluated,
            usage.completion_tokens,
            (time.perf_counter() - started) * 1000,
            self.name,
        )
        self.used += reply.usage(parts)
        return reply

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        import httpx2

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self._timeout, connect=CONNECT_SECONDS),
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                trust_env=not self._to_loopback,  # no proxy between us and this machine
            )
        try:
            self._loop.run_until_complete(work)
        except KeyboardInterrupt:
            self.close()
            raise

    async def _request(self, body: dict[str, Any], stream: _Stream) -> None:
        import httpx2

        try:
            for attempt in range(1, TRIES + 1):
                wait = await self._try(body, stream, last=attempt == TRIES)
                if wait is None:
                    return
                await asyncio.sleep(wait or BACKOFF_SECONDS * attempt)
        except httpx2.RequestError as error:
            if stream.finish is None:  # else all of the text is here, and only the farewell is not
                raise self._broken(error, stream) from error

    async def _try(self, body: dict[str, Any], stream: _Stream, last: bool) -> float | None:
        """Read the answer to its end (None), or give the seconds to wait before another try."""
        import httpx2

        assert self._client is not None
        async with self._client.stream("POST", self._url, json=body) as response:
            if response.status_code != 200:
                wait = retry_after(response.headers.get("retry-after", ""))
                if response.status_code not in BUSY or last or wait > LONGEST_WAIT:
                    raise await self._refusal(response)
                return wait
            async for event in httpx2.EventSource(response):
                if event.data == "[DONE]":
                    stream.finish = stream.finish or "stop"
                    return None
                stream.take(self._parsed(event.data))
                if stream.cancel.is_set():
                    return None
                if stream.length > LONGEST_TEXT:
                    raise self._fault(f"goes on after {stream.length} characters")
        if stream.finish is None:
            raise httpx2.RemoteProtocolError("the stream ended early")
        return None

    def _parsed(self, data: str) -> _Event:
        try:
            event = msgspec.json.decode(data, type=_Event)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._fault(f"sent what is no part of a chat completion: {data}") from error
        if event.error is not None:
            raise self._fault(f"reports: {words(data)}", GeneratorUnavailable)
        return event

    async def _refusal(self, response: httpx2.Response) -> GeneratorError:
        """The error for a status that is not 200."""
        content = b""
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > 10_000:
                break
        status = response.status_code
        said = words(content.decode("utf-8", "replace"))
        if status in BUSY:
            after = response.headers.get("retry-after")
            hint = f", asking to be left alone for {after}" if after else ""
            return self._fault(f"answered {status}{hint}: {said}", GeneratorUnavailable)
        hints = {
            401: "; check the API key",
            403: "; check the API key",
            404: f"; is there a model {self.name!r}, and should the url end in /v1?",
        }
        return self._fault(f"answered {status}{hints.get(status, '')}: {said}")

    def _broken(self, error: httpx2.RequestError, stream: _Stream) -> GeneratorError:
        """The error for a connection that failed."""
        import httpx2

        if isinstance(error, httpx2.ConnectTimeout):
            what = f"did not answer within {CONNECT_SECONDS:g} s"
        elif isinstance(error, httpx2.ConnectError):
            what = f"cannot be reached ({error}); is the server running?"
        elif isinstance(error, httpx2.TimeoutException):
            what = f"sent nothing for {self._timeout:g} s; raise the timeout"
        elif isinstance(error, httpx2.SSEError):
            what = f"did not send a stream of events ({error}); is it an OpenAI-compatible server?"
        else:
            what = f"broke off after {stream.length} characters ({error})"
        return self._fault(what, GeneratorUnavailable)

    def _fault(self, what: str, kind: type[GeneratorError] = GeneratorError) -> GeneratorError:
        """An error of one line, cut, without the key (servers like to quote it) and escapes."""
        line = f"generator {self._url} {what}"
        if self._key:
            line = line.replace(self._key, "***")
        return kind(one_line(line))


async def _unless(cancel: threading.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run work; once cancel is set, drop it wherever it stands."""
    task = asyncio.ensure_future(work)
    try:
        # A threading.Event cannot wake an event loop, so it is looked at while a request runs.
        while not task.done() and not cancel.is_set():
            await asyncio.wait({task}, timeout=LOOK_AT_CANCEL_SECONDS)
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
