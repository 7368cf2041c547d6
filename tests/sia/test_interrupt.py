"""What interrupts is acted on at once, and what it displaced goes on."""

import threading

import pytest

from sia.entries import Script
from sia.events import Admitted, Asked, Ended, Routed, Said, TurnEnded
from sia.generator.manual import ManualGenerator
from sia.generator.testing import until_cancelled
from sia.loop import Arrival
from sia.scheduler import Admission
from sia.store import Run

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


# stakes and authority

DRIVE = """
import pathlib, time

def begin(ctx):
    ctx.state["at"] = "the crossing"
    ctx.say("begun")

def go_on(ctx):
    while not pathlib.Path({gate!r}).exists():
        time.sleep(0.02)
    ctx.say(f"past {{ctx.state['at']}}")
"""


def drive(skill, home, more: str = "sia-stakes: high") -> None:
    skill("drive", DRIVE.format(gate=str(home / "gate")), actions="begin go_on", more=more)
    skill("echo", ECHO)
    skill("brake", "def act(ctx):\n    ctx.say('braked')\n", more="sia-interrupts: demo")


def policy_of(rigs, p: float):
    """As ever, but what interrupts does so with probability ``p``, and ``whoa`` means the brake."""

    def decide(decision):
        text = decision.state.get("input", "")
        if decision.phase == "interrupt" and text.startswith(("now", "whoa")):
            return {"interrupt": p, "defer": 1 - p}
        if decision.phase == "navigate_skill" and text.startswith("whoa"):
            return "brake"
        return rigs.policy(decision)

    return decide


def test_high_stakes_yield_from_a_higher_probability_on(make, rigs, skill, home) -> None:
    drive(skill, home)
    for p, action in ((0.7, "queue"), (0.9, "preempt")):
        rig = make(decide=policy_of(rigs, p)).start()
        run = rig.say("drive")
        rig.wait(Said, text="begun")
        rig.wait(TurnEnded, n=2)
        rig.say("now echo")
        rig.wait(Admitted, text="now echo", action=action)
        if action == "preempt":
            rig.wait(Said, text="did now echo")
        (home / "gate").touch()
        assert rig.wait(Ended, run=run).status == "done"
        assert rig.end() == 0
        first, second = rig.said[1:]
        assert {first, second} == {"past the crossing", "did now echo"}
        assert (first == "did now echo") == (action == "preempt")
        (home / "gate").unlink()


def test_a_brake_interrupts_below_that_and_the_displaced_goes_on_with_its_state(
    make, rigs, skill, home
) -> None:
    drive(skill, home)
    rig = make(decide=policy_of(rigs, 0.55)).start()
    run = rig.say("cold drive")
    rig.wait(TurnEnded, n=2)
    stop = rig.say("whoa", source="event")  # a sensor tells of it
    admitted = rig.wait(Admitted, run=stop, action="preempt")
    assert seconds(rig, "braked", rig.time_of(admitted)) < 2
    assert rig.wait(Routed, run=stop).skill == "demo/brake"
    waiting = rig.agent.store.run(run)
    assert waiting.attempt == 2 and not waiting.preempts
    assert abs(waiting.urgency - 0.12) < 0.03  # its own, as it came in
    (home / "gate").touch()
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0
    assert rig.said == ["begun", "braked", "past the crossing"]
    asked = [row["phase"] for row in rig.rows() if row["run"] == stop]
    assert asked == ["contains_request", "interrupt", "urgency", "navigate_skill"]


def test_the_success_of_a_brake_labels_how_it_was_found(make, rigs, skill, home) -> None:
    drive(skill, home)
    checked = "def act(ctx):\n    ctx.say('braked')\n\ndef verify(ctx):\n    return True\n"
    skill("brake", checked, more="sia-interrupts: demo")
    rig = make(decide=policy_of(rigs, 0.55)).start()
    rig.say("drive")
    rig.wait(TurnEnded, n=2)
    stop = rig.say("whoa")
    rig.wait(Ended, run=stop, status="done")
    (home / "gate").touch()
    assert rig.end() == 0
    (label,) = rig.labels()
    (row,) = [row for row in rig.rows() if row["id"] == label["row"]]
    assert (row["phase"], row["run"], label["option"]) == ("navigate_skill", stop, "brake")


