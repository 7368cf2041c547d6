"""One dream: rows, a fine-tuned candidate, its proof, and the swap when it is proven.

Each dream has a folder in ``.sia/dreams``; what was killed goes on from it. The folder says what
was learned from, with which recipe, and what came of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from semif import revision as revisions
from semif.export import LabelledRow
from semif.jsonl import append, write_whole
from semif.measuring.paired import Said, cost
from semif.revision import Registry, Revision
from sia import locks
from sia.dream import child
from sia.dream.dataset import Dataset, collect, replay
from sia.dream.measured import FILE, Examiner
from sia.dream.proof import HELD_ROWS, Proof, Side, corrected, prove
from sia.errors import SiaError, Unavailable

Say = Callable[[str], None]


class Way(Protocol):
    """What makes way for requests; see ``sia.dream.pause``."""

    too_big: bool

    def train(self, pid: int | None) -> None: ...


@dataclass(frozen=True)
class Recipe:
    """How a candidate is tuned. ``replay``: shipped rows for each that was logged."""

    epochs: int = 3
    layers: int = 14
    rate: float = 5e-4
    replay: float = 1.0
    minutes: float = 60.0
    seed: int = 0
    least: int = 20  # labelled rows that are new since the last dream

    def arguments(self) -> list[str]:
        return [
            *("--epochs", str(self.epochs), "--layers", str(self.layers)),
            *("--rate", str(self.rate), "--minutes", str(self.minutes)),
            *("--seed", str(self.seed)),
        ]


@dataclass(frozen=True)
class Outcome:
    """What a dream came to. status: nothing | rejected | proven. ``text``: one line of why."""

    status: str
    text: str
    folder: Path | None = None
    candidate: str = ""


class TuningFailed(SiaError):
    """The trainer ended without a candidate."""


class Dreams:
    """The dreams of one home, in ``folder``; ``model``: as `semif train` takes it."""

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        say: Say,
        model: str | None = None,
        way: Way | None = None,
    ) -> None:
        self.folder, self._registry, self._say, self._model = folder, registry, say, model
        self._way = way

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One dream at a time; Unavailable while another process dreams."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / "lock", "a", encoding="ascii") as file:
            if not locks.take(file):
                raise Unavailable("another process dreams in this home; wait for it")
            yield

    def run(self, homes: Sequence[Path], recipe: Recipe, examiner: Examiner) -> Outcome:
        """Dream over the logs of ``homes``; hold the lock. Raises SiaError, SemifError."""
        dataset = collect(homes, self.told)
        current = self._registry.current()
        if reason := self.nothing(dataset, current, recipe):
            return Outcome("nothing", reason)
        folder = self._folder(dataset, current, recipe)
        candidate = self._tuned(folder, current, recipe)
        return self.judged(folder, dataset, current, candidate, examiner)

    def judged(
        self,
        folder: Path,
        dataset: Dataset,
        current: Revision,
        candidate: Revision,
        examiner: Examiner,
        *,
        name: str = "proof.json",
        learned: str = "",
    ) -> Outcome:
        """Prove a candidate, note in ``folder`` what came of it, in the file ``name`` with all
        figures; register it when it is proven. ``learned``: the hash of the rows it was tuned on,
        where these are not all of ``dataset``."""
        self._say("measuring the candidate against the revision it came from")
        proof, figures = self._proved(dataset, current, candidate, examiner)
        result = {
            "candidate": candidate.id,
            "parent": current.id,
            "data_sha256": learned or dataset.sha256,
            **proof.to_json(),
            **figures,
        }
        return self.concluded(
            folder / name, result, proof, lambda: self._register(candidate, examiner), "is better"
        )

    def concluded(
        self,
        path: Path,
        result: Mapping[str, Any],
        proof: Proof,
        register: Callable[[], None],
        better: str,
        noted: Mapping[str, Any] = MappingProxyType({}),
    ) -> Outcome:
        """Keep in ``path`` what a candidate's proof came to, register it when it is proven, and
        note the dream, with what else is to be ``noted`` of it."""
        folder, candidate = path.parent, result["candidate"]
        write_whole(path, json.dumps(result, indent=1).encode() + b"\n")
        if proof.passed:
            register()
        # Last, for what stands here is not dreamed of again: killed before, it is proven once more.
        row = {"dream": folder.name, **noted, **_short(result)}
        append(self.folder / "dreams.jsonl", [row])
        if not proof.passed:
            why = "; ".join(f"{line.name}: {line.text}" for line in proof.failed)
            return Outcome("rejected", why, folder, candidate)
        return Outcome("proven", f"{candidate} {better}", folder, candidate)

    def past(self) -> list[dict[str, Any]]:
        """What dreams came to, oldest first."""
        from semif.jsonl import iter_rows

        return list(iter_rows(self.folder / "dreams.jsonl", self.told))

    def told(self, problem: object) -> None:
        self._say(str(problem))

    def nothing(self, dataset: Dataset, current: Revision, recipe: Recipe) -> str:
        """Why there is nothing to dream of, or ""."""
        count = len(dataset.rows)
        if not count:
            return "nothing to learn: no decision has a label (/right, /wrong, sia review)"
        if count < recipe.least:
            return f"nothing to learn yet: {count} labelled rows, {recipe.least} are needed"
        if len(dataset.held) < HELD_ROWS:
            return (
                f"not enough to prove: {len(dataset.held)} of {count} labelled rows are held out, "
                f"{HELD_ROWS} are needed"
            )
        for past in self.past():
            if past["parent"] == current.id and past["data_sha256"] == dataset.sha256:
                proven = f"; sia revisions use {past['candidate']} takes up what is proven"
                return (
                    f"the same rows were dreamed of already, as {past['dream']}"
                    f"{proven if past['passed'] else ''}"
                )
        return ""

    def _folder(self, dataset: Dataset, current: Revision, recipe: Recipe) -> Path:
        """That of an unfinished dream of the same rows, or a new one with its rows and recipe."""
        wanted = {"parent": current.id, "data_sha256": dataset.sha256, "recipe": asdict(recipe)}
        return self.begun(
            wanted,
            lambda: {
                "train.jsonl": taught_rows(dataset, recipe),
                "held.jsonl": _lines([row.row for row in dataset.held]),
            },
        )

    def begun(self, wanted: Mapping[str, Any], files: Callable[[], Mapping[str, bytes]]) -> Path:
        """The folder of the dream that was begun as ``wanted``, else a new one with its files."""
        for path in sorted(self.folder.glob("*/dream.json")):
            if json.loads(path.read_bytes()) == wanted:
                self._say(f"going on with the dream {path.parent.name}")
                return path.parent
        folder = self.new_folder()
        for name, data in files().items():
            write_whole(folder / name, data)
        write_whole(folder / "dream.json", json.dumps(wanted).encode() + b"\n")  # last: it is whole
        return folder

    def new_folder(self) -> Path:
        """That of a dream that begins now."""
        folder = self.folder / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        folder.mkdir(mode=0o700)
        return folder

    def _tuned(self, folder: Path, current: Revision, recipe: Recipe) -> Revision:
        """Train in a child process, which may be killed and goes on at the next call."""
        done = folder / "candidate"
        if not done.exists():
            assert current.folder is not None
            out = folder / "out"
            words = ["train", "--out", str(out), "--parent", str(current.folder)]
            words += ["--data", str(folder / "train.jsonl"), *recipe.arguments()]
            write_whole(done, f"{self.train(words, out).name}\n".encode())
        return revisions.load(folder / "out" / done.read_text("ascii").strip())

    def train(self, words: Sequence[str], out: Path) -> Path:
        """Run a command of `semif` that trains into ``out``; it goes on where one was killed."""
        command = ["-m", "semif", *words, *(("--model", self._model) if self._model else ())]
        if next(out.glob("work/*.checkpoint"), None):
            command.append("--resume")
        return self._trained(child.command(command))

    def _trained(self, command: Sequence[str]) -> Path:
        """Run the trainer and hand on what it says; the folder it prints."""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as trainer:  # fmt: skip
            assert trainer.stdout is not None and trainer.stderr is not None
            last = ""
            try:
                if self._way:
                    self._way.train(trainer.pid)
                for line in trainer.stderr:
                    last = line.strip().removeprefix("semif: ")
                    self._say(last)
                printed = trainer.stdout.read().strip()
            except BaseException:
                trainer.kill()  # it may be paused, and goes on from its last checkpoint
                raise
            finally:
                if self._way:
                    self._way.train(None)
        if self._way and self._way.too_big:
            raise TuningFailed("training took more than dream.memory_gb; set fewer dream.layers")
        if trainer.returncode:
            raise TuningFailed(f"the trainer ended with {trainer.returncode}: {last}")
        return Path(printed)

    def _proved(
        self, dataset: Dataset, current: Revision, candidate: Revision, examiner: Examiner
    ) -> tuple[Proof, dict[str, Any]]:
        held, fixed = ([row.row for row in side] for side in (dataset.held, dataset.corrections))
        kept = self.folder / "golden"
        ms = examiner.latency(current, candidate, examiner.golden_rows)
        sides = []
        corrections = []
        for revision, times in zip((current, candidate), ms, strict=True):
            said, flips = examiner.ask(revision, held, [row.text for row in dataset.held])
            sides.append(Side(said, examiner.golden(revision, kept), flips, times))
            corrections.append(examiner.ask(revision, fixed, [""] * len(fixed))[0])
        old, new = sides
        figures = {
            "held": {"before": cost(old.held), "after": cost(new.held)},
            "golden": {"before": cost(old.golden), "after": cost(new.golden)},
            "corrections": corrected(*corrections),
            "phases": {"before": by_phase(old.held), "after": by_phase(new.held)},
        }
        return prove(old, new), figures

    def _register(self, candidate: Revision, examiner: Examiner) -> None:
        """Put the candidate among the revisions, with what it says on the golden set."""
        assert candidate.folder is not None
        said = examiner.golden(candidate, self.folder / "golden")
        extra = {FILE: examiner.golden_json(said)}
        self._registry.add(candidate, extra)


def by_phase(rows: Sequence[Said]) -> dict[str, Any]:
    phases = sorted({row.phase for row in rows})
    return {phase: cost([row for row in rows if row.phase == phase]) for phase in phases}


def taught_rows(dataset: Dataset, recipe: Recipe) -> bytes:
    """What is learned: the logged rows, and shipped ones beside them, as JSON lines."""
    logged = [row.row for row in dataset.taught]
    return _lines([*logged, *replay(round(recipe.replay * len(logged)), recipe.seed)])


def _lines(rows: Sequence[LabelledRow]) -> bytes:
    lines = (json.dumps(row.to_json(), ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    failed = [line["name"] for line in result["lines"] if not line["passed"]]
    names = ("candidate", "parent", "data_sha256", "passed")
    return {**{name: result[name] for name in names}, "failed": failed}
