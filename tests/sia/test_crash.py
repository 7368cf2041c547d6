"""Killed at the worst moments, the next start loses nothing and does nothing twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sia import record
from sia.entries import InputEntry, Script
from sia.events import Asked, Ended, Notice, Said

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def killed(home: Path) -> Callable[[str], None]:
    """killed(kind): run an agent (see child.py) and kill it once it is where it should be."""

    def killed(kind: str) -> None:
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py")), str(home), kind],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with child.stdout:
            said = child.stdout.readline()
            if said:
                os.kill(child.pid, signal.SIGKILL)
        # Some kill themselves, right in the act.
        assert child.wait() == -signal.SIGKILL and said in ("ready\n", "")

    return killed


def test_an_input_that_came_before_the_models_is_worked(make, skill, killed) -> None:
    skill("echo", ECHO)
    killed("loading")
    rig = make().start()
    assert rig.end() == 0
    assert rig.said == ["did echo early"] and rig.runs() == {"r1": "done"}


def test_what_was_queued_is_worked_and_what_ran_goes_on(make, skill, killed) -> None:
    skill("echo", ECHO)
    killed("queued")
    rig = make(["<write_stdout>first is done</write_stdout>"]).start()
    assert rig.end() == 0
    assert rig.said == ["first is done", "did echo second"]
    assert rig.runs() == {"r1": "done", "r2": "done"}
    found = rig.iterations()
    assert [iteration.n for iteration in found] == list(range(1, len(found) + 1))
    assert len({iteration.session for iteration in found}) == 1
    asked = [row["phase"] for row in rig.rows() if row["run"] == "r1"]
    assert asked.count("navigate_category") == 1  # it had found its way before


def test_words_that_may_not_have_been_heard_are_said_again_once(make, skill, killed) -> None:
    skill("echo", ECHO)
    killed("said")
    rig = make().start()
    assert rig.end() == 0
    said = [event for event in rig.events if isinstance(event, Said)]
    assert said == [Said("r1", "did echo once", again=True)]
    assert rig.runs() == {"r1": "done"}
    rig = make().start()
    assert rig.end() == 0 and rig.said == []


def test_an_open_question_is_still_open(make, skill, killed) -> None:
    skill("ask", "def act(ctx):\n    ctx.say('Hm.')\n    ctx.say('So ' + ctx.ask('How many?'))\n")
    killed("asked")
    rig = make().start()
    assert rig.wait(Asked) == Asked("r1", "How many?", ())
    rig.say("re four")
    assert rig.wait(Ended, run="r1").status == "done"
    assert rig.end() == 0
    assert rig.said == ["So re four"]  # "Hm." was said, and is not said twice


MAIL = """
import os, signal
from pathlib import Path

WORLD = Path({world!r})

def do(key):
    first = not WORLD.exists()
    with WORLD.open("a") as file:
        file.write(key + "\\n")
    if first:
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    return "sent"

def check(key):
    return {check}

def act(ctx):
    ctx.say(f"result {{ctx.effect('the mail', do, check)}}")
"""
QUESTION = "I was cut off and cannot tell whether this was done: the mail. Do it again?"


@pytest.mark.parametrize(
    ("effects", "check", "answer", "done", "result"),
    [
        ("outside", "None", "no", 1, "result None"),
        ("outside", "None", "yes", 2, "result sent"),
        ("outside", "False", "no", 1, "result None"),
        ("outside", "key in WORLD.read_text()", None, 1, "result None"),
        ("local", "None", None, 2, "result sent"),
    ],
)
def test_an_effect_that_was_cut_off(
    make, skill, killed, tmp_path, effects, check, answer, done, result
) -> None:
    world = tmp_path / "world"
    code = MAIL.format(world=str(world), check=check)
    skill("mail", code, more=f"sia-effects: {effects}")
    killed("effect")
    assert world.read_text() == "r1-act-1\n"
    rig = make().start()
    if answer:
        assert rig.wait(Asked) == Asked("r1", QUESTION, ("yes", "no"))
        rig.say(answer)
    rig.wait(Ended, run="r1")
    assert rig.end() == 0
    assert rig.said == [result] and len(rig.asked) == bool(answer)
    assert world.read_text() == "r1-act-1\n" * done


def test_a_script_that_outlived_the_agent_is_seen_to_its_end(make, killed) -> None:
    killed("script")
    rig = make(["<write_stdout>ok</write_stdout>"]).start()
    assert rig.end() == 0
    (script,) = [e for e in rig.entries() if isinstance(e, Script) and e.run]
    assert (script.status, script.exit_code) == ("done", 0)
    assert script.stdout.text == "begun\nended\n"


def test_a_script_that_ended_without_the_agent_is_not_lost(make, killed, home) -> None:
    killed("script")
    done = home / ".sia/scripts/e5/exit.json"
    rig = make(["<write_stdout>ok</write_stdout>"])
    rig.until(done.exists)
    rig.start()
    assert rig.end() == 0
    (script,) = [e for e in rig.entries() if isinstance(e, Script) and e.run]
    assert (script.status, script.stdout.text) == ("done", "begun\nended\n")


def test_a_session_killed_before_its_first_turn_begins_as_it_should(make, killed) -> None:
    rig = make()
    rig.all("thanks")
    killed("idle")
    rig = make()
    rig.all("thanks")
    assert rig.iterations()[-1].n == 1
    scripts = [e for e in rig.entries() if isinstance(e, Script)]
    assert [script.command.text for script in scripts] == ["ls tasks", "cat user.md"]
    assert all(script.exit_code == 0 for script in scripts)


# restarts that are meant


def test_stop_restarts_and_the_session_goes_on(make) -> None:
    rig = make(["<reasoning>before</reasoning>", "<stop/>"])
    rig.say("free: reload")
    assert rig.start().joined() == 75
    assert rig.runs() == {"r1": "running"}
    before = rig.iterations()
    again = make(["<write_stdout>back</write_stdout>"]).start()
    assert again.end() == 0
    found = again.iterations()
    assert again.said == ["back"] and again.runs() == {"r1": "done"}
    assert {iteration.session for iteration in found} == {before[0].session}
    assert [iteration.n for iteration in found] == list(range(1, len(before) + 2))
    assert "before" in again.generator.calls[0].parts[1].text
    last = make()
    last.all("thanks")
    assert last.iterations()[-1].n == 1 and len({i.session for i in last.iterations()}) == 2
    # Ids go on, so that the scripts of two sessions never share a folder.
    first = {entry.id for entry in found[-1].entries}
    assert not first & {entry.id for entry in last.entries()}


def test_a_torn_iteration_file_is_written_again(make) -> None:
    rig = make(["<stop/>"])
    rig.say("free: reload")
    rig.start().joined()
    session, n = rig.iterations()[-1].session, rig.iterations()[-1].n
    path = record.path_of(rig.home.contexts, session, n)
    whole = path.read_bytes()
    for torn in (whole[:100], b"", bytes(50), None):
        path.unlink() if torn is None else path.write_bytes(torn)
        again = make()
        assert path.read_bytes() == whole
        again.agent.stop(75)
        assert again.start().joined() == 75
        notices = [event for event in again.events if isinstance(event, Notice)]
        assert notices[0].level == "warning"
        told = f"{path.name} of session {session} was written again from state.db"
        assert notices[0].text == told


# reminders


REMIND = """
from datetime import timedelta

