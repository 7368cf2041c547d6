"""Entries and their order over restarts; the budget that drops nothing silently."""

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sia.budget import Budget, relieve
from sia.entries import Entry, InputEntry, Note, Reasoning, Script, Text
from sia.prompt import entry_text
from sia.scripts import Output
from sia.session import Session, lost_scripts, resume
from sia.store import Store

LONG = "word " * 100


@pytest.fixture
def store(tmp_path: Path):
    store = Store(tmp_path / "state.db")
    yield store
    store.close()


def think(session: Session, text: str) -> Entry:
    return session.add(lambda id: Reasoning(id, Text(text)))


def script(session: Session, mode: str = "background", run: str = "r1") -> Script:
    return session.add(lambda id: Script(id, mode, Text("sleep 9"), run=run))


def ids(session: Session) -> list[str]:
    return [entry.id for entry in session.entries]


def again(session: Session, store: Store) -> Session:
    with store.transaction():
        session.save(store)
    session.saved(session.entries)
    return resume(store)


def test_what_was_saved_is_resumed_the_same(store: Store) -> None:
    session = Session("s", "parent", last_id=4)
    session.n = 7
    for text in ("a]]>b\r", "x" * 3, LONG):
        think(session, text)
    script(session)
    found = again(session, store)
    assert (found.name, found.parent, found.n) == ("s", "parent", 7)
    assert found.entries == session.entries and ids(found) == ["e5", "e6", "e7", "e8"]
    assert found.file == "contexts/s/000007.xml"
    assert found.new_id() == "e9" == session.new_id()


def test_nothing_saved_nothing_resumed(store: Store) -> None:
    assert resume(store) is None


def test_a_script_that_is_over_moves_to_its_place(store: Store) -> None:
    session = Session("s")
    running = script(session)
    think(session, "meanwhile")
    session.update(replace(running, stdout=Output("tick\n", False, 5)))
    assert ids(session) == ["e1", "e2"]
    session.update(replace(running, status="done", exit_code=0))
    assert ids(session) == ["e2", "e1"]
    think(session, "after")
    session.update(replace(running, status="done", exit_code=0, note="x"))
    assert ids(session) == ["e2", "e1", "e3"]
    assert ids(again(session, store)) == ["e2", "e1", "e3"]


def test_a_repeat_keeps_its_place(store: Store) -> None:
    session = Session("s")
    repeat = script(session, "repeat")
    think(session, "meanwhile")
    session.update(replace(repeat, status="done", exit_code=0))
    assert ids(session) == ["e1", "e2"] == ids(again(session, store))


def test_what_is_deleted_stays_deleted_and_its_id_is_not_used_again(store: Store) -> None:
    session = Session("s")
    think(session, "a")
    think(session, "b")
    again(session, store)
    session.delete("e2")
    session.delete("e77")
    found = again(session, store)
    assert ids(found) == ["e1"] and found.new_id() == "e3"


@settings(max_examples=40)  # each writes to the disk
@given(st.lists(st.sampled_from(["add", "script", "over", "delete", "save", "fold"]), max_size=25))
def test_the_saved_session_always_equals_the_one_in_memory(doings: list[str]) -> None:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "state.db")
        session, count = Session("s"), 0
        for doing in doings:
            count += 1
            entries = session.entries
            if doing == "add":
                think(session, f"{count}")
            elif doing == "script":
                script(session)
            elif doing == "over":
                for entry in entries:
                    if isinstance(entry, Script) and entry.status == "running":
                        session.update(replace(entry, status="done", exit_code=0))
                        break
            elif doing == "delete" and entries:
                session.delete(entries[count % len(entries)].id)
            elif doing == "fold" and len(entries) > 2:
                note = Note(session.new_id(), Text("folded"))
                session.replace_all([note, *entries[2:]])
            elif doing == "save":
                again(session, store)
        found = again(session, store)
        assert found.entries == session.entries
        assert len(set(ids(found))) == len(ids(found))
        store.close()


def test_a_script_nobody_knows_is_lost(store: Store) -> None:
    session = Session("s")
    for mode in ("single_shot", "background", "repeat"):
        script(session, mode)
    done = script(session, "single_shot")
    session.update(replace(done, status="done", exit_code=0))
    lost_scripts(session, lambda id: id == "e2")
    assert {entry.id: entry.status for entry in session.scripts()} == {
        "e1": "lost", "e2": "running", "e3": "running", "e4": "done"
    }  # fmt: skip
    assert session.get("e1").note == "lost over a restart"


# The budget: a token is a word.
def budget(total: int, fixed: int = 0) -> Budget:
    return Budget(lambda text: len(text.split()), total, fixed)


