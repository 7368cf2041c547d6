"""What interrupts is acted on at once, and what it displaced goes on."""

import threading

from sia.entries import Script
from sia.events import Admitted, Asked, Ended, Said, TurnEnded
from sia.generator.manual import ManualGenerator
from sia.generator.testing import until_cancelled

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
STOP = """
def act(ctx):
    ctx.say(f"stopped {ctx.cancel_interrupted()}")
"""


def seconds(rig, said: str, after) -> float:
    return rig.time_of(rig.wait(Said, text=said)) - after


def test_during_a_script_and_the_script_goes_on(make, skill, home) -> None:
    skill("echo", ECHO)
    replies = [
        "<single_shot>while [ ! -e go ]; do sleep 0.05; done; echo went</single_shot>",
        "<write_stdout>ok</write_stdout>",
    ]
    rig = make(replies).start()
    run = rig.say("free: wait")
    rig.wait(TurnEnded, n=2)
    rig.until(lambda: list(rig.home.scripts.glob("e5/stdout")))
    before = rig.say("now echo")
    admitted = rig.wait(Admitted, run=before, action="preempt")
    assert admitted.urgency > 0.9
    assert seconds(rig, "did now echo", rig.time_of(admitted)) < 2
    assert rig.wait(Ended, run=before).status == "done"
    (home / "work/go").touch()
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0
    assert rig.said == ["did now echo", "ok"]
    (script,) = [e for e in rig.entries() if isinstance(e, Script) and e.run]
    assert (script.status, script.stdout.text) == ("done", "went\n")
    assert len(rig.generator.calls) == 2


def test_a_stop_ends_a_long_script_for_good_within_two_seconds(make, skill, home) -> None:
    skill("stop", STOP)
    rig = make(["<single_shot>sleep 30</single_shot>"]).start()
    run = rig.say("free: sleep")
    rig.wait(TurnEnded, n=2)
    rig.until(lambda: list(rig.home.scripts.glob("e5/stdout")))
    rig.say("now stop")
    admitted = rig.wait(Admitted, action="preempt")
    stopped = rig.wait(Said, text="stopped ['free: sleep']")
    assert rig.time_of(stopped) - rig.time_of(admitted) < 2
    assert rig.wait(Ended, run=run).status == "cancelled"
    assert rig.end() == 0
    assert rig.runs() == {run: "cancelled", "r2": "done"}
    assert (home / ".sia/scripts/e5/exit.json").exists()


def test_during_a_generation_that_is_asked_for_anew(make, skill) -> None:
    skill("echo", ECHO)
    rig = make([until_cancelled, "<write_stdout>ok</write_stdout>"]).start()
    run = rig.say("free: think")
    rig.until(lambda: rig.generator.calls)
    rig.say("now echo")
    admitted = rig.wait(Admitted, action="preempt")
    assert seconds(rig, "did now echo", rig.time_of(admitted)) < 1.5
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0
    assert rig.said == ["did now echo", "ok"]
    # The turn that was cut short is on record, and was none of the twelve.
    assert [i.generator for i in rig.iterations()].count("scripted") == 2
    assert [i.response.by for i in rig.iterations() if i.response] == ["skill", "generator"]


def test_with_a_person_as_the_generator(make, skill) -> None:
    skill("echo", ECHO)
    texts = ["<single_shot>sleep 30</single_shot>"]
    seen = threading.Event()

    def read(cancel):
        if texts:
            return texts.pop()
        seen.set()
        cancel.wait()
        return None

    rig = make()
    loaded = rig.agent._load()
    manual = ManualGenerator(read)
    rig.agent._load = lambda *_: type(loaded)(
        loaded.revision, loaded.admit, loaded.decide, manual, loaded.count
    )
    rig.start()
    rig.say("free: sleep")
    rig.wait(TurnEnded, n=2)
    rig.say("now echo")
    admitted = rig.wait(Admitted, action="preempt")
    assert seconds(rig, "did now echo", rig.time_of(admitted)) < 2
    assert not seen.is_set()
    assert rig.stop(0) == 0


def test_during_an_action_that_is_entered_again(make, skill, home) -> None:
    skill("echo", ECHO)
    gate = home / "gate"
    skill("slow", f"""
import pathlib, time

def act(ctx):
    ctx.say("begun")
    ctx.effect("count", lambda key: open({str(home / "count")!r}, "a").write("x"))
    while not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.02)
    ctx.say("over")
""")  # fmt: skip
    rig = make().start()
    run = rig.say("slow")
    rig.until((home / "count").exists)
    rig.say("now echo")
    rig.wait(Said, text="did now echo")
    gate.touch()
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0
    assert rig.said == ["did now echo", "begun", "over"]
    assert (home / "count").read_text() == "x"


def test_what_does_not_interrupt_waits(make, skill) -> None:
    skill("echo", ECHO)
    replies = ["<single_shot>sleep 0.5</single_shot>", "<write_stdout>ok</write_stdout>"]
    rig = make(replies).start()
    rig.say("free: wait")
    rig.wait(TurnEnded, n=1)
    rig.say("hot echo")
    rig.wait(Said, text="did hot echo")
    assert rig.end() == 0
    assert rig.said == ["ok", "did hot echo"]


def test_several_that_interrupt_each_other(make, skill) -> None:
    """Each is done once, and what they displaced goes on."""
    skill("echo", ECHO)
    gate = threading.Event()

    def reply(_parts, cancel):
        while not gate.is_set() and not cancel.wait(0.01):
            pass
        return "<write_stdout>ok</write_stdout>" if gate.is_set() else None

    rig = make([reply] * 9).start()
    run = rig.say("free: think")
    rig.until(lambda: rig.generator.calls)
    rig.say("now echo 1", "now echo 2", "now echo 3")
    for n in (1, 2, 3):
        rig.wait(Said, text=f"did now echo {n}")
    gate.set()
    rig.wait(Ended, run=run, status="done")
    assert rig.end() == 0
    assert sorted(rig.said) == ["did now echo 1", "did now echo 2", "did now echo 3", "ok"]
    assert set(rig.runs().values()) == {"done"}


def test_a_question_of_the_displaced_stays_open(make, skill) -> None:
    skill("echo", ECHO)
    skill("ask", "def act(ctx):\n    ctx.say('So ' + ctx.ask('How many?'))\n")
    rig = make().start()
    rig.say("ask")
    rig.wait(Asked)
    rig.say("now echo")
    rig.wait(Said, text="did now echo")
    rig.say("re four")
    rig.wait(Said, text="So re four")
    assert rig.end() == 0 and len(rig.asked) == 1
