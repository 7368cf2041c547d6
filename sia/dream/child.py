"""``python -m sia.dream.child PARENT ARGUMENTS OF python``: go on as that program, at the lowest
priority, and end with the parent, even when that is killed while this one is paused."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
LOWEST = 19  # of priority: whatever else the machine does goes first


def command(arguments: list[str]) -> list[str]:
    """The command line that starts python with ``arguments`` as a child of this process."""
    return [sys.executable, "-m", "sia.dream.child", str(os.getpid()), *arguments]


def step_back() -> None:
    """Let all else on the machine go first.

    Linux weighs sessions against each other before processes (autogroup), so the session's own
    place counts too, where this process leads one.
    """
    os.nice(LOWEST - os.nice(0))
    if os.getsid(0) != os.getpid():
        return
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(LOWEST))
    except OSError:
        return  # a kernel without it


def main() -> None:
    parent = int(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before this was set
        sys.exit(128 + signal.SIGKILL)
    step_back()
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == "__main__":
    main()
