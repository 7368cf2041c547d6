"""A run that is ended from outside ends what it has set going: ``halt(ctx)`` of its skill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sia import queue as queues
from sia.home import Home
from sia.looks import looking, payload, touched
from sia.skills.api import Failed
from sia.skills.host import WorkerPool
from sia.skills.tree import Tree, UnknownSkill
from sia.store import Run, Store

HALT = "halt"
SECONDS = 10.0


@dataclass(frozen=True)
class Halts:
    """tell: hears of what could not be halted."""

    home: Home
    store: Store
    pool: WorkerPool
    tree: Callable[[], Tree]
    now: Callable[[], datetime]
    tell: Callable[[str], None]

    def halt(self, id: str) -> None:
        """Halt the run ``id`` if that is yet to be done; on any thread, for some seconds."""
        if id not in queues.halting(self.store):
            return
        run = self.store.run(id)
        if run and touched(self.store, id):
            self._halt(run)
        queues.halted(self.store, id)

    def rest(self) -> None:
        """What was ended while no agent ran, or just before a crash."""
        for id in queues.halting(self.store):
            self.halt(id)

    def _halt(self, run: Run) -> None:
        try:
            skill = self.tree().skill(run.skill)
        except UnknownSkill:
            return
        if not skill.has_halt:
            return
        given = payload(self.home, run, self.now())
        answer = looking(HALT, _nothing)
        ended = self.pool.run(skill, HALT, given, answer, SECONDS, threading.Event())
        if ended.kind not in ("done", "finished"):
            why = ended.message or ended.kind
            self.tell(f"{skill.id} may go on, for it could not be halted: {why}")


def _nothing(method: str, args: dict[str, Any]) -> Any:
    raise Failed(f"ctx.{method} is not for halt")
