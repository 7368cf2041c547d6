"""What a skill has written for it: used only when it keeps to the facts, and decided once."""

from __future__ import annotations

from sia.events import Asked, Said
from sia.generator.types import GeneratorUnavailable

NOTE = """
from sia.skills.api import Unproven
def act(ctx):
    try:
        text = ctx.generate("message", {"to": "Ada", "request": ctx.request})
    except Unproven as error:
        text = ctx.ask(f"What should it say? ({error})")
    ctx.say(text)
"""


def test_a_text_that_keeps_to_the_facts_is_used(make, skill) -> None:
    skill("note", NOTE)
    rig = make(["Hi Ada, I'll be 20 minutes late."])
    assert rig.all("note that I will be 20 minutes late") == 0
    assert (rig.asked, rig.said) == ([], ["Hi Ada, I'll be 20 minutes late."])


def test_an_invented_figure_is_never_shown_and_the_answer_holds(make, skill) -> None:
    """A second try would fit; but the person was asked, and what they said is used."""
    skill("note", NOTE)
    rig = make(["Hi Ada, I'll be 30 minutes late.", "Hi Ada, I'll be 20 minutes late."]).start()
    rig.say("note that I will be 20 minutes late")
    asked = rig.wait(Asked)
    assert asked.text == ("What should it say? (the text for message loses 20 and invents 30)")
    rig.say("re 20 minutes late!")
    rig.wait(Said, text="re 20 minutes late!")
    assert rig.end() == 0 and len(rig.generator.calls) == 1
    assert not any("30 minutes" in text for text in rig.said)


def test_a_request_with_a_secret_is_never_given_to_be_written(make, skill) -> None:
    """What would come of it says [redacted] and is not what the person wants sent."""
    skill("note", NOTE)
    rig = make(["Hi Ada, password: [redacted]."]).start()
    rig.say("note password: hunter22")
    assert "the request holds what looks like a secret" in rig.wait(Asked).text
    assert rig.generator.calls == []
    rig.say("re by phone.")
    rig.wait(Said, text="re by phone.")
    assert rig.end() == 0


def test_where_the_generator_is_away_the_person_is_asked(make, skill) -> None:
    def away(*_: object) -> str:
        raise GeneratorUnavailable("the server is away")

    skill("note", NOTE)
    rig = make([away]).start()
    rig.say("note that I am late")
    assert rig.wait(Asked).text == "What should it say? (the server is away)"
    rig.say("re I am late.")
    rig.wait(Said, text="re I am late.")
    assert rig.end() == 0


def test_an_unproven_task_is_not_tried(make, skill) -> None:
    skill("note", NOTE)
    rig = make(["Hi Ada, 20."], proven=frozenset({"act"})).start()
    rig.say("note 20")
    assert "is not proven for message" in rig.wait(Asked).text
    assert rig.generator.calls == []
    rig.say("re twenty.")
    rig.wait(Said, text="re twenty.")
    assert rig.end() == 0
