"""How long a stop takes from the typed line to its effect, with the embedded model.

    .venv/bin/python -m benchmarks.preempt [--runs N]

Prints one JSON object, in milliseconds: from submitting "holy shit stop!" to its admission, and to
the first words of what it leads to, while a drive runs (a vehicle on a Unix socket: also until it
was told to halt), during a command of 60 s, and during a long generation. The goal: under 2 s. Run
it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, summary
from sia.events import Admitted, Ended, Ready, Said
from sia.wire import Connection

ROOT = Path(__file__).parents[1]
STOP = "holy shit stop!"
LONG = " and that ".join(f"she should not forget the thing number {n}" for n in range(30))
WORK = {
    "drive": "drive me to the station",
    "command": "run the command `sleep 60`",
    "generation": f"send Anna an e-mail that {LONG}",
}


@contextmanager
def vehicle(path: Path) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("vehicle", ROOT / "tests" / "vehicle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Server(str(path), 1e6)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.vehicle
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def agent(home: Path) -> Iterator[Connection]:
    """One that works in the home, as one hears it who is attached."""
    command = [sys.executable, "-m", "sia", "--home", str(home), "run", "--listen", "--yes"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **quiet) as process:
        try:
            log = home / ".sia" / "log" / "sia.log"
            wait(lambda: log.exists() and f"{Ready.__name__}(" in log.read_text())
            connection = Connection(home / ".sia" / "socket")
            connection.send(attach=True)
            yield connection
            connection.close()
        finally:
            process.terminate()
            process.wait(30)


def wait(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit("what is to be stopped did not begin")
        time.sleep(0.002)


def one(kind: str) -> dict[str, float]:
    """Milliseconds of one stop."""
    with tempfile.TemporaryDirectory() as place, vehicle(Path(place) / "car") as car:
        home = Path(place) / "home"
        (home / "contacts").mkdir(parents=True)
        card = "BEGIN:VCARD\nVERSION:3.0\nFN:Anna Berg\nEMAIL:anna@example.org\nEND:VCARD\n"
        (home / "contacts" / "a.vcf").write_text(card)
        (home / "sia.toml").write_text(
            '[person]\nemail = "robin@example.org"\n[email]\nhost = "127.0.0.1"\nport = 1\n'
            f'[driving]\nsocket = "{Path(place) / "car"}"\n'
        )
        with agent(home) as connection:
            connection.send(input=WORK[kind])
            under_way = {
                "drive": lambda: "wait" in car.heard,
                "command": lambda: list((home / ".sia" / "shell").glob("r1-*")),
                "generation": lambda: "skill='email/compose'" in log_of(home),
            }
            wait(under_way[kind])
            time.sleep(1.0)  # well into it
            return stopped(connection, car if kind == "drive" else None)


def log_of(home: Path) -> str:
    return (home / ".sia" / "log" / "sia.log").read_text()


def stopped(connection: Connection, car: Any) -> dict[str, float]:
    begun, found, run = time.perf_counter(), {}, ""
    if car:
        watch = threading.Thread(
            target=lambda: (wait(lambda: "halt" in car.heard), found.update(halt_ms=since(begun)))
        )
        watch.start()
    connection.send(input=STOP)
    for event in connection.events():
        match event:
            case Admitted(run, _, text) if text == STOP:
                found["admitted_ms"] = since(begun)
            case Said(of) if of == run:
                found["said_ms"] = since(begun)
                break
            case Ended(of) if of == run:
                break
    if car:
        watch.join()
    return found


def since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="stops of each kind")
    runs = parser.parse_args().runs
    report: dict[str, Any] = {"benchmark": "preempt", "machine": machine()}
    for kind in WORK:
        found = [one(kind) for _ in range(runs)]
        names = sorted({name for item in found for name in item})
        report[kind] = {
            name: summary([item[name] for item in found if name in item], 0) for name in names
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
