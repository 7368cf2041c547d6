"""Shows programs that run; ends, pauses or continues one."""

from __future__ import annotations

import re
import signal as signals
from dataclasses import asdict
from time import monotonic, sleep

from sia import processes
from sia.processes import Program
from sia.skills.api import Ctx, Failed, Finished

_WAIT = 5.0  # seconds for a program to end by itself
_SETTLES = 2.0  # seconds until a busy machine has carried a signal out
_SHOWN = 8
_ACTS = (
    ("end", r"\b(?:end|kill|close|quit|terminate|stop|abort|force.?quit|beende\w*)\b"),
    ("pause", r"\b(?:pause|suspend|freeze|halt|anhalten)\b"),
    ("continue", r"\b(?:continue|resume|unpause|unfreeze|go on|fortsetzen)\b"),
)
_SIGNALS = {"end": signals.SIGTERM, "pause": signals.SIGSTOP, "continue": signals.SIGCONT}
_DONE = {"end": "ended", "pause": "paused", "continue": "continued"}


def look(ctx: Ctx) -> None:
    act = next((name for name, words in _ACTS if re.search(words, ctx.request, re.I)), "")
    found = processes.named(_words(ctx.request))
    if not act:
        _show(ctx, found)
        raise Finished
    if not found:
        said = ctx.ask(f"Which program should I {act}: its name or number?")
        found = processes.named(_words(said))
    if not found:
        raise Failed("No such program is running.", "which")
    own = [program for program in found if processes.ours(program)]
    if not own:
        raise Failed(f"{found[0].shown} is not yours to {act}, or is SIA itself.", "environment")
    chosen = own
    if len(own) > 1:
        every = f"all {len(own)}"
        shown = {program.shown: [program] for program in own[:_SHOWN]}
        shown[every] = own
        chosen = shown[ctx.ask(f"Several run. Which should I {act}?", list(shown))]
    ctx.say("\n".join(f"{program.shown}: {program.words}" for program in chosen[:_SHOWN]))
    if not ctx.confirm(f"{act.capitalize()} {'it' if len(chosen) == 1 else 'them'}?"):
        ctx.say("All right, nothing is done.")
        raise Finished
    ctx.state.update(act=act, programs=[asdict(program) for program in chosen])


def signal(ctx: Ctx) -> None:
    act = ctx.state["act"]
    programs = [Program(**row) for row in ctx.state["programs"]]
    trouble = [
        ctx.effect(act, lambda key, p=program: processes.signalled(p, _SIGNALS[act]))
        for program in programs
    ]
    lines = [
        f"{program.shown}: {why}." for program, why in zip(programs, trouble, strict=True) if why
    ]
    if act == "end" and (left := _left(programs)):
        names = ", ".join(program.shown for program in left)
        if ctx.confirm(f"{names} did not end. Force it? What is not saved there is lost."):
            for program in left:
                ctx.effect("kill", lambda key, p=program: processes.signalled(p, signals.SIGKILL))
    done = sum(not why for why in trouble)
    if done:
        lines.append(f"{done} {_DONE[act]}." if len(programs) > 1 else f"It is {_DONE[act]}.")
    ctx.say("\n".join(lines))


def verify(ctx: Ctx) -> bool | None:
    if "programs" not in ctx.state:
        return None
    until = monotonic() + _SETTLES
    while not (done := _has_come(ctx)) and monotonic() < until:
        sleep(0.02)
    return done


def _has_come(ctx: Ctx) -> bool:
    states = [processes.status(Program(**row)) for row in ctx.state["programs"]]
    act = ctx.state["act"]
    if act == "end":
        return not any(states)
    return all((state == "stopped") == (act == "pause") for state in states if state)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.+-]+", text.casefold()))


def _show(ctx: Ctx, found: list[Program]) -> None:
    from sia.places import size_words

    if found:
        rows = [
            f"- {program.shown}: {size_words(program.memory, 1024)}" for program in found[:_SHOWN]
        ]
        more = f" The first {_SHOWN}:" if len(found) > _SHOWN else ""
        ctx.say(f"{len(found)} running.{more}\n" + "\n".join(rows))
    elif re.search(r"\bis\b.*\brunning\b|\bläuft\b", ctx.request, re.I):
        ctx.say("No program of that name is running.")
    else:
        by_memory = bool(re.search(r"memory|\bram\b|speicher", ctx.request, re.I))
        ctx.say(processes.top(by_memory, _SHOWN))


def _left(programs: list[Program]) -> list[Program]:
    """Those that have not ended after a while."""
    end = monotonic() + _WAIT
    while (left := [p for p in programs if processes.status(p)]) and monotonic() < end:
        sleep(0.05)
    return left
