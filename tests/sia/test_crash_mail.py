"""Killed at any moment of sending a mail: the request is never lost, and no mail leaves twice."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP

from sia.events import Asked, Ended

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("child.py")
APPROVE = "Send this e-mail to anna@example.org?"
CUT_OFF = "I was cut off and cannot tell whether this was done: send e-mail. Do it again?"


class Server:
    """A real SMTP server that kills a process at one moment of the dialogue."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.mails: list[bytes] = []
        self.moment, self.victim = "", 0

    def reached(self, moment: str) -> None:
        if moment == self.moment and self.victim:
            os.kill(self.victim, signal.SIGKILL)
            self.victim = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(envelope.content)
        self.reached("message")
        return "250 queued"


class Dialogue(SMTP):
    """Tells the server of each command before it is answered."""

    greeted = False

    def connection_made(self, transport: Any) -> None:
        # Who only looks whether somebody listens is gone before the greeting.
        self.loop.call_later(0.1, self._greet, transport)

    def _greet(self, transport: Any) -> None:
        if not transport.is_closing():
            self.greeted = True
            self.event_handler.reached("connection")
            super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self.greeted:
            super().connection_lost(error)

    def eof_received(self) -> bool:
        return super().eof_received() if self.greeted else False

    async def smtp_EHLO(self, hostname: str) -> None:
        self.event_handler.reached("EHLO")
        await super().smtp_EHLO(hostname)

    async def smtp_MAIL(self, arg: str) -> None:
        self.event_handler.reached("MAIL")
        await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str) -> None:
        self.event_handler.reached("RCPT")
        await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:
        self.event_handler.reached("DATA")
        await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg: str) -> None:
        self.event_handler.reached("QUIT")
        await super().smtp_QUIT(arg)


class Serving(Controller):
    def factory(self) -> SMTP:
        return Dialogue(self.handler, **self.SMTP_kwargs)


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(port)
    controller = Serving(server, "127.0.0.1", port)
    controller.start()
    yield server
    controller.stop()


@pytest.fixture
def mailing(home: Path, server: Server) -> Path:
    """The home, with the shipped e-mail skills as its only ones and that server."""
    shutil.copytree(ROOT / "skills" / "email", home / "skills" / "email")
    with (home / "sia.toml").open("a") as file:
        file.write(
            f'[email]\nhost = "127.0.0.1"\nport = {server.port}\ntls = "none"\n'
            'sender = "me@example.org"\n'
        )
    return home


@pytest.fixture
def killed(mailing: Path, server: Server) -> Callable[[str], None]:
    """killed(moment): an agent sends the mail (see child.py) and is killed at that moment."""

    def killed(moment: str) -> None:
        child = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("child.py")),
                str(mailing),
                "mail",
                moment,
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        server.moment, server.victim = moment, child.pid
        assert child.wait(60) == -signal.SIGKILL
        server.victim = 0

    return killed


def worked(rig: Any, answer: Callable[[str], str]) -> str:
    """Answer what is asked until the request is over; how it ended."""
    answered, end = 0, time.monotonic() + 60
    while not (over := [event for event in rig.events if isinstance(event, Ended)]):
        assert time.monotonic() < end and rig.error is None, (rig.events, rig.error)
        for event in [event for event in rig.events if isinstance(event, Asked)][answered:]:
            answered += 1
            rig.say(answer(event.text))
        time.sleep(0.01)
    return over[0].status


# The moment of the kill; whether the mail's fate is then unknown to the agent; the mails out.
# None: the worker outlives the agent by a few ms, and what it is saying then may be heard.
MOMENTS = [
    ("admitted", False, 0),
    ("routed", False, 0),
    ("asked", False, 0),
    ("answered", False, 0),
    ("before the intent is kept", False, 0),
    ("after the intent is kept", True, None),
    ("connection", True, None),
    ("EHLO", True, None),
    ("MAIL", True, None),
    ("RCPT", True, None),
    ("DATA", True, None),
    ("message", True, 1),
    ("QUIT", True, 1),
    ("before the confirmation is kept", True, 1),
    ("after the confirmation is kept", False, 1),
    ("said", False, 1),
]


@pytest.mark.parametrize(("moment", "unknown", "out"), MOMENTS)
def test_one_mail_leaves_whenever_the_agent_is_killed(
    make, rigs, killed, server, moment, unknown, out
) -> None:
    killed(moment)
    assert len(server.mails) in ((0, 1) if out is None else (out,))
    rig = make(decide=rigs.mailing).start()

    def answer(question: str) -> str:
        if question == CUT_OFF:  # the person can look whether it is there
            return "no" if server.mails else "yes"
        assert question == APPROVE
        return "yes"

    if moment == "said":  # it was over, but for hearing that
        assert rig.end() == 0 and rig.said == ["Sent to anna@example.org."]
    else:
        assert worked(rig, answer) == "done"
        assert rig.end() == 0
        assert (CUT_OFF in rig.asked) is unknown
    assert len(server.mails) == 1
    assert b"I will be late" in server.mails[0]
    assert rig.runs()["r1"] == "done"


@pytest.mark.parametrize("moment", ["MAIL", "message"])
def test_with_nobody_there_it_is_not_sent_on_a_guess(make, rigs, killed, server, moment) -> None:
    killed(moment)
    rig = make(decide=rigs.mailing, yes=True).start()  # a yes in advance is none to this
    assert rig.end() == 1
    assert len(server.mails) <= 1 and rig.runs()["r1"] == "failed"
    (said,) = rig.said
    assert said == f"nobody is there to answer: {CUT_OFF}"
