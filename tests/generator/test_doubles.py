"""The generators without a model: a person, and a script."""

import threading
from collections.abc import Sequence

import pytest

from semif.llama import Model
from sia.generator.local import LocalGenerator
from sia.generator.manual import ManualGenerator
from sia.generator.remote import RemoteGenerator
from sia.generator.testing import Call, ScriptedGenerator, until_cancelled
from sia.generator.types import TASKS, Generator, GeneratorError, Part, Unfit

PARTS = (Part("system", "You act."), Part("user", "Go on now."))
NEVER = threading.Event()


def test_all_are_generators(tiny: Model) -> None:
    generators: list[Generator] = [
        ManualGenerator(lambda cancel: None),
        ScriptedGenerator(),
        RemoteGenerator("https://example.org/v1", "m"),
        LocalGenerator(tiny, n_ctx=512, threads=1, max_tokens=64, proven=frozenset({"name"})),
    ]
    assert [g.name for g in generators] == ["manual", "scripted", "m", "tiny"]
    proven = [TASKS - {"judge"}, TASKS, frozenset(), frozenset({"name"})]
    assert [g.proven for g in generators] == proven
    for generator in generators:
        generator.close()
        generator.close()


def test_a_person_answers() -> None:
    seen: list[Sequence[Part]] = []
    lines = iter([" <stop/> \n", "Dear Anna", None])
    generator = ManualGenerator(lambda cancel: next(lines), show=seen.append)
    reply = generator.reply(PARTS, ids=["e1"], cancel=NEVER)
    assert (reply.text, reply.finish, reply.model) == (" <stop/> \n", "stop", "manual")
    assert generator.write(PARTS, max_tokens=5, cancel=NEVER).text == "Dear Anna"
    nothing = generator.reply(PARTS, ids=[], cancel=NEVER)
    assert (nothing.text, nothing.finish) == ("", "cancelled")
    assert seen == [PARTS] * 3


def test_a_person_is_interrupted() -> None:
    cancel = threading.Event()

    def read(event: threading.Event) -> str | None:
        threading.Timer(0.05, cancel.set).start()
        event.wait(5)
        return None

    assert ManualGenerator(read).reply(PARTS, ids=[], cancel=cancel).finish == "cancelled"


def test_a_script_is_followed() -> None:
    generator = ScriptedGenerator(["<stop/>", lambda parts, cancel: parts[1].text.upper()])
    shown: list[str] = []
    reply = generator.reply(PARTS, ids=["e1"], cancel=NEVER, on_text=shown.append)
    assert reply.text == "<stop/>" and shown == ["<stop/>"]
    assert (reply.prompt_tokens, reply.generated, reply.ms) == (5, 1, 0.0)
    assert generator.write(PARTS, max_tokens=5, cancel=NEVER).text == "GO ON NOW."
    assert generator.calls == [Call("reply", PARTS, ("e1",)), Call("write", PARTS)]
    with pytest.raises(GeneratorError, match="no reply for call 3"):
        generator.reply(PARTS, ids=[], cancel=NEVER)


LATE = {"to": "Ada", "request": "tell Ada I'll be 20 minutes late"}


def test_a_writing_task_is_checked() -> None:
    generator = ScriptedGenerator(
        [
            "Hi Ada, I'll be 20 minutes late.",
            "Hi Ada, I'll be 30 minutes late.",
            "Hi Ada, I'll be late.",
            '```json\n{"id": "late", "title": "Late", "description": "says who is late"}\n```',
            "late",
            lambda parts, cancel: None,
        ]
    )
    assert generator.compose("message", LATE, cancel=NEVER) == "Hi Ada, I'll be 20 minutes late."
    for why in ("loses 20 and invents 30", "loses 20"):
        with pytest.raises(Unfit, match=why):
            generator.compose("message", LATE, cancel=NEVER)
    asked = {"requests": "tell Ada I'm late | tell Bo I'm late"}
    assert generator.compose("name", asked, cancel=NEVER) == {
        "id": "late",
        "title": "Late",
        "description": "says who is late",
    }
    with pytest.raises(Unfit, match="not well formed"):
        generator.compose("name", asked, cancel=NEVER)
    assert generator.compose("name", asked, cancel=NEVER) is None
    first = generator.calls[0]
    assert first.kind == "compose" and first.parts[1].text.endswith(LATE["request"])
    assert "letter for letter" in first.parts[0].text


def test_what_a_person_writes_may_add_facts() -> None:
    generator = ManualGenerator(lambda cancel: "Hi Ada, 25 minutes.")
    assert generator.compose("message", LATE, cancel=NEVER) == "Hi Ada, 25 minutes."


def test_a_script_waits_to_be_cancelled() -> None:
    cancel = threading.Event()
    threading.Timer(0.05, cancel.set).start()
    generator = ScriptedGenerator([until_cancelled, "<stop/>"])
    reply = generator.reply(PARTS, ids=[], cancel=cancel)
    assert (reply.text, reply.finish) == ("", "cancelled")
    cancel.clear()
    assert generator.reply(PARTS, ids=[], cancel=cancel).finish == "stop"
