"""What the skills of contacts share: the folder, the server, and the cards as they are now."""

from __future__ import annotations

from pathlib import Path

from sia import carddav, contacts
from sia.contacts import Contacts
from sia.dav import DavServer, Refused
from sia.skills.api import Ctx, Failed


def folder(ctx: Ctx) -> Path:
    return ctx.folders.home / Path(ctx.settings.get("folder") or "contacts").expanduser()


def server(ctx: Ctx) -> DavServer | None:
    return DavServer.of(ctx.settings, ctx.secret) if ctx.settings.get("url") else None


def known(ctx: Ctx) -> tuple[Contacts, str]:
    """The person's contacts, and why they may be old, where they may be. Raises Failed."""
    stale, where = "", server(ctx)
    try:
        if where:
            try:
                carddav.sync(where, folder(ctx))
            except Refused as error:
                stale = f"These are the copies of before: {error}."
        return contacts.load(folder(ctx)), stale
    except OSError as error:
        raise Failed(f"The contacts cannot be read: {error}", "environment") from None
