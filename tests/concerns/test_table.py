"""Concerns in state.db and in the plain file beside it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from semif.jsonl import read
from sia.concerns import dynamics
from sia.concerns.table import Concerns
from sia.concerns.testing import HOUR, START, Clock, concern
from sia.concerns.values import RHYTHMS
from sia.errors import UsageError
from sia.schema import SCHEMA
from sia.store import Store


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def concerns(tmp_path, clock):
    store = Store(tmp_path / "state.db")
    yield Concerns(store, tmp_path / "autonomy.jsonl", clock=clock)
    store.close()


def test_it_comes_back_as_it_was_kept(concerns, tmp_path) -> None:
    whole = concern(
        fired=START, bumped=START, held=START + HOUR, held_for="cut", defers=2, note="n",
        said=("one", "two\n<b>"), fire="r7", skill="a/b", successor_of="c9", depth=1,
        kind="obligation", owed="Kim", until=START + 9 * HOUR, mover="them",
    )  # fmt: skip
    kept = concerns.add(whole)
    assert kept == replace(whole, id="c1") == concerns.get("c1") == concerns.of("r7")
    other = Store(tmp_path / "state.db")
    assert Concerns(other, concerns.journal).all() == [kept]
    other.close()
    (row,) = read(concerns.journal).rows
    assert (row["event"], row["id"], row["concern"]["said"]) == ("added", "c1", ["one", "two\n<b>"])


def test_the_next_moment_is_the_earliest_and_the_most_pressing_come_first(concerns) -> None:
    assert concerns.next() is None
    for rhythm in reversed(RHYTHMS):
        concerns.add(concern(rhythm=rhythm))
    concerns.add(concern(instruction="", rhythm=1))
    assert concerns.next() == START + timedelta(hours=28) / 24
    assert [item.rhythm for item in concerns.due(START + 10 * HOUR)] == [1, 2, 4, 8]
    later = concerns.due(START + 30 * HOUR)
    assert [item.rhythm for item in later] == [1, 2, 4, 8, 12, 24]
    assert concerns.firing() == []


def test_an_edit_keeps_what_has_built_up(concerns, clock) -> None:
    concerns.add(concern())
    clock.now = START + 14 * HOUR
    edited = concerns.edit("c1", rhythm=1)
    assert (edited.value, edited.grown) == (350_000, clock.now)
    assert concerns.next() == clock.now + timedelta(minutes=35)


def test_an_obligation_is_discharged_and_others_are_dropped(concerns) -> None:
    concerns.add(concern(kind="obligation", owed="Kim", until=START, mover="me"))
    concerns.add(concern())
    with pytest.raises(UsageError, match="c2 is no obligation"):
        concerns.end("c2", "done")
    assert concerns.end("c1", "done").status == "done"
    assert concerns.end("c2", "dropped").status == "dropped"
    with pytest.raises(UsageError, match="c2 is over already: dropped"):
        concerns.edit("c2", rhythm=1)
    with pytest.raises(UsageError, match="there is no concern c3"):
        concerns.get("c3")
    assert concerns.all() == [] and len(concerns.all(over=True)) == 2
    assert concerns.next() is None


def test_what_a_person_says_touches_what_it_is_about(concerns, clock) -> None:
    item = concerns.add(replace(concern(), text="backup of the photo disk"))
    concerns.add(replace(concern(), text="rent of the studio"))
    concerns.save(dynamics.deferred(item, START), "defer")
    clock.now = START + HOUR / 10
    concerns.heard("photo disk backup: how are the backups?", "event")
    concerns.heard("photo disk backup: how are the backups?", "skill")
    concerns.heard("what is on tomorrow", "typed")
    assert concerns.get("c1").value == 0
    concerns.heard("is there a backup of my photos disk", "typed")
    first, second = concerns.all()
    assert (first.value, first.bumped, first.held) == (152_500, clock.now, None)
    assert second.value == 0


def test_a_secret_stays_out_of_the_plain_file(concerns) -> None:
    concerns.add(replace(concern(), instruction="log in with password=hunter22 and look"))
    assert "hunter22" not in concerns.journal.read_text()
    assert "hunter22" in concerns.get("c1").instruction


def test_a_lost_database_takes_them_back_from_the_plain_file(concerns, tmp_path, clock) -> None:
    for kind in ("durable", "one_shot", "seed"):
        concerns.add(concern(kind=kind))
    concerns.end("c3", "dropped")
    concerns.save(dynamics.fired(concerns.get("c1"), START, "r1"), "fire")
    store = Store(tmp_path / "new.db")
    anew = Concerns(store, concerns.journal, clock=clock)
    assert anew.restore() == 2
    assert [(item.id, item.fire) for item in anew.all()] == [("c1", ""), ("c2", "")]
    assert anew.restore() == 0
    assert anew.add(concern()).id == "c4"
    store.close()


def test_a_database_of_before_gets_its_table(tmp_path) -> None:
    import sqlite3

    from sia.schema import MIGRATIONS

    db = sqlite3.connect(tmp_path / "state.db")
    db.executescript(SCHEMA + ";".join(MIGRATIONS[:2]))
    db.execute("INSERT INTO meta VALUES ('schema', '3')")
    db.commit()
    db.close()
    store = Store(tmp_path / "state.db")
    assert Concerns(store, tmp_path / "autonomy.jsonl").add(concern()).id == "c1"
    store.close()
