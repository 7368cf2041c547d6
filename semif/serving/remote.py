"""JSON over HTTP with a server that answers: bounded tries, sizes and waits, errors of one line."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from semif.errors import EXIT_CONFIG, RemoteError, one_line

if TYPE_CHECKING:
    import httpx2

TRIES = 3  # of a request that the server was too busy for, or that its connection lost
BUSY = frozenset({429, 500, 502, 503, 504})
BACKOFF_SECONDS = 0.25  # before the second try, and twice that before the third
LONGEST_WAIT = 5.0  # seconds between tries; a server that asks for more is reported instead
CONNECT_SECONDS = 5.0
LONGEST_REPLY = 16 * 1024 * 1024  # bytes


@dataclass(frozen=True)
class Reply:
    """`body` is the JSON value of the reply, or None where it is no JSON; `text` all of it.

    Its numbers are finite: what they are not for is an `Answer`, and no file holds others.
    """

    status: int
    body: Any
    text: str


class Remote:
    """Speaks with the server at `url`, whose last part is usually `/v1`. Any thread may call.

    token: sent as bearer token; it never shows in a message. timeout: seconds for one reply. http
    to another machine is refused unless `insecure`. RemoteError 78 for a url or token that is none.
    """

    def __init__(self, url: str, token: str | None, timeout: float, insecure: bool) -> None:
        import httpx2

        try:
            host = checked_host(url, insecure)
            httpx2.URL(url)
        except (ValueError, httpx2.InvalidURL) as error:
            raise configuration(f"the decider's {error}") from None
        if token is not None and not is_token(token):
            raise configuration("the decider's token is empty or has characters no token has")
        self.url = url.rstrip("/")
        self.place = urlsplit(url).netloc
        self._token = token
        self._timeout = timeout
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            trust_env=not is_loopback(host),  # no proxy between us and this machine
        )

    def call(
        self, method: str, path: str, body: Any = None, sleep: Callable[[float], None] = time.sleep
    ) -> Reply:
        """The reply to one request, of whatever status but `BUSY`.

        A busy server is asked again, and so is one whose connection broke: what is asked here
        changes nothing. One that is silent is not: it may be at work. RemoteError for the rest.
        """
        import httpx2

        for attempt in range(1, TRIES + 1):
            last = attempt == TRIES
            wait = 0.0
            try:
                reply, after = self._once(method, path, body)
            except httpx2.TimeoutException as error:
                raise self._silent(error) from error
            except httpx2.RequestError as error:
                if last:
                    raise self._broken(error) from error
            else:
                if reply.status not in BUSY:
                    return reply
                wait = retry_after(after)
                if last or wait > LONGEST_WAIT:
                    raise self.fault(f"answered {reply.status}: {words(reply.text)}")
            sleep(wait or BACKOFF_SECONDS * attempt)
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def fault(self, what: str) -> RemoteError:
        """An error of one line, cut, without the token (servers like to quote it)."""
        line = f"decider {self.url} {what}"
        return RemoteError(one_line(line.replace(self._token, "***") if self._token else line))

    def refusal(self, reply: Reply, hints: dict[int, str]) -> RemoteError:
        """The error for a status that is not 200."""
        known = {401: "; check the token", 403: "; check the token"} | hints
        said = words(reply.text)
        return self.fault(f"answered {reply.status}{known.get(reply.status, '')}: {said}")

    def _once(self, method: str, path: str, body: Any) -> tuple[Reply, str]:
        """A reply, and its Retry-After."""
        content = json.dumps(body, ensure_ascii=False, default=dict).encode() if body else None
        headers = {"Content-Type": "application/json"} if body else {}
        url, until = self.url + path, time.monotonic() + self._timeout
        received = b""
        with self._client.stream(method, url, content=content, headers=headers) as response:
            for chunk in response.iter_bytes():
                received += chunk
                if len(received) > LONGEST_REPLY:
                    raise self.fault(f"goes on after {len(received)} bytes")
                if time.monotonic() > until:
                    raise self.fault(f"was not done after {self._timeout:g} s; raise the timeout")
        text = received.decode("utf-8", "replace")
        after = str(response.headers.get("retry-after", ""))
        try:
            value = json.loads(text, parse_constant=_finite, parse_float=_finite)
            return Reply(response.status_code, value, text), after
        except (ValueError, RecursionError):
            return Reply(response.status_code, None, text), after

    def _silent(self, error: httpx2.TimeoutException) -> RemoteError:
        import httpx2

        if isinstance(error, httpx2.ConnectTimeout):
            return self.fault("did not take the connection in time")
        return self.fault(f"sent nothing for {self._timeout:g} s; raise the timeout")

    def _broken(self, error: httpx2.RequestError) -> RemoteError:
        import httpx2

        if isinstance(error, httpx2.ConnectError):
            return self.fault(f"cannot be reached ({error}); it may not be running")
        return self.fault(f"broke off ({error})")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def configuration(message: str) -> RemoteError:
    """A fault in how a server is named, rather than in the server."""
    error = RemoteError(message)
    error.exit_code = EXIT_CONFIG
    return error


def checked_host(url: str, insecure: bool) -> str:
    """The host of a server's url; ValueError when the url is none, or gives secrets away."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host and host.isascii():
            host.encode("idna")  # as the resolver will: an empty part is no name, nor a long one
    except ValueError as error:
        raise ValueError(f"url {url!r} is none: {error}") from error
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("url must have no password, ? or #; give the key apart")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"url {url!r} must begin with https:// or http://")
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        raise ValueError(
            f"url {url} would send everything readable over the network; use https, or "
            "allow it (insecure) if that is meant"
        )
    return host


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own and no other can reach it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_token(text: str) -> bool:
    """Whether a text can stand in the header of a request as token or key."""
    return bool(text) and text.isascii() and text.isprintable()


def read_token(file: Path | None, variable: str) -> str | None:
    """The token of a file, else of a variable of the environment; None without either.

    Raises ValueError, in one line, for a file that cannot be read and a token that is none.
    """
    if file is None:
        token, where = os.environ.get(variable, ""), variable
        if not token:
            return None
    else:
        where = str(file)
        try:
            token = file.read_text("utf-8", "replace").strip()
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    if not is_token(token):
        raise ValueError(f"the token in {where} is empty or has characters no token has")
    return token


def retry_after(value: str) -> float:
    """Seconds of a Retry-After header, which holds seconds or a date; 0 when it holds neither."""
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # TypeError: a date without a zone
        return 0.0


def words(content: str) -> str:
    """What a server says in an error: its message when there is one, else all of it."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return content
    for key in ("error", "detail", "message"):
        said = said.get(key, said) if isinstance(said, dict) else said
    return str(said)
