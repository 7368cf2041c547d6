"""The engine: a model, pinned by a revision, as a decider for one thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from semif import models, revision
from semif.branches import Branches
from semif.errors import ModelError
from semif.letters import Letters
from semif.llama import Model, build
from semif.prompting import BranchesPrompt, branches_prompt, letters_prompt, load_prompt
from semif.readout import Reading, Readout, sizes, too_long
from semif.revision import Revision
from semif.types import Answer, Decision

# An untuned model below this size reads branches better than letters.
_LETTERS_PARAMS = 1_500_000_000
_CHARACTERS_PER_TOKEN = 128  # longer than any token but runs of blanks


class Engine:
    """Answers decisions on one session of its own. Not thread-safe: one engine per thread.

    Several decisions given together are read together, by `branches` in one decode. Results do
    not depend on what was asked before by more than the numerics of another plan (|dp| <= 0.01).
    """

    def __init__(
        self, model: Model, revision: Revision, threads: int = 2, n_ctx: int = 4096
    ) -> None:
        pinned = revision.contents
        for version in (pinned.prompt_version, *pinned.prompt_versions.values()):
            if isinstance(load_prompt(version), BranchesPrompt) != (pinned.readout == "branches"):
                raise ModelError(
                    f"revision {revision.id} pins the readout {pinned.readout}, which the prompt "
                    f"{version} is not made for"
                )
        adapter = model.adapter(revision.decide_path) if revision.decide_path else None
        self.revision = revision.id
        self._pinned = revision
        self._readout: Readout
        if pinned.readout == "branches":
            prompts = {"": branches_prompt(pinned.prompt_version)} | {
                phase: branches_prompt(version) for phase, version in pinned.prompt_versions.items()
            }
            self._readout = Branches(model, prompts, adapter, threads, n_ctx)
        elif pinned.prompt_versions:
            raise ModelError(f"revision {revision.id}: the readout letters has one prompt for all")
        else:
            prompt = letters_prompt(pinned.prompt_version)
            self._readout = Letters(model, prompt, adapter, threads, n_ctx)

    @property
    def limit(self) -> int:
        """The most tokens that the prompt of a decision may have."""
        return self._readout.limit

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the session; the model stays."""
        self._readout.session.close()

    @property
    def abort(self) -> Callable[[], bool] | None:
        """The session's abort hook: when it answers True, `decide` raises `Aborted`."""
        return self._readout.session.abort

    @abort.setter
    def abort(self, hook: Callable[[], bool] | None) -> None:
        self._readout.session.abort = hook

    def forget(self) -> None:
        """Empty the session's memory: the next answer is that of a new engine, bit for bit."""
        self._readout.forget()

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision, in order.

        Raises DecisionError naming row and field before anything is evaluated, when a decision
        is malformed or its prompt longer than the context; nothing is ever truncated.
        """
        for decision in decisions:
            decision.check()
            # Far above what fits: say so without tokenising megabytes first.
            least = sum(sizes(decision).values()) // _CHARACTERS_PER_TOKEN
            if least > self.limit:
                raise too_long(decision, least, self.limit)
        start = time.perf_counter()
        readings = self._readout.read(decisions)
        ms = (time.perf_counter() - start) * 1000 / (sum(r.tokens for r in readings) or 1)
        return [
            self._answer(decision, reading, ms * reading.tokens)
            for decision, reading in zip(decisions, readings, strict=True)
        ]

    def _answer(self, decision: Decision, reading: Reading, ms: float) -> Answer:
        logits = {id_: round(logit, 6) for id_, logit in reading.logits.items()}
        if not all(math.isfinite(logit) for logit in logits.values()):
            raise ModelError(f"the model gave no number for {decision.id}; is it damaged?")
        temperature = self._pinned.temperature(decision.phase)
        bias = self._pinned.none_bias(decision.phase)
        biased = {o.id for o in decision.options if o.means_none} if bias else set()
        probs = softmax(
            {id_: (x + bias * (id_ in biased)) / temperature for id_, x in logits.items()}
        )
        session = self._readout.session
        return Answer(
            decision=decision,
            probs=probs,
            logits=logits,
            selected=select(probs),
            prompt_version=reading.prompt_version,
            prompt_sha256=reading.prompt_sha256,
            revision=self.revision,
            tokens=reading.tokens,
            prompt_tokens=reading.prompt_tokens,
            ms=round(ms, 3),
            allowed_token_mass=reading.mass,
            plan={
                "build": build(),
                "threads": session.threads,
                "n_batch": session.n_batch,
                "splits": list(reading.splits),
                "neighbours": reading.neighbours,
            },
        )


def softmax(scores: Mapping[str, float]) -> dict[str, float]:
    """Probabilities by option id."""
    top = max(scores.values())
    weights = {id_: math.exp(score - top) for id_, score in scores.items()}
    total = sum(weights.values())
    return {id_: weight / total for id_, weight in weights.items()}


def select(probs: Mapping[str, float]) -> str:
    """The likeliest option; among equals the first by id."""
    return min(probs, key=lambda id_: (-probs[id_], id_))


def load(
    model: str | None = None,
    revision_folder: Path | None = None,
    readout: revision.Readout | None = None,
    gpu_layers: int = 0,
) -> tuple[Model, Revision]:
    """Model and revision to decide with; ModelError 69 when missing, 78 when damaged or unfit.

    gpu_layers: how many layers go to the GPU, where the build has one.

    Without a revision, the shipped one is used where it fits the model and the readout; any other
    model is used untuned, by `letters` from 1.5 billion parameters on, else by `branches`.
    """
    source = models.describe(models.resolve(model))
    pinned = revision.load(revision_folder or revision.shipped())
    reads = readout in (None, pinned.contents.readout)
    if revision_folder is None and not (reads and source.sha256 == pinned.contents.base.sha256):
        opened = Model.open(source.path, gpu_layers)
        large = opened.n_params >= _LETTERS_PARAMS and opened.chat_template is not None
        return opened, revision.untuned(source, readout or ("letters" if large else "branches"))
    pinned.check_base(source)
    if not reads:
        raise ModelError(f"revision {pinned.id} reads {pinned.contents.readout}, not {readout}")
    return _open_as(source, pinned.contents.base.type, gpu_layers), pinned


def _open_as(source: models.Source, type_: str, gpu_layers: int) -> Model:
    if type_ == source.type:
        return Model.open(source.path, gpu_layers)
    if type_ != "f16":
        raise ModelError(f"{source.path} is {source.type}, the revision wants {type_}")
    path = models.f16(source.path)
    try:
        return Model.open(path, gpu_layers)
    except ModelError:
        models.quarantine(path)  # the conversion was damaged after it was made: once more
        return Model.open(models.f16(source.path), gpu_layers)
