"""The interactive shell: one prompt at a terminal, everything else above it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sia.agent import Agent, Options
    from sia.events import Emit
    from sia.home import Home

Prepare = Callable[["Agent"], AbstractContextManager[None]]
Make = Callable[["Home", "Options", "Emit"], "Agent"]


def run_shell(
    home: Home,
    options: Options,
    *,
    manual: bool = False,
    prepare: Prepare = lambda agent: nullcontext(),
    make: Make | None = None,
) -> int:
    """Work for the person at this terminal until they quit; the exit code.

    Both standard input and output must be terminals. manual: the person plays the generator.
    prepare: what stands around the agent's life. make: builds the agent (a double in tests).
    """
    from sia.agent import Agent
    from sia.shell.shell import Shell

    return Shell(home, options, make or Agent, manual).run(prepare)
