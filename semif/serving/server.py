"""The server: `POST /v1/systemone`, `GET /v1/revision`, `GET /v1/health`.

Decisions are made on one thread, one request after the other; what waits together and is small is
read together. A request that would take too long is refused, and one that nobody waits for any more
is broken off. Nothing of a request is ever logged.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from semif.errors import EXIT_UNAVAILABLE, DecisionError, SemifError, one_line
from semif.revision import Revision
from semif.serving import systemone
from semif.serving.connections import BODY_SECONDS, Connection
from semif.serving.systemone import MAX_QUESTIONS, RequestError
from semif.types import MAX_OPTIONS, Answer, Decider, Decision

GRACE_SECONDS = 10  # for what is being answered when the server is told to end
KEEP_ALIVE_SECONDS = 75
RETRY_SECONDS = 1  # what a busy server asks for
CLIENT_GONE = 499  # no one reads it; as nginx calls it
# Tokens that decisions would take, counted no further than those a request may take.
Cost = Callable[[Sequence[Decision], int], int]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """waiting: requests behind the one at work, more are sent away. together: decisions of several
    requests that are read at once; 0: each request is read alone, whatever waits. body: bytes.
    tokens: that one request may take, as it holds up all others."""

    waiting: int = 32
    together: int = 16
    body: int = 1024 * 1024
    tokens: int = 65536


class Busy(Exception):
    """Too many requests wait, or the server is ending."""


class TooMuch(SemifError):
    """A request would take more tokens than one may."""


class ListenError(SemifError):
    """The address to listen on cannot be had."""

    exit_code = EXIT_UNAVAILABLE


@runtime_checkable
class Abortable(Protocol):
    """A decider that asks `abort` while it works, and raises `Aborted` when that is so."""

    abort: Callable[[], bool] | None


@dataclass(eq=False)
class Job:
    """Decisions on the bench, and their answers to come."""

    decisions: Sequence[Decision]
    future: Future[list[Answer]]
    gone: bool = False

    def leave(self) -> None:
        """Nobody waits for the answers: they are not made, or no further."""
        self.gone = True
        self.future.cancel()


class Bench:
    """The one thread on which a decider works, and the requests before it."""

    def __init__(self, decider: Decider, limits: Limits, cost: Cost | None = None) -> None:
        """cost: without it what one request may take is not bounded."""
        self._decider = decider
        self._limits = limits
        self._cost = cost
        self._jobs: deque[Job] = deque()
        self._at_work: Sequence[Job] = ()
        self._wake = threading.Condition()
        self._ending = self._aborted = False
        self._thread = threading.Thread(target=self._run, name="decide", daemon=True)

    def start(self) -> None:
        """Begin to work, until `close`."""
        if isinstance(self._decider, Abortable):
            self._decider.abort = self._is_vain
        self._thread.start()

    def submit(self, decisions: Sequence[Decision]) -> Job:
        """A job for these decisions; Busy when too much waits."""
        with self._wake:
            waiting = sum(not job.gone for job in self._jobs)
            if self._ending or waiting >= self._limits.waiting:
                raise Busy
            job = Job(decisions, Future())
            self._jobs.append(job)
            self._wake.notify()
        return job

    def end(self) -> None:
        """Refuse what waits and what comes; what is at work is done."""
        with self._wake:
            self._ending = True
            jobs, self._jobs = self._jobs, deque()
            self._wake.notify()
        for job in jobs:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(Busy())

    def close(self) -> None:
        """End, and break off what is at work."""
        self.end()
        self._aborted = True
        if self._thread.is_alive():
            self._thread.join()
        if isinstance(self._decider, Abortable):
            self._decider.abort = None

    def _is_vain(self) -> bool:
        """Whether nobody waits for what is at work."""
        return self._aborted or all(job.gone for job in self._at_work)

    def _run(self) -> None:
        while jobs := self._next():
            self._work(jobs)

    def _next(self) -> list[Job]:
        """The next job and those that are read with it; none when it is over."""
        with self._wake:
            while not self._ending:
                taken: list[Job] = []
                count = 0
                while self._jobs:
                    count += len(self._jobs[0].decisions)
                    if taken and count > self._limits.together:
                        break
                    job = self._jobs.popleft()
                    if job.future.set_running_or_notify_cancel():
                        taken.append(job)
                    else:
                        count -= len(job.decisions)
                if taken:
                    return taken
                self._wake.wait()
        return []

    def _work(self, jobs: Sequence[Job]) -> None:
        self._at_work = jobs = [job for job in jobs if self._can(job)]
        if not jobs:
            return
        try:
            answers = self._decider.decide([d for job in jobs for d in job.decisions])
        except DecisionError as error:
            if len(jobs) > 1:  # one's fault is not the others'
                for job in jobs:
                    self._work([job])
            else:
                jobs[0].future.set_exception(error)
            return
        except BaseException as error:  # raised again where the request is answered
            for job in jobs:
                job.future.set_exception(error)
            return
        start = 0
        for job in jobs:
            end = start + len(job.decisions)
            job.future.set_result(answers[start:end])
            start = end

    def _can(self, job: Job) -> bool:
        """Whether a job is no more than one may be; else it is told so."""
        if self._cost is None:
            return True
        most = self._limits.tokens
        try:
            tokens = self._cost(job.decisions, most)
            if tokens > most:
                message = f"the questions take {tokens} tokens or more, a request may take {most}"
                raise TooMuch(f"{message}; ask fewer at once")
        except BaseException as error:  # raised again where the request is answered
            job.future.set_exception(error)
            return False
        return True


def about(model: str, revision: Revision, context: int) -> dict[str, Any]:
    """What `GET /v1/revision` answers. context: tokens of a prompt, at most (`Engine.limit`)."""
    pinned = revision.contents
    phases = {*pinned.temperatures, *pinned.thresholds, *pinned.none_bias, *pinned.prompt_versions}
    return {
        "engine": "semif",
        "model": model,
        "revision": revision.id,
        "base": {"sha256": pinned.base.sha256, "type": pinned.base.type},
        "readout": pinned.readout,
        "prompt_version": pinned.prompt_version,
        "prompt_versions": pinned.prompt_versions,
        "phases": sorted(phases),
        "thresholds": pinned.thresholds,
        "context": context,
        "max_options": MAX_OPTIONS,
        "max_questions": MAX_QUESTIONS,
    }


def application(bench: Bench, about: Mapping[str, Any], token: str, limits: Limits) -> Starlette:
    """The routes. token: what `Authorization: Bearer` must say, unless empty."""
    names = {name: about[name] for name in ("model", "revision")}

    def authorize(request: Request) -> None:
        said = request.headers.get("authorization", "").encode()
        if token and not hmac.compare_digest(said, f"Bearer {token}".encode()):
            raise HTTPException(401, "the bearer token is missing or wrong", _ASK_TOKEN)

    async def decide(request: Request) -> Response:
        authorize(request)
        body = await _body(request, limits.body)
        # Not here: one state under 256 questions can take a second to check.
        asked = await asyncio.to_thread(systemone.decode, body)
        answers = await _unless_gone(request, bench.submit([one.decision for one in asked]))
        if answers is None:
            return Response(status_code=CLIENT_GONE)
        said = {
            one.decision.id: systemone.encode(one, answer)
            for one, answer in zip(asked, answers, strict=True)
        }
        return _json({**names, "answers": said})

    async def revision(request: Request) -> Response:
        authorize(request)
        return _json(about)

    async def health(_request: Request) -> Response:
        return _json({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/systemone", decide, methods=["POST"]),
            Route("/v1/revision", revision),
            Route("/v1/health", health),
        ],
        exception_handlers={
            RequestError: _bad_request,
            DecisionError: _bad_request,
            Busy: _busy,
            TooMuch: _too_much,
            SemifError: _failed,
            HTTPException: _refused,
            Exception: _failed,  # Starlette raises it on, for the log
        },
    )


_ASK_TOKEN = {"WWW-Authenticate": "Bearer"}


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Response(body, status, headers, "application/json")


def _error(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"error": {"message": message}}, status, headers)


def _bad_request(_request: Request, error: Exception) -> Response:
    if isinstance(error, DecisionError):
        error = RequestError.of(error)
    assert isinstance(error, RequestError)
    return _json(error.to_json(), 400)


def _busy(_request: Request, _error_: Exception) -> Response:
    return _error("busy; ask again", 503, {"Retry-After": str(RETRY_SECONDS)})


def _too_much(_request: Request, error: Exception) -> Response:
    return _error(str(error), 413)


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.detail, error.status_code, error.headers)


def _failed(_request: Request, error: Exception) -> Response:
    """A fault of ours: in words where they are meant for a person."""
    if not isinstance(error, SemifError):
        # Raised on for the log, at which the connection is closed: the client should know.
        return _error("failed; see the log", 500, {"Connection": "close"})
    line = one_line(str(error))
    _log.error("semif: %s", line)
    return _error(line, 500)


async def _body(request: Request, limit: int) -> bytes:
    """The body of a request, refused as soon as it is known to be too large."""
    too_large = HTTPException(413, f"the body is larger than {limit} bytes")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limit:
        raise too_large
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(CLIENT_GONE, "the client is gone") from None
    return body


async def _unless_gone(request: Request, job: Job) -> list[Answer] | None:
    """The answers; None when whoever asked has gone, and then they are not made."""
    answers = asyncio.wrap_future(job.future)
    gone = asyncio.ensure_future(request.receive())  # after the body: only that it is over
    try:
        either: set[asyncio.Future[Any]] = {answers, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return await answers if answers.done() else None
    finally:
        if not answers.done():
            job.leave()
        answers.cancel()
        gone.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address; ListenError when it cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except UnicodeError as error:  # an empty part, or a long one
        raise ListenError(f"{host}: that is no name of a host") from error
    except OSError as error:
        raise ListenError(f"{host}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        reason = error.strerror or error
        raise ListenError(f"cannot listen on {host} port {port}: {reason}") from error
    return bound


def address(bound: socket.socket) -> str:
    """`http://host:port` of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves a decider on a bound socket until told to end by a signal or by `should_exit`."""

    def __init__(
        self,
        decider: Decider,
        about: Mapping[str, Any],
        bound: socket.socket,
        token: str = "",
        limits: Limits = Limits(),  # noqa: B008  (frozen)
        ready: Callable[[], None] = lambda: None,
        cost: Cost | None = None,
    ) -> None:
        """ready: called when requests are taken. cost: see `Bench`."""
        self._bound = bound
        self._ready = ready
        self._bench = Bench(decider, limits, cost)
        super().__init__(
            uvicorn.Config(
                application(self._bench, about, token, limits),
                log_config=None,
                access_log=False,
                lifespan="off",
                http=Connection,
                ws="none",
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    def serve_until_ended(self) -> None:
        """Block until the end. A signal that ended it is raised again when all is closed."""
        try:
            self._bench.start()
            self.run(sockets=[self._bound])
        finally:
            self._bench.close()
            self._bound.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._bench.end()
        await super().shutdown(sockets)
