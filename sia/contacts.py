"""The person's contacts, read from vCards (3.0, 4.0, and 2.1 as phones still write it)."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MAX_BYTES = 20_000_000
ADDRESS = re.compile(r"[^\s@<>(),;:\\\"\[\]]+@[^\s@<>(),;:\\\"\[\]]*[^\s@<>(),;:\\\"\[\].]")
_CARD = re.compile(r"^BEGIN:VCARD\s*$.*?(?:^END:VCARD\s*$|\Z)", re.I | re.M | re.S)
_CARD_END = re.compile(r"^END:VCARD\s*$", re.I | re.M)
_KINDS = ("cell", "home", "work", "fax", "pager", "main")
_GROUP = ("kind", "member", "x-addressbookserver-kind", "x-addressbookserver-member")
_NO_NAMES = frozenset({"a", "an", "and", "at", "dr", "mr", "mrs", "ms", "my", "of", "our", "the"})


@dataclass(frozen=True)
class Contact:
    """One person. ``email`` is empty where the card has none that can be used."""

    id: str  # short, from the name; once among the contacts
    name: str
    email: str
    about: str  # who they are to the person: a category, a role; may be empty
    called: frozenset[str]  # lower-case words of names, nicknames, categories, roles and groups
    emails: tuple[tuple[str, str], ...] = ()  # (kind such as "work", address), the preferred first
    phones: tuple[tuple[str, str], ...] = ()  # (kind, number as it is written)
    address: str = ""  # where they live, on one line
    birthday: str = ""  # as the card has it: 1990-03-05, --03-05
    source: tuple[Path, int] | None = None  # the file, and which card of it, from 1

    @property
    def description(self) -> str:
        """For people and for decisions: "Anna Berg, girlfriend"."""
        return f"{self.name}, {self.about}" if self.about else self.name


@dataclass(frozen=True)
class Contacts:
    people: tuple[Contact, ...] = ()
    problems: tuple[str, ...] = ()  # cards that cannot be read, a line each


def load(path: Path) -> Contacts:
    """The contacts of a vCard file or of all ``*.vcf`` files below a folder; none where neither is.

    A card that cannot be read is left out and named in ``problems``. Raises OSError.
    """
    cards: list[dict[str, Any]] = []
    problems: list[str] = []
    files = sorted(path.rglob("*.vcf")) if path.is_dir() else [path] if path.exists() else []
    for file in files:
        data = file.read_bytes()
        if len(data) > MAX_BYTES:
            problems.append(f"{file.name}: over {MAX_BYTES // 1_000_000} MB, not read")
            continue
        for number, text in enumerate(_CARD.findall(decoded(data)[0].replace("\r\n", "\n")), 1):
            try:
                cards.append({**_fields(text), "source": (file, number)})
            except _Unreadable as error:
                problems.append(f"{file.name}, card {number}: {error}")
    return Contacts(_people(cards), tuple(problems))


def matching(people: Sequence[Contact], phrase: str) -> list[Contact]:
    """Those whom most words of ``phrase`` call; several only where they are equally called."""
    said = names(phrase)
    called = {person: len(said & person.called) for person in people}
    most = max(called.values(), default=0)
    return [person for person, count in called.items() if most and count == most]


def another(phrase: str, person: Contact) -> bool:
    """Whether a name stands after one of theirs that is none of theirs: "Anna Schmidt"."""
    said = re.findall(r"\w+", unicodedata.normalize("NFC", phrase))
    return any(
        first.casefold() in person.called
        and then[0].isupper()
        and then.casefold() in names(phrase) - person.called
        for first, then in itertools.pairwise(said)
    )


def names(phrase: str) -> frozenset[str]:
    """The words of ``phrase`` that may name someone."""
    return words(phrase) - _NO_NAMES


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", unicodedata.normalize("NFC", text).casefold()))


def card(name: str, phones: Sequence[str], emails: Sequence[str], uid: str) -> str:
    """A new vCard (3.0)."""
    import vobject

    made = vobject.vCard()
    made.add("uid").value = uid
    made.add("fn").value = name
    given, _, family = name.rpartition(" ")
    made.add("n").value = vobject.vcard.Name(family=family, given=given)
    if not given:
        made.n.value = vobject.vcard.Name(given=name)
    for number in phones:
        made.add("tel").value = number
    for address in emails:
        made.add("email").value = address
    return str(made.serialize())


def extended(text: str, number: int, phones: Sequence[str], emails: Sequence[str]) -> str:
    """``text`` of a file, with more in its card ``number`` (from 1); every other byte stays.

    The lines are good in all versions of the format. Raises IndexError where there is no such card.
    """
    whole = text.replace("\r\n", "\n")
    match = list(_CARD.finditer(whole))[number - 1]
    # Found as it stands: in upper case ß is two letters, and every place after it is another.
    end = match.start() + [last.start() for last in _CARD_END.finditer(match[0])][-1]
    lines = [f"TEL:{phone}\n" for phone in phones] + [f"EMAIL:{email}\n" for email in emails]
    changed = whole[:end] + "".join(lines) + whole[end:]
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def decoded(data: bytes) -> tuple[str, str]:
    """(text, encoding): UTF-8, or what old phones wrote."""
    try:
        return data.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


class _Unreadable(Exception):
    pass


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
    found: dict[str, Any] = {
        "emails": _emails(card.contents.get("email", ())),
        "phones": _phones(card.contents.get("tel", ())),
        "address": next(iter(_addresses(card.contents.get("adr", ()))), ""),
    }
    for key in (
        "fn",
        "n",
        "nickname",
        "categories",
        "role",
        "title",
        "x-relation",
        "note",
        "org",
        "bday",
        "uid",
        *_GROUP,
    ):
        found[key] = list(_texts(line.value for line in card.contents.get(key, ())))
    if not found["fn"] and not found["n"] and not found["emails"]:
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


def _ranked(lines: Iterable[Any]) -> list[tuple[str, str]]:
    """(kind, value), the preferred one first (TYPE=pref in 3.0, PREF=1 in 4.0)."""

    def kinds(line: Any) -> list[str]:
        given = [*line.params.get("TYPE", []), *line.singletonparams]  # 2.1: TEL;CELL:
        return [kind for text in given for kind in str(text).lower().split(",")]

    def rank(line: Any) -> int:
        preference = "".join(line.params.get("PREF", []))
        if "pref" in kinds(line):
            return 0
        return int(preference[:9]) if preference.isdecimal() else 100

    return [
        (next((kind for kind in kinds(line) if kind in _KINDS), ""), _clean(str(line.value)))
        for line in sorted(lines, key=rank)
    ]


def _emails(lines: Iterable[Any]) -> list[tuple[str, str]]:
    """The usable addresses."""
    clean = [(kind, value.removeprefix("mailto:")) for kind, value in _ranked(lines)]
    return [(kind, value) for kind, value in clean if ADDRESS.fullmatch(value)]


def _phones(lines: Iterable[Any]) -> list[tuple[str, str]]:
    """4.0 writes ``tel:+49-30-1;ext=2``."""
    clean = [(kind, value.removeprefix("tel:").split(";")[0]) for kind, value in _ranked(lines)]
    return [(kind, value) for kind, value in clean if re.search(r"\d", value)]


def _addresses(lines: Iterable[Any]) -> Iterable[str]:
    for line in lines:
        value = line.value
        names = ("street", "extended", "code", "city", "region", "country")
        parts = [_clean(_flat(getattr(value, name, ""))) for name in names]
        if any(parts):
            street, extended, code, city, region, country = parts
            town = f"{code} {city}".strip()
            yield ", ".join(part for part in (street, extended, town, region, country) if part)


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _people(cards: Sequence[dict[str, Any]]) -> tuple[Contact, ...]:
    groups = _groups(cards)
    cards = [card for card in cards if not _is_group(card)]
    names = [_name(card) for card in cards]
    firsts = Counter(_slug(name).split("-")[0] for name in dict.fromkeys(names))
    people: dict[tuple[str, str], Contact] = {}
    taken: set[str] = set()
    for name, card in zip(names, cards, strict=True):
        email = next((address for _, address in card["emails"]), "")
        if known := people.get((name, email)):
            people[name, email] = _joined(known, card)
            continue
        slug = _slug(name) or "contact"
        short = slug.split("-")[0]
        id = base = short if firsts[short] == 1 else slug
        while id in taken:
            id = f"{base}-{len(taken) + 1}"
        taken.add(id)
        who = [*card["x-relation"], *card["categories"], *card["role"], *card["title"]]
        # A note may say anything: a short one describes, but nobody is called by it.
        about = next((text for text in [*who, *card["note"]] if len(text) <= 40), "")
        who += [group for uid in card["uid"] for group in groups.get(_uid(uid), ())]
        called = words(" ".join([name, *card["n"], *card["nickname"], *who]))
        people[name, email] = Contact(
            id,
            name,
            email,
            about,
            called - _NO_NAMES,
            tuple(card["emails"]),
            tuple(card["phones"]),
            card["address"],
            next(iter(card["bday"]), ""),
            card["source"],
        )
    return tuple(people.values())


def _name(card: dict[str, Any]) -> str:
    return next(iter([*card["fn"], *card["n"], *(address for _, address in card["emails"])]))


def _joined(one: Contact, card: dict[str, Any]) -> Contact:
    """The same person on two cards: what the second one has besides."""
    emails = dict.fromkeys([*one.emails, *card["emails"]])
    phones = {_digits(number): (kind, number) for kind, number in one.phones}
    for kind, number in card["phones"]:
        phones.setdefault(_digits(number), (kind, number))
    return replace(
        one,
        emails=tuple(emails),
        phones=tuple(phones.values()),
        address=one.address or card["address"],
        birthday=one.birthday or next(iter(card["bday"]), ""),
    )


def _digits(number: str) -> str:
    return re.sub(r"[^\d+]", "", number)


def has(person: Contact, value: str) -> bool:
    """Whether a number or an address is on the card, however it is written."""
    known = [*(address.casefold() for _, address in person.emails)]
    return value.casefold() in known or _digits(value) in [_digits(n) for _, n in person.phones]


def _is_group(card: dict[str, Any]) -> bool:
    kinds = [*card["kind"], *card["x-addressbookserver-kind"]]
    return any(kind.lower() == "group" for kind in kinds)


def _groups(cards: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The names of the groups that each member (by UID) is in."""
    found: dict[str, list[str]] = {}
    for card in cards:
        if _is_group(card):
            for member in [*card["member"], *card["x-addressbookserver-member"]]:
                found.setdefault(_uid(member), []).append(_name(card))
    return found


def _uid(text: str) -> str:
    return text.lower().removeprefix("urn:").removeprefix("uuid:")


def _slug(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain))
