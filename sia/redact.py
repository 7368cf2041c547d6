"""Secrets out of what models, rows and files see.

Covered: private key blocks, ``Authorization`` and ``Bearer`` values, passwords inside URLs,
``name=value`` and ``name: value`` where the name says it is a secret, and the token forms of
common services; and the very values that ``learn`` was told, wherever they stand, also escaped for
JSON or a URL. Not covered: another secret with no such mark, such as a bare word. Exact bytes of
what the person and scripts wrote stay in files of mode 0600.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[redacted]"

_WHOLE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[A-Za-z0-9_-]{16,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    re.DOTALL,
)
_AFTER_NAME = re.compile(
    r"(?i)(\b[\w.-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|token)"
    r"[\w.-]*[\"']?\s*[:=]\s*[\"']?)([^\s\"'&,;<>]{3,})"
)
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)\s+)([A-Za-z0-9+/_=.-]{12,})")
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]+:)([^\s@/]+)(@)")
# One cheap look that nearly every text fails, before the real patterns run.
_PERHAPS = re.compile(
    r"(?i)PRIVATE KEY|gh[pousr]_|github_pat|glpat-|xox|sk-|AKIA|eyJ|pass|secret|key|token"
    r"|bearer|basic|://"
)


LEAST = 4  # characters: a shorter secret would blot out half of every text


class _Known:
    """The values told so far. One set for the process, which only grows: a secret is one wherever
    it turns up, and a redactor handed around would be forgotten in one place."""

    def __init__(self) -> None:
        self.values: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        forms = {
            form
            for value in values
            if len(value) >= LEAST
            for form in (value, json.dumps(value)[1:-1], quote(value, safe=""), quote_plus(value))
        }
        if not forms <= self.values:
            self.values |= forms
            longest = sorted(self.values, key=len, reverse=True)
            self.pattern = re.compile("|".join(map(re.escape, longest)))


_known = _Known()


def learn(values: Iterable[str]) -> None:
    """From now on these very values are replaced. Shorter than four characters they are not."""
    _known.add(values)


def hide(text: str) -> str:
    """``text`` without the values that ``learn`` was told; all else stays."""
    return _known.pattern.sub(MARK, text) if _known.pattern else text


def hide_in(value: Any) -> Any:
    """The same for the texts in a JSON value."""
    if not _known.pattern:
        return value
    match value:
        case str():
            return hide(value)
        case list():
            return [hide_in(part) for part in value]
        case dict():
            return {hide(key): hide_in(part) for key, part in value.items()}
    return value


def redact(text: str) -> str:
    """``text`` with what is or looks like a secret replaced by ``[redacted]``."""
    text = hide(text)
    if not _PERHAPS.search(text):
        return text
    text = _WHOLE.sub(MARK, text)
    text = _IN_URL.sub(rf"\g<1>{MARK}\g<3>", text)
    text = _BEARER.sub(rf"\g<1>{MARK}", text)
    return _AFTER_NAME.sub(rf"\g<1>{MARK}", text)
