"""Skills run from their folders with the shipped double of the agent, on real files and servers."""

from __future__ import annotations

import importlib.util
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia.skills.api import Folders, Person
from sia.skills.testing import FakeCtx

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Monday


@pytest.fixture
def skills() -> Path:
    return Path(__file__).parents[2] / "skills"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(*(tmp_path / name for name in ("home", "home/tasks", "home/notes", "files")))
    for folder in (made.home, made.tasks, made.files):
        folder.mkdir()
    return made


@pytest.fixture
def make(folders: Folders) -> Callable[..., FakeCtx]:
    """FakeCtx with the person's defaults; keywords replace them."""

    def made(request: str, **given: object) -> FakeCtx:
        person = Person("Robin Falk", "robin@example.org", "Europe/Berlin")
        return FakeCtx(request, **{"now": NOW, "folders": folders, "person": person, **given})

    return made


@pytest.fixture(scope="session")
def dovecots() -> ModuleType:
    """The module that starts an IMAP server."""
    path = Path(__file__).with_name("dovecot.py")
    spec = importlib.util.spec_from_file_location("skills_dovecot", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def imap_server(dovecots: ModuleType) -> Iterator[Any]:
    server = dovecots.start()
    yield server
    dovecots.stop(server)


@pytest.fixture
def mailbox(imap_server: Any) -> Any:
    """An empty mailbox on a real IMAP server; its password is ``dovecots.PASSWORD``."""
    return imap_server.mailbox()


def letter(
    body: str = "Hello",
    sender: str = "Anna Berg <anna@example.org>",
    subject: str = "Dinner",
    **headers: str,
) -> bytes:
    """A message as it lies in a mailbox; what stands in it is not checked."""
    given = {"From": sender, "To": "robin@example.org", "Subject": subject}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\n" for name, value in given.items())
    return f"{head}\n{body}\n".encode()


@pytest.fixture(name="letter")
def _letter() -> Callable[..., bytes]:
    return letter


@dataclass
class Inbox:
    """What a mail server has taken, and what it refuses."""

    port: int
    refuse: tuple[str, ...] = ()  # recipients
    reject: str = ""  # the answer to every message
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return "550 no such\tperson here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.reject:
            return self.reject
        self.messages.append(message_from_bytes(envelope.content, policy=default))
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 queued"


@pytest.fixture
def mail_server() -> Iterator[Callable[..., Inbox]]:
    """Starts a real SMTP server: ``mail_server(login=, starttls=, tls=, refuse=, reject=)``.

    login: True for robin with s3cret, or (user, password). starttls, tls: a folder with cert.pem
    and key.pem.
    """
    with ExitStack() as stack:
        yield lambda **given: stack.enter_context(_serving(**given))


@contextmanager
def _serving(
    login: bool | tuple[str, str] = False,
    starttls: Path | None = None,
    tls: Path | None = None,
    **given: Any,
) -> Iterator[Inbox]:
    from aiosmtpd.controller import Controller

    inbox = Inbox(_free_port(), **given)
    options: dict[str, Any] = {}
    if login:
        known = ("robin", "s3cret") if login is True else login
        options |= {"authenticator": partial(_login, known), "auth_require_tls": False}
    if starttls:
        options["tls_context"] = _context(starttls)
    context = _context(tls) if tls else None
    controller = Controller(inbox, "127.0.0.1", inbox.port, ssl_context=context, **options)
    controller.start()
    try:
        yield inbox
    finally:
        controller.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _login(
    known: tuple[str, str], server: Any, session: Any, envelope: Any, mechanism: str, data: Any
) -> Any:
    from aiosmtpd.smtp import AuthResult

    right = (data.login.decode(), data.password.decode()) == known
    return AuthResult(success=right, handled=False)


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1: cert.pem, key.pem."""
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = "-keyout key.pem -out cert.pem -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(f"{command} {names}".split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def talker() -> Iterator[Callable[..., int]]:
    """Starts a server that gives one answer at the start and one after each line, then hangs up.

    After an answer of 354 it reads up to the lone dot. Without answers it stays silent. Gives the
    port.
    """
    with ExitStack() as stack:
        yield lambda *answers: stack.enter_context(_talking(answers))


@contextmanager
def _talking(answers: tuple[bytes, ...]) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as client, client.makefile("rb") as lines:
            for answer in answers:
                client.sendall(answer)
                line = lines.readline()
                while answer.startswith(b"354") and line not in (b".\r\n", b""):
                    line = lines.readline()
            if not answers:
                done.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        assert not thread.is_alive()
