"""System figures: read, never invented; what this machine lacks is None."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from sia.entries import Figures

_GPU_BUSY = "class/drm/card*/device/gpu_busy_percent"


def battery() -> Any:
    """As psutil gives it; None where the machine has none, or cannot tell."""
    return psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None


def on_mains() -> bool:
    """Whether the machine has all the power it wants; one without a battery has."""
    found = battery()
    return found is None or found.power_plugged is not False


class Machine:
    """Reads the figures of one machine. ``disk``: the folder whose file system counts."""

    def __init__(self, disk: Path, sys: Path = Path("/sys")) -> None:
        self._disk = disk
        self._gpu = next(iter(sys.glob(_GPU_BUSY)), None)
        psutil.cpu_percent(None)  # the first reading only starts the interval

    def figures(self, now: datetime, context: int | None, stdin: int) -> Figures:
        """cpu since the last call; memory in use as the total less what is available."""
        memory = psutil.virtual_memory()
        disk = psutil.disk_usage(str(self._disk))
        return Figures(
            time=now,
            cpu=round(psutil.cpu_percent(None)),
            gpu=self._gpu_percent(),
            memory_used=memory.total - memory.available,
            memory_total=memory.total,
            disk_used=disk.used,
            disk_total=disk.total,
            context=context,
            stdin=stdin,
        )

    def _gpu_percent(self) -> int | None:
        if self._gpu is None:
            return None
        try:
            return int(self._gpu.read_text())
        except (OSError, ValueError):
            return None
