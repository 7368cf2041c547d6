"""Secrets out of what models, rows and files see.

Covered: private key blocks, ``Authorization`` and ``Bearer`` values, passwords inside URLs,
``name=value`` and ``name: value`` where the name says it is a secret, and the token forms of
common services. Not covered: a secret with no such mark, such as a bare word. Exact bytes stay
in files of mode 0600.
"""

from __future__ import annotations

import re

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


def redact(text: str) -> str:
    """``text`` with what looks like a secret replaced by ``[redacted]``."""
    if not _PERHAPS.search(text):
        return text
    text = _WHOLE.sub(MARK, text)
    text = _IN_URL.sub(rf"\g<1>{MARK}\g<3>", text)
    text = _BEARER.sub(rf"\g<1>{MARK}", text)
    return _AFTER_NAME.sub(rf"\g<1>{MARK}", text)
