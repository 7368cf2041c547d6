"""Contacts from vCards: versions, folded lines, broken cards, odd names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia import contacts

GOOD = """\
BEGIN:VCARD\r
VERSION:3.0\r
FN:Anna Berg\r
N:Berg;Anna;;;\r
NICKNAME:Annie,Ann\r
CATEGORIES:girlfriend,family\r
EMAIL;TYPE=work:anna@work.example\r
item1.EMAIL;TYPE=INTERNET,pref:anna@home.ex\r
 ample\r
END:VCARD\r
BEGIN:VCARD
VERSION:4.0
FN:Anna Holm
EMAIL;PREF=2:holm@old.example
EMAIL;PREF=1:holm@new.example
ROLE:dentist
END:VCARD
BEGIN:VCARD
VERSION:2.1
FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=BCrgen
EMAIL;INTERNET:juergen@example.org
END:VCARD
"""
BROKEN = """\
BEGIN:VCARD
VERSION:3.0
FN:Carl Broken
this is no line
END:VCARD
BEGIN:VCARD
VERSION:3.0
NOTE:nobody
END:VCARD
BEGIN:VCARD
VERSION:3.0
FN:Dora\\nBcc: all@evil.example
EMAIL:dora@example.org\\nBcc: all@evil.example
END:VCARD
BEGIN:VCARD
VERSION:3.0
FN:Emil Cut
EMAIL:emil@exa"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "1.vcf").write_bytes(GOOD.encode())
    (tmp_path / "2.vcf").write_bytes(BROKEN.encode())
    (tmp_path / "3.vcf").write_bytes(
        "BEGIN:VCARD\nVERSION:3.0\nFN:Zoë Öz\nTITLE:Boss\nEND:VCARD\n".encode("latin-1")
    )
    (tmp_path / "notes.txt").write_text("not a card")
    return tmp_path


def test_good_cards(folder: Path) -> None:
    people = {person.id: person for person in contacts.load(folder).people}
    anna = people["anna-berg"]
    assert (anna.name, anna.email) == ("Anna Berg", "anna@home.example")
    assert anna.description == "Anna Berg, girlfriend"
    assert {"anna", "berg", "annie", "girlfriend", "family"} <= anna.called
    assert people["anna-holm"].email == "holm@new.example"
    assert people["anna-holm"].description == "Anna Holm, dentist"
    assert people["jurgen"].name == "Jürgen"
    assert (people["zoe"].name, people["zoe"].email) == ("Zoë Öz", "")


def test_a_short_note_says_who_someone_is_where_nothing_else_does(tmp_path: Path) -> None:
    card = "BEGIN:VCARD\nVERSION:3.0\nFN:{}\nNOTE:{}\n{}END:VCARD\n"
    cards = [
        card.format("Anna Berg", "my girlfriend", ""),
        card.format("Ben Ray", "x" * 41, ""),
        card.format("Cleo Orr", "met in Rome", "ROLE:dentist\n"),
    ]
    (tmp_path / "all.vcf").write_text("".join(cards))
    people = contacts.load(tmp_path).people
    assert [person.about for person in people] == ["my girlfriend", "", "dentist"]
    assert not any("girlfriend" in person.called for person in people)


def test_broken_cards_are_named_and_left_out(folder: Path) -> None:
    found = contacts.load(folder)
    assert found.problems == (
        "2.vcf, card 1: Failed to parse line: this is no line (Carl Broken)",
        "2.vcf, card 2: has neither a name nor an address",
        "2.vcf, card 4: cut off before its end (Emil Cut)",
    )
    assert len(found.people) == 5


def test_a_name_is_one_line_and_a_bad_address_is_none(folder: Path) -> None:
    [dora] = [person for person in contacts.load(folder).people if person.id == "dora"]
    assert (dora.name, dora.email) == ("Dora Bcc: all@evil.example", "")


@pytest.mark.parametrize(
    ("phrase", "names"),
    [
        ("Anna", ["Anna Berg", "Anna Holm"]),
        ("anna berg", ["Anna Berg"]),
        ("Annie", ["Anna Berg"]),
        ("my girlfriend", ["Anna Berg"]),
        ("the dentist", ["Anna Holm"]),
        ("Anna the dentist", ["Anna Holm"]),
        ("JÜRGEN", ["Jürgen"]),
        ("my boss", ["Zoë Öz"]),
        ("Bob", []),
        ("my the and", []),
    ],
)
def test_matching(folder: Path, phrase: str, names: list[str]) -> None:
    people = contacts.load(folder).people
    assert [person.name for person in contacts.matching(people, phrase)] == names


def test_one_file_and_none(folder: Path) -> None:
    assert len(contacts.load(folder / "1.vcf").people) == 3
    assert contacts.load(folder / "missing") == contacts.Contacts()


def test_the_same_card_twice_is_one_person(tmp_path: Path) -> None:
    (tmp_path / "a.vcf").write_text(GOOD * 2, newline="")
    assert len(contacts.load(tmp_path).people) == 3


PIECES = (
    "BEGIN:VCARD\n|END:VCARD\n|VERSION:3.0\n|VERSION:9\n|FN:A\n|N:;;;;\n|N\n|:\n|EMAIL;PREF=x:a@b\n"
    "| folded\n|EMAIL;ENCODING=b:!!\n"
    "|PHOTO;ENCODING=BASE64:AA\n|FN;ENCODING=QUOTED-PRINTABLE:=ZZ=\n|"
    'CATEGORIES:a\\,b;c\n|item1.X:y\n|FN;CHARSET=nope:é\n|\ufeff|\n|BDAY:0\n|ORG;TYPE="a:b\n|ADR:;\n'
).split("|")


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_file_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.vcf"
    text = "".join(pieces)
    file.write_text(text)
    found = contacts.load(file)
    cards = text.upper().count("BEGIN:VCARD")
    assert len(found.people) + len(found.problems) <= cards
    assert len({person.id for person in found.people}) == len(found.people)


def test_more_on_a_card_changes_nothing_else_on_it() -> None:
    """Letters that are two in upper case stand before the end of the card."""
    anna = "BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Anna Großmann\r\nADR:;;Weiße Straße 5\r\nend:vcard\r\n"
    other = "BEGIN:VCARD\r\nVERSION:3.0\r\nFN:ŉ ﬁ ß\r\nEND:VCARD\r\n"
    for number, card in enumerate((anna, other), 1):
        text = contacts.extended(anna + other, number, ["030 1"], ["a@example.org"])
        head, tail = card[: card.lower().index("end:vcard")], card[-len("END:VCARD\r\n") :]
        assert f"{head}TEL:030 1\r\nEMAIL:a@example.org\r\n{tail}" in text
        assert text.replace("TEL:030 1\r\nEMAIL:a@example.org\r\n", "") == anna + other
    with pytest.raises(IndexError):
        contacts.extended("BEGIN:VCARD\nFN:cut", 1, ["030 1"], [])
