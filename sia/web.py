"""Pages of the web for skills: fetched with limits, from where the person may mean, as plain text.

Covered: a size and a time for the whole page, also of what unpacks to more; loops of redirects;
names and redirects that lead to this machine or its network, also where the name server changes
its mind in between (what was checked is what is connected to). Not covered: logins, cookies,
proxies, pages that scripts draw.
"""

from __future__ import annotations

import codecs
import ipaddress
import re
import socket
import ssl
import unicodedata
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urljoin, urlsplit

SECONDS, BYTES, HOPS = 20.0, 4_000_000, 5
_CONNECT = 10.0  # seconds, and for each silence
AGENT = "SIA/0.1 (a personal agent, fetching one page for its user)"
# What is at home by its name: nobody else can make it lead here.
_LOCAL = re.compile(r"localhost|[^.]+|.+\.(?:localhost|local|lan|home|internal|home\.arpa)")
_URL = re.compile(r"\bhttps?://[^\s<>\"“”]+", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@/.:-])(?:localhost(?::\d+)?|(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?"
    r"|(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,24}(?::\d+)?)(?:/[^\s<>\"“”]*)?",
    re.IGNORECASE,
)


class WebError(Exception):
    """The page could not be had: one line that says which and why."""


@dataclass(frozen=True)
class Page:
    """url: where it was found in the end. status: 200, or 304 where it is unchanged. kind: the
    media type in lower case, "" unknown. charset: as the server names it."""

    url: str
    status: int
    kind: str
    charset: str
    data: bytes
    headers: Mapping[str, str]  # names in lower case

    @property
    def text(self) -> str:
        return decoded(self.data, self.charset)


def addresses(text: str) -> list[str]:
    """The addresses typed in a text, whole ones first; without a scheme https is meant (http for
    this machine and for numbers)."""
    found = [match[0] for match in _URL.finditer(text)]
    rest = _URL.sub(" ", text)
    for match in _BARE.finditer(rest):
        host = re.split(r"[:/]", match[0])[0]
        numeric = host == "localhost" or re.fullmatch(r"[\d.]+", host)
        found.append(f"{'http' if numeric else 'https'}://{match[0]}")
    return [_trimmed(url) for url in found]


def _trimmed(url: str) -> str:
    """Without the stop or the bracket of the sentence around it."""
    url = url.rstrip(".,;:!?'»”’")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?")
    return url


def fetch(
    url: str,
    *,
    typed: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    most: int = BYTES,
    seconds: float = SECONDS,
) -> Page:
    """Fetch one page. typed: addresses that the person named; only their hosts may be private.

    Raises WebError.
    """
    end = monotonic() + seconds
    allowed = {_host(address) for address in typed if _at_home(_host(address))}
    for _ in range(HOPS + 1):
        page = _one(url, allowed, headers or {}, most, end)
        target = page.headers.get("location")
        if page.status not in (301, 302, 303, 307, 308) or not target:
            if page.status not in (200, 304):
                raise WebError(f"{shown(url)} answered {page.status}{_reason(page.status)}.")
            return page
        url = urljoin(url, target)
    raise WebError(f"{shown(url)}: more than {HOPS} redirects.")


def _one(
    url: str, allowed: Collection[str], headers: Mapping[str, str], most: int, end: float
) -> Page:
    import httpx2

    address, host, port = _checked(url, allowed)
    parts = urlsplit(url)
    name = host if ":" not in host else f"[{host}]"
    default = {"http": 80, "https": 443}[parts.scheme.lower()]
    sent = {
        "Host": name if port == default else f"{name}:{port}",
        "User-Agent": AGENT,
        "Accept-Encoding": "gzip",
        **headers,
    }
    # The address is the one that was checked: asked again, a name may lead elsewhere.
    at = f"[{address}]" if ":" in address else address
    # Without the certificates of the machine, which take a while to read, nothing is trusted.
    secure = parts.scheme.lower() == "https"
    trust = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    left = max(0.1, end - monotonic())
    timeout = httpx2.Timeout(min(_CONNECT, left))
    try:
        with (
            httpx2.Client(verify=trust, trust_env=False, timeout=timeout) as client,
            client.stream(
                "GET",
                f"{parts.scheme.lower()}://{at}:{port}{path}",
                headers=sent,
                extensions={"sni_hostname": host},
            ) as answer,
        ):
            found = {key.lower(): value for key, value in answer.headers.items()}
            body = b"" if answer.status_code != 200 else _body(answer, url, found, most, end)
    except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
        raise WebError(f"{shown(url)}: {_why(error)}.") from None
    kind, _, rest = found.get("content-type", "").partition(";")
    charset = re.search(r"charset=[\"']?([\w.:-]+)", rest, re.IGNORECASE)
    named = charset[1] if charset else ""
    return Page(url, answer.status_code, kind.strip().lower(), named, body, found)


def _body(answer: Any, url: str, headers: Mapping[str, str], most: int, end: float) -> bytes:
    """The unpacked bytes; never more than ``most`` of them are held."""
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        raise WebError(f"{shown(url)} is packed as {coding}, which was not asked for.")
    unpack = zlib.decompressobj(wbits=31) if coding.endswith("gzip") else None
    data = bytearray()
    for chunk in answer.iter_raw():
        try:
            data += unpack.decompress(chunk, most + 1 - len(data)) if unpack else chunk
        except zlib.error:
            raise WebError(f"{shown(url)} is damaged: it does not unpack.") from None
        if len(data) > most:
            raise WebError(f"{shown(url)} is larger than {most // 1_000_000} MB.")
        if monotonic() > end:
            raise WebError(f"{shown(url)} took too long.")
    return bytes(data)


def _checked(url: str, allowed: Collection[str]) -> tuple[str, str, int]:
    """(address, host, port) that may be connected to."""
    try:
        parts = urlsplit(url)
        host, port = _host(url), parts.port
    except ValueError:
        raise WebError(f"{shown(url)} is no web address.") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise WebError(f"{shown(url)}: only http and https pages are fetched.")
    if not host or any(unicodedata.category(c) in ("Cc", "Zs") for c in url):
        raise WebError(f"{shown(url)} is no web address.")
    if parts.username is not None:
        raise WebError(f"{host}: an address with a login in it is not fetched.")
    port = port or {"http": 80, "https": 443}[scheme]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise WebError(f"{host} is not found: mistyped, or no network.") from None
    places = [str(place[4][0]) for place in found]
    if host not in allowed:
        private = [place for place in places if not _public(place)]
        if private:
            raise WebError(f"{host} leads into this network ({private[0]}), so it is not fetched.")
    return places[0], host, port


def _host(url: str) -> str:
    """The host in lower case and in ASCII, as certificates name it. Raises ValueError."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return host if host.isascii() else host.encode("idna").decode()


def _at_home(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return bool(_LOCAL.fullmatch(host))


def _public(place: str) -> bool:
    address = ipaddress.ip_address(place.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _public(str(inner))
    return address.is_global and not address.is_multicast


def _why(error: Exception) -> str:
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    text = " ".join(str(error).split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not valid ({text.rpartition(': ')[2].split(' (_ssl')[0]})"
    return text or type(error).__name__


def _reason(status: int) -> str:
    from http import HTTPStatus

    try:
        return f" ({HTTPStatus(status).phrase})"
    except ValueError:
        return ""


def decoded(data: bytes, charset: str = "") -> str:
    """The bytes of a page as text, by its byte order mark, the server, itself, or a guess."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):  # fmt: skip
        if data.startswith(mark):
            return data.decode(name, "replace")
    own = re.search(
        rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)=[\"']?\s*([\w.:-]+)", data[:4096], re.I
    )
    for name in (charset, own[1].decode("ascii") if own else "", "utf-8"):
        # What is declared as Latin-1 is Windows-1252, in browsers too.
        name = "cp1252" if re.fullmatch(r"(?i)(?:us-)?ascii|iso-?8859-?1|latin-?1", name) else name
        try:
            return data.decode(name)
        except (LookupError, ValueError):
            continue
    from charset_normalizer import from_bytes

    best = from_bytes(data[:100_000]).best()
    return data.decode(best.encoding if best else "cp1252", "replace")


def plain(text: str) -> str:
    """Text for the screen: no control characters, nothing that reorders, few empty lines."""
    lines = ("".join(_visible(c) for c in line).strip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def one_line(text: str, most: int = 200) -> str:
    """The same on one line, cut at ``most`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _visible(c: str) -> str:
    category = unicodedata.category(c)
    return " " if c in "\t\xa0" else "" if category in ("Cc", "Cf", "Co", "Cs") else c


def shown(url: str) -> str:
    """An address for the screen, without a login."""
    return one_line(re.sub(r"//[^/@\s]*@", "//", url), 120)
