"""GBNF grammars that hold a reply to what can be parsed, and the closing of one cut short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

BODIED = ("reasoning", "single_shot", "repeat", "background", "write_stdout")
EMPTY = ("read_stdin", "stop")

# A forced close needs an opening tag and a visible character before it: in the worst case a token
# a byte, "<write_stdout>" or "<background>", "<![CDATA[", a newline and a character of four bytes.
MIN_TOKENS = 32

# Of what XML 1.0 holds beyond ASCII, all but the control characters U+0080 to U+009F.
_BEYOND = r"\u00A0-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF"

# A body is never blank: after at most one newline something visible stands. Plain text leaves out
# & < > and takes entities. CDATA ends at the first "]]>": in "more" no bracket is pending, in "one"
# one is, in "two" two or more are; "first" and "second" count the brackets that open a body, where
# "]]>" would still leave it empty.
_BODY = rf"""
body ::= "\n"? (seen | entity) (plain | entity)* | "<![CDATA[" "\n"? (start more | "]" first)
seen ::= [\x21-\x25\x27-\x3B\x3D\x3F-\x7E{_BEYOND}]
plain ::= [\t\n\x20-\x25\x27-\x3B\x3D\x3F-\x7E{_BEYOND}]
entity ::= "&amp;" | "&lt;" | "&gt;"
start ::= [\x21-\x5C\x5E-\x7E{_BEYOND}]
other ::= [\t\n\x20-\x5C\x5E-\x7E{_BEYOND}]
within ::= [\t\n\x20-\x3D\x3F-\x5C\x5E-\x7E{_BEYOND}]
more ::= other* "]" one
one ::= other more | "]" two
two ::= within more | "]" two | ">"
first ::= other more | "]" second
second ::= within more | "]" two
"""


def core_action(ids: Sequence[str]) -> str:
    """GBNF of exactly one core action; ``<delete id=…/>`` takes the given entry ids only."""
    for entry in ids:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", entry):
            raise ValueError(f"entry id {entry!r} has characters other than letters, digits, - _")
    actions = [f'"<{tag}>" body "</{tag}>"' for tag in BODIED] + [f'"<{tag}/>"' for tag in EMPTY]
    if ids:
        actions.append(r'"<delete id=\"" id "\"/>"')
    names = f"id ::= {_alternatives(ids)}\n" if ids else ""
    return f"root ::= {' | '.join(actions)}\n{names}{_BODY}"


def one_of(options: Iterable[str]) -> str:
    """GBNF of exactly one of the given texts."""
    return f"root ::= {_alternatives(options)}\n"


def _alternatives(texts: Iterable[str]) -> str:
    literals = [_literal(text) for text in texts]
    if not literals:
        raise ValueError("a grammar needs at least one text to choose from")
    return " | ".join(literals)


def _literal(text: str) -> str:
    if not text:
        raise ValueError("an empty text cannot be an option of a grammar")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\x{ord(c[0]):02X}", escaped) + '"'


def close_action(text: str, ids: Sequence[str]) -> str:
    """What must follow ``text``, the beginning of a core action, to make it a whole one.

    "" when it is whole. text: of at least ``MIN_TOKENS`` tokens, so that a body has begun. Raises
    ValueError when nothing fits.
    """
    whole = [f"<{tag}/>" for tag in EMPTY] + [f'<delete id="{entry}"/>' for entry in ids]
    candidates = [""] + [form[len(text) :] for form in whole if form.startswith(text)]
    if (tag := re.match(r"<(\w+)", text)) and tag[1] in BODIED:
        end = f"</{tag[1]}>"
        # What was begun (an end tag, an entity) is finished first. In an open CDATA none of these
        # parses; in plain text "]]>" must not come into question, as "]>" would pass for content.
        begun = [end, f"amp;{end}", f"lt;{end}", f"gt;{end}"]
        candidates += [rest[i:] for rest in begun for i in range(len(rest))] + [f"]]>{end}"]
    for candidate in candidates:
        if _is_element(text + candidate):
            return candidate
    raise ValueError(f"{text[:80]!r} is not the beginning of a core action")


def _is_element(text: str) -> bool:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        etree.fromstring(text, parser)
    except etree.XMLSyntaxError:
        return False
    return True
