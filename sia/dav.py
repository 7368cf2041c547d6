"""Connections to a WebDAV server, for calendars (CalDAV) and contacts (CardDAV)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

SECONDS = 20.0


class Refused(Exception):
    """Nothing was done, and why: one line."""


class Unknown(Exception):
    """The connection ended while something was being written: it may or may not be there."""


@dataclass(frozen=True)
class DavServer:
    url: str
    user: str = ""  # empty: no login
    password: str = field(default="", repr=False)
    insecure: bool = False  # allow plain http to another machine

    @classmethod
    def of(cls, settings: Mapping[str, Any], secret: Callable[[str], str]) -> DavServer:
        """settings: of a section of sia.toml. secret: gives the password, where there is a user."""
        user = settings.get("user", "")
        password = secret("password") if user else ""
        return cls(settings["url"], user, password, bool(settings.get("insecure")))

    @property
    def place(self) -> str:
        parts = urlsplit(self.url)
        return parts.netloc.rpartition("@")[2] or self.url

    def check(self) -> None:
        """Raises Refused for an address that is none and for one that would show the password."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(f"{self.url!r} is no address like https://dav.example.org/")
        if parts.username or parts.password:
            raise Refused("the address holds a user or password; give them beside it")
        safe = parts.scheme == "https" or self.insecure or _loopback(parts.hostname)
        if not safe:
            raise Refused(
                f"{self.place}: http would send everything readable; use https "
                "(or allow it with insecure = true in sia.toml)"
            )


@contextmanager
def opened(server: DavServer, timeout: float = SECONDS) -> Iterator[Any]:
    """A caldav ``DAVClient``. timeout: seconds for each answer. Raises Refused, also for what the
    caller's own requests meet; writing wants ``writing`` around it."""
    server.check()
    from caldav.davclient import DAVClient

    # Discovery by DNS would ask servers that the person did not name.
    client = DAVClient(
        server.url,
        username=server.user or None,
        password=server.password or None,
        timeout=round(timeout),
        enable_rfc6764=False,
    )
    with client, refusing(server):
        yield client


@contextmanager
def refusing(server: DavServer) -> Iterator[None]:
    """What goes wrong between here and the server as Refused."""
    from caldav.lib import error
    from lxml import etree

    try:
        yield
    except error.AuthorizationError:
        raise Refused(f"{server.place} refused user {server.user or '(none)'}") from None
    except error.NotFoundError as problem:
        raise Refused(f"{server.place} does not have {_path(problem)}") from None
    except error.DAVError as problem:
        raise Refused(f"{server.place} answered with an error: {_line(problem)}") from None
    except etree.XMLSyntaxError:
        raise Refused(f"{server.place} did not answer as a calendar or contacts server") from None
    except OSError as problem:
        raise Refused(f"{server.place} {_reason(problem)}") from None


@contextmanager
def writing(server: DavServer) -> Iterator[None]:
    """Around one PUT: an answer of the server is Refused, silence Unknown."""
    try:
        with refusing(server):
            yield
    except Refused as problem:
        if isinstance(problem.__context__, OSError):
            raise Unknown(f"the connection to {server.place} broke while writing") from None
        raise


def _reason(problem: OSError) -> str:
    text = f"{type(problem).__name__} {problem}"
    if "NameResolution" in text:
        return "is not known (no such name)"
    if "SSL" in text or "certificate" in text.lower():
        return "has no certificate that can be trusted, or speaks no TLS"
    if "imeout" in text or "timed out" in text:
        return "did not answer in time"
    refused = "refused" in text.lower()
    return f"cannot be reached{': the connection was refused' if refused else ''}"


def _path(problem: Any) -> str:
    return urlsplit(str(problem.url or "")).path or "what was asked for"


def _line(problem: Any) -> str:
    status = f"{problem.status} " if getattr(problem, "status", None) else ""
    text = f"{status}{problem.reason if problem.reason != 'no reason' else problem.url or ''}"
    return re.sub(r"\s+", " ", text).strip()[:200] or type(problem).__name__


def _loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
