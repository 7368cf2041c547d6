"""The models of a home, loaded once: a decider for the intake, one for the loop, a generator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import semif
from semif.revision import Registry, Revision
from sia import deciders
from sia.config import Config, GeneratorConfig
from sia.errors import ConfigError
from sia.generator.manual import ManualGenerator
from sia.generator.types import TASKS, Generator
from sia.home import Home

MAX_THREADS = 8


@dataclass(frozen=True)
class Brain:
    """admit and decide: one decider a thread. count: tokens of a text."""

    revision: Revision
    admit: semif.Decider
    decide: semif.Decider
    generator: Generator
    count: Callable[[str], int]

    def close(self) -> None:
        """Give back what the deciders hold."""
        for decider in (self.admit, self.decide):
            deciders.close(decider)

    def thresholds(self, decider: semif.Decider) -> Mapping[str, float]:
        """By phase, of whoever answers for ``decider`` at the moment."""
        return deciders.thresholds(decider, self.revision)


def threads(config: Config) -> int:
    return config.model.threads or max(1, min(MAX_THREADS, os.cpu_count() or 1))


def pinned(home: Home, model: str | None) -> tuple[object, Revision]:
    """The model and the revision a home decides with."""
    registry = Registry(home.revisions)
    current = registry.current()
    own = None if current.folder == semif.shipped() else current.folder
    chosen = home.config.model
    return semif.load(model or chosen.path or None, own, gpu_layers=chosen.gpu_layers)


def load(
    home: Home,
    manual: ManualGenerator | None = None,
    model: str | None = None,
    tell: Callable[[str], None] = lambda line: print(f"sia: {line}", file=sys.stderr),
) -> Brain:
    """Load everything. Raises semif.SemifError, ConfigError; each in one line.

    tell: hears of a server that fails to decide, and of its recovery.
    """
    weights, revision = pinned(home, model)
    count, size = threads(home.config), home.config.model.context
    generator = manual or make_generator(home.config, weights, revision)

    @lru_cache(maxsize=16384)
    def tokens(text: str) -> int:
        return len(weights.tokenize(text, special=False))

    admit, decide = deciders.make(
        home, lambda: semif.Engine(weights, revision, count, size), revision, tell, 2
    )
    return Brain(
        revision=revision,
        admit=admit,
        decide=decide,
        generator=generator,
        count=tokens,
    )


def make_generator(config: Config, weights: object, revision: Revision) -> Generator:
    """The generator the configuration names; what it is proven for is said there or here."""
    chosen = config.generator
    if chosen.kind == "manual":
        raise ConfigError(
            "generator.kind is manual, and nobody is here to play it; start sia at a terminal, or "
            "set another kind in sia.toml"
        )
    if chosen.kind == "openai":
        from sia.generator.remote import RemoteGenerator

        return RemoteGenerator(
            chosen.url,
            chosen.model,
            api_key=_key(chosen),
            timeout=chosen.timeout,
            grammar=chosen.grammar,
            proven=_proven(chosen, TASKS),
            max_tokens=chosen.max_tokens,
            insecure=chosen.insecure,
        )
    from semif.writing.pin import ACT, prompts
    from sia.generator.local import LocalGenerator

    adapter = weights.adapter(revision.write_path) if revision.write_path else None
    return LocalGenerator(
        weights,
        n_ctx=chosen.context,
        threads=threads(config),
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
        seed=chosen.seed,
        proven=_proven(chosen, revision.proven),
        adapter=adapter,
        prompts=prompts(revision),
        acts=adapter if ACT in revision.contents.metrics else None,
    )


def _proven(chosen: GeneratorConfig, default: frozenset[str]) -> frozenset[str]:
    if chosen.proven is None:
        return default
    unknown = set(chosen.proven) - TASKS
    if unknown:
        raise ConfigError(
            f"sia.toml: generator.proven names {sorted(unknown)[0]!r}; "
            f"known: {', '.join(sorted(TASKS))}"
        )
    return frozenset(chosen.proven)


def _key(chosen: GeneratorConfig) -> str | None:
    if not chosen.api_key_env:
        return None
    key = os.environ.get(chosen.api_key_env)
    if not key:
        raise ConfigError(
            f"sia.toml: generator.api_key_env names {chosen.api_key_env}, which is not set"
        )
    return key
