"""Locks of files between processes. Whoever only looks holds one for an instant."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

PATIENCE = 0.5  # seconds


def take(file: IO[str]) -> bool:
    """Take the lock until the file is closed; tried for a while, for somebody may be looking."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(PATIENCE / 50)


def held(path: Path, shared: bool = False) -> bool:
    """Whether another process holds it. ``shared``: several may hold it together, so that only who
    takes it alone can tell; two who look so at the same moment may each take the other for one."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
