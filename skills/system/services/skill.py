"""Says how a service stands, or which have failed."""

from __future__ import annotations

import re
import shutil
import subprocess

from sia.skills.api import Ctx, Failed

_SECONDS = 10
_KINDS = "service|timer|socket|mount|target|path|slice|device|swap|scope"
_UNIT = re.compile(rf"(?<![\w./-])[\w@:.\\-]+\.(?:{_KINDS})(?![\w-])")
_NAMED = re.compile(
    r"\b(?:is|does|did|how is|state of|status of|check)\s+(?:the\s+|my\s+)?(?P<name>[\w@.-]+)"
    r"|\b(?P<before>[\w@.-]+)\s+(?:service|daemon|unit|dienst)\b",
    re.IGNORECASE,
)
_COMMON = frozenset(
    "a all any background failed is my of service services the there unit units which".split()
)
_FIELDS = "Id,Description,LoadState,ActiveState,SubState,UnitFileState,Result,ActiveEnterTimestamp"


def look(ctx: Ctx) -> None:
    if not shutil.which("systemctl"):
        raise Failed("I cannot know: this machine has no systemd.", "environment")
    unit = _unit(ctx.request)
    if not unit and re.search(r"\b(?:fail\w*|broken|services|units|dienste)\b", ctx.request, re.I):
        ctx.say(_failed())
        return
    unit = unit or ctx.ask("Which service?").strip()
    if not re.fullmatch(r"[\w@:.\\-]{1,200}", unit) or unit.startswith("-"):
        raise Failed("That is no name of a service.", "text")
    found = [state for scope in ([], ["--user"]) if (state := _state(scope, unit))]
    if not found:
        raise Failed(f"There is no service {unit} here.", "which")
    ctx.say("\n".join(found))


def _unit(text: str) -> str:
    if match := _UNIT.search(text):
        return match[0]
    for match in _NAMED.finditer(text):
        name = (match["before"] or match["name"]).strip(".")
        if name.casefold() not in _COMMON:
            return name
    return ""


def _state(scope: list[str], unit: str) -> str:
    """One line; "" where there is no such unit, or no manager of that scope."""
    code, out, _ = _asked([*scope, "show", "--property", _FIELDS, "--", unit], bool(scope))
    rows = dict(line.partition("=")[::2] for line in out.splitlines())
    if code or rows.get("LoadState", "not-found") == "not-found":
        return ""
    words = {"active": "is running", "inactive": "is not running", "failed": "has failed"}
    active, sub = rows.get("ActiveState", ""), rows.get("SubState", "")
    line = f"{rows['Id']} {words.get(active, f'is {active}')} ({sub})"
    if active == "active" and rows.get("ActiveEnterTimestamp"):
        line += f" since {rows['ActiveEnterTimestamp']}"
    if active == "failed" and rows.get("Result"):
        line += f", result {rows['Result']}"
    start = {"enabled": "starts by itself", "disabled": "does not start by itself"}
    file = start.get(rows.get("UnitFileState", ""))
    return f"{line}{f'; it {file}' if file else ''}."


def _failed() -> str:
    lines = []
    for scope in ([], ["--user"]):
        code, out, _ = _asked(
            [*scope, "list-units", "--state=failed", "--no-legend", "--plain", "--no-pager"],
            bool(scope),
        )
        if not code:
            lines += [f"- {line.split()[0]}" for line in out.splitlines() if line.split()]
    return "\n".join(["Failed:", *lines]) if lines else "No service has failed."


def _asked(arguments: list[str], user: bool) -> tuple[int, str, str]:
    """(exit code, output, complaint). Raises Failed where systemd does not run at all."""
    try:
        done = subprocess.run(
            ["systemctl", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"systemctl gives no answer: {error}", "environment") from None
    # The person may have no manager of their own; the system's is needed.
    if done.returncode and not user:
        complaint = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        if "not been booted with systemd" in complaint or "connect to bus" in complaint:
            raise Failed("I cannot know: systemd does not run here.", "environment")
        raise Failed(f"systemctl: {complaint[:300]}", "environment")
    return done.returncode, done.stdout, done.stderr
