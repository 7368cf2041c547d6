"""driving/drive and driving/decelerate with a vehicle on a Unix socket."""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sia import vehicle
from sia.skills.manifest import parse_skill
from sia.skills.testing import FakeCtx, run_actions, run_interrupted
from sia.skills.tree import load

Start = Callable[..., FakeCtx]


def _module() -> Any:
    path = Path(__file__).parents[1] / "vehicle.py"
    spec = importlib.util.spec_from_file_location("vehicle_double", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def car(tmp_path: Path) -> Iterator[Any]:
    server = _module().Server(str(tmp_path / "car"), 0.5)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.vehicle
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"socket": str(tmp_path / "car")}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_drive(make: Start, skills: Path, car: Any, settings: dict[str, str]) -> None:
    ctx = make("drive me to the station please!", settings=settings)
    assert run_actions(skills / "driving/drive", ctx).value is True
    assert ctx.said == ["Driving to the station please.", "We have arrived: the station please."]
    assert (car.state, car.speed) == ("arrived", 0)
    ctx = make("let us go", settings=settings, answers=[""])
    assert run_actions(skills / "driving/drive", ctx).kind == "finished"


@pytest.mark.parametrize(
    ("words", "speed", "said"),
    [
        ("holy shit stop!", 0, "Braking."),
        ("there is a child on the road", 0, "Braking."),
        ("brake", 0, "Braking."),
        ("slow down!", 0, "Braking."),
        ("slow down to 30", 30, "Slowing down to 30 km/h."),
        ("not more than 20 km/h here", 20, "Slowing down to 20 km/h."),
        ("a bit slower please", 40, "Slowing down to 40 km/h."),
        ("slow down", 25, "Slowing down to 25 km/h."),
    ],
)
def test_decelerate(
    make: Start, skills: Path, car: Any, settings: dict[str, str], words: str, speed: int, said: str
) -> None:
    car.whole = 1e9
    vehicle.tell(settings["socket"], "drive away")
    wait_for(lambda: car.speed == 50)
    ctx = make(words, settings=settings)
    assert run_actions(skills / "driving/decelerate", ctx).value is True
    assert ctx.said[0] == said and car.speed == speed
    assert ctx.said[1] == (f"We go at {speed} km/h." if speed else "We have stopped.")
    assert not ctx.asked


def test_a_halt_is_asked_about_before_the_drive_goes_on(
    make: Start, skills: Path, car: Any, settings: dict[str, str]
) -> None:
    ctx = make("drive to the sea", settings=settings, answers=["yes", "yes"])
    outcomes: list[Any] = []
    run = threading.Thread(
        target=lambda: outcomes.append(run_actions(skills / "driving/drive", ctx))
    )
    car.whole = 1e9
    run.start()
    for n in (1, 2):
        wait_for(lambda: car.speed > 10)
        vehicle.tell(settings["socket"], "halt")
        wait_for(lambda n=n: len(ctx.asked) == n)
        wait_for(lambda: car.state == "driving")
    wait_for(lambda: car.state == "driving")
    car.left = 0
    run.join(20)
    assert outcomes[0].value is True
    assert ctx.asked == ["The vehicle was stopped. Drive on to the sea?"] * 2
    assert [line for line in car.heard if line.startswith("go")] == ["go 1", "go 2"]


def test_a_halt_while_it_is_asked_is_asked_about_too(
    make: Start, skills: Path, car: Any, settings: dict[str, str]
) -> None:
    def answer(question: str, options: Any) -> str:
        ctx.answered_now += 1
        if ctx.answered_now == 1:
            vehicle.tell(settings["socket"], "halt")
        return "yes" if ctx.answered_now == 1 else "no"

    ctx: Any = make("drive to the sea", settings=settings, answers=answer)
    ctx.answered_now = 0
    car.whole = 1e9
    run = threading.Thread(target=run_actions, args=(skills / "driving/drive", ctx))
    run.start()
    wait_for(lambda: car.speed > 10)
    vehicle.tell(settings["socket"], "halt")
    run.join(20)
    assert ctx.said[-1] == "All right, we stay here." and car.state == "halted"


def test_a_drive_that_is_not_to_go_on(
    make: Start, skills: Path, car: Any, settings: dict[str, str]
) -> None:
    def answer(question: str, options: Any) -> str:
        return "no"

    ctx = make("drive to the sea", settings=settings, answers=answer)
    car.whole = 1e9
    run = threading.Thread(target=run_actions, args=(skills / "driving/drive", ctx))
    run.start()
    wait_for(lambda: car.speed > 10)
    vehicle.tell(settings["socket"], "halt")
    run.join(20)
    assert ctx.said[-1] == "All right, we stay here." and car.state == "halted"


def test_interrupted_everywhere(
    make: Start, skills: Path, car: Any, settings: dict[str, str]
) -> None:
    ctx, outcome = run_interrupted(
        skills / "driving/drive", lambda: make("drive to the sea", settings=settings)
    )
    assert outcome.value is True and car.heard.count("drive the sea") == 1
    ctx, outcome = run_interrupted(
        skills / "driving/decelerate",
        lambda: make("stop!", settings=settings),
        lose=["brake"],
    )
    assert outcome.value is True and ctx.said == ["Braking.", "We have stopped."]


def test_a_vehicle_that_is_not_there_or_talks_rubbish(
    make: Start, skills: Path, settings: dict[str, str]
) -> None:
    outcome = run_actions(skills / "driving/decelerate", make("stop!", settings=settings))
    assert outcome.kind == "failed" and outcome.message.startswith("No vehicle at ")
    for said, why in (
        (b"error no fuel\n", "The vehicle says: no fuel."),
        (b"", "does not speak the protocol: ''"),
        (b"ok\n", "does not speak the protocol: 'ok'"),
        (b"x" * 9000, "does not speak the protocol"),
    ):
        Path(settings["socket"]).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(settings["socket"])
            listener.listen()

            def serve(listener: socket.socket = listener, said: bytes = said) -> None:
                with listener.accept()[0] as client:
                    client.recv(100)
                    client.sendall(said)

            thread = threading.Thread(target=serve)
            thread.start()
            outcome = run_actions(skills / "driving/decelerate", make("stop!", settings=settings))
            thread.join()
        assert outcome.kind == "failed" and why in outcome.message


def test_a_line_typed_with_breaks_is_one_command(car: Any, settings: dict[str, str]) -> None:
    vehicle.tell(settings["socket"], "drive home\nhalt")
    assert car.heard == ["drive home halt"]


def test_who_may_interrupt_whom(skills: Path) -> None:
    drive = parse_skill(skills / "driving/drive")
    brake = parse_skill(skills / "driving/decelerate")
    assert (drive.stakes, drive.interrupted_by, drive.brakes) == ("high", ("typed",), False)
    assert brake.brakes and brake.effects == "local" and brake.stakes == "low"


def test_driving_is_hidden_without_a_vehicle(skills: Path) -> None:
    tree = load([skills])
    names = [category.name for category in tree.offered(lambda key: "").categories]
    assert "driving" not in names and "email" in names
    assert tree.offered(lambda key: "x") is tree
