"""The loop's figures: start-up, a turn without a model call, tokens evaluated, idle, memory.

    .venv/bin/python -m benchmarks.loop [--quick]

Prints one JSON object. ``ratio`` compares with a baseline measured in the same run. Run it on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pexpect
import psutil

from benchmarks.machine import machine, summary
from semif.log import DecisionLog
from sia.budget import Budget
from sia.context import to_xml
from sia.entries import Figures, InputEntry, Iteration, Reasoning, Text, WriteStdout
from sia.events import Admitted, Ended
from sia.generator.types import Part
from sia.home import open_home
from sia.loop import Loop
from sia.machine import Machine
from sia.prompt import prompt
from sia.queue import Queue
from sia.recorder import Recorder
from sia.session import Session
from sia.steps import Steps
from sia.store import Store
from sia.wire import Connection

SENTENCES = (
    "The person asked for the three newest invoices and where they lie.",
    "Found 14 files; the newest is invoice-2026-11.pdf, changed two days ago.",
    "Next: compare the totals with the note of last month, then answer.",
)


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


# ---- start-up


def start_up(runs: int) -> dict[str, object]:
    """From the command to the prompt, and to the loaded model, at a second start."""
    prompts, loaded, bare = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(runs + 1):
            begun = time.perf_counter()
            child = pexpect.spawn(
                sys.executable, ["-m", "sia", "--home", folder],
                timeout=60, dimensions=(30, 100), encoding="utf-8",
            )
            child.expect("›")
            prompt_ms = (time.perf_counter() - begun) * 1000
            child.expect("idle")
            loaded_ms = (time.perf_counter() - begun) * 1000
            child.sendline("/quit")
            child.expect(pexpect.EOF)
            if index:  # the first start makes the home and may convert the model
                prompts.append(prompt_ms)
                loaded.append(loaded_ms)
                bare.append(timed(lambda: subprocess.run([sys.executable, "-c", "pass"])))
    return {
        "prompt_ms": summary(prompts, 1),
        "model_loaded_ms": summary(loaded, 1),
        "baseline_python_ms": summary(bare, 1),
        "ratio": round(summary(prompts)["median"] / summary(bare)["median"], 2),
    }


# ---- a turn without a model call


class _NoScripts:
    def state(self, id: str) -> None: ...


class _NothingNew:
    def unreviewed(self, tree: object) -> bool:
        return False

    def due(self) -> bool:
        return False

    def follow(self) -> None:
        pass

    def look(self, turn: object) -> None:
        pass


def _filled(session: Session, count: int) -> None:
    for index in range(count):
        text = Text(f"{index}: {SENTENCES[index % 3]}")
        match index % 3:
            case 0:
                session.add(lambda id, text=text: InputEntry(id, "typed", "r1", text))
            case 1:
                session.add(lambda id, text=text: Reasoning(id, text))
            case _:
                session.add(lambda id, text=text: WriteStdout(id, "r1", text))


def _loop(folder: Path, entries: int) -> tuple[Loop, Session, Store]:
    home = open_home(folder)
    store = Store(home.database)
    session = Session("20261130T000000Z-bench")
    _filled(session, entries)
    budget = Budget(count=len, total=10**9, fixed=0)
    steps = Steps(
        home=home, store=store, session=session, scripts=_NoScripts(), machine=Machine(folder),
        navigator=None, runs=None, generator=None, budget=budget, uncovered=_NothingNew(),
        concerns=_NothingNew(),
        declined=None, halts=None, tree=lambda: None, revision=lambda: "bench",
        since=datetime.now(UTC),
    )
    recorder = Recorder(home, store, session, DecisionLog(home.decisions))
    loop = Loop(
        store, session, steps, recorder, lambda event: None, lambda: datetime.now(UTC),
        Queue(store, 0.1, datetime.now(UTC)),
    )
    return loop, session, store


def turn_cost(entries: int, runs: int) -> dict[str, object]:
    """A whole iteration with one new entry a turn: in memory, and on disk with its syncs."""
    result: dict[str, object] = {"entries": entries}
    medians = {}
    places = {"memory": "/dev/shm", "disk": None}
    for name, place in places.items():
        with tempfile.TemporaryDirectory(dir=place) as folder:
            loop, session, store = _loop(Path(folder), entries)
            loop.iterate()
            times = []
            for index in range(runs):
                text = Text(SENTENCES[index % 3])
                session.add(lambda id, text=text: Reasoning(id, text))
                times.append(timed(loop.iterate))
            medians[name] = summary(times)["median"]
            result[f"{name}_ms"] = summary(times)
            store.close()
    iteration = Iteration("s", 1, Figures(datetime.now(UTC)), session.entries)
    serialise = summary([timed(lambda: to_xml(iteration)) for _ in range(runs)])
    result["syncs_ms"] = round(medians["disk"] - medians["memory"], 3)
    result["baseline_serialise_ms"] = serialise
    result["ratio"] = round(medians["memory"] / serialise["median"], 2)
    return result


# ---- tokens evaluated


def tokens(turns: int) -> dict[str, object]:
    """What a turn evaluates of its prompt when one entry is added; the baseline puts the clock
    at the head of the prompt, as case 12 found it."""
    import semif
    from sia.generator.local import LocalGenerator

    weights, _ = semif.load()
    session = Session("bench")
    _filled(session, 60)
    shares = {}
    rows = []
    for name in ("ours", "clock_first"):
        generator = LocalGenerator(weights, n_ctx=8192, threads=os.cpu_count() or 1, max_tokens=32)
        seen = []
        for turn in range(turns + 1):
            session.add(lambda id, turn=turn: Reasoning(id, Text(SENTENCES[turn % 3])))
            now = datetime.fromtimestamp(1_780_000_000 + 60 * turn, UTC)
            iteration = Iteration("bench", turn, Figures(now, cpu=turn % 100), session.entries)
            parts = list(prompt(iteration).parts)
            if name == "clock_first":
                parts[0] = Part("system", f"{now.isoformat()}\n{parts[0].text}")
            reply = generator.write(parts, max_tokens=1, cancel=threading.Event())
            if turn:
                seen.append(reply)
        shares[name] = summary([r.evaluated / r.prompt_tokens for r in seen], 4)
        rows.append({
            "prompt": name,
            "prompt_tokens": summary([r.prompt_tokens for r in seen], 0),
            "evaluated": summary([r.evaluated for r in seen], 0),
            "ms": summary([r.ms for r in seen], 1),
        })
        generator.close()
    return {
        "turns": rows,
        "reused": round(1 - shares["ours"]["median"], 4),
        "ratio": round(shares["ours"]["median"] / shares["clock_first"]["median"], 4),
    }


# ---- idle and memory


def _serving(folder: str, stack: ExitStack) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sia", "--home", folder, "run", "--listen"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def _ask(folder: str, text: str) -> float:
    def ask() -> None:
        connection = Connection(Path(folder) / ".sia" / "socket")
        connection.send(input=text)
        for event in connection.events():
            if isinstance(event, Ended):
                break
            if isinstance(event, Admitted) and event.action == "ignore":
                break
        connection.close()

    return timed(ask)


def idle(seconds: float) -> dict[str, object]:
    """CPU of a loaded agent that waits, children included, and what it takes at its peak."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        process = _serving(folder, stack)
        socket = Path(folder) / ".sia" / "socket"
        while not socket.exists():
            time.sleep(0.05)
        first = _ask(folder, "how much memory is free")
        warm = [_ask(folder, "how much memory is free") for _ in range(5)]
        ignored = [_ask(folder, "thanks, that was great") for _ in range(5)]
        time.sleep(2)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        before = sum(sum(p.cpu_times()[:2]) for p in family)
        time.sleep(seconds)
        used = sum(sum(p.cpu_times()[:2]) for p in family) - before
        peak = Path(f"/proc/{process.pid}/status").read_text("ascii").split("VmHWM:")[1].split()[0]
        resident = sum(p.memory_info().rss for p in family[1:])
    return {
        "idle_percent_of_a_core": round(100 * used / seconds, 3),
        "seconds": seconds,
        "peak_memory_mb": round(int(peak) / 1024, 1),
        "workers_memory_mb": round(resident / 1e6, 1),
        "first_request_ms": round(first, 1),
        "request_ms": summary(warm, 1),
        "ignored_ms": summary(ignored, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few runs, ten seconds of idling")
    quick = parser.parse_args().quick
    runs = 5 if quick else 30
    report = {
        "benchmark": "loop",
        "machine": machine(),
        "start_up": start_up(2 if quick else 7),
        "turn": [turn_cost(count, runs) for count in (10, 100, 1000)],
        "tokens": tokens(3 if quick else 12),
        "idle": idle(10 if quick else 60),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
