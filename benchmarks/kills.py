"""kill -9 at random moments of a dream or a swap, on a tiny model: what the next start finds.

    .venv/bin/python -m benchmarks.kills [--lives 50] [--seed 5]

Prints one JSON object. Each life starts, dreams, swaps and starts again, while decisions are
logged; half are killed at a moment of the clock, half at a change of a file, and half go on
where the last was killed. After each the pinned revision must load, answer and end its trial, and
every row must be there; it ends with an error where not. `lasted`: lives that were over before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine

TESTS = Path(__file__).parents[1] / "tests" / "dream"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lives", type=int, default=50)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    import dying
    import test_killed

    before, began = machine(), time.monotonic()
    dying.small()
    with tempfile.TemporaryDirectory() as folder:
        found = test_killed.kill(test_killed.Home(Path(folder)), args.lives, args.seed)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({**found, "seed": args.seed, "seconds": seconds, "machine": before}))


if __name__ == "__main__":
    main()
