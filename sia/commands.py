"""Commands that a person dictated: run apart from the agent, in ``.sia/shell/<run>-...``."""

from __future__ import annotations

import os
from pathlib import Path

from sia.scripts import Policy, ScriptLimits, Scripts

SHOWN, KEPT = 3_000, 20  # bytes of each stream; commands whose output stays
FILE_BYTES = 64 * 1024 * 1024


def folder(home: Path) -> Path:
    return home / ".sia" / "shell"


def opened(home: Path, tasks: Path, work: Path, seconds: float | None) -> Scripts:
    """The commands of a home. They run in ``work``, as background scripts: closing it, or the end
    of who started them, does not end them."""
    return Scripts(
        folder(home),
        limits=ScriptLimits(background_seconds=seconds, shown_bytes=SHOWN, file_bytes=FILE_BYTES),
        policy=Policy("sandbox", hidden=(home / "contexts",)),
        work=work,
        tasks=tasks,
        environment=os.environ,
        on_change=lambda id: None,
    )


def runs(home: Path) -> set[str]:
    """The runs of which commands are there."""
    return {path.name.partition("-")[0] for path in folder(home).glob("r*-*")}


def end(home: Path, run: str) -> None:
    """End the commands of a run that was cancelled."""
    ids = [path.name for path in folder(home).glob(f"{run}-*")]
    if not ids:
        return
    scripts = opened(home, home / "tasks", home / "work", None)
    for id in ids:
        scripts.end(id, "cancelled")
    scripts.close(keep_background=True)
