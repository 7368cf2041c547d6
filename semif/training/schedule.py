"""What every run of training has: the course of its rate, and checkpoints to go on from."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from semif.errors import FileError
from semif.jsonl import write_whole


def rate_factor(step: int, total: int, *, spent: float = 0.0, least: float = 0.0) -> float:
    """The rate of a step as a share of the peak, 0..1.

    Cosine from the peak to `least` after a warm-up over 5 % of the steps. `spent`: share of the
    time that has passed, where that is further along than the steps.
    """
    warm = max(1, round(0.05 * total))
    if step < warm:
        return (step + 1) / warm
    done = max((step - warm) / max(1, total - warm), spent)
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * done))


def save_checkpoint(path: Path, whole: Mapping[str, Any]) -> None:
    """Write tensors and plain values, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(dict(whole), buffer)
    write_whole(path, buffer.getvalue())


def load_checkpoint(path: Path, of: str) -> dict[str, Any]:
    """What was saved, on the CPU; FileError without one of a run with what `of` says."""
    try:
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        message = f"no checkpoint of a run with {of}; start without resume"
        raise FileError(path, message) from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise FileError(path, f"is damaged: {error}; delete it") from error
    return found
