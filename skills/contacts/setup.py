"""What contacts need: a folder of vCards, and a CardDAV server where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sia import carddav, contacts
from sia.dav import DavServer, Refused
from sia.setup import Answers, Field, NotWorking


def _has_server(answers: Answers) -> bool:
    return bool(answers["url"])


FIELDS = (
    Field("folder", "Folder of vCards (or one file)", default="contacts"),
    Field("url", "Address of a CardDAV server (https://…), empty: none", optional=True),
    Field(
        "user",
        "User name, empty: no login",
        default=lambda answers: answers["person.email"],
        optional=True,
        when=_has_server,
    ),
    Field(
        "password",
        "Password (empty keeps the one stored)",
        secret=True,
        when=lambda answers: _has_server(answers) and bool(answers["user"]),
    ),
)


def test(answers: Answers, home: Path) -> Iterator[str]:
    folder = home / Path(answers["folder"]).expanduser()
    try:
        known = contacts.load(folder)
    except OSError as error:
        raise NotWorking(f"{folder}: {error.strerror}") from None
    yield f"in {answers['folder']}: {len(known.people)} people"
    if not answers["url"]:
        return
    user, insecure = answers["user"], bool(answers.get("insecure"))
    password = answers.get("password", "") if user else ""
    try:
        server = DavServer(answers["url"], user, password, insecure)
        carddav.copies(server, folder)
        found = carddav.books(server)
    except Refused as error:
        raise NotWorking(str(error)) from None
    if not found:
        raise NotWorking(f"{server.place} has no address book of {user or 'yours'}")
    yield f"address books on {server.place}: {len(found)}"
