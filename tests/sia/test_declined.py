"""While a process runs that declines it, what is typed is told so, kept and asked about."""

from pathlib import Path

import pytest

from sia import report
from sia.entries import InputEntry, WriteStdout
from sia.events import Admitted, Asked, Ended, Routed, Said, TurnEnded
from sia.store import Store

DRIVE = """
import pathlib, time

def begin(ctx):
    ctx.say("begun")

def go_on(ctx):
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.02)
    ctx.say("arrived")
"""
STAKES = "sia-stakes: high\nsia-meanwhile: decline"
REJECTION = Path(__file__).parents[2] / "skills" / "response" / "rejection"


@pytest.fixture
def drive(skill, home):
    """A drive that declines; open the gate and it arrives."""
    skill("drive", DRIVE.format(gate=str(home / "gate")), actions="begin go_on", more=STAKES)
    skill("echo", 'def act(ctx):\n    ctx.say(f"did {ctx.request}")\n')
    response = home / "skills" / "response"
    response.mkdir(parents=True)
    (response / "CATEGORY.md").write_text((REJECTION.parent / "CATEGORY.md").read_text())
    (response / "rejection").symlink_to(REJECTION)
    return home / "gate"


def driving(make, **more):
    rig = make(**more).start()
    run = rig.say("drive")
    rig.wait(TurnEnded, n=2)
    return rig, run


def test_it_is_told_at_once_kept_and_asked_about_afterwards(make, drive) -> None:
    rig, run = driving(make)
    other = rig.say("cold echo")
    admitted = rig.wait(Admitted, run=other)
    assert admitted.action == "decline" and admitted.urgency < 0.3
    assert rig.wait(Routed, run=other).skill == "response/rejection"
    told = rig.wait(Said, run=other)
    assert told.text.startswith("Not now: “drive” must not be disturbed. I keep “cold echo”")
    assert rig.time_of(told) - rig.time_of(admitted) < 5
    (waiting,) = report.queue(rig.agent.store, 0.1, rig.agent.now())[1:]
    assert (waiting["id"], waiting["status"]) == (other, "waiting")
    assert waiting["why"].endswith("you are asked then whether you still want it")
    assert rig.agent.store.run(run).attempt == 1  # the drive was not disturbed
    drive.touch()
    rig.wait(Ended, run=run, status="done")
    assert rig.wait(Asked, run=other).text == (
        "You asked for this while “drive” ran: cold echo. Do it now?"
    )
    rig.say("yes")
    assert rig.wait(Ended, run=other).status == "done"
    assert rig.end() == 0
    assert rig.said == ["begun", told.text, "arrived", "did cold echo"]
    entries = rig.entries()
    assert [e.text.text for e in entries if isinstance(e, InputEntry)][:2] == ["drive", "cold echo"]
    assert told.text in [e.text.text for e in entries if isinstance(e, WriteStdout)]


def test_it_is_left_at_a_no_and_where_nobody_can_be_asked(make, drive) -> None:
    for answer, status in (("no", "cancelled"), ("", "failed")):
        rig, run = driving(make)
        other = rig.say("hot echo")
        rig.wait(Said, run=other)
        if not answer:
            rig.agent.close_input()
        drive.touch()
        if answer:
            rig.wait(Asked, run=other)
            rig.say(answer)
        assert rig.wait(Ended, run=other).status == status
        assert rig.end() == (0 if answer else 1)
        assert "did hot echo" not in rig.said
        drive.unlink()


def test_a_remark_an_interruption_and_an_event_are_as_ever(make, drive) -> None:
    rig, run = driving(make)
    rig.say("thanks")
    rig.wait(Admitted, text="thanks", action="ignore")
    rig.say("echo", source="event")
    rig.wait(Admitted, text="echo", action="queue")
    rig.say("now echo")
    rig.wait(Admitted, text="now echo", action="preempt")
    drive.touch()
    rig.wait(Ended, run=run)
    assert rig.end() == 0
    assert rig.said == ["begun", "did now echo", "arrived", "did echo"]


def test_killed_after_it_was_kept_it_is_asked_about_at_the_next_start(make, drive) -> None:
    rig, run = driving(make)
    other = rig.say("cold echo")
    rig.wait(Said, run=other)
    rig.stop()
    assert rig.runs() == {run: "waiting", other: "waiting"} or rig.runs()[run] == "running"
    drive.touch()
    again = make().start()
    again.wait(Asked, run=other)
    again.say("yes")
    again.wait(Said, text="did cold echo")
    assert again.end() == 0


def test_without_the_skill_it_is_told_all_the_same(make, drive, home) -> None:
    (home / "skills" / "response" / "rejection").unlink()
    rig, run = driving(make)
    other = rig.say("cold echo")
    assert rig.wait(Said, run=other).text == (
        "Not now: “drive” goes first. I ask you about this afterwards."
    )
    assert "dropped" in rig.agent.drop(other)
    drive.touch()
    rig.wait(Ended, run=run, status="done")
    assert rig.end() == 0 and not rig.asked
    store = Store.look(rig.home.database)
    assert store.run(other).status == "cancelled"
    store.close()
