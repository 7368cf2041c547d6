"""What driving needs: the socket of a vehicle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sia import vehicle
from sia.setup import Answers, Field, NotWorking

FIELDS = (Field("socket", "Unix socket of the vehicle"),)


def test(answers: Answers, home: Path) -> Iterator[str]:
    try:
        status = vehicle.tell(str(home / Path(answers["socket"]).expanduser()), "status")
    except vehicle.VehicleError as error:
        raise NotWorking(str(error)) from None
    yield f"vehicle: {status.state}, {status.speed:.0f} km/h"
