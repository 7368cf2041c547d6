"""What the calendar needs: the CalDAV server, a login, and where new events go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

from sia import calendars
from sia.dav import DavServer, Refused
from sia.setup import Answers, Field, NotWorking

FIELDS = (
    Field("url", "Address of the CalDAV server (https://…)"),
    Field(
        "user",
        "User name, empty: no login",
        default=lambda answers: answers["person.email"],
        optional=True,
    ),
    Field(
        "password",
        "Password (empty keeps the one stored)",
        secret=True,
        when=lambda answers: bool(answers["user"]),
    ),
    Field("calendar", "Calendar for new events, empty: ask each time", optional=True),
)


def test(answers: Answers, home: Path) -> Iterator[str]:
    user, insecure = answers["user"], bool(answers.get("insecure"))
    password = answers.get("password", "") if user else ""
    try:
        server = DavServer(answers["url"], user, password, insecure)
        with calendars.opened(server, ZoneInfo("UTC")) as found:
            names = found.names
    except Refused as error:
        raise NotWorking(str(error)) from None
    if not names:
        raise NotWorking(f"{server.place} has no calendar of {user or 'yours'}")
    yield f"calendars: {', '.join(names)}"
    wanted = answers.get("calendar", "")
    if wanted and wanted not in names:
        raise NotWorking(f"there is no calendar {wanted}; there are: {', '.join(names)}")
