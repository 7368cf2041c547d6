"""What a person asks for while a process runs that declines it (``sia-meanwhile``): the skill
``response/rejection`` says at once, beside the process, that it must wait. The request stays in the
queue; when its turn comes the person is asked whether they still want it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sia.events import Emit, Ended, Routed, Said
from sia.looks import payload
from sia.queue import DECLINED, declined_for
from sia.redact import redact
from sia.runs import Runs, asked
from sia.skills.api import Failed
from sia.skills.tree import Tree, UnknownSkill
from sia.store import Input, Run, Store
from sia.turn import Turn

REJECTION = "response/rejection"
WANTED = 1  # whether it is wanted afterwards; kept beside what it was declined for
SECONDS = 5.0  # for the skill to say it


@dataclass
class Declined:
    """said: hands the words to the context. fault: hears of what a thread of its own raised."""

    store: Store
    runs: Runs
    tree: Callable[[], Tree]
    now: Callable[[], datetime]
    emit: Emit
    said: Callable[[Input, str], None]
    fault: Callable[[BaseException], None]
    _cancel: threading.Event = field(default_factory=threading.Event)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "declined"))

    def tell(self, run: Run, busy: str) -> None:
        """Say so, on a thread of its own: the intake goes on listening, the process goes on."""
        self._thread.submit(self._tell, run, busy)

    def stop(self) -> None:
        """Before the database and the workers are closed."""
        self._cancel.set()
        self._thread.shutdown()

    def _tell(self, run: Run, busy: str) -> None:
        try:
            self.emit(Routed(run.id, REJECTION, 1.0))
            words = self._words(run, busy)
            number = self.store.add_message(run.id, words)
            self.said(Input(run.id, run.id, run.source, run.text, run.arrived), words)
            self.emit(Said(run.id, words))
            self.store.drop_messages([number])
        except BaseException as error:
            self.fault(error)

    def _words(self, run: Run, busy: str) -> str:
        """What the skill says; plain words where it is gone or says nothing."""
        spoken: list[str] = []

        def answer(method: str, args: dict[str, Any]) -> Any:
            match method:
                case "interrupted":
                    return [busy]
                case "say":
                    spoken.append(args["text"])
                    return None
            raise Failed(f"ctx.{method} is not for what runs beside another request")

        try:
            skill = self.tree().skill(REJECTION)
            told = replace(run, skill=REJECTION, state=json.dumps({"kept": True}))
            given, action = payload(self.runs.home, told, self.now()), skill.actions[0]
            self.runs.pool.run(skill, action, given, answer, SECONDS, self._cancel)
        except (UnknownSkill, IndexError):
            pass
        return (
            "\n".join(spoken) or f"Not now: “{busy}” goes first. I ask you about this afterwards."
        )

    # when its turn has come

    def wanted(self, turn: Turn, run: Run, now: datetime) -> bool:
        """Whether ``run`` is to be worked now; else ``turn.run`` asks, or is over."""
        busy = declined_for(self.store, run.id)
        if not busy:
            return True
        answer = self.store.result(run.id, DECLINED, WANTED)
        if answer:
            if answer[2] == "yes":
                return True
            turn.say(run.id, f"All right, I leave it: {run.text}")
            self._end(turn, run, "cancelled", "")
        elif self.runs.services.answerable():
            question = {
                "action": DECLINED,
                "ordinal": WANTED,
                "method": "ask",
                "text": redact(f"You asked for this while “{busy}” ran: {run.text}. Do it now?"),
                "options": ["yes", "no"],
            }
            turn.run = replace(run, status="asking", requeued=now, question=json.dumps(question))
            turn.after.append(asked(turn.run))
        else:
            words = f"Not done, for nobody is there to say whether it is still wanted: {run.text}"
            turn.say(run.id, words)
            self._end(turn, run, "failed", words)
        return False

    @staticmethod
    def _end(turn: Turn, run: Run, status: str, words: str) -> None:
        turn.run = replace(run, status=status, outcome=words, preempts=False)
        turn.after.append(Ended(run.id, status, words))
