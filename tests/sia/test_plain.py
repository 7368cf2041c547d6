"""Lines of standard input, and words on standard output that drive no terminal."""

import io
import os

import pytest

from sia.cli.plain import Lines, OneRequest, PlainOutput
from sia.cli.reader import LINE_LIMIT
from sia.errors import SiaError
from sia.events import Admitted, Asked, Notice, Ready, Routed, Said

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""


@pytest.fixture
def feed(make, skill):
    """feed(*pieces): an agent that works them as its standard input to the end; what it refused."""
    skill("echo", ECHO)

    def feed(*pieces: bytes):
        rig, refused = make(), []
        read, write = os.pipe()
        lines = Lines(rig.agent, read, "piped", print, refused.append)
        lines.start()
        for piece in pieces:
            with open(os.dup(write), "wb") as file:
                file.write(piece)
        os.close(write)
        assert rig.start().joined() == 0
        lines.stop()
        os.close(read)
        return rig, refused

    return feed


def test_lines_may_come_in_any_pieces(feed) -> None:
    text = "echo größe\n\n  echo two \r\necho last".encode()
    rig, refused = feed(*(text[n : n + 1] for n in range(len(text))))
    assert rig.said == ["did echo größe", "did echo two", "did echo last"] and refused == []


def test_what_is_not_utf8_is_refused_by_its_line(feed) -> None:
    rig, refused = feed(b"echo one\necho \xff\xfe\necho two\n")
    assert rig.said == ["did echo one", "did echo two"]
    assert refused == ["a line is not UTF-8 at byte 5 and was not taken: echo ��; send it as UTF-8"]


def test_a_line_without_end_takes_no_memory_and_no_time(feed) -> None:
    rig, refused = feed(b"echo one\n" + b"x" * (20 << 20) + b"\necho two\n")
    assert rig.said == ["did echo one", "did echo two"]
    (reason,) = refused
    assert reason.startswith(f"a line of more than {LINE_LIMIT:,} bytes was not taken: xxx")


def test_the_line_being_typed_survives_a_restart(make, skill) -> None:
    skill("echo", ECHO)
    whole = "echo größe\n".encode()
    rig = make()
    read, write = os.pipe()
    lines = Lines(rig.agent, read, "piped", print, print)
    lines.start()
    os.write(write, whole[:8])  # ends with half a character
    rig.until(lambda: rig.agent.store.meta("partial_input"))
    lines.stop()
    rig.agent.close()
    os.write(write, whole[8:])
    os.close(write)
    again = make()
    Lines(again.agent, read, "piped", print, print).start()
    assert again.start().joined() == 0
    assert again.said == ["did echo größe"]
    os.close(read)


def test_lines_that_cannot_be_kept_end_the_agent_and_say_why(make) -> None:
    rig = make()
    read, write = os.pipe()
    lines = Lines(rig.agent, read, "piped", print, print)
    lines.start()
    rig.start().wait(Ready)
    rig.until(rig.agent.loop.idle)
    rig.agent.store._db.execute("PRAGMA max_page_count = 1")  # sqlite's full disk
    os.write(write, b"echo " + b"x" * 50_000 + b"\n")
    assert rig.joined() == 1
    lines.stop()
    assert isinstance(lines.error, SiaError) and "is the disk full?" in str(lines.error)
    os.close(read)
    os.close(write)


def test_each_event_goes_where_it_belongs() -> None:
    out, err = io.StringIO(), io.StringIO()
    show = PlainOutput(out, err)
    for event in (
        Admitted("r1", "run", "x"),
        Admitted("r2", "ignore", "thanks"),
        Admitted("r3", "preempt", "stop"),
        Routed("r1", "demo/echo", 0.876),
        Routed("r1", "-", 0.9),
        Said("r1", "hello"),
        Said("r1", "hello", again=True),
        Asked("r1", "Send it?", ("yes", "no")),
        Asked("r1", "How many?"),
        Notice("skills reloaded"),
        Notice("the disk is full", "error"),
        Said("r1", "\x1b[31mred\x07\x00\rgone"),
    ):
        show(event)
    assert out.getvalue() == (
        "hello\n(again) hello\nSend it? (yes/no)\nHow many?\n�[31mred���gone\n"
    )
    assert err.getvalue() == (
        "sia: heard, nothing to do: thanks\nsia: interrupting for: stop\nsia: demo/echo (0.88)\n"
        "sia: skills reloaded\nsia: error: the disk is full\n"
    )
    PlainOutput(None, None)(Said("r1", "nobody reads"))


def test_one_request_ends_the_agent_when_it_is_over(make, skill) -> None:
    skill("echo", ECHO)
    skill("ask", "def act(ctx):\n    ctx.say('So ' + ctx.ask('How many?'))\n")
    for text, said in (
        ("echo once", ["did echo once"]),
        ("thanks", []),
        ("ask me", ["nobody is there to answer: How many?"]),
    ):
        rig = make()
        out, err = io.StringIO(), io.StringIO()
        OneRequest(rig.agent, text, PlainOutput(out, err), terminal=None).start()
        assert rig.start().joined() == (1 if text == "ask me" else 0)
        assert rig.said == said


def test_one_request_is_not_submitted_again_after_a_restart(make) -> None:
    rig = make(["<stop/>"])
    output = PlainOutput(io.StringIO(), io.StringIO())
    OneRequest(rig.agent, "free: reload", output, terminal=None).start()
    assert rig.start().joined() == 75
    rig = make(["<write_stdout>back</write_stdout>"])
    OneRequest(rig.agent, "free: reload", output, terminal=None).start()
    assert rig.start().joined() == 0
    assert rig.said == ["back"] and rig.runs() == {"r1": "done"}
