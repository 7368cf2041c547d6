"""Who decides: the engine of this home, or a server with that engine behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import semif
from semif.revision import Revision
from semif.serving.fallback import Calibrated, Closing, FallbackDecider, Outage
from sia.config import DeciderConfig
from sia.errors import ConfigError
from sia.home import Home

if TYPE_CHECKING:
    from semif.serving.client import LogprobsDecider, RemoteDecider

# Of a server that names none. What says an open question is answered is asked at all only where
# there is a threshold for it, and whoever decides instead of a trained revision can be asked that.
THRESHOLDS = {"answers": 0.5}


def make(
    home: Home,
    engine: Callable[[], semif.Decider],
    revision: Revision,
    tell: Callable[[str], None],
    count: int = 1,
    outage: Outage | None = None,
) -> list[semif.Decider]:
    """``count`` deciders, one a thread. engine: makes one of the pinned ``revision``.

    A server that fails is told about, in one line, and the engine decides instead; RemoteError
    where ``decider.fallback`` says that it must not. ConfigError for what cannot be a server.
    """
    chosen = home.config.decider
    if not chosen.url:
        return [engine() for _ in range(count)]
    remote = _remote(chosen, home.folder)
    if chosen.fallback == "none":
        remote.connect()
        return [remote] * count  # any thread may call it
    outage = outage or Outage()  # one for all: what one of them finds out, the others know
    own = revision.contents.thresholds
    made = [FallbackDecider(remote, engine(), own, tell, outage) for _ in range(count)]
    for decider in made:
        decider.connect()
    return list(made)


def close(decider: semif.Decider) -> None:
    """Give back what a decider holds."""
    if isinstance(decider, Closing):
        decider.close()


def thresholds(decider: semif.Decider, revision: Revision) -> Mapping[str, float]:
    """Those of whoever answers for ``decider`` at the moment; of the pinned revision otherwise."""
    if isinstance(decider, Calibrated):
        return decider.thresholds
    return revision.contents.thresholds


def _remote(chosen: DeciderConfig, folder: Path) -> RemoteDecider | LogprobsDecider:
    # Only a home with a server pays for what speaks to one.
    from semif.serving.client import LogprobsDecider, RemoteDecider

    kind = RemoteDecider if chosen.dialect == "systemone" else LogprobsDecider
    try:
        return kind(
            chosen.url,
            chosen.model,
            token=_token(chosen, folder),
            timeout=chosen.timeout,
            insecure=chosen.insecure,
            thresholds=THRESHOLDS,
        )
    except semif.RemoteError as error:
        raise ConfigError(f"sia.toml: {error}") from error


def _token(chosen: DeciderConfig, folder: Path) -> str | None:
    from semif.serving.remote import read_token

    name = "token_file" if chosen.token_file else "token_env"
    file = folder / Path(chosen.token_file).expanduser() if chosen.token_file else None
    try:
        token = read_token(file, chosen.token_env)
    except ValueError as error:
        raise ConfigError(f"sia.toml: decider.{name}: {error}") from error
    if token is None and chosen.token_env:
        raise ConfigError(f"sia.toml: decider.token_env names {chosen.token_env}, which is not set")
    return token
