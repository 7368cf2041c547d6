"""The person's contacts, read from vCards (3.0, 4.0, and 2.1 as phones still write it)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 20_000_000
ADDRESS = re.compile(r"[^\s@<>(),;:\\\"\[\]]+@[^\s@<>(),;:\\\"\[\]]*[^\s@<>(),;:\\\"\[\].]")
_CARD = re.compile(r"^BEGIN:VCARD\s*$.*?(?:^END:VCARD\s*$|\Z)", re.I | re.M | re.S)
_NO_NAMES = frozenset({"a", "an", "and", "at", "dr", "mr", "mrs", "ms", "my", "of", "our", "the"})


@dataclass(frozen=True)
class Contact:
    """One person. ``email`` is empty where the card has none that can be used."""

    id: str  # short, from the name; once among the contacts
    name: str
    email: str
    about: str  # who they are to the person: a category, a role; may be empty
    called: frozenset[str]  # lower-case words of names, nicknames, categories and roles

    @property
    def description(self) -> str:
        """For people and for decisions: "Anna Berg, girlfriend"."""
        return f"{self.name}, {self.about}" if self.about else self.name


@dataclass(frozen=True)
class Contacts:
    people: tuple[Contact, ...] = ()
    problems: tuple[str, ...] = ()  # cards that cannot be read, a line each


def load(path: Path) -> Contacts:
    """The contacts of a vCard file or of the ``*.vcf`` files in a folder; none where neither is.

    A card that cannot be read is left out and named in ``problems``. Raises OSError.
    """
    cards: list[dict[str, Any]] = []
    problems: list[str] = []
    files = sorted(path.glob("*.vcf")) if path.is_dir() else [path] if path.exists() else []
    for file in files:
        data = file.read_bytes()
        if len(data) > MAX_BYTES:
            problems.append(f"{file.name}: over {MAX_BYTES // 1_000_000} MB, not read")
            continue
        for number, text in enumerate(_CARD.findall(_decoded(data)), 1):
            try:
                cards.append(_fields(text))
            except _Unreadable as error:
                problems.append(f"{file.name}, card {number}: {error}")
    return Contacts(_people(cards), tuple(problems))


def matching(people: Sequence[Contact], phrase: str) -> list[Contact]:
    """Those whom most words of ``phrase`` call; several only where they are equally called."""
    said = words(phrase) - _NO_NAMES
    called = {person: len(said & person.called) for person in people}
    most = max(called.values(), default=0)
    return [person for person, count in called.items() if most and count == most]


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", unicodedata.normalize("NFC", text).casefold()))


class _Unreadable(Exception):
    pass


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("latin-1").replace("\r\n", "\n")


def _fields(text: str) -> dict[str, Any]:
    """Lists of clean texts by property, or _Unreadable."""
    import vobject

    name = re.search(r"^FN[^:\n]*:(.*)$", text, re.IGNORECASE | re.MULTILINE)
    who = f" ({_clean(name[1])})" if name and _clean(name[1]) else ""
    if not re.search(r"^END:VCARD\s*\Z", text, re.IGNORECASE | re.MULTILINE):
        raise _Unreadable(f"cut off before its end{who}")
    try:
        card = vobject.readOne(text)
    # Besides its own error vobject lets through what damaged encodings and parameters raise.
    except (vobject.base.VObjectError, ValueError, LookupError, AttributeError, TypeError) as error:
        reason = re.sub(r"^At line \d+: ", "", _clean(str(error)))[:120]
        raise _Unreadable(f"{reason}{who}") from None
    found: dict[str, Any] = {"email": _emails(card.contents.get("email", ()))}
    for key in ("fn", "n", "nickname", "categories", "role", "title", "x-relation", "org"):
        found[key] = list(_texts(line.value for line in card.contents.get(key, ())))
    if not found["fn"] and not found["n"] and not found["email"]:
        raise _Unreadable("has neither a name nor an address")
    return found


def _texts(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if clean := _clean(str(part)):
                yield clean


def _clean(text: str) -> str:
    """One line without control characters: names go into headers and onto the screen."""
    kept = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text)
    return " ".join(kept.split())


def _emails(lines: Iterable[Any]) -> list[str]:
    """Usable addresses, the preferred one first (TYPE=pref in 3.0, PREF=1 in 4.0)."""

    def rank(line: Any) -> int:
        kinds = [str(kind).lower() for kind in line.params.get("TYPE", [])]
        preference = "".join(line.params.get("PREF", []))
        return 0 if "pref" in kinds else int(preference) if preference.isdigit() else 100

    values = [str(line.value).strip() for line in sorted(lines, key=rank)]
    return [value for value in values if ADDRESS.fullmatch(value)]


def _people(cards: Sequence[dict[str, Any]]) -> tuple[Contact, ...]:
    names = [next(iter([*card["fn"], *card["n"], *card["email"]])) for card in cards]
    firsts = Counter(_slug(name).split("-")[0] for name in dict.fromkeys(names))
    people: dict[tuple[str, str], Contact] = {}
    taken: set[str] = set()
    for name, card in zip(names, cards, strict=True):
        email = next(iter(card["email"]), "")
        if (name, email) in people:
            continue
        slug = _slug(name) or "contact"
        short = slug.split("-")[0]
        id = base = short if firsts[short] == 1 else slug
        while id in taken:
            id = f"{base}-{len(taken) + 1}"
        taken.add(id)
        who = [*card["x-relation"], *card["categories"], *card["role"], *card["title"]]
        about = next((text for text in who if len(text) <= 40), "")
        called = words(" ".join([name, *card["n"], *card["nickname"], *who]))
        people[name, email] = Contact(id, name, email, about, called - _NO_NAMES)
    return tuple(people.values())


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain))
