"""The decision log, audited: each row's prompt is rendered anew and its decision made again.

*Equal* is the same selection and no probability moved by more than 0.01. Numerics depend on what
else was in the batch and in memory; alone on an empty cache they do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from semif import engine, models, revision
from semif.engine import Engine
from semif.errors import DecisionError, ModelError, TooLong
from semif.llama import Model
from semif.models import Source
from semif.prompting import BranchesPrompt, load_prompt
from semif.revision import Registry, Revision
from semif.types import Answer, Decision, converted, named

MAX_DP = 0.01
_CONTEXT = 4096  # what the engine has unless told otherwise
# Makes one decision alone; ModelError says why its revision cannot make it.
Again = Callable[[Decision], Answer]
Find = Callable[[str], Again]


class _Said(msgspec.Struct, frozen=True):
    predicted_probs: dict[str, float]
    selected: str
    prompt_version: str
    prompt_sha256: str
    revision: str
    time: datetime
    plan: dict[str, Any] = {}


@dataclass(frozen=True)
class Logged:
    """A row of the decision log."""

    decision: Decision
    said: _Said

    @classmethod
    def from_json(cls, value: dict[str, Any], row: str) -> Logged:
        """Read a row; DecisionError naming row and field when it is no row of a decision log."""
        decision = Decision.from_json(value, row)
        row = named(row, value)
        said = converted(value, _Said, row)
        if said.time.tzinfo is None:
            raise DecisionError(row, "time", "has no zone")
        if said.predicted_probs.keys() != {option.id for option in decision.options}:
            raise DecisionError(row, "predicted_probs", "do not name the options, each once")
        return cls(decision, said)


@dataclass(frozen=True)
class Checked:
    """A row with what no longer holds of it: `why` by kind, empty where it is reproduced.

    Kinds: `prompt`, `revision`, `selection`, `dp`, `refused` (the decision cannot be asked now).
    `dp` is the largest change of a probability, None where it was not asked again.
    """

    row: Logged
    why: Mapping[str, str]
    dp: float | None = None

    def to_json(self) -> dict[str, Any]:
        said, decision = self.row.said, self.row.decision
        return {
            "id": decision.id,
            "time": said.time.isoformat().replace("+00:00", "Z"),
            "phase": decision.phase,
            "revision": said.revision,
            "why": dict(self.why),
            "dp": None if self.dp is None else round(self.dp, 6),
        }


def verify(
    rows: Iterable[Logged], find: Find, advance: Callable[[int], object] = lambda rows: None
) -> list[Checked]:
    """Check every row. `find` gives for a revision's id who makes its decisions again, or raises
    ModelError saying why nobody can."""
    makers: dict[str, Again | ModelError] = {}
    checked = []
    for row in rows:
        id_ = row.said.revision
        if id_ not in makers:
            try:
                makers[id_] = find(id_)
            except ModelError as error:
                makers[id_] = error
        checked.append(_check(row, makers[id_]))
        advance(1)
    return checked


def summary(checked: Sequence[Checked], build: str) -> dict[str, Any]:
    """Counts, and each row that is not reproduced. `build`: the one that asked again."""
    kinds = Counter(kind for row in checked for kind in row.why)
    moved = [row.dp for row in checked if row.dp is not None]
    builds = [row.row.said.plan.get("build", build) for row in checked]
    return {
        "rows": len(checked),
        "equal": sum(not row.why for row in checked),
        "unequal": sum(bool(row.why) for row in checked),
        "why": dict(sorted(kinds.items())),
        "largest_dp": round(max(moved), 6) if moved else None,
        "other_build": sum(of_row != build for of_row in builds),
        "build": build,
        "problems": [row.to_json() for row in checked if row.why],
    }


def _check(row: Logged, maker: Again | ModelError) -> Checked:
    said = row.said
    if isinstance(maker, ModelError):
        return Checked(row, {**_prompt_alone(row), "revision": str(maker)})
    try:
        answer = maker(row.decision)
    except ModelError as error:
        return Checked(row, {**_prompt_alone(row), "revision": str(error)})
    except DecisionError as error:
        return Checked(row, {**_prompt_alone(row), "refused": f"{error.field}: {error.message}"})
    why = _prompt(said, answer.prompt_version, answer.prompt_sha256)
    if answer.selected != said.selected:
        why["selection"] = f"selected {said.selected!r}, now {answer.selected!r}"
    moved = {id_: abs(p - answer.probs[id_]) for id_, p in said.predicted_probs.items()}
    most = max(moved, key=lambda id_: moved[id_])
    if not moved[most] <= MAX_DP:
        p, now = said.predicted_probs[most], answer.probs[most]
        why["dp"] = f"p of {most!r} was {p:.4f}, is {now:.4f}"
    return Checked(row, why, moved[most])


def _prompt(said: _Said, version: str, sha256: str) -> dict[str, str]:
    if version != said.prompt_version:
        return {"prompt": f"read in prompt {said.prompt_version}, the revision has {version}"}
    if sha256 != said.prompt_sha256:
        return {"prompt": f"{version} renders {sha256[:12]}…, not {said.prompt_sha256[:12]}…"}
    return {}


def _prompt_alone(row: Logged) -> dict[str, str]:
    """The same without a model, which the prompt of `letters` needs and that of `branches` not."""
    version = row.said.prompt_version
    try:
        prompt = load_prompt(version)
        if not isinstance(prompt, BranchesPrompt):
            return {}
        return _prompt(row.said, version, prompt.render(row.decision).sha256)
    except (ModelError, DecisionError) as error:
        return {"prompt": str(error)}


class _Alone:
    """Makes each decision on an empty memory. One engine is open at a time: the rows of a revision
    mostly follow each other, and each engine takes memory for its whole context."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._engine: Engine | None = None
        self._cells = 0

    def ask(self, model: Model, pinned: Revision, decision: Decision) -> Answer:
        """The answer; TooLong for what the model was not trained to hold."""
        engine = self.open(model, pinned)
        while True:
            engine.forget()
            try:
                return engine.decide([decision])[0]
            except TooLong as error:  # the row may be of an engine with more cells
                if error.tokens > model.n_ctx_train:
                    row, field = error.row, error.field
                    raise TooLong(row, field, error.tokens, model.n_ctx_train) from None
                engine = self.open(model, pinned, error.tokens)

    def open(self, model: Model, pinned: Revision, cells: int = _CONTEXT) -> Engine:
        """An engine with at least so many cells; ModelError when there can be none."""
        if self._engine and self._engine.revision == pinned.id and self._cells >= cells:
            return self._engine
        self.close()
        self._engine = Engine(model, pinned, self._threads, cells)
        self._cells = cells
        return self._engine

    def close(self) -> None:
        if self._engine:
            self._engine.close()
        self._engine = None


