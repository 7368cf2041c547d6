"""Measures this machine: what was asked about, or everything in short."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from sia import processes
from sia.places import size_words
from sia.skills.api import Ctx, Failed

_SAMPLE = 0.5  # seconds over which processor time is counted


def report(ctx: Ctx) -> None:
    request = ctx.request.lower()
    asked = [tell for words, tell in _TOPICS if re.search(words, request)]
    if re.search(
        r"\b(?:process|programs?\b|apps?\b|top\b|using|uses|eat|hog|tak(?:es|ing))", request
    ):
        by_memory = bool(re.search(r"memory|\bram\b|speicher", request))
        ctx.say(processes.top(by_memory))
    elif asked:
        ctx.say("\n".join(tell() for tell in asked))
    else:
        ctx.say("\n".join(tell() for _, tell in _TOPICS))


def _memory() -> str:
    import psutil

    memory = psutil.virtual_memory()
    free, total = size_words(memory.available, 1024), size_words(memory.total, 1024)
    return f"{free} of {total} memory are free ({_percent(memory.available, memory.total)})."


def _disk() -> str:
    import psutil

    lines, seen = [], set()
    home = os.path.expanduser("~")
    for path in ["/", home, *(part.mountpoint for part in psutil.disk_partitions())]:
        try:
            device, disk = os.stat(path).st_dev, psutil.disk_usage(path)
        except OSError:
            continue  # a mount that this person may not look into
        # In a container single files are mounts too.
        if device in seen or not (disk.total and os.path.isdir(path)):
            continue
        seen.add(device)
        free, total = size_words(disk.free), size_words(disk.total)
        lines.append(
            f"{free} of {total} disk space are free on {path} ({_percent(disk.free, disk.total)})."
        )
    if not lines:
        raise Failed("No disk can be measured here.", "environment")
    return "\n".join(lines)


def _cpu() -> str:
    import psutil

    busy, cores = psutil.cpu_percent(_SAMPLE), psutil.cpu_count() or 1
    load = psutil.getloadavg()[0]
    plural = "s" if cores != 1 else ""
    return f"The CPU is {busy:.0f} % busy ({cores} core{plural}, load {load:.2f} over a minute)."


def _battery() -> str:
    from sia.machine import battery as power

    battery = power()
    if battery is None:
        return "This machine has no battery."
    state = "charging or full" if battery.power_plugged else "not plugged in"
    left = ""
    if not battery.power_plugged and battery.secsleft > 0:
        left = f", about {battery.secsleft // 3600} h {battery.secsleft % 3600 // 60:02d} min left"
    return f"The battery is at {battery.percent:.0f} % ({state}{left})."


def _uptime() -> str:
    from time import time

    import psutil

    minutes = int(time() - psutil.boot_time()) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "day"), (hours, "hour"), (minutes, "minute")]
    words = [f"{count} {unit}{'s' * (count != 1)}" for count, unit in parts if count]
    return f"The machine has been up for {', '.join(words) or 'less than a minute'}."


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %"


_TOPICS: tuple[tuple[str, Callable[[], str]], ...] = (
    (r"memory|\bram\b|arbeitsspeicher", _memory),
    (r"\bdis[ck]s?\b|storage|\bspace\b|\bdrives?\b|festplatte|speicherplatz", _disk),
    (r"\bcpu\b|processor|\bload\b|\bbusy\b|prozessor|auslastung", _cpu),
    (r"batter|charge|akku", _battery),
    (r"uptime|how long.*(?:up|on|running)|since when|\bboot|läuft", _uptime),
)
