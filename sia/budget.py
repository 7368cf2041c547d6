"""The context's budget in tokens: told at 80 percent, relieved at 95, nothing dropped silently."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sia.entries import Entry, InputEntry, Note, Script, Text
from sia.prompt import entry_text
from sia.scripts.shown import Output

NOTICE = (
    "The context is {percent} percent full. Summarise what you still need with <reasoning>, then "
    "<delete> what you no longer need."
)
_WORTH_MOVING = 200  # characters


@dataclass(frozen=True)
class Budget:
    """count: text -> tokens. total: tokens a prompt may have. fixed: tokens of the instructions
    and the figures."""

    count: Callable[[str], int]
    total: int
    fixed: int
    notice: int = 80
    limit: int = 95

    def tokens(self, entries: Sequence[Entry]) -> int:
        return self.fixed + sum(self.count(entry_text(entry)) for entry in entries)

    def percent(self, entries: Sequence[Entry]) -> int:
        return 100 * self.tokens(entries) // self.total


def _moved(output: Output, file: str) -> Output:
    if len(output.text) < _WORTH_MOVING:
        return output
    size = max(output.bytes, len(output.text.encode()))
    return Output(f"[moved to {file}]", True, size, output.file or file)


def _relieved(entry: Entry, file: str) -> Entry:
    """``entry`` with its long text replaced by a pointer to the file that holds it."""
    if isinstance(entry, Script):
        if entry.status == "running":
            return entry
        return replace(
            entry, stdout=_moved(entry.stdout, file), stderr=_moved(entry.stderr, file)
        )
    if len(entry.text.text) < _WORTH_MOVING or isinstance(entry, InputEntry):
        return entry
    size = len(entry.text.text.encode())
    return replace(entry, text=Text(f"[moved to {file}]", True, size, entry.text.file or file))


def relieve(
    entries: Sequence[Entry], budget: Budget, file: str, note_id: str, filed: Collection[Entry]
) -> list[Entry]:
    """Entries brought below the limit: the oldest long output leaves a pointer to ``file``, the
    last iteration; when that is not enough the oldest entries are folded into one note that names
    it. Only what that file holds (``filed``) is touched, so newer entries may keep it above."""
    kept = list(entries)
    excess = budget.tokens(kept) - budget.total * budget.limit // 100
    for index, entry in enumerate(kept[:-1]):
        if excess <= 0:
            return kept
        lighter = _relieved(entry, file) if entry in filed else entry
        excess -= budget.count(entry_text(entry)) - budget.count(entry_text(lighter))
        kept[index] = lighter
    if excess <= 0:
        return kept
    return _folded(kept, excess, budget, file, note_id, {e.id for e in entries if e in filed})


def _folded(
    kept: list[Entry], excess: int, budget: Budget, file: str, note_id: str, filed: set[str]
) -> list[Entry]:
    # Down to half, so that the cache of the prompt's head is not lost again on the next turn.
    excess += budget.total * (budget.limit - 50) // 100
    gone: list[Entry] = []
    stay: list[Entry] = []
    for index, entry in enumerate(kept):
        held = isinstance(entry, Script) and entry.volatile
        if excess > 0 and not held and entry.id in filed and index < len(kept) - 1:
            excess -= budget.count(entry_text(entry))
            gone.append(entry)
        else:
            stay.append(entry)
    if not gone:
        return kept
    text = f"{len(gone)} earlier entries, {gone[0].id} to {gone[-1].id}: {file}"
    return [Note(note_id, Text(text)), *stay]
