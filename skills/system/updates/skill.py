"""Says which updates the package manager knows of, and how old its knowledge is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sia.skills.api import Ctx, Failed

_SECONDS, _SHOWN = 90, 15
_OLD = 7  # days


@dataclass(frozen=True)
class _Manager:
    """lists: where what it knows of the archives lies, "" where it asks them anew. codes: exit
    codes of a good answer."""

    command: tuple[str, ...]
    line: re.Pattern[str]
    install: str
    lists: str = ""
    refresh: str = ""
    codes: tuple[int, ...] = (0,)


_MANAGERS = (
    _Manager(
        ("apt", "list", "--upgradable"),
        re.compile(r"(?P<name>[^/\s]+)/\S+ (?P<new>\S+) \S+ \[upgradable from: (?P<old>[^\]]+)\]"),
        "sudo apt upgrade",
        "/var/lib/apt/lists",
        "sudo apt update",
    ),
    _Manager(
        ("dnf", "-q", "check-update"),
        re.compile(r"(?P<name>\S+)\.\w+\s+(?P<new>\d\S*)\s+\S+"),
        "sudo dnf upgrade",
        codes=(0, 100),
    ),
    _Manager(
        ("pacman", "-Qu"),
        re.compile(r"(?P<name>\S+) (?P<old>\S+) -> (?P<new>\S+)"),
        "sudo pacman -Syu",
        "/var/lib/pacman/sync",
        "sudo pacman -Sy",
        codes=(0, 1),
    ),
)


def look(ctx: Ctx) -> None:
    manager = next((each for each in _MANAGERS if shutil.which(each.command[0])), None)
    if manager is None:
        raise Failed("I cannot know: this machine has none of apt, dnf and pacman.", "environment")
    found = [match for line in _output(manager) if (match := manager.line.match(line))]
    age = _age(manager, ctx.present)
    if not found:
        ctx.say(f"No updates are known{age}.")
        return
    plural = "s" if len(found) > 1 else ""
    lines = [f"{len(found)} update{plural}{age}:", *map(_line, found[:_SHOWN])]
    if len(found) > _SHOWN:
        lines.append(f"… and {len(found) - _SHOWN} more.")
    ctx.say("\n".join([*lines, f"To install: {manager.install}"]))


def _output(manager: _Manager) -> list[str]:
    try:
        done = subprocess.run(
            manager.command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{manager.command[0]} gives no answer: {error}", "environment") from None
    if done.returncode not in manager.codes:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Failed(f"{manager.command[0]}: {last[:300]}", "environment")
    return done.stdout.splitlines()


def _line(match: re.Match[str]) -> str:
    old = match.groupdict().get("old")
    return f"- {match['name']} {f'{old} → ' if old else ''}{match['new']}"


def _age(manager: _Manager, now: datetime) -> str:
    """How old what it knows is, where that may matter."""
    if not manager.lists:
        return ""
    try:
        newest = max(path.stat().st_mtime for path in Path(manager.lists).iterdir())
    except (OSError, ValueError):
        return f" (it has never looked: {manager.refresh})"
    days = int((now.timestamp() - newest) // 86400)
    return f" (as of {days} days ago; to look anew: {manager.refresh})" if days >= _OLD else ""
