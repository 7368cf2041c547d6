"""Playing the generator."""

from __future__ import annotations

import threading
import time

import pytest

from sia.generator.types import Part
from sia.scripts import Cancel
from sia.shell.manual import Played, Slot, Tail, closed
from sia.shell.text import plain


@pytest.mark.parametrize(
    ("reply", "whole"),
    [
        ("<stop/>", True),
        ("<write_stdout>hello</write_stdout>", True),
        ("<write_stdout>hello", False),
        ("<write_stdout><![CDATA[a < b", False),
        ("<write_stdout><![CDATA[a < b]]>", False),
        ("<write_stdout><![CDATA[a < b]]></write_stdout>", True),
        ("<single_shot>a && b < c", False),
        ("<single_shot>a && b < c</single_shot>", True),
        ("<single", False),
        ('<delete id="e1', False),
        ('<delete id="e1"/>', True),
        ("<", False),
        ("<single_shot>one\ntwo", False),
        ("<single_shot>never closed\n", True),  # an empty line ends it as it is
        ("<a></b>", True),
    ],
)
def test_a_reply_goes_on_until_its_root_is_closed(reply: str, whole: bool) -> None:
    assert closed(reply) is whole


def test_a_reply_reaches_the_waiting_thread() -> None:
    slot, got = Slot(lambda: None), []
    thread = threading.Thread(target=lambda: got.append(slot.wait(Cancel())))
    assert not slot.give("too early")
    thread.start()
    while not slot.waiting:
        time.sleep(0.001)
    assert slot.give("<stop/>")
    thread.join(5)
    assert got == ["<stop/>"]
    assert not slot.give("too late")


def test_words_are_not_taken_once_the_wait_is_cancelled() -> None:
    """Also before the waiting thread knows of it; what comes before the words is then not done."""
    slot, cancel, done = Slot(lambda: None), threading.Event(), []
    thread = threading.Thread(target=slot.wait, args=(cancel,), daemon=True)
    thread.start()
    while not slot.waiting:
        time.sleep(0.001)
    cancel.set()  # wakes nobody
    assert not slot.give("<stop/>", lambda: done.append(1)) and not done
    slot.stop()
    thread.join(5)
    assert not slot.waiting


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_cancel_and_stop_wake_at_once(how: str) -> None:
    slot, cancel, got = Slot(lambda: None), Cancel(), []
    thread = threading.Thread(target=lambda: got.append(slot.wait(cancel)))
    thread.start()
    while not slot.waiting:
        time.sleep(0.001)
    start = time.perf_counter()
    cancel.set() if how == "cancel" else slot.stop()
    thread.join(5)
    assert got == [None]
    assert time.perf_counter() - start < 0.5


def test_a_stopped_slot_never_waits() -> None:
    slot = Slot(lambda: None)
    slot.stop()
    assert slot.wait(Cancel()) is None


def test_a_text_is_what_stands_inside_its_tag() -> None:
    played = Played(lambda cancel: "<text>I will be <b>late</b>.</text>")
    reply = played.write([Part("user", "x")], max_tokens=9, cancel=threading.Event())
    assert (reply.text, reply.finish) == ("I will be late.", "stop")
    named = '{"id": "travel", "title": "Travel", "description": "Trips & hotels"}'
    played = Played(lambda cancel: f"<text><![CDATA[{named}]]></text>")
    value = played.compose("name", {"requests": "book a flight"}, cancel=threading.Event())
    assert value == {"id": "travel", "title": "Travel", "description": "Trips & hotels"}


CONTEXT = (
    '<input id="e1" source="typed" run="r1"><![CDATA[free memory?]]></input>\n'
    '<single_shot id="e2" status="done" exit_code="0"><![CDATA[seq 9]]>'
    "<stdout><![CDATA[1\n2\n3\n4\n5\n6\n7\n8\n9\n]]></stdout><stderr/></single_shot>\n"
    '<now time="2026-11-30T15:00:00+01:00"><queue depth="0"/></now>\n'
)


def test_the_tail_shows_what_is_new() -> None:
    tail = Tail(plain)
    first = tail.show([Part("system", "s"), Part("user", CONTEXT)], 80)
    assert first[:4] == [
        "  input e1        free memory?",
        "  single_shot e2  $ seq 9  [done 0]",
        "                  1",
        "                  2",
    ]
    assert first[7] == "                  … 4 more lines"
    more = '<error id="e3" line="1" column="4"><![CDATA[not closed]]></error>\n' + CONTEXT
    second = tail.show([Part("system", "s"), Part("user", more)], 80)
    assert second[0] == "  error e3  line 1, column 4: not closed"
    assert len(second) == 2


@pytest.mark.parametrize("text", ["tell Anna < & I am late", "requests: book a flight", "<b>x</b>"])
def test_the_tail_of_a_writing_task_is_its_text(text: str) -> None:
    parts = [Part("system", "Write the message."), Part("user", text)]
    assert Tail(plain).show(parts, 80) == [
        "  task  Write the message.",
        f"  text  {text}",
        "  answer with <text>your words</text>",
    ]
