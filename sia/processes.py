"""Running programs: what uses most, by name, and whose they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import sleep
from typing import Any

from sia.places import size_words

_SAMPLE = 0.5  # seconds over which processor time is counted


@dataclass(frozen=True)
class Program:
    """start: seconds since 1970, which tells one from a later process of the same number."""

    pid: int
    start: float
    name: str
    words: str  # the command line, for matching
    memory: int  # bytes

    @property
    def shown(self) -> str:
        return f"{self.name} (process {self.pid})"


def top(by_memory: bool, most: int = 5) -> str:
    """What uses most of the memory or the CPU, a line each."""
    import psutil

    rows, watched = [], list(psutil.process_iter())
    if not by_memory:
        for process in watched:
            _value(process.cpu_percent)  # counts from here
        sleep(_SAMPLE)
    for process in watched:
        amount = _value(partial(_amount, process, by_memory))
        name = _value(process.name)
        if amount and name:
            rows.append((amount, f"{name} (process {process.pid})"))
    first = sorted(rows, reverse=True)[:most]
    if not first:
        return "No process is using the CPU noticeably."
    shown = [f"- {who}: {size_words(n, 1024) if by_memory else f'{n:.0f} %'}" for n, who in first]
    what = "memory" if by_memory else "CPU, where 100 % is one core"
    return "\n".join([f"Using the most {what}:", *shown])


def named(words: set[str]) -> list[Program]:
    """The processes of a program whose name is one of ``words``, biggest first."""
    import psutil

    found = []
    for process in psutil.process_iter():
        name = _value(process.name) or ""
        line = _value(process.cmdline) or []
        names = {name.casefold(), os.path.basename(line[0]).casefold() if line else ""}
        # A script is known by its own name as well as by its interpreter's.
        names |= {os.path.basename(part).casefold() for part in line[1:2]}
        names |= {os.path.splitext(each)[0] for each in names}
        if words & (names - {""}):
            memory, start = _value(process.memory_info), _value(process.create_time)
            if memory is not None and start is not None:
                text = " ".join(line)[:200]
                found.append(Program(process.pid, start, name, text, memory.rss))
    return sorted(found, key=lambda program: -program.memory)


def ours(program: Program) -> bool:
    """Whether it is this person's, and not SIA itself or what SIA runs in."""
    import psutil

    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    owner = _value(lambda: psutil.Process(program.pid).uids().real)
    return program.pid not in spared and owner == os.getuid()


def signalled(program: Program, number: int) -> str:
    """Send a signal; "" or why it was not: gone meanwhile, not allowed."""
    import psutil

    try:
        process = psutil.Process(program.pid)
        if abs(process.create_time() - program.start) > 0.01:
            return "it is gone"
        process.send_signal(number)  # psutil looks again whether it is still the same
    except psutil.NoSuchProcess:
        return "it is gone"
    except psutil.AccessDenied:
        return "the system does not allow it"
    return ""


def status(program: Program) -> str:
    """ "" when it is gone, else running, sleeping, stopped, ... as the system calls it."""
    import psutil

    try:
        process = psutil.Process(program.pid)
        if abs(process.create_time() - program.start) > 0.01:
            return ""
        found = process.status()
    except psutil.NoSuchProcess:
        return ""
    return "" if found == psutil.STATUS_ZOMBIE else str(found)


def _amount(process: Any, by_memory: bool) -> float:
    return process.memory_info().rss if by_memory else process.cpu_percent()


def _value(read: Callable[[], Any]) -> Any:
    """None where the process has ended or is another person's."""
    import psutil

    try:
        return read()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
