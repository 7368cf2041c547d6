"""``.sia/forgotten.jsonl``: of each forgetting when, by whom, what kind, how much, and never what.

A text leaves only a slow, salted digest (scrypt), which tells who knows the text that it is the
one, and nobody else.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from semif.jsonl import append, iter_rows

FILE = "forgotten.jsonl"


@dataclass(frozen=True)
class Stone:
    """id: of what was forgotten, "" for a text, which has a digest. rows: decisions that went with
    it. learned: revisions that were tuned on it."""

    time: str  # RFC 3339, UTC
    by: str
    kind: str
    id: str
    digest: str
    files: int
    cells: int
    rows: tuple[str, ...]
    learned: tuple[str, ...]


def digest(text: str, salt: str = "") -> str:
    salt = salt or token_hex(16)
    raw = text.encode("utf-8", "surrogatepass")
    found = hashlib.scrypt(raw, salt=bytes.fromhex(salt), n=2**14, r=8, p=1, dklen=16)
    return f"{salt}:{found.hex()}"


def put(state: Path, stone: Stone) -> None:
    append(state / FILE, [asdict(stone)])


def read(state: Path) -> list[dict[str, Any]]:
    """Oldest first; ``state``: the folder ``.sia`` of a home."""
    return list(iter_rows(state / FILE, lambda problem: None))


def rows(state: Path) -> frozenset[str]:
    """Ids of decisions that were forgotten, wherever else they may still be."""
    return frozenset(str(id) for stone in read(state) for id in stone.get("rows", ()))


def revisions(state: Path) -> frozenset[str]:
    """Revisions that were tuned on what was forgotten since."""
    return frozenset(str(id) for stone in read(state) for id in stone.get("learned", ()))


def earlier(state: Path, text: str) -> str:
    """When this was forgotten last, RFC 3339, or ""."""
    for stone in reversed(read(state)):
        kept = str(stone.get("digest", ""))
        if stone.get("id") == text or (kept and digest(text, kept.split(":")[0]) == kept):
            return str(stone.get("time", ""))
    return ""
