"""email/compose: who is meant, the person's own words, shown before it leaves, sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sia.skills.api import Folders, Person
from sia.skills.calls import load_module
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

CARDS = """\
BEGIN:VCARD
VERSION:3.0
FN:Anna Berg
NICKNAME:Annie
CATEGORIES:girlfriend
EMAIL:anna@example.org
END:VCARD
BEGIN:VCARD
VERSION:3.0
FN:Lena Kurz
CATEGORIES:boss
EMAIL:lena@example.org
END:VCARD
BEGIN:VCARD
VERSION:3.0
FN:Tom Post
END:VCARD
BEGIN:VCARD
VERSION:3.0
FN:Torn
no line
END:VCARD
"""
Start = Callable[..., Any]


@pytest.fixture
def inbox(mail_server: Start) -> Any:
    return mail_server()


@pytest.fixture
def write(make: Start, folders: Folders, inbox: Any) -> Callable[..., FakeCtx]:
    """A context whose contacts and mail server are there."""
    (folders.home / "contacts").mkdir()
    (folders.home / "contacts" / "all.vcf").write_text(CARDS)
    settings = {"host": "127.0.0.1", "port": inbox.port, "tls": "none", "user": "", "sender": ""}

    def made(request: str, **given: Any) -> FakeCtx:
        more = {**settings, "contacts": "contacts", **given.pop("settings", {})}
        return make(request, **{"answers": ["yes"], "settings": more, **given})

    return made


@pytest.fixture
def skill(skills: Path) -> Path:
    return skills / "email/compose"


def body(message: Any) -> str:
    return message.get_content().strip()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("tell Anna I will be late to the party", "I will be late to the party."),
        ("tell my girlfriend that I'm going to be late", "I'm going to be late."),
        (
            "write an e-mail to Annie that says that i will be late to the party",
            "I will be late to the party.",
        ),
        ("send Anna Berg an email saying dinner is at 8", "Dinner is at 8."),
        ("let Anna know we are on our way", "We are on our way."),
        ("ask Anna whether I can come at 8", "Can I come at 8?"),
        ("ask Anna if we should bring wine", "Should we bring wine?"),
        ("tell Anna to bring the keys", "Please bring the keys."),
        ("ask Anna not to come before 9", "Please do not come before 9."),
        ('write Anna "happy birthday, love"', "happy birthday, love"),
        ("e-mail anna@example.org that the meeting moved", "The meeting moved."),
        ("tell anna@example.org I am late", "I am late."),
        ("ask anna@example.org to call", "Please call."),
        ("Could you tell Anna I love the flowers?", "I love the flowers."),
        ("send Anna an email: See you!\nBring cake.", "See you! Bring cake."),
        ("tell Anna that lena@example.org has the plan", "lena@example.org has the plan."),
    ],
)
def test_the_persons_words_reach_the_person(
    write: Start, skill: Path, inbox: Any, request_: str, words: str
) -> None:
    ctx = write(request_)
    outcome = run_actions(skill, ctx)
    assert (outcome.kind, outcome.value) == ("done", True), outcome
    [message] = inbox.messages
    assert body(message) == words
    assert inbox.recipients == [["anna@example.org"]]
    assert not ctx.chosen and len(ctx.asked) == 1
    assert words in ctx.said[0] and ctx.said[0].startswith("To: Anna Berg <anna@example.org>\n")
    assert ctx.said[1] == "Sent to Anna Berg <anna@example.org>."


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ("ask Anna whether she can come", "she can come"),
        ("tell Anna that her brother called", "Her brother called."),
        ("tell Anna about the party", ""),
        ("send Anna a joke", ""),
        ("tell Anna about the car that I sold", ""),
        ("let Anna know when dinner is ready", "when dinner is ready"),
        ("schreib Anna, dass ich später komme", ""),
    ],
)
def test_what_no_rule_knows_is_asked(
    write: Start, skill: Path, inbox: Any, request_: str, found: str
) -> None:
    ctx = write(request_, answers=["It starts at 8, come over!", "yes"])
    run_actions(skill, ctx)
    assert ctx.asked[0].startswith("What should the message to Anna Berg <anna@example.org> say?")
    assert found in ctx.asked[0]
    assert body(inbox.messages[0]) == "It starts at 8, come over!"


def test_a_proven_generator_writes_what_no_rule_knows(
    write: Start, skill: Path, inbox: Any
) -> None:
    ctx = write("ask Anna whether she can come", proven={"message": lambda fields: "Can you come?"})
    run_actions(skill, ctx)
    assert body(inbox.messages[0]) == "Can you come?"
    assert "Can you come?" in ctx.said[0]


@pytest.mark.parametrize(
    ("request_", "to", "given"),
    [
        (
            'tell Anna about the party, with the subject "Summer 2030"',
            "Anna Berg",
            "tell Anna about the party",
        ),
        (
            "write anna@example.org about the party",
            "Anna Berg",
            "write Anna Berg about the party",
        ),
        (
            "write new@example.org about the party",
            "new@example.org",
            "write new@example.org about the party",
        ),
    ],
)
def test_neither_subject_nor_address_is_to_be_written(
    write: Start, skill: Path, inbox: Any, request_: str, to: str, given: str
) -> None:
    asked = []

    def compose(fields: Mapping[str, str]) -> str:
        asked.append(dict(fields))
        return "There is a party."

    run_actions(skill, write(request_, proven={"message": compose}))
    assert asked == [{"to": to, "request": given}]


def test_a_rule_is_used_even_where_the_generator_is_proven(
    write: Start, skill: Path, inbox: Any
) -> None:
    ctx = write("tell Anna I will be late", proven={"message": lambda fields: "My condolences."})
    run_actions(skill, ctx)
    assert body(inbox.messages[0]) == "I will be late."


def test_subjects(write: Start, skill: Path, inbox: Any) -> None:
    long = "the train that I wanted to take at noon from the main station does not run today"
    for request in (f"tell Anna that {long}", 'mail Anna with the subject "Lunch" saying see you'):
        run_actions(skill, write(request))
    subjects = [message["Subject"] for message in inbox.messages]
    assert subjects == ["The train that I wanted to take at noon from the main …", "Lunch"]


def test_no_is_no(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write("tell Anna I am late", answers=["no"])
    outcome = run_actions(skill, ctx)
    assert (outcome.kind, outcome.value, inbox.messages) == ("finished", None, [])
    assert ctx.said[-1] == "All right, it is not sent."


def test_yes_beforehand_needs_no_answer(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write("tell Anna I am late", answers=(), yes=True)
    assert run_actions(skill, ctx).value is True and len(inbox.messages) == 1


def test_a_description_is_a_decision(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write("tell my sweetheart that I am late", choices=["anna"])
    run_actions(skill, ctx)
    [(question, options, _)] = ctx.chosen
    assert question == "Which contact is meant?"
    assert ("anna", "Anna Berg, girlfriend") in options
    assert inbox.recipients == [["anna@example.org"]]


@pytest.mark.parametrize("request_", ["tell bob that I am late", "tell my plumber that I am late"])
def test_nobody_fits_is_asked(write: Start, skill: Path, inbox: Any, request_: str) -> None:
    answers = ["Zoe", "lena@example.org", "yes"]
    ctx = write(request_, answers=answers, choices=["none"])
    run_actions(skill, ctx)
    assert ctx.asked[0].startswith("Who should get it?") and "(Torn)" in ctx.asked[0]
    assert ctx.asked[1].startswith("No contact with an address fits 'Zoe'.")
    assert inbox.recipients == [["lena@example.org"]]


def test_another_surname_may_be_another_person(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write("tell Anna Schmidt that I am late", answers=["Anna Berg", "yes"])
    run_actions(skill, ctx)
    assert ctx.asked[0] == "Who is meant?" and inbox.recipients == [["anna@example.org"]]
    ctx = write(
        "tell Anna Schmidt that I am ill", answers=["someone else", "schmidt@example.org", "yes"]
    )
    run_actions(skill, ctx)
    assert inbox.recipients[1:] == [["schmidt@example.org"]]


def test_two_of_a_name_are_asked_about(
    write: Start, skill: Path, folders: Folders, inbox: Any
) -> None:
    other = CARDS.split("END")[0].replace("Berg", "Holm").replace("girlfriend", "dentist")
    (folders.home / "contacts/more.vcf").write_text(other.replace("anna@", "holm@") + "END:VCARD\n")
    ctx = write("tell Anna I am late", answers=["Anna Holm", "yes"])
    run_actions(skill, ctx)
    assert ctx.asked[0] == "Who is meant?" and not ctx.chosen
    assert inbox.recipients == [["holm@example.org"]]


def test_a_contact_without_address_is_asked_for_one(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write("tell Tom I am late", answers=["tom@example.org", "yes"])
    run_actions(skill, ctx)
    assert inbox.recipients == [["tom@example.org"]] and body(inbox.messages[0]) == "I am late."
    ctx = write("tell Tom I am late", answers=["no idea"])
    assert run_actions(skill, ctx).kind == "failed"


def test_interrupted_everywhere_it_leaves_once(write: Start, skill: Path, inbox: Any) -> None:
    def made() -> FakeCtx:
        return write(
            "ask my sweetheart whether she comes", choices=["anna"], answers=["Come?", "y"]
        )

    ctx, outcome = run_interrupted(skill, made)
    assert outcome.value is True and len(inbox.messages) == 1
    assert len(ctx.asked) == 2


def test_a_lost_confirmation_is_put_to_the_person(write: Start, skill: Path, inbox: Any) -> None:
    ctx, outcome = run_interrupted(
        skill, lambda: write("tell Anna I am late", answers=["yes", "no"]), lose=["send e-mail"]
    )
    assert len(inbox.messages) == 1 and outcome.value is None
    assert ctx.said[-1].startswith("I cannot tell whether the e-mail left")


def test_a_refusal_of_who_was_named_is_the_environments(
    write: Start, skill: Path, inbox: Any
) -> None:
    inbox.refuse = ("anna@example.org",)
    outcome = run_actions(skill, write("tell Anna I am late"))
    assert (outcome.kind, outcome.cause) == ("failed", "environment")
    assert outcome.message == (
        "The e-mail was not sent: "
        "the mail server refused anna@example.org (550 no such person here)."
    )


def test_whom_a_decision_chose_and_nobody_knows_was_the_wrong_one(
    write: Start, skill: Path, inbox: Any
) -> None:
    inbox.refuse = ("lena@example.org",)
    ctx = write("tell my sweetheart that I am late", choices=["lena"])
    outcome = run_actions(skill, ctx)
    assert (outcome.kind, outcome.cause) == ("failed", "which"), outcome


def test_a_host_that_is_down(write: Start, skill: Path) -> None:
    outcome = run_actions(skill, write("tell Anna I am late", settings={"port": 1}))
    assert outcome.cause == "environment" and "cannot be reached" in outcome.message


def test_without_a_sender_nothing_is_asked(write: Start, skill: Path) -> None:
    ctx = write("tell Anna I am late", person=Person("Robin", "", "Europe/Berlin"))
    outcome = run_actions(skill, ctx)
    assert (
        "Set person.email" in outcome.message and outcome.cause == "environment" and not ctx.asked
    )


def test_the_words_of_a_request_make_no_header(write: Start, skill: Path, inbox: Any) -> None:
    ctx = write('mail Anna with the subject "Hi\nBcc: lena@example.org" saying I am\r\nTo: x@y.z')
    assert run_actions(skill, ctx).value is True
    assert inbox.recipients == [["anna@example.org"]]
    assert inbox.messages[0]["Subject"] == "Hi Bcc: lena@example.org"
    assert inbox.messages[0]["Bcc"] is None


def test_any_name_may_be_told(skill: Path) -> None:
    told = load_module(skill, (skill / "skill.py").read_text("utf-8")).wording.told
    assert told("tell Ärzte-Haus I am late", frozenset({"ärzte", "haus"}))[0] == "I am late."
    assert told("tell (Bob I am late", frozenset()) == ("", "")