def test_an_event_never_displaces_what_was_typed_but_another_event(make, skill, home) -> None:
    drive(skill, home, more="")
    skill("brake", "def act(ctx):\n    ctx.say('braked')\n")
    for source, action in (("typed", "queue"), ("event", "preempt")):
        rig = make().start()
        run = rig.say("drive", source=source)
        rig.wait(TurnEnded, n=2)
        rig.say("now echo", source="event")
        rig.wait(Admitted, text="now echo", action=action)
        (home / "gate").touch()
        rig.wait(Ended, run=run)
        assert rig.end() == 0
        (home / "gate").unlink()


def test_who_was_not_meant_to_be_displaced_is_not(make, skill, home) -> None:
    """Between an admission and its turn another process may have come to run."""
    drive(skill, home)
    rig = make().start()
    run = rig.say("drive")
    rig.wait(TurnEnded, n=2)
    rig.until(lambda: rig.agent.loop.current and rig.agent.loop.current.step == 1)
    before = len(rig.iterations())
    item = rig.agent.store.add_input("piped", "now echo", rig.agent.now())
    late = Run(item.run, "piped", item.text, 0.5, item.time, item.time, preempts=True)
    rig.agent.store.save_run(late)  # admitted while something else ran
    rig.agent.loop.deliver(Arrival(item, Admission("preempt", 0.5, interrupt=0.95)))
    assert not rig.agent.loop.cancel.is_set()
    (home / "gate").touch()
    rig.wait(Ended, run=run)
    assert rig.agent.store.run(run).attempt == 1 and len(rig.iterations()) >= before
    rig.wait(Said, text="did now echo")
    rig.agent.store.drop_input(item.id)
    assert rig.end() == 0
    assert rig.said == ["begun", "past the crossing", "did now echo"]


THREE = """
def note(ctx, name):
    ctx.state["done"] = [*ctx.state.get("done", []), name]
    ctx.effect(name, lambda key: open({path!r}, "a").write(name + "\\n"))

def first(ctx):
    note(ctx, "first")

def second(ctx):
    note(ctx, "second")

def third(ctx):
    note(ctx, "third")
    ctx.say(" ".join(ctx.state["done"]))
"""


def at_turn(rig, n: int, texts: list[str]) -> None:
    """Submit ``texts`` when turn ``n`` ends; the loop goes on once the last of them is admitted."""

    def submit(event) -> None:
        if isinstance(event, TurnEnded) and event.n == n:
            for text in texts:
                run = rig.say(text)
                rig.wait(Admitted, run=run)
            if event.n < 4:  # then nothing runs that could be interrupted
                rig.until(rig.agent.loop.cancel.is_set)

    rig.agent.listen(submit)


@pytest.mark.parametrize("turn", [1, 2, 3, 4])
def test_preempted_at_an_actions_boundary_it_ends_as_without(make, skill, home, turn) -> None:
    """Turn 1 finds the skill, 2 to 4 take its actions; at the end of each comes what interrupts."""
    skill("echo", ECHO)
    skill("three", THREE.format(path=str(home / "effects")), actions="first second third")
    rig = make()
    back = []
    rig.agent.listen(
        lambda event: back.append(rig.agent.store.run("r1")) if event == displacing else None
    )
    displacing = Said("r2", "did now echo")
    at_turn(rig, turn, ["now echo"])
    rig.say("cold three")
    rig.start()
    rig.wait(Said, text="did now echo")
    assert rig.wait(Ended, run="r1").status == "done"
    assert rig.end() == 0
    assert (home / "effects").read_text() == "first\nsecond\nthird\n"
    assert sorted(rig.said) == ["did now echo", "first second third"]
    if turn < 4:
        assert rig.said[0] == "did now echo"
        assert (back[0].status, back[0].step, back[0].displaced_by) == ("waiting", turn - 1, "r2")
        assert back[0].urgency == rig.wait(Admitted, run="r1").urgency
        assert [i.process.step for i in rig.iterations() if i.run == "r1"] == [1, 1, 2, 3]


def test_what_was_displaced_goes_back_at_its_own_urgency(make, skill, home) -> None:
    """A low one that was interrupted lets a high one go first, and then goes on where it was."""
    skill("echo", ECHO)
    skill("three", THREE.format(path=str(home / "effects")), actions="first second third")
    rig = make()
    at_turn(rig, 3, ["hot echo", "now echo"])
    rig.say("cold three")
    rig.start()
    assert rig.wait(Ended, run="r1").status == "done"
    assert rig.end() == 0
    assert rig.said == ["did now echo", "did hot echo", "first second third"]
    assert (home / "effects").read_text() == "first\nsecond\nthird\n"
