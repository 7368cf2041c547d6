"""The part of a dream in which the generator learns: pairs, an adapter for writing, its proof.

Trained in the same child, proven by lines of the same kind, and kept among the same revisions as
what is learned of decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from semif import revision as revisions
from semif.llama import sha256_file
from semif.revision import WRITE, Registry, Revision
from semif.writing import pairs as shipped
from semif.writing.pairs import Pair
from semif.writing.pin import pin
from semif.writing.turns import LIMIT, Turn, dumps
from sia.dream.dream import Dreams, Outcome, Recipe
from sia.dream.measured import FILE, Examiner
from sia.dream.pairs import Pairs, Stood, collect
from sia.dream.proof import HELD_ROWS
from sia.dream.scribe import MOST, Scribe, acting, prove

KIND = "turns"  # what such a dream is called in its files
BATCH = 8  # pairs a step


@dataclass(frozen=True)
class Material:
    """What can be learned here: ``long``: pairs that are too long for that, left for `--on`."""

    pairs: Pairs
    taught: tuple[Stood, ...]
    held: tuple[Stood, ...]
    long: int

    def lessons(self, recipe: Recipe) -> list[Pair | Turn]:
        """The turns, and shipped pairs beside them, so that no writing task is forgotten."""
        turns: list[Pair | Turn] = [one.turn for one in self.taught]
        count = round(recipe.replay * len(turns))
        return turns + (shipped.spread(shipped.read(shipped.shipped()), count) if count else [])


class Writing:
    """The generator's dreams, among the others of ``dreams``."""

    def __init__(self, dreams: Dreams, registry: Registry, scribe: Scribe) -> None:
        self.dreams, self._registry, self._scribe = dreams, registry, scribe

    def after(
        self, decided: Outcome, homes: Sequence[Path], recipe: Recipe, examiner: Examiner
    ) -> Outcome:
        """What the night came to, with the generator's part after that of the decisions."""
        return both(decided, self.run(homes, recipe, examiner, self.base(decided)))

    def base(self, decided: Outcome) -> Revision:
        """What the generator's part builds on: the pinned revision, or what was just proven; the
        parent is the pinned one in both cases, so that a rollback goes to what has worked."""
        current = self._registry.current()
        if decided.status != "proven":
            return current
        return replace(self._registry.get(decided.candidate), id=current.id)

    def run(
        self, homes: Sequence[Path], recipe: Recipe, examiner: Examiner, base: Revision
    ) -> Outcome:
        """Learn and prove over the pairs of ``homes``; hold the lock of the dreams."""
        material = self.material(homes, LIMIT)
        if reason := self.nothing(material, recipe, base.id):
            return Outcome("nothing", reason)
        folder = self._folder(material, recipe, base)
        adapter = self._tuned(folder, recipe, base)
        return self.judged(folder, material, base, adapter, examiner)

    @property
    def room(self) -> int:
        """Tokens of a pair that the agent itself could have read and answered."""
        return self._scribe.context - self._scribe.max_tokens

    def material(self, homes: Sequence[Path], limit: int) -> Material:
        """limit: tokens of a pair that is learned. What the agent itself could not read is left
        out of both sides."""
        found = collect(homes, self.dreams.told)
        sizes = {one.iteration: self._scribe.fits(one) for one in found.every}
        taught = tuple(one for one in found.taught if sizes[one.iteration] <= limit)
        held = [one for one in found.held if sizes[one.iteration] <= self.room]
        return Material(found, taught, tuple(held[-MOST:]), len(found.taught) - len(taught))

    def nothing(self, material: Material, recipe: Recipe, parent: str) -> str:
        """Why there is nothing to learn, or ""."""
        count = len(material.taught) + len(material.held)
        if not material.pairs.every:
            return "nothing to learn: no response was approved or edited (sia feedback)"
        waits = f" ({material.long} longer pairs wait for sia dream --on)" if material.long else ""
        if count < recipe.least or not material.taught:
            return f"nothing to learn yet: {count} pairs, {recipe.least} are needed{waits}"
        if len(material.held) < HELD_ROWS:
            return (
                f"not enough to prove: {len(material.held)} of {count} pairs are held out, "
                f"{HELD_ROWS} are needed{waits}"
            )
        for past in self.dreams.past():
            if past["parent"] == parent and past["data_sha256"] == material.pairs.sha256:
                return f"the same pairs were dreamed of already, as {past['dream']}{waits}"
        return ""

    def _folder(self, material: Material, recipe: Recipe, base: Revision) -> Path:
        """That of an unfinished dream of the same pairs, or a new one."""
        wanted = {
            "kind": KIND,
            "parent": base.id,
            "start": base.contents.adapters.writing,
            "data_sha256": material.pairs.sha256,
            "recipe": asdict(recipe),
        }
        return self.dreams.begun(
            wanted,
            lambda: {
                "pairs.jsonl": dumps(material.lessons(recipe)),
                "held.jsonl": dumps([one.turn for one in material.held]),
            },
        )

    def _tuned(self, folder: Path, recipe: Recipe, base: Revision) -> Path:
        """Train in a child process, which may be killed and goes on at the next call."""
        out = folder / "out"
        if (out / "training.json").exists():
            return out / WRITE
        words = ["write", "train", "--out", str(out), "--pairs", str(folder / "pairs.jsonl")]
        words += ["--epochs", str(recipe.epochs), "--rate", str(recipe.rate)]
        words += ["--batch", str(BATCH), "--minutes", str(recipe.minutes)]
        words += ["--seed", str(recipe.seed)]
        if base.write_path:
            words += ["--start", str(base.write_path)]
        return self.dreams.train(words, out)

    def judged(
        self,
        folder: Path,
        material: Material,
        base: Revision,
        adapter: Path,
        examiner: Examiner,
        *,
        name: str = "proof.json",
        learned: str = "",
    ) -> Outcome:
        """Prove an adapter, as ``Dreams.judged`` does for decisions."""
        self.dreams.told("measuring what the generator writes, before and after")
        scribe = self._scribe
        old, new = (scribe.replies(path, material.held) for path in (acting(base), adapter))
        figures = scribe.golden(base, adapter)
        before = scribe.golden(base, base.write_path)["tasks"] if base.write_path else {}
        proof = prove(old, new, (before, figures["tasks"]), base.proven)
        made = revisions.load(pin(base, adapter, figures, folder / "revision", new.figures()))
        result: dict[str, Any] = {
            "candidate": made.id,
            "parent": base.id,
            "data_sha256": learned or material.pairs.sha256,
            **proof.to_json(),
            "kind": KIND,
            "adapter_sha256": sha256_file(adapter),
            "long": material.long,
            "act": {"before": old.figures(), "after": new.figures()},
        }

        def register() -> None:
            # It decides as its base does, and says so on the golden set.
            said = examiner.golden(base, self.dreams.folder / "golden")
            self._registry.add(made, {FILE: examiner.golden_json(said)})

        noted = {"kind": KIND, "long": material.long}
        return self.dreams.concluded(folder / name, result, proof, register, "writes better", noted)


def both(decided: Outcome, written: Outcome) -> Outcome:
    """Two parts of one night as one outcome: what is proven counts, the later one first."""
    ranked = {"nothing": 0, "rejected": 1, "proven": 2}
    first = written if ranked[written.status] >= ranked[decided.status] else decided
    if written.status == "nothing" and decided.status == "nothing":
        first = decided
    text = f"{decided.text}; generator: {written.text}"
    return replace(first, text=text)
