"""Arguments that several commands take, in one form."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

MAX_THREADS = 8


def count(text: str) -> int:
    """A number of at least 1, for argparse."""
    return number(text, 1)


def number(text: str, least: int) -> int:
    """A number of at least `least`; argparse's error where it is none."""
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def above_zero(text: str) -> float:
    """A number above zero, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def add_model(parser: Any) -> None:
    """--model; `parser` may be a group of one, as for all of these."""
    parser.add_argument("--model", metavar="PATH", help="GGUF model (default: the embedded one)")


def add_revision(parser: Any, name: str = "--revision") -> None:
    parser.add_argument(
        name,
        metavar="DIR",
        type=Path,
        help="revision folder (default: the shipped one if made for this model, else none)",
    )


def add_readout(parser: Any, about: str = "another readout than the revision's") -> None:
    parser.add_argument("--readout", choices=("branches", "letters"), help=about)


def add_threads(parser: Any) -> None:
    parser.add_argument(
        "--threads",
        type=count,
        default=min(MAX_THREADS, os.cpu_count() or 1),
        metavar="N",
        help=f"default: one for each processor, up to {MAX_THREADS}",
    )