def test_percent_counts_what_the_prompt_shows() -> None:
    entries = (Reasoning("e1", Text("a b c")), Reasoning("e2", Text("d")))
    words = sum(len(entry_text(entry).split()) for entry in entries)
    assert budget(100, 10).tokens(entries) == 10 + words
    assert budget(100, 10).percent(entries) == 10 + words
    assert budget(4).percent(()) == 0


def done(id: str, text: str = LONG, **more: str) -> Script:
    return Script(id, "single_shot", Text("x"), "done", 0, Output(text, False, len(text)), **more)


def test_the_oldest_long_output_leaves_a_pointer() -> None:
    entries = [
        InputEntry("e1", "typed", "r1", Text(LONG)),
        Reasoning("e2", Text("short")),
        done("e3"),
        Script("e4", "background", Text("x"), stdout=Output(LONG, False, 500)),
        Reasoning("e5", Text(LONG)),
        done("e6"),
    ]
    limit = budget(4 * 110)
    found = relieve(entries, limit, "contexts/s/000009.xml", "e7", frozenset(entries))
    assert [entry.id for entry in found] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    pointer = "[moved to contexts/s/000009.xml]"
    assert found[2].stdout == Output(pointer, True, 500, "contexts/s/000009.xml")
    assert found[2].command == Text("x") and found[2].exit_code == 0
    # The request, what still runs, and the newest entry stay; so does what is short.
    assert [found[n] for n in (0, 1, 3, 5)] == [entries[n] for n in (0, 1, 3, 5)]
    assert limit.percent(found) < 95
    assert relieve(found, limit, "other.xml", "e7", frozenset(found)) == found


def test_exact_bytes_keep_their_own_file() -> None:
    output = Output(LONG, True, 9000, "000002.d/e3.stdout")
    entries = [replace(done("e3"), stdout=output), Reasoning("e4", Text("x"))]
    found = relieve(entries, budget(20), "contexts/s/000009.xml", "e5", frozenset(entries))
    shown = [entry for entry in found if entry.id == "e3"]
    assert not shown or shown[0].stdout.file == "000002.d/e3.stdout"


def test_when_that_is_not_enough_the_oldest_are_folded_into_one_note() -> None:
    entries = [InputEntry(f"e{n}", "typed", "r1", Text(LONG)) for n in range(1, 11)]
    found = relieve(entries, budget(1000), "contexts/s/000009.xml", "e11", frozenset(entries))
    assert isinstance(found[0], Note) and found[0].id == "e11"
    words = re.match(r"(\d+) earlier .*, (\w+) to (\w+): ", found[0].text.text)
    count, first, last = words.groups()
    kept = [entry.id for entry in found[1:]]
    assert (first, int(count)) == ("e1", 10 - len(kept)) and last == f"e{count}"
    assert found[0].text.text.endswith(": contexts/s/000009.xml")
    assert kept == [f"e{n}" for n in range(int(count) + 1, 11)]
    assert budget(1000).percent(found) <= 55


def test_only_what_is_in_the_file_is_moved_there() -> None:
    entries = [done("e1"), done("e2"), done("e3"), Reasoning("e4", Text("x"))]
    found = relieve(entries, budget(150), "file.xml", "e5", frozenset(entries[:1]))
    assert found[1:] == entries[1:] and found[0] != entries[0]
    assert relieve(entries, budget(150), "file.xml", "e5", frozenset()) == entries


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(100, 800))
def test_every_entry_is_there_or_in_the_file_that_is_named(sizes: list[int], total: int) -> None:
    """As in the loop: each turn adds entries, is filed, and is relieved before the next."""
    session, files = Session("s"), {}
    for size in sizes:
        think(session, "w " * size)
        lighter = relieve(
            session.entries, budget(total), session.file, session.new_id(), session.filed
        )
        session.replace_all(lighter)
        session.n += 1
        files[session.file] = {entry.id: entry for entry in session.entries}
        session.saved(session.entries)

    def find(id: str, place: dict[str, Entry]) -> str:
        if id in place:
            moved = re.fullmatch(r"\[moved to (.*)\]", place[id].text.text)
            return find(id, files[moved[1]]) if moved else place[id].text.text
        for entry in place.values():
            if isinstance(entry, Note) and (folded := re.search(r": (\S+)$", entry.text.text)):
                return find(id, files[folded[1]])
        raise AssertionError(f"{id} is nowhere")

    added = [n for n in range(1, 2 * len(sizes), 2)]
    for n, size in zip(added, sizes, strict=True):
        assert find(f"e{n}", files[session.file]) == "w " * size
