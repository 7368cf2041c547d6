"""What commands show: data on stdout, lines for the person and a progress bar on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from semif.errors import INSTALL, ModelError

EXIT_USAGE = 2
Advance = Callable[[int], object]


def say(message: object) -> None:
    """One line for the person, on stderr."""
    print(f"semif: {message}", file=sys.stderr)


def put(row: Mapping[str, Any]) -> None:
    """One JSON object, on stdout, at once."""
    # Of a lone surrogate, as in the name of a file that is no UTF-8, this writes the JSON escape.
    line = json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def needs_dream() -> Iterator[None]:
    """What is imported inside comes with the extra dream: ModelError 69 when it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModelError.missing(f"{error.name} is missing; {INSTALL}") from error


def reporter(bad: list[Any]) -> Callable[[Any], None]:
    """Tells the person of a problem, and keeps it in `bad`."""

    def report(problem: Any) -> None:
        say(problem)
        bad.append(problem)

    return report


@contextmanager
def progress(total: int, what: str) -> Iterator[Advance]:
    """A bar on stderr where that is a terminal; what it gives is called with how many more."""
    from tqdm import tqdm

    with tqdm(total=total, desc=what, disable=None, leave=False, file=sys.stderr) as bar:
        yield bar.update


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need be: the first to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
