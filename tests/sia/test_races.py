"""What comes at the wrong moment: between a decision and its commit, a look and its record."""

import shutil
import threading
import time
from datetime import UTC, datetime

import pytest

from semif.errors import DecisionError
from semif.log import DecisionLog
from semif.revision import Registry
from semif.testing import ScriptedDecider
from sia import changes
from sia.agent import new_row_id
from sia.entries import ProcessView
from sia.events import Admitted, Asked, Ended, Said, TurnEnded
from sia.intake import Intake
from sia.questions import Questions
from sia.queue import Queue
from sia.scheduler import Scheduler, Situation
from sia.store import Run, Store
from sia.turn import Again

ECHO = "def act(ctx):\n    ctx.say(f'did {ctx.request}')\n"
ASK = "def act(ctx):\n    ctx.say(f'You said {ctx.ask(\"How many?\")}.')\n"
BAD = "from sia.skills.api import Failed\n\ndef act(ctx):\n    raise Failed('no \\udcff')\n"
STOP = "def act(ctx):\n    ctx.say(f'stopped {ctx.cancel_interrupted()}')\n"
WAIT = """
import pathlib, time

WORLD = pathlib.Path({world!r})

def observe(ctx):
    if WORLD.read_text() == "ours" and not WORLD.with_name("seen").exists():
        WORLD.with_name("seen").touch()
        time.sleep(30)
    return {{"door": WORLD.read_text()}}

def first(ctx):
    WORLD.write_text("ours")

def second(ctx):
    ctx.say("through the door")
"""
CHECKED = """
import pathlib, time

GATE = pathlib.Path({gate!r})

def act(ctx):
    ctx.say("did it")

def verify(ctx):
    if not GATE.exists():
        GATE.touch()
        time.sleep(30)
    return False
"""


# skills that come and go


def test_a_skill_that_goes_while_it_is_chosen_ends_the_request_not_the_agent(
    make, rigs, skill, home
) -> None:
    skill("echo", ECHO)
    skill("stay", ECHO)

    def decide(decision):
        chosen = rigs.policy(decision)
        if decision.phase == "navigate_skill" and chosen == "echo":
            shutil.rmtree(home / "skills/demo/echo")
            rig.agent.holder.reload()
        return chosen

    rig = make(decide=decide)
    assert rig.all("echo this", "stay here") == 1
    assert rig.said == ["The skill demo/echo is gone: ask again.", "did stay here"]
    assert rig.runs() == {"r1": "failed", "r2": "done"}


# what is cut off


def test_a_look_that_was_cut_off_takes_nothing_for_a_change_by_another(
    make, skill, tmp_path
) -> None:
    world = tmp_path / "world"
    world.write_text("open")
    skill("wait", WAIT.format(world=str(world)), actions="first second")
    skill("echo", ECHO)
    rig = make().start()
    run = rig.say("wait")
    rig.until((tmp_path / "seen").exists)
    rig.say("now echo")
    assert rig.wait(Ended, run=run).status == "done"
    assert rig.end() == 0 and rig.asked == []
    assert rig.said == ["did now echo", "through the door"]


def test_a_check_that_was_cut_off_is_made_when_the_run_goes_on(make, skill, tmp_path) -> None:
    skill("do", CHECKED.format(gate=str(tmp_path / "gate")))
    skill("echo", ECHO)
    rig = make().start()
    run = rig.say("do it")
    rig.until((tmp_path / "gate").exists)
    rig.say("now echo")
    assert rig.wait(Ended, run=run).status == "failed"
    assert rig.end() == 1
    failed = "That did not work: the check afterwards found that it did not work."
    assert rig.said == ["did it", "did now echo", failed]


def test_labels_are_on_disk_before_their_run_is_over(make, skill) -> None:
    skill("do", "def act(ctx):\n    pass\n\ndef verify(ctx):\n    return True\n")
    rig = make()
    store, kept = rig.agent.store, rig.agent.store.save_unfiled

    def killed(*values):
        if store.run("r1").status == "done":
            raise KeyboardInterrupt
        kept(*values)

    store.save_unfiled = killed
    with pytest.raises(KeyboardInterrupt):
        rig.all("do it")
    assert rig.runs() == {"r1": "running"}
    assert {label["source"] for label in rig.labels()} == {"verified"}
    rig.agent.store.close()
    assert make().all() == 0
    assert rig.runs() == {"r1": "done"}


