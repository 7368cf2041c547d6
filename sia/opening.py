"""Parts of an agent as its home wants them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from sia import record
from sia.budget import Budget
from sia.config import Config
from sia.entries import Note, Script, Text
from sia.home import Home, new_session
from sia.prompt import system_text
from sia.scripts import Policy, ScriptLimits, Scripts, default_policy
from sia.session import Session, last_id, resume
from sia.store import Store

FIRST_REPEATS = ("ls tasks", "cat user.md")
FIGURES_TOKENS = 200  # figures, process and queue, measured generously


def opened_session(home: Home, store: Store) -> Session:
    """The session to go on with; a new one when the last one ended as it should."""
    with store.transaction():
        for run in store.runs("running"):
            store.save_run(replace(run, status="waiting", attempt=run.attempt + 1))
    old = resume(store)
    if old and store.meta("ended") != "1":
        if old.n:
            path = record.path_of(home.contexts, old.name, old.n)
            if path.exists():  # or it was forgotten
                old.filed = frozenset(record.read(path).entries)
            # Or a generator that asked for the restart asks for it again.
            old.add(lambda id: Note(id, Text("SIA was restarted; its code and skills are new")))
        return old
    session = Session(new_session(datetime.now(UTC)), last_id=last_id(store))
    for command in FIRST_REPEATS:
        session.add(lambda id, text=command: Script(id, "repeat", Text.of(text), "done"))
    with store.transaction():
        store.clear_entries()
        session.save(store)
        store.set_meta("ended", "0")
    session.saved()
    return session


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
