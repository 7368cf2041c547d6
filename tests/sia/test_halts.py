"""A run that is ended from outside ends what it has set going: a drive, and any skill's halt."""

import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sia import queue as queues
from sia.events import Asked, Ended, Notice, Said, TurnEnded
from sia.store import Store

ROOT = Path(__file__).parents[2]
LOOP = """
import pathlib, time

HOME = pathlib.Path({home!r})

def begin(ctx):
    ctx.state["who"] = "me"
    {effect}

def go_on(ctx):
    while not (HOME / "gate").exists():
        time.sleep(0.02)

def halt(ctx):
    with open(HOME / "halts", "a") as file:
        file.write(ctx.state.get("who", "nobody") + "\\n")
    {more}
"""
EFFECT = 'ctx.effect("set off", lambda key: None)'
STOP = 'def act(ctx):\n    ctx.say(f"stopped {ctx.cancel_interrupted()}")\n'


def module():
    spec = importlib.util.spec_from_file_location("vehicle_double", ROOT / "tests" / "vehicle.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def car(home):
    """A vehicle that the home may drive, by the shipped skills."""
    path = home / "car"
    server = module().Server(str(path), 1e6)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    (home / "skills").mkdir()
    for name in ("driving", "system"):
        (home / "skills" / name).symlink_to(ROOT / "skills" / name)
    with (home / "sia.toml").open("a") as file:
        file.write(f'[driving]\nsocket = "{path}"\n')
    yield server.vehicle
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def decide(rigs):
    """Requests for a drive, for a stop of all, and "now …" for the brake."""

    def decide(decision):
        text = decision.state.get("input", "")
        ids = [option.id for option in decision.options]
        match decision.phase:
            case "interrupt":
                return "interrupt" if text.startswith(("now", "stop")) else "defer"
            case "navigate_category":
                return "system" if text.startswith("stop") else "driving"
            case "navigate_skill" if "drive" in ids:
                return "drive"
            case "navigate_skill" if "decelerate" in ids:  # which brake is meant
                return "decelerate" if text.startswith("now") else "create_skill"
            case "navigate_skill":
                return "stop"
        return rigs.policy(decision)

    return decide


def under_way(rig, car):
    run = rig.say("drive me to the sea")
    rig.wait(Said, text="Driving to the sea.")
    rig.until(lambda: "wait" in car.heard)
    return run


def test_a_stop_that_ends_the_drive_halts_the_vehicle(make, car, decide) -> None:
    rig = make(decide=decide).start()
    run = under_way(rig, car)
    rig.say("stop what you are doing")
    said = rig.wait(Said, text="Stopped: drive me to the sea.")
    assert car.state == "halted" and car.heard.count("halt") == 1
    assert rig.wait(Ended, run=run).status == "cancelled"
    assert rig.time_of(said) and rig.end() == 0
    assert queues.halting(Store.look(rig.home.database)) == []


def test_a_drive_that_is_dropped_halts_the_vehicle(make, car, decide) -> None:
    rig = make(decide=decide).start()
    run = under_way(rig, car)
    rig.stop()  # it is cut off, and the vehicle drives on
    assert car.state == "driving"
    command = [sys.executable, "-m", "sia", "--home", str(rig.home.folder), "queue", "drop", run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert car.state == "halted" and car.heard.count("halt") == 1


def test_what_brakes_it_halts_it_once_and_it_may_drive_on(make, car, decide) -> None:
    rig = make(decide=decide).start()
    run = under_way(rig, car)
    rig.say("now brake!")
    rig.wait(Said, text="We have stopped.")
    question = "The vehicle was stopped. Drive on to the sea?"
    assert rig.wait(Asked, run=run).text == question
    rig.say("yes")
    rig.until(lambda: car.state == "driving")
    rig.until(lambda: car.heard.count("wait") == 2)
    car.left = 0
    rig.wait(Said, text="We have arrived: the sea.")
    assert rig.end() == 0
    assert car.heard.count("halt") == 1 and rig.asked == [question]


def begun(make, skill, home, effect: str = EFFECT, more: str = ""):
    code = LOOP.format(home=str(home), effect=effect, more=more)
    skill("loop", code, actions="begin go_on", more="sia-budget: seconds=30")
    skill("stop", STOP)
    rig = make().start()
    run = rig.say("loop")
    rig.wait(TurnEnded, n=2)
    return rig, run


def test_only_what_has_touched_the_world_is_halted(make, skill, home) -> None:
    rig, run = begun(make, skill, home, effect="pass")
    rig.say("now stop")
    rig.wait(Ended, run=run, status="cancelled")
    assert rig.end() == 0
    assert not (home / "halts").exists()


def test_what_cannot_be_halted_is_told(make, skill, home) -> None:
    rig, run = begun(make, skill, home, more='raise RuntimeError("no line")')
    rig.say("now stop")
    rig.wait(Ended, run=run, status="cancelled")
    (told,) = [e.text for e in rig.events if isinstance(e, Notice) and e.level == "error"]
    assert told.startswith("demo/loop may go on, for it could not be halted: RuntimeError: no line")
    assert rig.end() == 0


def test_a_halt_may_only_look(make, skill, home) -> None:
    rig, run = begun(make, skill, home, more='ctx.say("halted")')
    rig.say("now stop")
    rig.wait(Ended, run=run, status="cancelled")
    assert rig.end() == 0
    notices = [event.text for event in rig.events if isinstance(event, Notice)]
    assert any("halt may only look: ctx.say" in text for text in notices), notices


def test_killed_between_the_cancel_and_the_halt_it_is_halted_at_the_start(
    make, skill, home
) -> None:
    rig, run = begun(make, skill, home)
    rig.stop()
    store = Store(rig.home.database)
    queues.drop(store, run)  # and then nothing more
    assert queues.halting(store) == [run]
    store.close()
    again = make()
    assert again.all() == 0
    assert (home / "halts").read_text() == "me\n"
    assert queues.halting(Store.look(again.home.database)) == []


def test_over_its_budget_it_is_halted_too(make, skill, home) -> None:
    code = LOOP.format(home=str(home), effect=EFFECT, more="")
    skill("loop", code, actions="begin go_on", more="sia-budget: seconds=2")
    rig = make()
    assert rig.all("loop") == 1
    assert (home / "halts").read_text() == "me\n"
