"""The figures of writing: the golden set by the shipped adapter, the untuned base, a larger model.

    .venv/bin/python -m benchmarks.writing [--rows N] [--revision DIR] [--against URL --model NAME]

Prints one JSON object: what `semif write eval` prints, where it ran, and what a text costs: its
time, and the memory that the writer's context takes while it writes. Needs the extra dream.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import machine, summary
from semif.engine import load
from semif.llama import Model
from semif.revision import Revision
from semif.writing import pairs
from semif.writing.report import Settings, report
from semif.writing.writer import Writer

TRIES = 5


def costs(model: Model, revision: Revision, rows: list[pairs.Pair]) -> dict[str, Any]:
    """Of a text with a context made for it, as the agent writes: milliseconds, tokens, bytes."""
    adapter = model.adapter(revision.write_path) if revision.write_path else None
    process = psutil.Process()
    writer = Writer(model, adapter)
    total, made, tokens, grown = [], [], [], []
    for pair in rows[:TRIES]:
        before, begun = process.memory_info().rss, time.perf_counter()
        writer.open()
        written = writer.write(pair.task, pair.given)
        grown.append(process.memory_info().rss - before)
        writer.close()
        total.append((time.perf_counter() - begun) * 1000)
        made.append(total[-1] - written.ms)
        tokens.append(written.tokens)
    return {
        "text_ms": summary(total, 0),
        "tokens": summary(tokens, 0),
        "beside_writing_ms": summary(made, 1),
        "resident_bytes_more": max(grown),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, help="only so many of the golden set")
    parser.add_argument("--revision", type=Path, metavar="DIR")
    parser.add_argument("--against", metavar="URL")
    parser.add_argument("--model", metavar="NAME", default="")
    args = parser.parse_args()
    rows = pairs.read(pairs.golden())
    rows = pairs.spread(rows, args.rows) if args.rows else rows
    where = machine()
    model, revision = load(revision_folder=args.revision)
    settings = Settings(revision.write_path, against=args.against, against_model=args.model)
    found = report(
        model,
        revision.contents.base.sha256,
        rows,
        settings,
        lambda line: print(line, file=sys.stderr),
    )
    costed = costs(model, revision, [pair for pair in rows if pair.task == "message"])
    whole = {"machine": where, "revision": revision.id, "costs": costed, "writing": found}
    print(json.dumps(whole, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
