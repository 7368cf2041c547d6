"""The typed values of a context: entries, figures, decisions, and the iteration that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sia.scripts.shown import ILLEGAL, Output

INLINE_LIMIT = 1_000_000  # characters of one block kept inline


@dataclass(frozen=True)
class Text:
    """Words of one entry. ``lossy``: what XML 1.0 cannot hold was shown as U+FFFD, or the block
    was cut; ``bytes`` is then the whole size in UTF-8 and ``file`` holds the exact bytes."""

    text: str
    lossy: bool = False
    bytes: int = 0
    file: str = ""

    @classmethod
    def of(cls, text: str) -> Text:
        """``text`` as XML can hold it."""
        shown = ILLEGAL.sub("�", text)
        if len(shown) > INLINE_LIMIT:
            shown = shown[:INLINE_LIMIT]
        if shown == text:
            return cls(text)
        return cls(shown, True, len(text.encode("utf-8", "surrogatepass")))


Mode = Literal["single_shot", "repeat", "background"]
MODES: tuple[Mode, ...] = ("single_shot", "repeat", "background")


@dataclass(frozen=True)
class Script:
    """A script and what it printed; ``run`` is the process that started it, "" for the session's
    own. ``exit_code`` is None while it runs or was ended."""

    id: str
    mode: Mode
    command: Text
    status: str = "running"
    exit_code: int | None = None
    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)
    note: str = ""
    run: str = ""

    @property
    def volatile(self) -> bool:
        """Whether its output may change from turn to turn."""
        return self.mode == "repeat" or self.status == "running"


@dataclass(frozen=True)
class Reasoning:
    id: str
    text: Text


@dataclass(frozen=True)
class ReadStdin:
    """An input that the current process took with ``<read_stdin/>``."""

    id: str
    text: Text


@dataclass(frozen=True)
class InputEntry:
    """An input given to a process: what was asked."""

    id: str
    source: str
    run: str
    text: Text


@dataclass(frozen=True)
class WriteStdout:
    """Words shown to the person."""

    id: str
    run: str
    text: Text


@dataclass(frozen=True)
class Step:
    """One action of a skill, or the navigation that chose it (``action`` is then empty)."""

    id: str
    skill: str
    action: str
    status: str  # done | finished | failed | waiting | cancelled
    run: str
    text: Text


@dataclass(frozen=True)
class ErrorEntry:
    """The model's fault, told to the model. ``line`` and ``column`` (from 1) in its reply, or 0."""

    id: str
    text: Text
    line: int = 0
    column: int = 0


@dataclass(frozen=True)
class Note:
    """Something the system tells the agent (budget, cut-off, lost state)."""

    id: str
    text: Text


Entry = Script | Reasoning | ReadStdin | InputEntry | WriteStdout | Step | ErrorEntry | Note


@dataclass(frozen=True)
class Figures:
    """System figures. cpu, gpu, context: percent; memory, disk: bytes. None: not to be had here."""

    time: datetime
    cpu: int | None = None
    gpu: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    disk_used: int | None = None
    disk_total: int | None = None
    context: int | None = None
    stdin: int = 0


@dataclass(frozen=True)
class ProcessView:
    """The current process as the context shows it; ``text`` is its request."""

    skill: str
    step: int
    run: str
    text: str = ""


@dataclass(frozen=True)
class QueuedView:
    id: str
    urgency: float
    source: str
    text: str


@dataclass(frozen=True)
class DecisionView:
    """A decision as the file keeps it; ``source`` is the entry or input it was made from."""

    id: str
    phase: str
    source: str
    selected: str
    question: str
    state: str  # a plain string, or a JSON object
    options: tuple[tuple[str, str, float], ...]  # id, description, probability


@dataclass(frozen=True)
class Response:
    """What the turn did, a core action as XML. ``by``: generator | person | skill | code."""

    text: str
    by: str = "generator"
    edited: bool = False
    lossy: bool = False


@dataclass(frozen=True)
class Iteration:
    """One turn: what was seen, what was decided, what was answered."""

    session: str
    n: int
    figures: Figures
    entries: tuple[Entry, ...] = ()
    process: ProcessView | None = None
    queue: tuple[QueuedView, ...] = ()
    queue_depth: int = 0
    decisions: tuple[DecisionView, ...] = ()
    response: Response | None = None
    run: str = ""
    parent: str = ""
    decision_revision: str = ""
    generator: str = ""
    prompt_version: str = ""
    system_sha256: str = ""
    prompt_sha256: str = ""
