"""kill -9 at any moment of a dream or a swap: the next start works, and no row is lost.

Half of the lives end at a moment of the clock, half at a change of a file, where it matters most.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from semif.jsonl import read
from semif.llama import Model
from semif.revision import Registry
from semif.testing import write_tiny_model

pytest.importorskip("torch")
pytest.importorskip("gguf")

sys.path.insert(0, str(Path(__file__).parent))
import asking  # noqa: E402
import dying  # noqa: E402  (a module of its own, for the processes that it is run in)

LIVES = 4
SEED = 5


class Home:
    """A home of a tiny model with labelled rows, and the lives that are led in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder / "home", folder / "tiny.gguf"
        write_tiny_model(self.path)
        self.model = Model.open(self.path)
        self.revisions = self.folder / ".sia/revisions"
        self.registry = Registry(self.revisions)
        self.first = asking.first_revision(self.model, self.revisions).id
        self.rows = {row.decision.id for row in asking.rows("d", dying.NOUNS)}
        asking.log(self.folder, nouns=dying.NOUNS)
        self.anew()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torch", "semif.train", "dying"])

    def anew(self) -> None:
        """Nothing was dreamed yet."""
        shutil.rmtree(self.folder / ".sia/dreams", ignore_errors=True)
        (self.revisions / "pending").unlink(missing_ok=True)
        (self.revisions / "current").write_text(f"{self.first}\n")
        for id_ in set(self.registry.ids()) - {self.first}:
            shutil.rmtree(self.revisions / id_)

    def live(self, seconds: float = 600, dies_at: int = 0) -> tuple | None:
        """One life, killed after so many seconds or at a change; what came of it, if it lasted."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=dying.live, args=(self.folder, self.path, theirs, dies_at)
        )
        process.start()
        theirs.close()
        end, lived = time.monotonic() + seconds, None
        while ours.poll(max(0, end - time.monotonic())):
            try:
                kind, *what = ours.recv()
            except EOFError:
                process.join(10)
                break
            if kind == "row":
                self.rows.add(what[0])
            else:
                lived = tuple(what)
        while process.is_alive():  # it may not lead a group yet
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join(0.01)
        assert lived or process.exitcode == -signal.SIGKILL, "it ended by itself"
        return lived


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate of this process too."""
    for module, name in (
        (dying.measured, "golden"), (sys.modules["semif.rows"], "golden"),
        (dying.measured, "TIMED"), (sys.modules["sia.dream.dream"], "HELD_ROWS"),
        *((dying.proof, n) for n in ("GOLDEN_ROWS", "HELD_ROWS", "SLOWER", "ECE_RISE")),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))
    dying.small()


def check(home: Home) -> None:
    """What the next start finds."""
    registry = home.registry
    assert dying.start(registry, home.model) in registry.ids()
    assert registry.pending() is None
    for id_ in registry.ids():
        registry.get(id_)
    problems: list[object] = []
    for name in ("decisions", "labels"):
        found = read(home.folder / f".sia/{name}.jsonl")
        problems += found.problems
        known = {row["row" if name == "labels" else "id"] for row in found.rows}
        assert home.rows <= known
    past = read(home.folder / ".sia/dreams/dreams.jsonl")
    assert not problems and not past.problems
    assert all(row["candidate"] in registry.ids() for row in past.rows if row["passed"])


def kill(home: Home, lives: int, seed: int) -> dict[str, float]:
    """Kill so many lives, each at a moment of its own, and look what the next start finds."""
    began = time.monotonic()
    status, pinned, changes = home.live()
    whole = time.monotonic() - began
    assert status == "proven" and pinned != home.first
    check(home)
    chance, lasted = random.Random(seed), 0
    for number in range(lives):
        if chance.random() < 0.5:
            home.anew()  # else it goes on where the last one was killed
        if number % 2:
            lived = home.live(seconds=chance.uniform(0, whole))
        else:
            lived = home.live(dies_at=chance.randint(1, changes))
        lasted += lived is not None
        check(home)
    return {"lives": lives, "lasted": lasted, "seconds_whole": whole, "changes": changes}


def test_a_dream_may_be_killed_at_any_moment(tmp_path: Path, small: None) -> None:
    """Fifty lives are in benchmarks/kills.py: each takes seconds."""
    home = Home(tmp_path)
    found = kill(home, LIVES, SEED)
    assert found["lasted"] < LIVES
    # What was killed goes on, and nothing is left of the drafts.
    home.anew()
    assert home.live(dies_at=int(found["changes"]) // 2) is None
    status, pinned, _ = home.live()
    assert status == "proven" and pinned != home.first
    assert not list(home.revisions.glob(".revision-*"))


def test_a_swap_that_was_cut_off_is_undone(tmp_path: Path, small: None) -> None:
    """Killed between its two files it is on trial, and not pinned."""
    home = Home(tmp_path)
    (home.revisions / "pending").write_text("0123456789ab\n")
    assert home.registry.undo() == "0123456789ab"
    assert home.registry.pending() is None and home.registry.current().id == home.first
    home.registry.swap(home.first)
    assert home.registry.undo() is None and home.registry.pending() == home.first
