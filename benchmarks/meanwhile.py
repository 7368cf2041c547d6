"""How long a typed request takes while the agent dreams, against the same agent at rest.

    .venv/bin/python -m benchmarks.meanwhile [--requests N] [--rows N]

The dream is a real one, on the embedded model: rows of the shipped texts stand in a log of the home
as decisions that a person labelled. Prints one JSON object; ``ratio`` is of the medians, goal at
most 2. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.loop import timed
from benchmarks.machine import machine, summary
from semif.log import Label, append_labels
from semif.rows import build, sample, shipped_data
from sia.dream import status
from sia.events import Admitted, Ended
from sia.home import open_home
from sia.wire import Connection

REQUESTS = (
    "how much memory is free",
    "what is 12% of 340",
    "5 miles in km",
    "how full is the disk",
    "what can you do",
)
GAP = 3.0  # seconds between two requests: the dream goes on meanwhile


def labelled(folder: Path, count: int) -> None:
    """A log as it would be: decisions with the model's probabilities, and a person's labels."""
    rows = sample(build(shipped_data(), 1), count, 1)
    lines, labels = [], []
    for row in rows:
        ids = [option.id for option in row.decision.options]
        probs = {id_: 1 / len(ids) for id_ in ids}
        whole = {**row.decision.to_json(), "predicted_probs": probs, "run": "r1"}
        lines.append(json.dumps({**whole, "time": "2026-11-30T10:00:00.000Z"}))
        labels.append(Label.new(row.decision.id, "r1", "is", row.outcome, "human", by="benchmark"))
    (folder / ".sia/decisions.jsonl").write_text("\n".join(lines) + "\n")
    append_labels(folder / ".sia/labels.jsonl", labels)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "sia", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        yield process
        process.terminate()


def ask(folder: Path, text: str) -> float:
    """Milliseconds from sending a request to its end."""

    def work() -> None:
        connection = Connection(folder / ".sia" / "socket")
        connection.send(input=text)
        for event in connection.events():
            if isinstance(event, Ended) or (
                isinstance(event, Admitted) and event.action == "ignore"
            ):
                break
        connection.close()

    return timed(work)


def asked(folder: Path, count: int) -> list[float]:
    times = []
    for number in range(count):
        time.sleep(GAP)
        times.append(ask(folder, REQUESTS[number % len(REQUESTS)]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=15)
    parser.add_argument("--rows", type=int, default=240)
    options = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = open_home(folder)
        labelled(folder, options.rows)
        with started("--home", name, "run", "--listen"):
            while not home.socket.exists():
                time.sleep(0.05)
            ask(folder, REQUESTS[0])  # loads what is loaded late
            rest = asked(folder, options.requests)
            with started("--home", name, "dream", "--now"):
                while not (now := status.running(home.dreams)) or not (now.total and now.done):
                    time.sleep(0.2)
                begun = now
                meanwhile = asked(folder, options.requests)
                after = status.running(home.dreams)
    report = {
        "benchmark": "meanwhile",
        "machine": before,
        "at_rest_ms": summary(rest, 1),
        "while_dreaming_ms": summary(meanwhile, 1),
        "ratio": round(summary(meanwhile)["median"] / summary(rest)["median"], 2),
        "dream": {"from": begun.words(), "to": after.words() if after else "over"},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