def act(ctx):
    ctx.remind(ctx.now + timedelta(seconds=1), ctx.request)
    ctx.say("set")
"""


def test_a_reminder_rings(make, skill, home) -> None:
    skill("remind", REMIND)
    rig = make().start()
    rig.say("remind the cat")
    rung = rig.wait(Said, text="Reminder: remind the cat")
    assert 0 < rig.time_of(rung) - rig.time_of(rig.wait(Said, text="set")) < 3
    assert rig.end() == 0
    assert "status: fired" in (home / "tasks/reminders/m1.md").read_text()
    texts = [e.text.text for e in rig.entries() if type(e).__name__ == "WriteStdout"]
    assert "Reminder: remind the cat" in texts


def due(rig, seconds: float, text: str) -> str:
    return rig.agent.reminders.add(datetime.now(UTC) + timedelta(seconds=seconds), text, "r1")


def test_what_was_missed_rings_once_and_says_so(make) -> None:
    rig = make()
    due(rig, -7200, "late")
    due(rig, 0.5, "in time")
    rig.start()
    rig.wait(Said, text="Reminder: in time")
    assert rig.end() == 0
    late, _ = rig.said
    assert late.startswith("Reminder: late (it was due ") and late.endswith(")")
    again = make().start()
    assert again.end() == 0 and again.said == []


def test_a_reminder_rings_after_a_restart(make) -> None:
    rig = make()
    due(rig, 1.2, "later")
    rig.start()
    assert rig.stop(75) == 75 and rig.said == []
    again = make().start()
    again.wait(Said, text="Reminder: later")
    assert again.end() == 0


def test_a_reminder_cut_off_while_ringing_is_said_again(make, killed) -> None:
    due(make(), -1, "loud")
    killed("rings")
    rig = make().start()
    assert rig.end() == 0
    said = [event for event in rig.events if isinstance(event, Said)]
    assert [(event.text, event.again) for event in said] == [("Reminder: loud", True)]


@pytest.mark.parametrize("damage", [b"", bytes(5000), b"junk" * 500, None])
def test_reminders_outlive_the_database(make, home, damage) -> None:
    rig = make()
    due(rig, 1.5, "kept: äöü\nsecond line")
    due(rig, 3600, "cancelled")
    rig.agent.reminders.set_status("m2", "cancelled")
    rig.agent.close()
    for path in (home / ".sia").glob("state.db*"):
        path.unlink()
    if damage is not None:
        (home / ".sia/state.db").write_bytes(damage)
    (home / "tasks/reminders/m9.md").write_text("no head")
    (home / "tasks/reminders/mine.md").write_text("my own file")
    rig = make()
    assert [(r.id, r.text) for r in rig.agent.reminders.waiting()] == [
        ("m1", "kept: äöü\nsecond line")
    ]
    assert due(rig, 7200, "new") == "m3"
    rig.start()
    rig.wait(Said, text="Reminder: kept: äöü\nsecond line")
    rig.end()
    warnings = [e.text for e in rig.events if isinstance(e, Notice) and e.level == "warning"]
    assert len(warnings) == (damage is not None)
    assert all("reminders are taken from tasks/reminders" in text for text in warnings)


def test_inputs_are_entries_again_after_a_crash(make, skill, killed) -> None:
    skill("echo", ECHO)
    killed("loading")
    rig = make()
    rig.all("thanks")
    given = [e.text.text for e in rig.entries() if isinstance(e, InputEntry)]
    assert given == ["echo early", "thanks"]
