"""What concerns cost an idle agent: the tick that finds nothing to do, with 10 to 10,000 of them.

    .venv/bin/python -m benchmarks.concerns [--quick]

Prints one JSON object. An idle tick is what the alarm does each time it is set: the moment of the
next candidate, and whether it has come. ``model_calls`` counts decisions in all ticks of a size;
``baseline_all_us`` reads every concern and computes its activation, as an agent must that polls.
A look is what follows when two are due; its decisions are scripted, so it is the agent's own part.
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.machine import machine, summary
from semif.testing import ScriptedDecider
from sia.concerns import dynamics
from sia.concerns.keeper import Keeper
from sia.concerns.table import Concerns
from sia.concerns.testing import HOUR, START, Clock, concern
from sia.concerns.triage import Facts
from sia.concerns.values import RHYTHMS
from sia.config import ConcernsConfig
from sia.questions import Questions
from sia.store import Store
from sia.turn import Turn

LIMIT_MS = 5.0  # of an idle tick with 1,000 concerns


def keeper(concerns: Concerns, clock: Clock, decider: ScriptedDecider) -> Keeper:
    return Keeper(
        concerns=concerns,
        config=ConcernsConfig(quiet="", messages=1_000_000),
        autonomy=True,
        decider=decider,
        thresholds={},
        questions=Questions.load(),
        new_id=lambda: "d1",
        facts=Facts(concerns.store, lambda: [], lambda: None, lambda: True),
        tree=lambda: None,
        clock=clock,
        submit=lambda text, within: "r1",
        note=lambda text: None,
        say=lambda id, text: None,
        stays=lambda: True,
        wake=lambda: None,
    )


def fill(concerns: Concerns, number: int) -> None:
    """Of every rhythm, and none due for a while."""
    with concerns.store.transaction():
        for index in range(number):
            rhythm, value = RHYTHMS[index % len(RHYTHMS)], index % 600_000
            concerns.add(concern(text=f"matter {index}", rhythm=rhythm, value=value))


def timed(call: Callable[[], object], times: int) -> list[float]:
    """Microseconds of each call."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        found.append((time.perf_counter() - begun) * 1e6)
    return found


def polled(concerns: Concerns, clock: Clock) -> list[int]:
    return [dynamics.activation(item, clock.now) for item in concerns.all()]


def measured(number: int, times: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        store, clock = Store(Path(folder) / "state.db"), Clock()
        concerns = Concerns(store, Path(folder) / "autonomy.jsonl", clock=clock)
        decider = ScriptedDecider(lambda decision: "defer")
        fill(concerns, number)
        watching = keeper(concerns, clock, decider)

        def tick() -> None:
            watching.ring()
            watching.when()

        idle = timed(tick, times)
        calls = len(decider.calls)
        baseline = timed(lambda: polled(concerns, clock), max(3, times // 20))
        clock.now = START + 2 * HOUR
        look = timed(lambda: looked(watching, clock), max(3, times // 20))
        store.close()
    return {
        "concerns": number,
        "idle_tick_us": summary(idle, 1),
        "model_calls": calls,
        "baseline_all_us": summary(baseline, 1),
        "look_ms": summary([value / 1000 for value in look], 2),
    }


def looked(watching: Keeper, clock: Clock) -> None:
    clock.now += timedelta(hours=3)
    watching.ring()
    watching.look(Turn())
    watching.follow()


def within(rows: Sequence[dict]) -> bool:
    """Whether an idle tick with 1,000 concerns takes less than the limit and asks no model."""
    (row,) = (row for row in rows if row["concerns"] == 1_000)
    return row["idle_tick_us"]["median"] < LIMIT_MS * 1000 and row["model_calls"] == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few ticks, and no 10,000 concerns")
    quick = parser.parse_args().quick
    sizes = (10, 1_000) if quick else (10, 1_000, 10_000)
    before = machine()
    rows = [measured(number, 100 if quick else 1_000) for number in sizes]
    report = {"benchmark": "concerns", "machine": before, "limit_ms": LIMIT_MS, "sizes": rows}
    print(json.dumps(report | {"within_limit": within(rows)}, indent=1))


if __name__ == "__main__":
    main()
