"""What the inlets share: what they need of the intake, and which files are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

UNFINISHED = (".tmp", ".part", ".swp", "~")


def unfinished(name: str) -> bool:
    """Whether a file of this name is hidden, or one that a program will yet rename."""
    return name.startswith(".") or name.endswith(UNFINISHED)


class Intake(Protocol):
    """See ``sia.intake.Intake``."""

    def submit(self, text: str, source: str, within: Callable[[str], None] = ...) -> str: ...

    def room(self, source: str) -> bool: ...
