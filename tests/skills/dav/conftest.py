"""A real CalDAV and CardDAV server (Radicale) on loopback, and contexts that are set up for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx2
import pytest

from sia.dav import DavServer
from sia.skills.testing import FakeCtx

USER, PASSWORD = "robin", "s3cret"
_CALENDAR = (
    '<C:mkcalendar xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><set><prop>'
    "<displayname>{}</displayname></prop></set></C:mkcalendar>"
)
_ADDRESSBOOK = (
    '<mkcol xmlns="DAV:" xmlns:R="urn:ietf:params:xml:ns:carddav"><set><prop><resourcetype>'
    "<collection/><R:addressbook/></resourcetype><displayname>{}</displayname></prop></set></mkcol>"
)


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@dataclass
class Dav:
    """The running server. ``answers``: (method, path) of each request; ``fail``: a status that it
    answers to such a method instead, before or ("after") when it was done."""

    url: str
    requests: list[tuple[str, str]]
    fail: dict[str, str]

    @property
    def server(self) -> DavServer:
        return DavServer(self.url, USER, PASSWORD)

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> httpx2.Response:
        with httpx2.Client(auth=(USER, PASSWORD), trust_env=False) as client:
            answer = client.request(
                method, f"{self.url}{USER}/{path}", content=body.encode(), headers=headers
            )
        assert answer.status_code < 300, answer.text
        return answer

    def calendar(self, name: str, *events: str) -> None:
        """A calendar with events, each the lines of a VEVENT without its UID."""
        self.ask("MKCALENDAR", f"{name.lower()}/", _CALENDAR.format(name))
        for number, lines in enumerate(events, 1):
            self.event(name, f"e{number}", lines)

    def event(self, name: str, uid: str, lines: str) -> None:
        """lines: of the VEVENT; further VEVENTs of the same UID behind a line ``--``."""
        parts = "".join(
            f"BEGIN:VEVENT\r\nUID:{uid}\r\nDTSTAMP:20261101T000000Z\r\n{part}\r\nEND:VEVENT\r\n"
            for part in "\r\n".join(lines.strip().splitlines()).split("\r\n--\r\n")
        )
        text = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n{parts}END:VCALENDAR\r\n"
        self.ask("PUT", f"{name.lower()}/{uid}.ics", text, **{"Content-Type": "text/calendar"})

    def texts(self, name: str) -> list[str]:
        """What lies in a collection, unfolded."""
        listed = self.ask("PROPFIND", f"{name.lower()}/", Depth="1").text
        names = sorted(part.split("<")[0] for part in listed.split(f"/{name.lower()}/")[1:])
        found = [self.ask("GET", f"{name.lower()}/{file}").text for file in names if file]
        return [text.replace("\r\n ", "").replace("\r\n", "\n") for text in found]

    def addressbook(self, name: str, **cards: str) -> None:
        self.ask("MKCOL", f"{name.lower()}/", _ADDRESSBOOK.format(name))
        for file, card in cards.items():
            self.card(name, file, card)

    def card(self, name: str, file: str, card: str) -> None:
        if "\nUID:" not in card:  # this server wants one
            card = card.replace("END:VCARD", f"UID:u-{file}\r\nEND:VCARD")
        self.ask("PUT", f"{name.lower()}/{file}.vcf", card, **{"Content-Type": "text/vcard"})


@contextmanager
def _running(folder: Path) -> Iterator[Dav]:
    from radicale.app import Application
    from radicale.config import load

    folder.mkdir()
    users = folder / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    login = {"type": "htpasswd", "htpasswd_filename": str(users), "htpasswd_encryption": "plain"}
    configuration = load()
    configuration.update(
        {
            "auth": {**login, "delay": "0"},
            "storage": {"filesystem_folder": str(folder), "_filesystem_fsync": "False"},
            "logging": {"level": "critical"},
        },
        "test",
        privileged=True,
    )
    application, dav = Application(configuration), Dav("", [], {})

    def serve(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        method = environ["REQUEST_METHOD"]
        dav.requests.append((method, environ["PATH_INFO"]))
        status = dav.fail.pop(method, "")
        if status.startswith("after "):
            list(application(environ, lambda *args: None))
            status = status.removeprefix("after ")
        if status:
            start(status, [("Content-Length", "0")])
            return [b""]
        return application(environ, start)

    server = make_server("127.0.0.1", 0, serve, handler_class=_Quiet)
    dav.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield dav
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
        assert not thread.is_alive()


@pytest.fixture
def dav(tmp_path: Path) -> Iterator[Dav]:
    with _running(tmp_path / "radicale") as running:
        yield running


@pytest.fixture
def ask(make: Callable[..., FakeCtx], dav: Dav) -> Callable[..., FakeCtx]:
    """A context whose category is set up for the server."""

    def made(request: str, **given: Any) -> FakeCtx:
        settings = {"url": dav.url, "user": USER, "hours": "09:00-18:00", "folder": "contacts"}
        settings |= given.pop("settings", {})
        return make(request, settings=settings, secrets={"password": PASSWORD}, **given)

    return made
