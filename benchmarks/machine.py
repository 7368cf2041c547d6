"""What every benchmark's JSON says about where it ran."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import psutil


def machine() -> dict[str, object]:
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": round(os.getloadavg()[0], 2),
        "system": platform.release(),
        "python": platform.python_version(),
        "llama_cpp_python": version("llama-cpp-python"),
    }


def summary(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
    }
