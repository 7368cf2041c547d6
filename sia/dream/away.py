"""A dream that a bigger machine trains: the bundle it is handed, and what comes back.

Only training is done there. What comes back is checked against its hashes and proven here, by the
same gate as what was trained here.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from semif import bundle
from semif import revision as revisions
from semif.errors import ModelError
from semif.jsonl import write_whole
from semif.llama import check_gguf
from semif.revision import Registry, Revision
from semif.writing.turns import dumps
from sia.dream.dataset import collect
from sia.dream.dream import Dreams, Outcome, Recipe, TuningFailed, taught_rows
from sia.dream.measured import Examiner
from sia.dream.writing import BATCH, Material, Writing, both
from sia.errors import SiaError, UsageError

KIND = "bundle"
ROWS, PAIRS = "train.jsonl", "pairs.jsonl"  # as in every dream, so that they can be forgotten


class Away:
    """The dreams of a home that are trained elsewhere; hold the lock of ``dreams``."""

    def __init__(
        self, dreams: Dreams, registry: Registry, writing: Writing, examiner: Examiner
    ) -> None:
        self._dreams, self._registry = dreams, registry
        self._writing, self._examiner = writing, examiner

    def hand_over(self, template: Sequence[str], homes: Sequence[Path], recipe: Recipe) -> Outcome:
        """Make a bundle and run the command that takes it away; prove the result where that
        brought it back at once. Raises SiaError, SemifError."""
        dataset = collect(homes, self._dreams.told)
        current = self._registry.current()
        material = self._material(homes)
        reasons = (
            self._dreams.nothing(dataset, current, recipe),
            self._writing.nothing(material, recipe, current.id),
        )
        if all(reasons):
            return both(Outcome("nothing", reasons[0]), Outcome("nothing", reasons[1]))
        files: dict[str, bytes] = {}
        decisions = turns = None
        if not reasons[0]:
            files[ROWS] = taught_rows(dataset, recipe)
            decisions = bundle.Decisions(
                rows=ROWS, epochs=recipe.epochs, layers=recipe.layers, rate=recipe.rate,
                seed=recipe.seed,
            )  # fmt: skip
        if not reasons[1]:
            files[PAIRS] = dumps(material.lessons(recipe))
            turns = bundle.Turns(
                pairs=PAIRS, epochs=recipe.epochs, batch=BATCH, rate=recipe.rate,
                seed=recipe.seed, limit=self._writing.room,
            )  # fmt: skip
        folder = self._dreams.new_folder()
        bundle.write(folder / "bundle", current, files, decisions, turns)
        said = {
            "kind": KIND,
            "parent": current.id,
            "data_sha256": dataset.sha256,
            "pairs_sha256": material.pairs.sha256,
            "bundle": bundle.identify(folder / "bundle"),
            "recipe": asdict(recipe),
        }
        write_whole(folder / "dream.json", json.dumps(said).encode() + b"\n")
        out = folder / "out"
        _run(filled(template, folder / "bundle", out), self._dreams)
        if not (out / bundle.RESULT).exists():
            text = (
                f"handed over; when its result is here: sia dream --import {out} (or where it is)"
            )
            return Outcome("handed over", text, folder)
        return self.bring_in(out, homes)

    def bring_in(self, result: Path, homes: Sequence[Path]) -> Outcome:
        """Check a result, keep it in its dream's folder, and prove what is in it."""
        found = bundle.read_result(result)
        folder, said = self._dream_of(found.bundle, result)
        current = self._registry.current()
        if said["parent"] != current.id:
            raise ModelError(
                f"{result} was trained from revision {said['parent']}, but {current.id} is pinned "
                "now; hand the rows over again with sia dream --on"
            )
        last = "turns" if found.turns else "decisions"
        if (folder / _proof(last)).exists():
            raise UsageError(f"{result} was measured already; see {folder}")
        out = self._kept(result, folder, found)
        decided = Outcome("nothing", "the bundle had no rows")
        if found.decisions:
            made = out / found.decisions
            decided = self._decided(folder, made, current, homes, said["data_sha256"])
        written = Outcome("nothing", "the bundle had no pairs")
        if found.turns:
            adapter = out / found.turns
            written = self._written(folder, adapter, decided, homes, said["pairs_sha256"])
        return both(decided, written)

    def _material(self, homes: Sequence[Path]) -> Material:
        return self._writing.material(homes, self._writing.room)

    def _dream_of(self, sha256: str, result: Path) -> tuple[Path, dict[str, Any]]:
        for path in sorted(self._dreams.folder.glob("*/dream.json")):
            said = json.loads(path.read_bytes())
            if said.get("bundle") == sha256:
                bundle.read(path.parent / "bundle")
                return path.parent, said
        raise ModelError(f"{result} came of no bundle of this home ({sha256[:12]}…)")

    def _kept(self, result: Path, folder: Path, found: bundle.Result) -> Path:
        """The result in the dream's folder, read again there."""
        out = folder / "out"
        if result.resolve() == out.resolve():
            return out
        draft = folder / ".out"
        for old in (draft, out):
            shutil.rmtree(old, ignore_errors=True)
        for name in (*found.files, bundle.RESULT):
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(result / name, draft / name)
        draft.rename(out)
        bundle.read_result(out)
        return out

    def _decided(
        self, folder: Path, made: Path, current: Revision, homes: Sequence[Path], learned: str
    ) -> Outcome:
        candidate = revisions.load(made)
        if candidate.id != made.name or not _tuned_from(candidate, current):
            raise ModelError(f"{made} is no revision that was tuned from {current.id}")
        assert candidate.decide_path is not None
        check_gguf(candidate.decide_path, "adapter")
        dataset = collect(homes, self._dreams.told)
        return self._dreams.judged(
            folder, dataset, current, candidate, self._examiner,
            name=_proof("decisions"), learned=learned,
        )  # fmt: skip

    def _written(
        self, folder: Path, adapter: Path, decided: Outcome, homes: Sequence[Path], learned: str
    ) -> Outcome:
        check_gguf(adapter, "adapter")
        return self._writing.judged(
            folder,
            self._material(homes),
            self._writing.base(decided),
            adapter,
            self._examiner,
            name=_proof("turns"),
            learned=learned,
        )