# what comes in meanwhile


class Busy:
    """A loop in which a process runs until ``over``; what is delivered is kept."""

    def __init__(self) -> None:
        self.over = False
        self.finished = False
        self.arrived: list[tuple[str, str]] = []
        self.met: list[Situation] = []

    def idle(self) -> bool:
        return self.over

    def situation(self) -> Situation:
        return self.met.pop(0) if self.met else Situation()

    def deliver(self, arrival) -> None:
        self.arrived.append((arrival.input.text, arrival.admission.action))

    def finish(self) -> None:
        self.finished = True

    def fail(self, error) -> None:
        raise error


def test_a_line_does_not_pass_one_that_is_still_held(rigs, tmp_path) -> None:
    store, loop = Store(tmp_path / "state.db"), Busy()
    loop.met = [Situation(ProcessView("demo/do", 1, "r9", "do it"))]  # and then it is over
    scheduler = Scheduler(ScriptedDecider(rigs.policy), {}, Questions.load(), new_row_id)
    log, queue = DecisionLog(tmp_path / "d.jsonl"), Queue(store, 0.1, datetime.now(UTC))
    intake = Intake(store, loop, scheduler, log, lambda event: None, queue, 9)
    intake.start()
    for text in ("echo 1", "echo 2", "thanks", "echo 3"):
        intake.submit(text, "piped")
    end = time.monotonic() + 20
    while len(intake._held) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    assert loop.arrived == []
    loop.over = True
    intake.close()
    while not loop.finished and time.monotonic() < end:
        time.sleep(0.01)
    intake.stop()
    store.close()
    said = [("echo 1", "run"), ("echo 2", "run"), ("thanks", "ignore"), ("echo 3", "run")]
    assert loop.arrived == said


def test_a_piped_line_waits_for_the_question_that_it_answers(make, skill) -> None:
    skill("ask", ASK)
    skill("echo", ECHO)
    rig = make()
    assert rig.all("ask me", "thanks seven", "echo last", source="piped") == 0
    assert rig.said == ["You said thanks seven.", "did echo last"]


def test_input_for_a_process_that_ended_meanwhile_is_not_lost(make, skill) -> None:
    gate = threading.Event()
    rig = make([lambda *_: gate.wait(20) and "<write_stdout>over</write_stdout>"])

    def admit(text, source, situation):
        admission = scheduled(text, source, situation)
        if admission.action == "stdin":  # decided, and now the process ends
            gate.set()
            rig.wait(Ended, run="r1")
        return admission

    rig.start()
    rig.say("free: listen")
    rig.until(lambda: rig.generator.calls)
    scheduler = rig.agent._intake._scheduler
    scheduled, scheduler.admit = scheduler.admit, admit
    rig.say("thanks a lot")
    assert rig.wait(Admitted, text="thanks a lot").action == "ignore"
    assert rig.end() == 0
    texts = [e.text.text for e in rig.entries() if type(e).__name__ == "InputEntry"]
    assert texts == ["free: listen", "thanks a lot"]


def test_input_that_comes_while_it_is_asked_for_is_read(make) -> None:
    rig = make(["<read_stdin/>", "<read_stdin/>", "<write_stdout>ok</write_stdout>"])
    store, oldest, late = rig.agent.store, rig.agent.store.oldest_stdin, ["just now"]

    def found(run):
        number = oldest(run)
        if late:
            store.add_stdin(run, late.pop())
        return number

    store.oldest_stdin = found
    assert rig.all("free: listen") == 0
    assert rig.said == ["ok"] and rig.asked == []
    read = [e.text.text for e in rig.entries() if type(e).__name__ == "ReadStdin"]
    assert read == ["just now"]


