"""Dreams that are killed: what a process does until then. Forked from one that has loaded torch."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import asking
from asking import ASKS, logged, rows

from semif.engine import Engine
from semif.export import LabelledRow
from semif.jsonl import append
from semif.llama import Model
from semif.log import Label, append_labels
from semif.revision import Registry
from semif.types import Decision
from sia import trial
from sia.dream import measured, proof
from sia.dream.dream import Dreams, Outcome, Recipe, TuningFailed
from sia.dream.measured import Examiner

NOUNS = asking.NOUNS[:8]
RECIPE = Recipe(epochs=6, layers=2, rate=1e-2, replay=0, minutes=10, least=10)
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.copyfile"}


def golden() -> list[LabelledRow]:
    return rows("g", "sun map".split())


def small() -> None:
    """A gate of the tiny model's size."""
    measured.golden = golden
    sys.modules["semif.rows"].golden = golden
    proof.GOLDEN_ROWS, proof.HELD_ROWS = 10, 10
    sys.modules["sia.dream.dream"].HELD_ROWS = 10
    proof.SLOWER, proof.ECE_RISE = 100.0, 1.0
    measured.TIMED = 4


def start(registry: Registry, model: Model) -> str:
    """As the agent does: what is pinned must load and answer, and ends its trial."""
    registry.undo()
    current = registry.current()
    with Engine(model, current, 1, 512) as engine:
        (answer,) = engine.decide([golden()[0].decision])
        assert abs(sum(answer.probs.values()) - 1) < 1e-6
        trial.end(registry, current.id, engine, lambda: None)
    return current.id


def dream(home: Path, model: Model, changes: Changes, trainer: Connection) -> Outcome:
    """Dream, and put what is proven on trial: as `sia dream --now`."""
    registry = Registry(home / ".sia/revisions")
    dreams = Dreams(home / ".sia/dreams", registry, lambda line: None, str(model.path))
    dreams._trained = partial(_forked, changes=changes, trainer=trainer)  # type: ignore[method-assign]
    with dreams.lock():
        outcome = dreams.run([home], RECIPE, Examiner(model, 1, 512))
    if outcome.status == "proven":
        registry.swap(outcome.candidate)
    return outcome


class Changes:
    """Counts the changes of files; at the one numbered ``dies_at`` the process tree is killed."""

    def __init__(self, dies_at: int, number: int = 0) -> None:
        self.number, self.dies_at = number, dies_at
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in CHANGES or writes:
            self.number += 1
            if self.number == self.dies_at:
                os.killpg(0, signal.SIGKILL)


def live(home: Path, path: Path, told: Connection, dies_at: int) -> None:
    """Start, dream, swap and start again, while decisions are logged; ``told`` hears their ids.

    ``dies_at``: see Changes; 0: whoever waits kills it.
    """
    os.setpgid(0, 0)
    trainer = _waiting(dies_at)
    small()
    changes = Changes(dies_at)
    threading.Thread(target=_log, args=(home, told), daemon=True).start()
    model, registry = Model.open(path), Registry(home / ".sia/revisions")
    start(registry, model)
    outcome = dream(home, model, changes, trainer)
    pinned = start(registry, model)
    told.send(("lived", outcome.status, pinned, changes.number))
    told.close()
    os._exit(0)


def _log(home: Path, told: Connection) -> None:
    """Log decisions and labels as the agent does meanwhile."""
    with contextlib.suppress(OSError):  # it is over
        for number in count():
            id_ = f"n{time.time_ns()}-{number}"
            decision = Decision(id_, "asks", {"input": id_}, "A request?", ASKS)
            row = logged(LabelledRow(decision, "yes", (), "given", 1.0))
            append(home / ".sia/decisions.jsonl", [row])
            append_labels(
                home / ".sia/labels.jsonl",
                [Label.new(id_, "r1", "is", "yes", "assessed", by="test")],  # it counts nothing
            )
            told.send(("row", id_))
            time.sleep(0.1)


def _waiting(dies_at: int) -> Connection:
    """A trainer forked while this process has no threads yet; it waits for its arguments."""
    ours, theirs = multiprocessing.Pipe()
    if not os.fork():
        ours.close()
        _train(theirs, dies_at)
    theirs.close()
    return ours


def _forked(command: Sequence[str], changes: Changes, trainer: Connection) -> Path:
    """The trainer, in a fork instead of a new program."""
    arguments = list(command)[list(command).index("semif") + 1 :]
    trainer.send((arguments, changes.number))
    try:
        printed, changes.number = trainer.recv()
    except EOFError:
        raise TuningFailed("the trainer ended") from None
    return Path(printed)


def _train(told: Connection, dies_at: int) -> None:
    from semif.cli.main import main

    try:
        arguments, number = told.recv()
    except EOFError:  # nothing was to be trained
        os._exit(0)
    changes = Changes(dies_at, number)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main([*arguments, "--threads", "1"])
    if not code:
        told.send((out.getvalue().strip(), changes.number))
    os._exit(code)
