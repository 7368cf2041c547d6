"""The queue's figures: push, pop and age with 10, 1,000 and 100,000 requests waiting.

    .venv/bin/python -m benchmarks.queue [--quick]

Prints one JSON object. Each turn pushes, pops and ages as the loop does it, in one transaction with
one synced commit, whose time stands by itself; to age is to find the next one after all that wait
have gained 0.01. ``ratio`` compares a pop with a baseline measured in the same run: the next one
found by sorting all that wait. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from benchmarks.machine import machine, summary
from sia.queue import Queue, ordered
from sia.store import Run, Store

RATE = 0.1
START = datetime(2026, 11, 30, tzinfo=UTC)
A_TURN = 10  # pushes, and as many pops, between two commits


def timed(call: Callable[[], object]) -> float:
    """Microseconds."""
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1e6


def request(n: int, now: datetime, chance: random.Random) -> Run:
    return Run(f"r{n}", "typed", "remind me to feed the cat", chance.random(), now, now)


def fill(store: Store, waiting: int, chance: random.Random) -> None:
    """Arrivals of the eight hours before START, so that some are at 1.0 already."""
    with store.transaction():
        for n in range(waiting):
            arrived = START - timedelta(hours=8 * chance.random())
            store.save_run(request(n, arrived, chance))


def measured(waiting: int, turns: int) -> dict[str, object]:
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "state.db")
        fill(store, waiting, chance)
        sorting = [
            timed(lambda: ordered(store.runs("waiting"), RATE, START)[0]) / 1000
            for _ in range(5 if waiting < 100_000 else 2)
        ]
        begun = time.perf_counter()
        queue = Queue(store, RATE, START)
        built = time.perf_counter() - begun
        times: dict[str, list[float]] = {"push": [], "pop": [], "age": [], "commit": []}
        now, number = START, waiting
        for _ in range(turns):
            with store.transaction():
                for _ in range(A_TURN):
                    number += 1
                    run = request(number, now, chance)
                    times["push"].append(timed(lambda run=run: store.save_run(run)))
                    now += timedelta(hours=0.01 / RATE)
                    times["age"].append(timed(lambda now=now: queue.head(now)))
                    times["pop"].append(timed(lambda now=now: pop(store, queue, now)))
                begun = time.perf_counter()
            times["commit"].append((time.perf_counter() - begun) * 1e6)
        store.close()
    result: dict[str, object] = {"waiting": waiting}
    result |= {f"{name}_us": summary(values, 1) for name, values in times.items()}
    result["built_at_start_s"] = round(built, 3)
    result["baseline_sort_ms"] = summary(sorting, 3)
    result["ratio"] = round(summary(times["pop"])["median"] / 1000 / summary(sorting)["median"], 6)
    return result


def pop(store: Store, queue: Queue, now: datetime) -> None:
    head = queue.head(now)
    assert head is not None
    store.save_run(replace(head, status="done"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few turns")
    turns = 10 if parser.parse_args().quick else 100
    before = psutil.Process().memory_info().rss
    rows = [measured(waiting, turns) for waiting in (10, 1_000, 100_000)]
    growth = {
        name: round(rows[-1][f"{name}_us"]["median"] / rows[0][f"{name}_us"]["median"], 2)
        for name in ("push", "pop", "age")
    }
    report = {
        "benchmark": "queue",
        "machine": machine(),
        "requests_a_commit": 2 * A_TURN,
        "waiting": rows,
        "growth_10_to_100000": growth,
        "memory_grown_mb": round((psutil.Process().memory_info().rss - before) / 1e6, 1),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