class Revisions:
    """Finds revisions by id: in a home's registry, among the shipped, or a model as it is."""

    def __init__(self, home: Path | None, model: str | None, threads: int) -> None:
        """Raises ModelError when the model is missing (69) or damaged (78)."""
        self._registry = Registry(home / ".sia" / "revisions") if home else None
        self._model = model
        self._source: Source = models.describe(models.resolve(model))
        self._alone = _Alone(threads)
        self._opened: dict[tuple[str, str], Model] = {}

    def __enter__(self) -> Revisions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free engine and models."""
        self._alone.close()
        for model in self._opened.values():
            model.close()

    def __call__(self, id_: str) -> Again:
        """Who makes the decisions of a revision again; ModelError says why nobody can."""
        model, pinned = self._find(id_)
        self._alone.open(model, pinned)
        return partial(self._alone.ask, model, pinned)

    def _find(self, id_: str) -> tuple[Model, Revision]:
        folder = self._folder(id_)
        if folder is not None:
            return self._open(folder)
        for readout in ("branches", "letters"):
            plain = revision.untuned(self._source, readout)
            if plain.id == id_:
                return self._plain(), plain
        raise ModelError.missing(f"revision {id_} is neither in the home nor shipped")

    def _folder(self, id_: str) -> Path | None:
        if self._registry and id_ in self._registry.ids():
            return self._registry.get(id_).folder
        for path in sorted(revision.shipped().parent.glob("*/revision.json")):
            if revision.identify(path.read_bytes()) == id_:
                return path.parent
        return None

    def _open(self, folder: Path) -> tuple[Model, Revision]:
        pinned = revision.load(folder)
        base = pinned.contents.base
        if (base.sha256, base.type) in self._opened:
            return self._opened[base.sha256, base.type], pinned
        model, pinned = engine.load(self._model, folder)
        self._opened[base.sha256, base.type] = model
        return model, pinned

    def _plain(self) -> Model:
        key = self._source.sha256, self._source.type
        if key not in self._opened:
            self._opened[key] = Model.open(self._source.path)
        return self._opened[key]
