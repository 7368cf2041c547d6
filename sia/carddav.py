"""Contacts of a CardDAV server: copied into a folder, and new ones put there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from semif.jsonl import write_whole
from sia import contacts, dav
from sia.dav import DavServer, Refused

INDEX = ".carddav.json"  # in the folder of copies: by address its version and its file
_BATCH = 50  # cards asked for at once
_DAV, _CARD = "{DAV:}", "{urn:ietf:params:xml:ns:carddav}"
_HEAD = '<?xml version="1.0" encoding="utf-8"?>'
_NAMES = 'xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:carddav"'
_HOME = f"{_HEAD}<propfind {_NAMES}><prop><C:addressbook-home-set/></prop></propfind>"
_BOOKS = f"{_HEAD}<propfind {_NAMES}><prop><resourcetype/></prop></propfind>"
_VERSIONS = f"{_HEAD}<propfind {_NAMES}><prop><getetag/><resourcetype/></prop></propfind>"


def copies(server: DavServer, folder: Path) -> Path:
    """Where the copies of this server's cards lie, in the person's folder of contacts."""
    if folder.exists() and not folder.is_dir():
        raise Refused(f"contacts.folder is the file {folder}: name a folder for the copies")
    return folder / (re.sub(r"[^\w.-]+", "-", f"{server.user}@{server.place}").strip("-") or "dav")


def sync(server: DavServer, folder: Path) -> int:
    """Make the copies what the server has; how many cards changed. Raises Refused, OSError.

    Only what has another version is fetched. The copies are the server's: what somebody writes
    into them is lost with the card's next version.
    """
    place = copies(server, folder)
    with dav.opened(server) as client:
        versions = _versions(server, client)
        known = _index(place)
        changed = [
            href
            for href, version in versions.items()
            if known.get(href, ("", ""))[0] != version or not (place / known[href][1]).exists()
        ]
        place.mkdir(parents=True, exist_ok=True)
        index = {href: entry for href, entry in known.items() if href in versions}
        for start in range(0, len(changed), _BATCH):
            for href, text in _fetched(server, client, changed[start : start + _BATCH]):
                name = f"{sha256(href.encode()).hexdigest()[:16]}.vcf"
                write_whole(place / name, text.encode())
                index[href] = (versions[href], name)
    gone = [entry for href, entry in known.items() if href not in versions]
    write_whole(place / INDEX, json.dumps(index, indent=1).encode())
    for _, name in gone:
        (place / name).unlink(missing_ok=True)
    return len(changed) + len(gone)


def books(server: DavServer) -> list[str]:
    """The addresses of the person's address books. Raises Refused."""
    with dav.opened(server) as client:
        return list(_books(server, client))


def add(server: DavServer, uid: str, card: str) -> None:
    """Put a new card into the first address book; one of that UID that is there stays as it is.

    Raises Refused and Unknown.
    """
    with dav.opened(server) as client:
        book = next(iter(_books(server, client)), "")
        if not book:
            raise Refused(f"{server.place} has no address book")
        headers = {"Content-Type": "text/vcard; charset=utf-8", "If-None-Match": "*"}
        with dav.writing(server):
            status = client.put(f"{book.rstrip('/')}/{uid}.vcf", card, headers).status
    if status not in (200, 201, 204, 412):
        raise Refused(f"{server.place} did not take the card ({status})")


def has(server: DavServer, uid: str) -> bool:
    """Whether a card that ``add`` put is there. Raises Refused."""
    with dav.opened(server) as client:
        return any(href.endswith(f"/{uid}.vcf") for href in _versions(server, client))


def extend(server: DavServer, copy: Path, phones: Sequence[str], emails: Sequence[str]) -> None:
    """Add to the card on the server that ``copy`` is of; every other line of it stays.

    Raises Refused, also where the card has changed since it was copied, and Unknown.
    """
    index = _index(copy.parent)
    href = next((href for href, (_, name) in index.items() if name == copy.name), "")
    if not href:
        raise Refused(f"{copy.name} is not a copy of a card on {server.place}")
    text, _ = contacts.decoded(copy.read_bytes())
    text = contacts.extended(text, 1, phones, emails)
    headers = {"Content-Type": "text/vcard; charset=utf-8", "If-Match": index[href][0]}
    with dav.opened(server) as client, dav.writing(server):
        status = client.put(urljoin(server.url, href), text, headers).status
    if status == 412:
        raise Refused("the card has changed on the server meanwhile; say it again")
    if status not in (200, 201, 204):
        raise Refused(f"{server.place} did not take the card ({status})")


def _index(place: Path) -> dict[str, tuple[str, str]]:
    """By address (version, file name); damaged, everything is fetched again."""
    try:
        data = json.loads((place / INDEX).read_bytes())
        return {href: (version, Path(name).name) for href, (version, name) in data.items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def _books(server: DavServer, client: Any) -> Iterator[str]:
    tree = _tree(server, client.propfind(str(client.principal().url), _HOME, 0))
    for home in tree.iter(f"{_CARD}addressbook-home-set"):
        for link in home.iter(f"{_DAV}href"):
            place = _checked(server, urljoin(server.url, link.text or ""))
            for item in _tree(server, client.propfind(place, _BOOKS, 1)).iter(f"{_DAV}response"):
                if item.find(f".//{_CARD}addressbook") is not None:
                    yield _checked(server, urljoin(place, item.findtext(f"{_DAV}href", "")))


def _versions(server: DavServer, client: Any) -> dict[str, str]:
    """The version of each card by its path. Without an address book nothing is taken for gone."""
    found, any_book = {}, False
    for book in _books(server, client):
        any_book = True
        for item in _tree(server, client.propfind(book, _VERSIONS, 1)).iter(f"{_DAV}response"):
            version = item.findtext(f".//{_DAV}getetag", "")
            if version and item.find(f".//{_DAV}collection") is None:
                found[urljoin(book, item.findtext(f"{_DAV}href", ""))] = version
    if not any_book:
        raise Refused(f"{server.place} has no address book")
    return found


def _fetched(server: DavServer, client: Any, hrefs: Sequence[str]) -> Iterator[tuple[str, str]]:
    from lxml import etree

    by_book: dict[str, list[str]] = {}
    for href in hrefs:
        by_book.setdefault(href.rpartition("/")[0] + "/", []).append(href)
    for book, wanted in by_book.items():
        root = etree.Element(f"{_CARD}addressbook-multiget", nsmap={None: "DAV:", "C": _CARD[1:-1]})
        prop = etree.SubElement(root, f"{_DAV}prop")
        etree.SubElement(prop, f"{_CARD}address-data")
        for href in wanted:
            etree.SubElement(root, f"{_DAV}href").text = urlsplit(href).path
        body = etree.tostring(root, encoding="unicode")
        for item in _tree(server, client.report(book, body, 0)).iter(f"{_DAV}response"):
            text = item.findtext(f".//{_CARD}address-data")
            href = urljoin(book, item.findtext(f"{_DAV}href", ""))
            if text and href in wanted:
                yield href, text


def _tree(server: DavServer, response: Any) -> Any:
    if response.status >= 400 or response.tree is None:
        raise Refused(f"{server.place} does not answer as a contacts server ({response.status})")
    return response.tree


def _checked(server: DavServer, url: str) -> str:
    """Another machine that the server names must be as safe as it is."""
    DavServer(url, insecure=server.insecure).check()
    return url
