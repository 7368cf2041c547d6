"""A local decider behind a server's: it stands in while that one fails, and never unsaid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from semif.errors import DecisionError, RemoteError
from semif.types import Answer, Decider, Decision

PAUSE = 30.0  # seconds before a server that failed is asked again


@runtime_checkable
class Calibrated(Decider, Protocol):
    """A decider that knows the thresholds of whoever answers for it at the moment."""

    thresholds: Mapping[str, float]


@runtime_checkable
class Closing(Protocol):
    """Whatever holds connections or native memory that can be given back."""

    def close(self) -> None:
        """Give it back; not to be used afterwards."""
        ...


class Reachable(Calibrated, Protocol):
    """One that stands for a server."""

    def close(self) -> None:
        """Drop the connections."""
        ...

    def connect(self) -> None:
        """Ask the server what it is; RemoteError when it cannot be asked."""
        ...


class Live(Mapping[str, float]):
    """A mapping that is looked up anew each time."""

    def __init__(self, now: Callable[[], Mapping[str, float]]) -> None:
        self._now = now

    def __getitem__(self, key: str) -> float:
        return self._now()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


@dataclass
class Outage:
    """Since when a server is down, known to all deciders that would ask it."""

    pause: float = PAUSE
    clock: Callable[[], float] = time.monotonic
    _until: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def over(self) -> bool:
        """Whether the server may be asked."""
        with self._lock:
            return self._until is None or self.clock() >= self._until

    def begin(self) -> bool:
        """The server failed; whether that is news."""
        with self._lock:
            news, self._until = self._until is None, self.clock() + self.pause
            return news

    def end(self) -> bool:
        """The server answered; whether that is news."""
        with self._lock:
            news, self._until = self._until is not None, None
            return news


class FallbackDecider:
    """Asks a server, and a local decider while it fails. One thread at a time, as the local one.

    tell: hears of each failure and recovery, in one line. `revision` and `thresholds` are those of
    whoever answered last; each answer names its own revision.
    """

    def __init__(
        self,
        remote: Reachable,
        local: Decider,
        thresholds: Mapping[str, float],
        tell: Callable[[str], None],
        outage: Outage | None = None,
    ) -> None:
        """thresholds: the local decider's."""
        self._remote, self._local = remote, local
        self._local_thresholds = thresholds
        self._tell = tell
        self._outage = outage or Outage()
        self._remotely = True
        self.revision = remote.revision
        self.thresholds: Mapping[str, float] = Live(
            lambda: self._remote.thresholds if self._remotely else self._local_thresholds
        )

    def connect(self) -> None:
        """Ask the server what it is; one that fails is told about, as when it is to decide."""
        if not self._outage.over():
            self._stand_in()
            return
        try:
            self._remote.connect()
        except RemoteError as error:
            self._fail(error)
            self._stand_in()
        else:
            self._answered(self._remote.revision)

    def close(self) -> None:
        """Close both deciders."""
        self._remote.close()
        if isinstance(self._local, Closing):
            self._local.close()

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        """One answer per decision, all from the server or all from here.

        What only the server cannot decide, as it is too long for it or has an option that it does
        not answer by, is decided here too. The server is asked the next one as before.
        """
        if not self._outage.over():
            return self._here(decisions)
        try:
            answers = self._remote.decide(decisions)
        except DecisionError as error:
            answers = self._here(decisions)
            self._tell(f"the decider {self._remote.revision}: {error}; decided here")
            return answers
        except RemoteError as error:
            self._fail(error)
            return self._here(decisions)
        # Its own say, as other threads ask the server too.
        self._answered(answers[-1].revision if answers else self._remote.revision)
        if self._outage.end():
            self._tell(f"the decider {self.revision} answers again")
        return answers

    def _answered(self, revision: str) -> None:
        self._remotely, self.revision = True, revision

    def _fail(self, error: RemoteError) -> None:
        if self._outage.begin():
            self._tell(
                f"{error}; for now {self._local.revision} decides here, the server is asked "
                f"again after {self._outage.pause:g} s"
            )

    def _here(self, decisions: Sequence[Decision]) -> list[Answer]:
        answers = self._local.decide(decisions)
        self._stand_in()
        return answers

    def _stand_in(self) -> None:
        self._remotely, self.revision = False, self._local.revision
