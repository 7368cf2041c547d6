"""Parts of an agent as its configuration wants them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from sia.budget import Budget
from sia.config import Config
from sia.home import Home
from sia.prompt import system_text
from sia.scripts import Policy, ScriptLimits, Scripts, default_policy

FIGURES_TOKENS = 200  # figures, process and queue, measured generously


def opened_scripts(
    home: Home,
    interactive: bool,
    approve: Callable[[str], bool] | None,
    on_change: Callable[[str], None],
) -> Scripts:
    """The scripts of a home. approve: asks the person whether one may run."""
    chosen = home.config.scripts
    if chosen.policy in ("sandbox", "allow", "deny"):
        policy = Policy(chosen.policy)
    elif chosen.policy == "ask" and approve:
        policy = Policy("ask", approve)
    else:
        policy = default_policy(interactive, approve)
    # Sidecars hold exact bytes, secrets and all.
    policy = replace(policy, hidden=(*policy.hidden, home.contexts))
    return Scripts(
        home.scripts,
        limits=ScriptLimits(
            seconds=chosen.seconds,
            shown_bytes=chosen.shown_bytes,
            file_bytes=chosen.file_bytes,
        ),
        policy=policy,
        work=home.work,
        tasks=home.tasks,
        environment=os.environ,
        on_change=on_change,
    )


def opened_budget(config: Config, count: Callable[[str], int]) -> Budget:
    """count: tokens of a text."""
    return Budget(
        count=count,
        total=config.generator.context - config.generator.max_tokens,
        fixed=count(system_text()) + FIGURES_TOKENS,
        notice=config.loop.context_notice,
        limit=config.loop.context_limit,
    )