def test_input_for_a_process_that_asks_for_it_by_now_goes_on(make) -> None:
    gate = threading.Event()
    replies = [lambda *_: gate.wait(20) and "<read_stdin/>", "<read_stdin/>"]
    rig = make([*replies, "<write_stdout>ok</write_stdout>"])

    def admit(text, source, situation):
        admission = scheduled(text, source, situation)
        if admission.action == "stdin":
            gate.set()
            rig.wait(Asked, run="r1")
        return admission

    rig.start()
    rig.say("free: listen")
    rig.until(lambda: rig.generator.calls)
    scheduler = rig.agent._intake._scheduler
    scheduled, scheduler.admit = scheduler.admit, admit
    rig.say("thanks a lot")
    assert rig.wait(Said).text == "ok" and rig.end() == 0
    read = [e.text.text for e in rig.entries() if type(e).__name__ == "ReadStdin"]
    assert read == ["thanks a lot"]


# runs that end from outside


@pytest.mark.parametrize("how", ["again", "stop"])
def test_what_is_typed_while_scripts_are_ended_is_kept_at_once(make, skill, how) -> None:
    skill("stop", STOP)
    skill("echo", ECHO)
    if how == "again":
        replies = ["<background>sleep 60</background>", "<read_stdin/>"]
    else:
        replies = ["<single_shot>sleep 60</single_shot>"]
    rig = make(replies).start()
    run = rig.say("free: listen")
    if how == "again":
        rig.wait(Asked)
    else:
        rig.wait(TurnEnded, n=2)
        rig.until(lambda: list(rig.home.scripts.glob("e5/stdout")))
    scripts = rig.agent.loop._steps.scripts
    ends, ending, kept = scripts.end, threading.Event(), threading.Event()

    def slow(id, reason=""):
        ending.set()
        assert kept.wait(10), "nothing could be kept meanwhile"
        return ends(id, reason)

    scripts.end = slow
    again = Again("echo that", "demo/echo", run)
    if how == "again":
        threading.Thread(target=rig.agent.again, args=[again]).start()
    else:
        rig.say("now stop")
    assert ending.wait(20)
    rig.say("echo too")
    kept.set()
    assert rig.wait(Ended, run=run).status == "cancelled"
    rig.wait(Said, text="did echo too")
    assert rig.end() == 0


def test_commands_of_what_was_cancelled_before_a_crash_are_ended_at_the_start(
    make, home, monkeypatch
) -> None:
    rig, now, ended = make(), datetime.now(UTC), []
    for id, status in (("r1", "cancelled"), ("r11", "asking")):
        rig.agent.store.save_run(Run(id, "typed", "x", 0.5, now, now, status=status))
        (home / ".sia/shell" / f"{id}-e2").mkdir(parents=True)
    monkeypatch.setattr("sia.commands.end", lambda folder, run: ended.append((folder, run)))
    assert rig.all() == 0 and ended == [(rig.home.folder, "r1")]


def test_what_is_no_character_ends_no_agent(make, skill) -> None:
    skill("bad", BAD)
    rig = make()
    assert rig.all("bad") == 1 and rig.said == ["no \udcff"]
    (run,) = [event for event in rig.events if isinstance(event, Ended)]
    assert run.status == "failed"


# suggestions, revisions


def test_one_that_is_too_long_to_compare_keeps_no_other_from_being_noted(make, rigs) -> None:
    def decide(decision):
        if decision.phase == "same_action":
            raise DecisionError(decision.id, "state", "9,000 tokens are too long")
        return rigs.policy(decision)

    rig = make(decide=decide, proven=frozenset(), thresholds={"same_action": 0.5})
    assert rig.all("free: one", "free: two") == 1
    assert all("noted as s" in text for text in rig.said) and len(rig.said) == 2


def test_a_swap_before_the_watch_is_up_is_seen(tmp_path) -> None:
    told, stop = threading.Event(), threading.Event()
    seen: list[str] = []
    registry = Registry(tmp_path / "revisions")

    def changed(new: str) -> None:
        seen.append(new)
        told.set()

    watched = changes.Pinned(registry, "0123456789ab")
    thread = changes.watch(watched, stop, seen.append, changed)
    assert told.wait(20)
    stop.set()
    thread.join()
    assert seen == [f"with revision {registry.current().id}"]
