"""Is it coherent, and is it right: JevBench against `semif serve`, and accuracy beside it.

    .venv/bin/python -m benchmarks.jevbench [--quick] [--model GGUF] [--revision FOLDER]

Prints one JSON object. JevBench asks whether answers agree with one another; a model that ignores
what it reads scores high, so no score of it stands alone. Its cases come without the right answers
(the accuracies it publishes are counted on labels that are not in the package), so accuracy is that
of the golden set's general rows, asked of the same server in the same form; `chance` is guessing.

A whole suite takes 1,248 requests: requests are cached by revision, and a run that was broken off
goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jevbench

from benchmarks.machine import machine
from semif.export import LabelledRow
from semif.rows import golden
from semif.serving.client import RemoteDecider
from semif.serving.systemone import TYPES

START_SECONDS = 120.0


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[str]:
    """A server of our own on a free port; its url, up to and with /v1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    command = [sys.executable, "-m", "semif", "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                httpx2.get(f"{url}/health", trust_env=False).raise_for_status()
                break
            except httpx2.TransportError:
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the server did not start") from None
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def coherence(url: str, revision: str, args: argparse.Namespace) -> dict[str, Any]:
    """The scores of a suite, from 0 to 1, and what it took."""
    model = jevbench.systemone(f"{url}/systemone", "semif", timeout=600.0)
    model.name = f"semif:{revision}"  # in place of the address, which changes: the cache's key
    begun = time.perf_counter()
    report = jevbench.evaluate(
        model, args.suite, cache=str(args.cache), name=f"semif {revision}", progress=True
    )
    seconds = time.perf_counter() - begun
    if args.out:
        report.save(args.out)
    result = report.result
    return {
        "jevbench": jevbench.__version__,
        "suite": result["suite"],
        "overall": _rounded(report.overall),
        "interval": [_rounded(end) for end in report.interval] if report.interval else None,
        "dimensions": {name: _rounded(value) for name, value in report.dimensions.items()},
        "groups": {name: _rounded(value) for name, value in report.groups.items()},
        "relations": {name: _rounded(value) for name, value in report.relations.items()},
        "errors": len(report.errors),
        "seconds": round(seconds, 1),
    }


def accuracy(url: str, rows: Sequence[LabelledRow]) -> dict[str, Any]:
    """How often the likeliest answer to a row is the right one, by type of question."""
    with RemoteDecider(url, timeout=600.0) as decider:
        answers = decider.decide([row.decision for row in rows])
    found: dict[str, list[tuple[bool, float, float]]] = {}
    for row, answer in zip(rows, answers, strict=True):
        p = answer.probs[row.outcome or ""]
        judged = answer.selected == row.outcome, p, 1 / len(row.decision.options)
        for name in (row.decision.phase, "all"):
            found.setdefault(name, []).append(judged)
    return {
        name: {
            "rows": len(judged),
            "accuracy": _rounded(sum(right for right, _, _ in judged) / len(judged)),
            "chance": _rounded(sum(guess for _, _, guess in judged) / len(judged)),
            "nll": _rounded(-sum(math.log(max(p, 1e-12)) for _, p, _ in judged) / len(judged)),
        }
        for name, judged in found.items()
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the suite examples, 20 golden rows")
    parser.add_argument("--suite", default="jevbench-mini")
    parser.add_argument("--url", help="a running server, up to and with /v1, in place of our own")
    parser.add_argument("--model", help="a GGUF file in place of the embedded model")
    parser.add_argument("--revision", help="a revision folder in place of the shipped one")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--cache", type=Path, default=Path(".jevbench-cache"))
    parser.add_argument("--out", type=Path, help="keep JevBench's whole report here")
    args = parser.parse_args()
    if args.quick:
        args.suite = "examples"
    rows = [row for row in golden() if row.decision.phase in TYPES]
    if args.quick:
        rows = rows[:20]
    options = {"--model": args.model, "--revision": args.revision, "--threads": args.threads}
    given = [word for name, value in options.items() if value for word in (name, value)]
    with serving(given) if not args.url else _there(args.url) as url:
        with httpx2.Client(trust_env=False) as client:
            about = client.get(f"{url}/revision").json()
        report = {
            "benchmark": "jevbench",
            "machine": machine(),
            "decider": about,
            "accuracy": accuracy(url, rows),
            "coherence": coherence(url, about["revision"], args),
        }
    print(json.dumps(report, indent=1))


@contextmanager
def _there(url: str) -> Iterator[str]:
    yield url.rstrip("/")


if __name__ == "__main__":
    main()
