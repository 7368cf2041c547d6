"""What stands in a message, as plain text: for reading aloud, quoting and summarising.

A message is what a stranger wrote. Covered: any or no charset, broken encodings, HTML only, nested
and endless parts, control and bidirectional characters. Not covered: what pictures show.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.utils import getaddresses
from typing import Any

MOST_PARTS = 200
MOST_NESTED = 100  # more, and the parser takes minutes
_QUOTE = re.compile(r"^\s*(?:>|On .{3,120} wrote:\s*$|Am .{3,120} schrieb.{0,80}:\s*$)")


@dataclass(frozen=True)
class Content:
    """text: its plain text parts, else its HTML as text. attached: names of what else is in it."""

    text: str
    attached: tuple[str, ...] = ()


def content(raw: bytes) -> Content:
    """``raw``: a message as it was sent, or its beginning."""
    plain: list[str] = []
    html: list[str] = []
    attached: list[str] = []
    if raw.lower().count(b"boundary") > MOST_NESTED:
        return Content("", ("parts nested too deep to be read",))
    try:
        for part in _parts(message_from_bytes(raw)):
            name, kind = _name(part), part.get_content_type()
            if name or not kind.startswith("text/") or part.get_content_disposition():
                attached.append(name or kind)
            elif kind == "text/html":
                html.append(_decoded(part))
            else:
                plain.append(_decoded(part))
    except RecursionError:
        attached.append("parts nested too deep to be read")
    text = clean("\n".join(plain))
    return Content(text or clean("\n".join(map(_from_html, html))), tuple(attached))


def header(message: Message, name: str, most: int = 200) -> str:
    """A header on one line, decoded; "" where there is none."""
    value = message.get(name)
    return one_line(_words(value), most) if value is not None else ""


def addresses(message: Message, name: str, most: int = 50) -> list[tuple[str, str]]:
    """(display name, address) of a header; those without an address are left out."""
    values = [one_line(str(value), 10_000) for value in message.get_all(name, [])]
    found = [(one_line(_words(who), 100), address) for who, address in getaddresses(values)]
    return [(who, address) for who, address in found if "@" in address and address.isascii()][:most]


def one_line(text: str, most: int) -> str:
    """Without what cannot be seen or moves the cursor, cut."""
    shown = " ".join(_visible(re.sub(r"\s", " ", text)).split())
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def clean(text: str) -> str:
    """Lines as they are, without what cannot be seen, trailing blanks and heaps of empty lines."""
    lines = [_visible(line).rstrip() for line in text.replace("\t", " ").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def own_words(text: str) -> str:
    """The text without what it quotes of an older message."""
    kept = [line for line in text.splitlines() if not _QUOTE.match(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _visible(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c)[0] != "C")


def _parts(message: Message) -> Iterator[Message]:
    """What holds no further parts, in order; a message in the message is one of them."""
    waiting, seen = [message], 0
    while waiting and seen < MOST_PARTS:
        part, seen = waiting.pop(0), seen + 1
        inner = part.get_payload()
        if part.get_content_maintype() == "multipart" and isinstance(inner, list):
            waiting[:0] = [one for one in inner if isinstance(one, Message)]
        else:
            yield part


def _name(part: Message) -> str:
    try:
        return one_line(_words(part.get_filename() or ""), 80)
    except (ValueError, LookupError, TypeError):  # its parameters are damaged
        return "a file"


def _decoded(part: Message) -> str:
    data = _payload(part)
    try:
        charset = part.get_content_charset() or "utf-8"
        return data.decode(charset)
    except (LookupError, ValueError):  # no such charset, or it is not in that
        return data.decode("utf-8", "replace")


def _payload(part: Message) -> bytes:
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64":
        # Also of a message that was cut off inside a group of four.
        text = re.sub(r"[^A-Za-z0-9+/]", "", str(part.get_payload()))
        text = text[: len(text) - (len(text) % 4 == 1)]
        return b64decode(text + "=" * (-len(text) % 4))
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _words(value: Any) -> str:
    """An encoded header as text; as it stands where its encoding is broken."""
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return str(value)
    return "".join(
        piece if isinstance(piece, str) else _piece(piece, charset) for piece, charset in pieces
    )


def _piece(piece: bytes, charset: str | None) -> str:
    try:
        return piece.decode(charset or "utf-8")
    except (LookupError, ValueError):
        return piece.decode("utf-8", "replace")


def _from_html(html: str) -> str:
    import html_text
    from lxml.etree import LxmlError

    # A declaration of an encoding is refused in what is decoded already.
    html = re.sub(r"^\s*<\?xml[^>]{0,200}\?>", "", html).replace("\0", "")
    try:
        return html_text.extract_text(html)
    except (LxmlError, ValueError, RecursionError, AssertionError):
        return re.sub(r"<[^<>]{0,2000}>", " ", html)
