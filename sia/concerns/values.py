"""A concern: one thing that matters for longer than a conversation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from sia.errors import UsageError

RHYTHMS = (1, 2, 4, 8, 12, 24, 168)  # hours
TEXT_LIMIT, NOTE_LIMIT = 120, 1_500  # characters
SAID_KEPT = 12
DEEPEST = 2  # successors of successors

Kind = Literal["seed", "durable", "one_shot", "obligation"]
Status = Literal["open", "done", "dropped"]
Mover = Literal["me", "them"]
KINDS: tuple[str, ...] = get_args(Kind)
MOVERS: tuple[str, ...] = get_args(Mover)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Concern:
    """rhythm: hours, one of RHYTHMS. value: activation at ``grown``, in millionths.

    held: it is no candidate before then; ``held_for``: "defer" (the cached verdict), "error" or
    "cut". defers: verdicts "defer" in a row. fire: its run that is not over. skill: that worked
    its last fire. said: the last things it told the person, word for word, the latest last.
    An obligation names whom it is owed to (``owed``), until when, and who must move.
    """

    id: str
    text: str
    instruction: str
    rhythm: int
    kind: Kind
    value: int
    grown: datetime
    status: Status = "open"
    fired: datetime | None = None
    bumped: datetime | None = None
    held: datetime | None = None
    held_for: str = ""
    defers: int = 0
    note: str = ""
    said: tuple[str, ...] = ()
    fire: str = ""
    skill: str = ""
    successor_of: str = ""
    depth: int = 0
    owed: str = ""
    until: datetime | None = None
    mover: str = ""

    def check(self) -> Concern:
        """Itself; raises UsageError for what cannot be a concern."""
        if not self.text.strip():
            raise UsageError("a concern needs a text that says what it is about")
        if len(self.text) > TEXT_LIMIT:
            raise UsageError(
                f"the text of a concern has at most {TEXT_LIMIT} characters, this one has "
                f"{len(self.text)}; what is to be done belongs into its instruction (--do)"
            )
        owes = bool(self.owed), self.until is not None, bool(self.mover)
        if self.kind == "obligation" and not all(owes):
            raise UsageError("an obligation needs --owed NAME, --until TIME and --mover me|them")
        if self.kind != "obligation" and any(owes):
            raise UsageError("--owed, --until and --mover are of an obligation")
        return self


def snapped(hours: float) -> int:
    """The rhythm that is nearest by ratio. Raises UsageError for what is no length of time."""
    if not 0 < hours < math.inf:
        raise UsageError(f"a rhythm of {hours:g} hours is none; name one above 0")
    return min(RHYTHMS, key=lambda rhythm: abs(math.log(hours / rhythm)))
