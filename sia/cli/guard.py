"""Between ``restart.sh`` and the program: what a start is told, and words for it in the file it
names, whose last line it reads when the program ends."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

AGAIN = "SIA_AGAIN"  # tells a start without restart.sh that it goes on for the one before
TURN = "turn"  # a turn was completed
CHANGED = "changed"  # what it runs on did, which is reason enough to start again without a turn
END = "end"  # exit code 1 is the work's result and not a crash


def mark(line: str) -> None:
    path = os.environ.get("SIA_TURN_FILE")
    if not path:
        return
    try:
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{line}\n")
    except OSError:
        return  # it only judges a restart by this; the work itself is on record elsewhere


def restarted(environment: MutableMapping[str, str]) -> bool:
    """Whether this process goes on for one that asked for a restart, or was ended by a crash.

    What says so of a start without restart.sh is removed: it holds for no child.
    """
    again = environment.pop(AGAIN, "")
    number = environment.get("SIA_RESTART", "")
    return bool(again) or (number.isdecimal() and int(number) > 1)