def _proof(kind: str) -> str:
    return f"proof-{kind}.json"


def words(template: str) -> list[str]:
    """A command template in words; UsageError when it cannot be one. No shell reads it."""
    try:
        found = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"--on {template!r} cannot be read: {error}") from None
    if not any("{bundle}" in word for word in found):
        raise UsageError(
            f"--on {template!r} does not say where the bundle goes; put {{bundle}} there, and "
            "{out} where the result comes, such as: sh -c 'rsync -a {bundle}/ host:bundle && …'"
        )
    return found


def filled(template: Sequence[str], made: Path, out: Path) -> list[str]:
    """The words with the folders' paths in them."""
    return [w.replace("{bundle}", str(made)).replace("{out}", str(out)) for w in template]


def _run(command: Sequence[str], dreams: Dreams) -> None:
    """Run it to its end; what it prints goes to stderr, as all that is not the outcome."""
    dreams.told(f"handing over: {shlex.join(command)}")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    except OSError as error:
        raise SiaError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise TuningFailed(
            f"{command[0]} ended with {done.returncode}; what it was handed stays as it is"
        )


def _tuned_from(candidate: Revision, parent: Revision) -> bool:
    """Whether only what training for decisions makes is another."""
    new, old = candidate.contents, parent.contents
    return new.parent == parent.id and all(
        getattr(new, name) == getattr(old, name)
        for name in ("base", "proven", "readout", "prompt_version", "prompt_versions")
    ) and new.adapters.writing == old.adapters.writing  # fmt: skip
