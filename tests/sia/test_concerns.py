"""Concerns of a whole agent: what fires, what is said of it, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from semif.errors import DecisionError
from semif.jsonl import read
from sia.concerns import dynamics
from sia.concerns.values import Concern
from sia.entries import Note
from sia.events import Asked, Ended, Ready, Said

ECHO = 'def act(ctx):\n    ctx.say(f"did {ctx.request}")\n'
HOUR = timedelta(hours=1)


class Judge:
    """Answers triage by a list of verdicts, the last for ever; all else as the rig does."""

    def __init__(self, rigs, *verdicts) -> None:
        self.policy, self.verdicts, self.seen = rigs.policy, list(verdicts), []

    def __call__(self, decision):
        if decision.phase != "triage":
            return self.policy(decision)
        self.seen.append(decision)
        said = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if said == "broken":
            raise DecisionError(decision.id, "state", "cannot be scored")
        return said


@pytest.fixture
def agent(make, rigs, skill, home):
    """agent(*verdicts): one that may act on its own; not yet started."""
    skill("echo", ECHO)

    def made(*verdicts, quiet="", messages=50, autonomy=True):
        (home / "sia.toml").write_text(
            f'[scripts]\npolicy = "allow"\n[concerns]\nquiet = "{quiet}"\nmessages = {messages}\n'
        )
        return make(decide=Judge(rigs, *verdicts), autonomy=autonomy)

    return made


def add(rig, **more) -> Concern:
    """One that is ready."""
    given = {"text": "the photo disk", "instruction": "echo the disk", "rhythm": 24}
    given |= {"kind": "durable", "value": 800_000, "grown": datetime.now(UTC)}
    return rig.agent.concerns.add(Concern(**{"id": "", **given, **more}))


def history(rig, id="c1") -> list[str]:
    return [row["event"] for row in rig.agent.concerns.history(id)]


def test_a_ready_concern_fires_as_a_request_of_its_own(agent) -> None:
    rig = agent("fire")
    add(rig)
    rig.start()
    said = rig.wait(Said)
    assert said.text == "did echo the disk"
    rig.wait(Ended, run=said.run, status="done")
    rig.until(lambda: history(rig)[-1] == "done")
    kept = rig.agent.concerns.get("c1")
    assert kept.fire == "" and kept.skill == "demo/echo" and kept.said == ("did echo the disk",)
    assert dynamics.activation(kept, kept.grown) == pytest.approx(200_000, abs=100)
    assert "done: did echo the disk" in kept.note
    run = rig.agent.store.run(said.run)
    assert (run.source, run.text, run.urgency) == ("concern", "echo the disk", 0.1)
    assert history(rig) == ["added", "fire", "said", "done"]
    rows = [row for row in rig.rows() if row["phase"] == "triage"]
    (fire,) = [row for row in read(rig.home.autonomy).rows if row["event"] == "fire"]
    assert [row["id"] for row in rows] == [fire["row"]] and rows[0]["selected"] == "fire"
    notes = [entry.text.text for entry in rig.entries() if isinstance(entry, Note)]
    assert notes == ["c1 fires, a concern of your own: the photo disk"]
    assert rig.stop() == 0


def test_one_that_is_added_while_the_agent_waits_is_heard_of(agent) -> None:
    rig = agent("fire")
    rig.start()
    rig.wait(Ready)
    add(rig, value=699_999)  # ready in a moment, by the timer alone
    assert rig.wait(Said).text == "did echo the disk"
    assert rig.stop() == 0


def test_put_off_it_holds_and_is_asked_anew_without_the_verdict(agent) -> None:
    rig = agent("defer", "reset")
    add(rig, note="the disk is red")
    rig.start()
    rig.until(lambda: history(rig)[-1] == "defer")
    kept = rig.agent.concerns.get("c1")
    assert kept.defers == 1 and timedelta(hours=2.9) < kept.held - kept.grown <= 3 * HOUR + HOUR
    # As if the three hours had gone by.
    rig.agent.concerns.save(replace(kept, held=datetime.now(UTC)), "test")
    rig.until(lambda: history(rig)[-1] == "reset")
    states = [decision.state for decision in rig.decider.policy.seen]
    assert len(states) == 2
    for state in states:
        assert list(state) == [
            "concern", "instruction", "activation", "last_fired", "note", "facts",
        ]  # fmt: skip
        assert state["note"] == "the disk is red" and state["last_fired"] == "never"
        assert "defer" not in str(state) and "put off" not in str(state)
    assert rig.agent.concerns.get("c1").value == pytest.approx(200_000, abs=100)
    assert rig.said == []
    assert rig.stop() == 0


def test_put_off_six_times_in_a_row_it_fires_anyway(agent) -> None:
    rig = agent("defer")
    add(rig, defers=5)
    rig.start()
    assert rig.wait(Said).text == "did echo the disk"
    rows = rig.agent.concerns.history("c1")
    assert rows[1]["event"] == "fire" and rows[1]["why"].startswith("put off 6 times in a row")
    assert rig.stop() == 0


def test_two_fires_at_most_each_time(agent) -> None:
    rig = agent("fire")
    for number in range(3):
        add(rig, instruction=f"echo {number}", value=800_000 + 50_000 * number)
    rig.start()
    rig.until(lambda: len(rig.ended) == 2)
    assert rig.said == ["did echo 2", "did echo 1"]
    assert history(rig, "c1") == ["added"]
    assert rig.agent.concerns.next() < datetime.now(UTC)  # it waits for the next look
    assert rig.stop() == 0


def test_nothing_is_told_twice_word_for_word(agent) -> None:
    rig = agent("fire")
    add(rig, said=("did echo the disk",))
    rig.start()
    rig.until(lambda: history(rig)[-1] == "done")
    assert rig.said == []
    assert "unsaid" in history(rig)
    assert rig.stop() == 0


def test_no_more_is_said_in_a_day_than_the_cap(agent) -> None:
    rig = agent("fire", messages=1)
    add(rig, instruction="echo one")
    add(rig, instruction="echo two")
    rig.start()
    rig.until(lambda: len(rig.ended) == 2)
    assert rig.said == ["did echo one"]
    (unsaid,) = [row for row in rig.agent.concerns.history("c2") if row["event"] == "unsaid"]
    assert unsaid["text"] == "did echo two" and "1 messages" in unsaid["why"]
    add(rig, instruction="echo three")
    rig.say("echo four")
    rig.wait(Said, text="did echo four")
    assert history(rig, "c3") == ["added"]  # nothing is begun before tomorrow
    assert rig.stop() == 0


def test_nothing_fires_in_quiet_hours_and_without_autonomy(agent) -> None:
    now = datetime.now()
    for given in ({"quiet": f"{now - HOUR:%H:%M}-{now + HOUR:%H:%M}"}, {"autonomy": False}):
        rig = agent("fire", **given)
        add(rig)
        assert rig.all("echo me") == 0
        assert rig.said == ["did echo me"] and rig.decider.policy.seen == []


def test_nothing_is_begun_once_no_more_input_comes(agent) -> None:
    rig = agent("fire")
    rig.agent.close_input()
    add(rig)
    rig.start()
    assert rig.joined() == 0
    assert rig.said == []


def test_a_failed_fire_is_tried_again_after_a_backoff(agent, skill) -> None:
    skill("fail", "from sia.skills.api import Failed\ndef act(ctx):\n    raise Failed('no')\n")
    rig = agent("fire")
    add(rig, instruction="fail")
    rig.start()
    rig.until(lambda: history(rig)[-1] == "error")
    kept = rig.agent.concerns.get("c1")
    assert kept.value == 800_000 and kept.held_for == "error"
    assert dynamics.candidate(kept) - datetime.now(UTC) > timedelta(hours=2.9)
    assert rig.stop() == 0


SLOW = "import time\ndef act(ctx):\n    ctx.say('half of it')\n    time.sleep(60)\n"


def test_cut_off_it_has_a_successor_twice_and_is_then_given_up(agent, skill) -> None:
    skill("slow", SLOW, more='sia-budget: "seconds=0.3"')
    rig = agent("fire")
    add(rig, instruction="slow", kind="one_shot")
    rig.start()
    for number, depth in ((1, 1), (2, 2)):
        rig.until(lambda id=f"c{number}": "cut" in history(rig, id))
        rig.until(lambda n=number: len(rig.agent.concerns.all(over=True)) == n + 1)
        assert rig.agent.concerns.get(f"c{number}").status == "done"
        (rest,) = rig.agent.concerns.all()
        assert (rest.kind, rest.depth, rest.successor_of) == ("one_shot", depth, f"c{number}")
        assert rest.note.startswith(f"This is partial work: c{number} was cut off (r")
        assert rest.instruction == "slow"
        assert dynamics.candidate(rest) - datetime.now(UTC) > timedelta(hours=2.9)
        rig.agent.concerns.save(replace(rest, held=None), "test")
    rig.until(lambda: any("I give this up" in text for text in rig.said))
    assert rig.agent.concerns.all() == []
    assert rig.stop() == 0


def test_without_a_decision_only_what_stays_here_is_done(agent, skill) -> None:
    skill("mail", ECHO, more="sia-effects: outside")
    skill("local", ECHO, more="sia-effects: local")
    rig = agent("broken")
    add(rig, instruction="local one", skill="demo/local")
    add(rig, instruction="mail one", skill="demo/mail", text="the mail")
    rig.start()
    rig.wait(Said, text="did local one")
    rig.until(lambda: any("I hold this back" in text for text in rig.said))
    assert history(rig, "c2") == ["added", "held", "said"]
    assert rig.agent.concerns.get("c2").fire == ""
    assert "did mail one" not in rig.said
    assert rig.stop() == 0


def test_an_effect_outside_is_asked_first(agent, skill) -> None:
    code = "def act(ctx):\n    ctx.effect('send it', lambda: None)\n    ctx.say('sent')\n"
    skill("mail", code, more="sia-effects: outside")
    rig = agent("fire")
    add(rig, instruction="mail one")
    rig.start()
    assert "Shall I do this: send it?" in rig.wait(Asked).text
    rig.until(lambda: history(rig)[-1] == "asked")
    rig.say("no")
    rig.wait(Ended)
    assert "sent" not in rig.said
    assert rig.stop() == 0


def test_what_ended_while_nobody_looked_is_settled_at_the_start(agent) -> None:
    rig = agent("fire")
    item = add(rig)
    rig.agent.concerns.save(dynamics.fired(item, datetime.now(UTC), "r99"), "fire", run="r99")
    rig.start()
    rig.until(lambda: history(rig)[-1] == "error")
    assert rig.agent.concerns.get("c1").fire == ""
    assert rig.stop() == 0


def test_a_person_touches_a_concern_by_what_they_say(agent) -> None:
    rig = agent("fire")
    add(rig, value=0)
    rig.start()
    rig.say("echo about the photo disk")
    rig.until(lambda: history(rig) == ["added", "bumped"])
    assert rig.agent.concerns.get("c1").value == pytest.approx(150_000, abs=100)
    assert rig.stop() == 0
