"""contacts/find and add, on a folder of vCards and against a real CardDAV server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sia import carddav, contacts
from sia.dav import Refused
from sia.skills.api import Folders
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Ask = Callable[..., FakeCtx]


def card(name: str, *lines: str, version: str = "3.0") -> str:
    rows = ["BEGIN:VCARD", f"VERSION:{version}", f"FN:{name}", *lines, "END:VCARD", ""]
    return "\r\n".join(rows)


ANNA = card(
    "Anna Berg",
    "N:Berg;Anna;;;",
    "UID:u-anna",
    "CATEGORIES:girlfriend",
    "TEL;TYPE=CELL:0170 1234567",
    "TEL;TYPE=WORK,pref:030 99",
    "EMAIL:anna@example.org",
    "BDAY:1990-03-05",
    "ADR;TYPE=HOME:;;Hauptstr. 5;Berlin;;10115;Germany",
    "PHOTO;ENCODING=b;TYPE=JPEG:" + "/9j/4AAQSkZJRg" * 400,
)
HOLM = card(
    "Dr. Anna Holm",
    'TEL;VALUE=uri;TYPE="work,voice":tel:+49-30-5;ext=7',
    "ROLE:dentist",
    version="4.0",
)
OLD = card("J=C3=BCrgen", "TEL;CELL:0171 5", version="2.1").replace(
    "FN:", "FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:"
)
GROUP = card("Football", "KIND:group", "MEMBER:urn:uuid:u-anna", version="4.0")
ALL = {"anna": ANNA, "holm": HOLM, "old": OLD, "group": GROUP}


@pytest.fixture
def skill(skills: Path) -> Callable[[str], Path]:
    return lambda name: skills / "contacts" / name


@pytest.fixture
def local(make: Callable[..., FakeCtx], folders: Folders) -> Ask:
    """Contexts with contacts in a folder only."""
    place = folders.home / "contacts"
    place.mkdir()
    for name, text in ALL.items():
        (place / f"{name}.vcf").write_bytes(text.encode())
    return lambda request, **given: make(request, settings={"folder": "contacts"}, **given)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("what's Anna Berg's number", "Anna Berg, girlfriend: 030 99 (work), 0170 1234567 (cell)"),
        ("my girlfriend's mobile number", "Anna Berg, girlfriend: 0170 1234567 (cell)"),
        ("what is the e-mail address of Anna Berg?", "Anna Berg, girlfriend: anna@example.org"),
        ("when is Anna Berg's birthday", "Anna Berg, girlfriend: born 1990-03-05"),
        ("where does Anna Berg live", "Anna Berg, girlfriend: Hauptstr. 5, 10115 Berlin, Germany"),
        ("phone number of the dentist", "Dr. Anna Holm, dentist: +49-30-5 (work)"),
        ("Jürgen's number", "Jürgen: 0171 5 (cell)"),
        (
            "who is in football",
            "Anna Berg, girlfriend: 030 99 (work), 0170 1234567 (cell), "
            "anna@example.org, Hauptstr. 5, 10115 Berlin, Germany, born 1990-03-05",
        ),
        ("birthday of the dentist", "Dr. Anna Holm, dentist has no birthday on the card."),
        (
            "Anna's number",
            "Anna Berg, girlfriend: 030 99 (work), 0170 1234567 (cell)\n"
            "Dr. Anna Holm, dentist: +49-30-5 (work)",
        ),
        ("Bob's number", "No contact fits that."),
    ],
)
def test_find(local: Ask, skill: Any, request_: str, said: str) -> None:
    ctx = local(request_)
    assert run_actions(skill("find"), ctx).kind == "done"
    assert ctx.said == [said] and not ctx.chosen


def test_find_by_a_decision_where_words_describe(local: Ask, skill: Any) -> None:
    ctx = local("what's the number of my sweetheart", choices=["anna"])
    run_actions(skill("find"), ctx)
    assert ctx.chosen[0][0] == "Which contact is meant?" and "0170 1234567" in ctx.said[0]


def test_find_without_contacts(make: Any, skill: Any) -> None:
    ctx = make("Anna's number")
    assert run_actions(skill("find"), ctx).kind == "finished"
    assert "sia setup contacts" in ctx.said[0]


def test_the_same_person_on_two_cards_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.vcf").write_text(ANNA, newline="")
    more = card("Anna Berg", "EMAIL:anna@example.org", "TEL:0170-1234567", "TEL:040 1")
    (tmp_path / "b.vcf").write_text(more, newline="")
    [anna] = contacts.load(tmp_path).people
    assert [number for _, number in anna.phones] == ["030 99", "0170 1234567", "040 1"]


def test_sync_copies_what_changed_and_drops_what_is_gone(dav: Any, ask: Ask, folders: Any) -> None:
    dav.addressbook("People", anna=ANNA, holm=HOLM)
    dav.addressbook("More", old=OLD)
    place = folders.home / "contacts"
    place.mkdir()
    (place / "own.vcf").write_text(card("Own Card", "TEL:1234"))
    assert carddav.sync(dav.server, place) == 3
    names = {person.name for person in contacts.load(place).people}
    assert names == {"Anna Berg", "Dr. Anna Holm", "Jürgen", "Own Card"}
    dav.requests.clear()
    assert carddav.sync(dav.server, place) == 0
    assert not [method for method, _ in dav.requests if method in ("REPORT", "GET")]
    dav.card("People", "anna", ANNA.replace("030 99", "030 100"))
    dav.ask("DELETE", "people/holm.vcf")
    assert carddav.sync(dav.server, place) == 2
    found = {person.name: person for person in contacts.load(place).people}
    assert found.keys() == {"Anna Berg", "Jürgen", "Own Card"}
    assert ("work", "030 100") in found["Anna Berg"].phones
    # A damaged index: all is fetched again. A server without address books: nothing is dropped.
    (carddav.copies(dav.server, place) / carddav.INDEX).write_text("{")
    assert carddav.sync(dav.server, place) == 2
    for book in ("people", "more"):
        dav.ask("DELETE", f"{book}/")
    with pytest.raises(Refused, match="has no address book"):
        carddav.sync(dav.server, place)
    assert len(contacts.load(place).people) == 3


def test_find_with_a_server_away_tells_of_the_copies(dav: Any, ask: Ask, skill: Any) -> None:
    dav.addressbook("People", anna=ANNA)
    ctx = ask("Anna's birthday")
    run_actions(skill("find"), ctx)
    assert ctx.said == ["Anna Berg, girlfriend: born 1990-03-05"]
    dav.fail["PROPFIND"] = "503 Service Unavailable"
    ctx = ask("Anna's birthday")
    run_actions(skill("find"), ctx)
    assert ctx.said[0] == "Anna Berg, girlfriend: born 1990-03-05"
    assert ctx.said[1].startswith("These are the copies of before: 127.0.0.1")


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("request_", "answers", "name", "phones", "email"),
    [
        (
            "add Tom Post, 0171 7654321, tom@example.org to my contacts",
            ["yes"],
            "Tom Post",
            ["0171 7654321"],
            "tom@example.org",
        ),
        ("save lena's number +49 (30) 12-34", ["yes"], "Lena", ["+49 (30) 12-34"], ""),
        ("new contact", ["Mia Öz", "mia@example.org", "yes"], "Mia Öz", [], "mia@example.org"),
    ],
)
def test_add(
    dav: Any,
    ask: Ask,
    make: Any,
    skill: Any,
    folders: Any,
    remote: bool,
    request_: str,
    answers: list[str],
    name: str,
    phones: list[str],
    email: str,
) -> None:
    if remote:
        dav.addressbook("People")
        ctx = ask(request_, answers=answers)
    else:
        ctx = make(request_, settings={"folder": "contacts"}, answers=answers)
    outcome = run_actions(skill("add"), ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    [person] = contacts.load(folders.home / "contacts").people
    assert (person.name, [number for _, number in person.phones], person.email) == (
        name,
        phones,
        email,
    )
    if remote:
        assert f"FN:{name}" in dav.texts("People")[0]


def test_add_to_a_card_that_is_there_keeps_the_rest(dav: Any, ask: Ask, skill: Any) -> None:
    dav.addressbook("People", anna=ANNA)
    answers = ["the card of Anna Berg, girlfriend", "yes"]
    ctx = ask("save Anna's number 0172 999", answers=answers)
    assert run_actions(skill("add"), ctx).value is True
    [text] = dav.texts("People")
    assert (
        "TEL:0172 999" in text and "/9j/4AAQSkZJRg" * 400 in text and text.count("BEGIN:VCARD") == 1
    )
    ctx = ask("save Anna's number 0172-999", answers=answers[:1])
    assert run_actions(skill("add"), ctx).kind == "finished"
    assert ctx.said == ["That is on the card of Anna Berg, girlfriend already."]


def test_add_to_a_local_card_of_an_old_phone(local: Ask, skill: Any, folders: Any) -> None:
    file = folders.home / "contacts/old.vcf"
    file.write_bytes(
        (OLD + "BEGIN:VCARD\r\nVERSION:2.1\r\nN:Öz;Zoë\r\nEND:VCARD\r\n").encode("latin-1")
    )
    ctx = local("add Zoë 0173 111 to my contacts", answers=["the card of Zoë Öz", "yes"])
    assert run_actions(skill("add"), ctx).value is True
    assert b"N:\xd6z;Zo\xeb\r\nTEL:0173 111\r\nEND:VCARD" in file.read_bytes()


@pytest.mark.parametrize("lose", [[], ["save contact"]])
@pytest.mark.parametrize("there", [False, True])
def test_add_interrupted_everywhere_saves_once(
    dav: Any, ask: Ask, skill: Any, lose: list[str], there: bool
) -> None:
    dav.addressbook("People", **({"anna": ANNA} if there else {}))
    answers = ["the card of Anna Berg, girlfriend", "yes"] if there else ["yes"]
    ctx, outcome = run_interrupted(
        skill("add"), lambda: ask("save Anna Berg 0172 999", answers=answers), lose
    )
    assert outcome.value is True and ctx.tried()[0][2] == 1
    assert sum(text.count("0172 999") for text in dav.texts("People")) == 1


def test_a_card_that_changed_meanwhile_is_not_written_over(dav: Any, tmp_path: Path) -> None:
    dav.addressbook("People", anna=ANNA)
    carddav.sync(dav.server, tmp_path / "c")
    [anna] = contacts.load(tmp_path / "c").people
    dav.card("People", "anna", ANNA.replace("030 99", "030 100"))
    with pytest.raises(Refused, match="has changed on the server"):
        carddav.extend(dav.server, anna.source[0], ["1234"], [])
    assert "030 100" in dav.texts("People")[0] and "1234\n" not in dav.texts("People")[0].replace(
        "1234567", ""
    )


def test_a_file_cannot_hold_the_copies(dav: Any, tmp_path: Path) -> None:
    (tmp_path / "all.vcf").write_text(ANNA)
    with pytest.raises(Refused, match="name a folder"):
        carddav.sync(dav.server, tmp_path / "all.vcf")


def test_add_where_two_are_called_alike_offers_both(local: Ask, skill: Any, folders: Any) -> None:
    place = folders.home / "contacts"
    (place / "t1.vcf").write_text(card("Tom Weiß", "EMAIL:tom@one.example"), newline="")
    (place / "t2.vcf").write_text(card("Tom Weiß", "EMAIL:tom@two.example"), newline="")
    first = "1. the card of Tom Weiß (tom@one.example)"
    ctx = local("save Tom's number 0175 222", answers=[first, "yes"])
    assert run_actions(skill("add"), ctx).value is True
    assert "TEL:0175 222\r\nEND:VCARD" in (place / "t1.vcf").read_bytes().decode()
    assert "0175" not in (place / "t2.vcf").read_text()


def test_add_keeps_a_link_and_does_not_maim_a_name(make: Any, skill: Any, folders: Any) -> None:
    real = folders.home / "real.vcf"
    old = (OLD + "BEGIN:VCARD\r\nVERSION:2.1\r\nN:Öz;Zoë\r\nEND:VCARD\r\n").encode("latin-1")
    real.write_bytes(old)
    (folders.home / "contacts").symlink_to(real)
    ctx = make("save Łukasz 0176 333", settings={"folder": "contacts"}, answers=["yes"])
    outcome = run_actions(skill("add"), ctx)
    assert outcome.kind == "failed" and "latin-1, which cannot hold Łukasz" in outcome.message
    assert real.read_bytes() == old
    ctx = make("save Eva 0176 444", settings={"folder": "contacts"}, answers=["yes"])
    assert run_actions(skill("add"), ctx).value is True
    assert (folders.home / "contacts").is_symlink() and real.read_bytes().startswith(old)
