"""``sia history`` over many files: the index made, brought up to date and searched.

    .venv/bin/python -m benchmarks.history [--files 200000] [--quick]

Prints one JSON object, times in milliseconds. ``made`` is the first list, which reads all files;
``listed`` and the searches bring the index up to date first, as the command does, and ``added``
reads one new file. ``reading`` is the same list made by reading the files, measured on a sample of
them and taken times their number; ``ratio`` is that divided by ``searched``.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.machine import machine, summary
from sia import history, record
from sia.context import to_xml
from sia.entries import Figures, InputEntry, Iteration, ProcessView, Response, Text
from sia.history import Wanted
from sia.home import Home, open_home

START = datetime(2026, 11, 30, tzinfo=UTC)
A_SESSION = 1_000  # iterations
WORDS = "remind me to feed the cat how much memory is free find tax letter of march".split()


def write(home: Home, number: int, chance: random.Random) -> None:
    session, n, run = f"s{number // A_SESSION:06d}", number % A_SESSION + 1, f"r{number}"
    text = " ".join(chance.choices(WORDS, k=8)) + f" case{chance.randrange(1000)}"
    iteration = Iteration(
        session, n, Figures(START + timedelta(minutes=number)), run=run,
        entries=(InputEntry("e1", "typed", run, Text(text)),),
        process=ProcessView("files/find", 1, run, text),
        response=Response("<write_stdout>It is done.</write_stdout>", "skill"),
    )  # fmt: skip
    path = record.path_of(home.contexts, session, n)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(to_xml(iteration))  # not synced: how files come to be is not measured


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


def measured(files: int, repeats: int) -> dict[str, object]:
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        home = open_home(Path(folder))
        for number in range(files):
            write(home, number, chance)
        made = timed(lambda: history.find(home, Wanted()))
        added = []
        for number in range(files, files + repeats):
            write(home, number, chance)
            added.append(timed(lambda: history.find(home, Wanted())))
        times = {
            name: [timed(partial(history.find, home, wanted)) for _ in range(repeats)]
            for name, wanted in (
                ("listed", Wanted()),
                ("searched", Wanted(text="case7 cat")),
                ("searched_common", Wanted(text="cat")),
            )
        }
        sample = sorted(home.contexts.glob("*/*.xml"))[: min(files, 2000)]
        reading = timed(lambda: [history.row(path) for path in sample]) / len(sample) * files
        searched = sorted(times["searched"])[repeats // 2]
        return {
            "files": files,
            "made_ms": round(made, 1),
            "added_ms": summary(added),
            **{f"{name}_ms": summary(values) for name, values in times.items()},
            "reading_ms": round(reading, 1),
            "ratio": round(reading / searched, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true", help="2,000 files, 3 repeats")
    options = parser.parse_args()
    result = measured(2_000, 3) if options.quick else measured(options.files, 15)
    print(json.dumps({"benchmark": "history", "machine": machine(), **result}))


if __name__ == "__main__":
    main()
