"""The end of a background script, as an event: told once, also when nobody ran who could tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from sia.inlets.types import Intake
from sia.scripts import ScriptState
from sia.store import Store

TOLD = "exits_told"  # in the store: ids of scripts, as JSON
SHOWN = 200  # characters of a command


class Scripts(Protocol):
    def state(self, id: str) -> ScriptState: ...


class Exits:
    """``folder``: of the scripts. Used by one thread."""

    def __init__(self, scripts: Scripts, folder: Path, intake: Intake, store: Store) -> None:
        self._scripts, self._folder, self._intake, self._store = scripts, folder, intake, store

    def tell(self, id: str) -> None:
        """Tell of ``id`` if it is a background script that is over, and was not told of before."""
        try:
            state = self._scripts.state(id)
        except KeyError:  # no turn came to start it, or it is forgotten
            return
        # One that was ended was ended by us.
        if state.mode != "background" or state.status not in ("done", "lost"):
            return
        told = json.loads(self._store.meta(TOLD, "[]"))
        if id in told or not self._intake.room("event"):
            return
        kept = [old for old in told if (self._folder / old).exists()]
        self._intake.submit(
            _words(state),
            "event",
            lambda run: self._store.set_meta(TOLD, json.dumps([*kept, id])),
        )


def _words(state: ScriptState) -> str:
    command = " ".join(state.command.split())
    if len(command) > SHOWN:
        command = f"{command[:SHOWN]}…"
    if state.exit_code is None:
        return f"the background script {command} ended: {state.note or 'nobody knows how'}"
    return f"the background script {command} ended with exit code {state.exit_code}"
