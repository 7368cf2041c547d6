"""Runs a command that the person dictates, after showing it, and shows its output."""

from __future__ import annotations

import re
from pathlib import Path

from sia import commands
from sia.scripts import Cancel, Refused, Scripts, ScriptState
from sia.skills.api import Ctx, Failed, Finished

_LONGEST = 3_000.0  # seconds; within the budget
_I = re.IGNORECASE | re.DOTALL
_MARKED = (
    re.compile(r"```(?:\w*\n)?(?P<command>.+?)\n?```", _I),
    re.compile(r"`(?P<command>[^`]+)`", _I),
    re.compile(r"^\s*[$!]\s*(?P<command>.+)$", _I),
    re.compile(
        r"^[^:\"'“]{0,60}?\b(?:command|run|execute|shell|terminal|befehl)[^:\"'“]{0,20}:\s+"
        r"(?P<command>.+)$", _I,
    ),
    re.compile(
        r"^[^\"“]{0,60}?\b(?:run|execute|command)\b[^\"“]{0,20}"
        r"[\"“](?P<command>[^\"”]+)[\"”][\s.]*$", _I,
    ),
)  # fmt: skip
_SPOKEN = re.compile(
    r"^(?:(?:please|sia|hey|(?:can|could|would)\s+you|i\s+(?:want|need)\s+(?:you\s+)?to)\b[\s,]*)*"
    r"(?:run|execute|start|launch|do|führe?)\s+"
    r"(?:(?:the|a|this)\s+)?(?:(?:shell\s+)?command\s+|script\s+)?(?P<command>.+?)"
    r"(?:\s+(?:in|on)\s+(?:the|a|my)\s+(?:terminal|shell|console|command\s+line))?(?:\s+please)?$",
    _I,
)


def understand(ctx: Ctx) -> None:
    policy = ctx.settings.get("policy", "allow")
    if policy == "deny":
        raise Failed("Commands are not run here: policy is deny under [shell].", "environment")
    command, marked = _read(ctx.request)
    if not command:
        command, marked = ctx.ask("Which command should I run?"), True
    if not command:
        ctx.say("All right, nothing is run.")
        raise Finished
    folder = _folder(ctx)
    if not folder.is_dir():
        raise Failed(f"There is no folder {folder} to run commands in.", "environment")
    where = f"in {folder}, inside the sandbox" if policy == "sandbox" else f"in {folder}"
    ctx.say(f"$ {command}\n({where})")
    # Words that a rule took out of a sentence were confirmed by nobody in advance.
    agreed = ctx.confirm("Run it?") if marked else ctx.ask("Run it?", ["yes", "no"]) == "yes"
    if not agreed:
        ctx.say("All right, nothing is run.")
        raise Finished
    ctx.state["command"] = command


def run(ctx: Ctx) -> None:
    scripts, command = _scripts(ctx), ctx.state["command"]
    by = "generator" if ctx.settings.get("policy") == "sandbox" else "person"

    def do(key: str) -> str:
        _forget(ctx, scripts, key)
        try:
            scripts.start(key, "background", command, by=by)
        except Refused as refusal:
            raise Failed(f"{str(refusal)[:1].upper()}{str(refusal)[1:]}.", "environment") from None
        scripts.wait([key], Cancel())
        return key

    def found(key: str) -> bool | None:
        """Whether it was begun before the cut; then its end is waited for."""
        try:
            scripts.adopt()
            scripts.wait([key], Cancel())
            return scripts.state(key).status != "refused"
        except KeyError:
            return None

    try:
        ctx.effect(f"run {command}"[:200], do, found)
        # The only command of this run: also where the effect was found done, its name is known.
        keys = sorted(commands.folder(ctx.folders.home).glob(f"{ctx.run}-run-*"))
        if not keys:
            ctx.say("I cannot tell whether it was run, so I did not run it again.")
            return
        state = scripts.state(keys[-1].name)
    finally:
        scripts.close(keep_background=True)
    ctx.state["exit"] = state.exit_code
    ctx.say(_told(state))


def verify(ctx: Ctx) -> bool | None:
    return None if ctx.state.get("exit") is None else ctx.state["exit"] == 0 or None


def _read(request: str) -> tuple[str, bool]:
    """(the command, whether it was marked as one); "" where none is found."""
    for pattern in _MARKED:
        match = pattern.search(request)
        if match:
            return match["command"].strip(), True
    spoken = _SPOKEN.match(" ".join(request.split()))
    return (spoken["command"].strip(), False) if spoken else ("", False)


def _folder(ctx: Ctx) -> Path:
    if ctx.settings.get("policy") == "sandbox":
        return ctx.folders.home / "work"
    return Path(ctx.settings.get("folder") or Path.home())


def _scripts(ctx: Ctx) -> Scripts:
    seconds = min(float(ctx.settings.get("seconds", 60.0)), _LONGEST)
    return commands.opened(ctx.folders.home, ctx.folders.tasks, _folder(ctx), seconds)


def _forget(ctx: Ctx, scripts: Scripts, key: str) -> None:
    """Delete the oldest output; what still runs stays."""
    base = commands.folder(ctx.folders.home)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    scripts.adopt()
    newest = sorted(base.iterdir(), key=lambda path: path.stat().st_mtime)[-commands.KEPT :]
    scripts.forget([key, *(path.name for path in newest)])


def _told(state: ScriptState) -> str:
    """Its output, head and tail of it, then how it ended unless that was well."""
    parts = [state.stdout.text.rstrip("\n"), state.stderr.text.rstrip("\n")]
    if state.note:
        parts.append(f"({state.note})")
    if state.exit_code:
        parts.append(f"It ended with exit code {state.exit_code}.")
    elif state.exit_code is None and not state.note:
        parts.append(f"It {state.status}.")
    return "\n".join(filter(None, parts)) or "Done; it said nothing."
