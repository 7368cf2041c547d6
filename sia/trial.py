"""A revision on trial: it must load, still say what stands beside it, and take a whole turn.

What fails here ends the program, and ``restart.sh`` puts the parent back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from semif.errors import ModelError
from semif.revision import Registry
from semif.types import Decider

ROWS = 12  # of the golden set


def end(registry: Registry, loaded: str, decider: Decider, turn: Callable[[], None]) -> None:
    """End the trial of the ``loaded`` revision, if it is on one. ``turn`` takes a turn and records
    it. One that was pinned since the models were loaded is not judged by them.

    Raises ModelError when the revision does not say what it said when it was proven.
    """
    if (id_ := registry.pending()) != loaded:
        return
    # A server may decide instead, with a revision of its own.
    if decider.revision == id_:
        _smoke(registry.folder / id_, decider)
    turn()
    registry.confirm()


def _smoke(folder: Path, decider: Decider) -> None:
    from semif.rows import golden
    from sia.dream.measured import FILE, same

    if not (folder / FILE).exists():  # made by hand, and never measured
        return
    share = same(decider, folder / FILE, golden(), ROWS)
    if share < 0.9:  # one close call may fall otherwise on another machine
        raise ModelError(
            f"revision {folder.name} decides {share:.0%} of {ROWS} golden rows as it did when it "
            "was proven; it is not taken up"
        )
