"""A text goes through a whole turn and is forgotten: no byte of it is left, and all else works."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia import record
from sia.context import parse_document, parse_entry, parse_iteration, to_xml
from sia.entries import InputEntry, ReadStdin, Reasoning, Script, Text, WriteStdout
from sia.forget import stones
from sia.forget.database import change
from sia.forget.plan import carry_out, plan
from sia.forget.target import Target, target
from sia.forget.words import Words, in_json, in_xml, says
from sia.prompt import entry_text, prompt
from sia.store import Store

CANARIES = (
    "Zorblatt",
    "Zor'bl\"att & <Søn> 🦜",
    'she said "Zor" \\ b',
    "Zor]]>blatt",
    '{"name": "Zorblatt"}',
)
ECHO = """
def act(ctx):
    ctx.state["kept"] = ctx.request
    ctx.say(f"did {ctx.request}")
"""


def lived(make, skill, canary: str):
    """A run of a skill and one of the generator's, both about the text, and one that is not."""
    skill("echo", ECHO)
    replies = [
        f"<reasoning>{text(canary)}</reasoning>",
        f"<single_shot>cat &lt;&lt;'END'\n{text(canary)}\nEND\n</single_shot>",
        f"<write_stdout>ok {text(canary)}</write_stdout>",
    ]
    rig = make(replies)
    assert rig.all(f"echo {canary}", f"free: {canary}", "echo the weather") == 0
    return rig


def text(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def holding(home, canary: str) -> list[str]:
    words = Words(canary)
    return [
        str(path.relative_to(home.folder))
        for path in sorted(home.folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
        and (words.holds(path.read_bytes()) or words.holds(path.name))
    ]  # fmt: skip


def forget(home, what: str):
    wanted = plan(home, target(home, what))
    carry_out(home, wanted, "somebody")
    return wanted


@pytest.mark.parametrize("canary", CANARIES)
def test_no_byte_is_left_and_the_rest_works(make, skill, canary: str) -> None:
    rig = lived(make, skill, canary)
    home = rig.home
    before = {i.n: i for i in rig.iterations()}
    rows = {row["id"] for row in rig.rows()}
    assert len(holding(home, canary)) > 5
    forget(home, canary)
    assert holding(home, canary) == []
    gone = rows - {row["id"] for row in rig.rows()}
    assert gone and gone == set(stones.rows(home.state)) < rows
    for iteration in rig.iterations():
        assert prompt(iteration).sha256 == iteration.prompt_sha256
        assert not gone & {view.id for view in iteration.decisions}
        assert len(iteration.entries) == len(before[iteration.n].entries)
        assert iteration.run == before[iteration.n].run
    assert plan(home, target(home, canary)).empty
    assert stones.earlier(home.state, canary) and not stones.earlier(home.state, "the weather")
    again = make()
    assert again.all("echo the rain") == 0 and again.said == ["did echo the rain"]
    assert holding(home, canary) == []


@pytest.mark.parametrize("word", ["done", "typed", "input", "text", "echo", "skill", "run", "2026"])
def test_a_word_that_is_the_programs_own_breaks_nothing(make, skill, word: str) -> None:
    rig = lived(make, skill, f"{word} Zorblatt")
    runs = rig.runs()
    forget(rig.home, word)
    for iteration in rig.iterations():
        assert prompt(iteration).sha256 == iteration.prompt_sha256
        shown = [entry.text.text for entry in iteration.entries if isinstance(entry, InputEntry)]
        assert not [words for words in shown if word in words]
    assert rig.runs() == runs
    again = make()
    assert again.all("echo the rain") == 0 and again.ended == [("r4", "done")]


def test_a_session_that_was_broken_off_is_gone_on_with(make, skill) -> None:
    skill("echo", ECHO)
    rig = make(["<single_shot>echo Zorblatt; sleep 30</single_shot>"]).start()
    rig.say("free: Zorblatt")
    rig.until(lambda: len(list(rig.home.contexts.glob("*/*.xml"))) > 1)
    assert rig.stop(75) == 75
    last = rig.iterations()[-1]
    forget(rig.home, f"{last.session}/{last.n}")
    forget(rig.home, "Zorblatt")
    assert holding(rig.home, "Zorblatt") == []
    again = make(["<write_stdout>over</write_stdout>"])
    assert again.all("echo the rain") == 0
    assert {n for n, _ in again.ended} == {"r1", "r2"}


def test_a_run_goes_with_all_that_it_thought_ran_and_said(make, skill) -> None:
    rig = lived(make, skill, "Zorblatt")
    home = rig.home
    rig.home.state.joinpath("history").write_text(
        "\n# now\n+free: Zorblatt\n\n# now\n+echo the rain\n"
    )
    (script,) = [e for e in rig.entries() if isinstance(e, Script) and e.run == "r2"]
    assert (home.scripts / script.id).is_dir()
    wanted = forget(home, "r2")
    assert wanted.target.said == {"free: Zorblatt"}
    assert not (home.scripts / script.id).exists()
    assert (home.state / "history").read_text() == "\n# now\n\n# now\n+echo the rain\n"
    for iteration in rig.iterations():
        for entry in iteration.entries:
            assert not isinstance(entry, (Reasoning, ReadStdin)) or entry.text.text == "[forgotten]"
            if isinstance(entry, (InputEntry, WriteStdout)):
                assert (entry.text.text == "[forgotten]") == (entry.run == "r2")
        assert prompt(iteration).sha256 == iteration.prompt_sha256
    assert "r2" not in rig.runs() and rig.runs()["r1"] == "done"
    again = make()
    assert again.all("echo the rain") == 0
    # What a start writes anew from the database is no older state.
    assert not [row for row in again.rows() if row["run"] == "r2"]
    forget(home, "r1")
    assert holding(home, "Zorblatt") == [], [r for r in rig.rows() if "Zorblatt" in str(r)]


def test_an_entry_goes_by_its_id_and_an_input_takes_its_run_along(make, skill) -> None:
    rig = lived(make, skill, "Zorblatt")
    (thought,) = {e.id for e in rig.entries() if isinstance(e, Reasoning)}
    forget(rig.home, thought)
    shown = [e.text.text for e in rig.entries() if isinstance(e, (Reasoning, WriteStdout))]
    assert "[forgotten]" in shown and "ok Zorblatt" in shown
    (asked,) = {e.id for e in rig.entries() if isinstance(e, InputEntry) and e.run == "r2"}
    assert plan(rig.home, target(rig.home, asked)).target.value == "r2"


def test_what_the_database_freed_long_ago_goes_too(make, skill) -> None:
    skill("echo", ECHO)
    rig = make()
    rig.all("echo the rain")
    with closing(sqlite3.connect(rig.home.database, isolation_level=None)) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("INSERT INTO outbox (run, text) VALUES ('r1', ?)", ("Zorblatt " * 300,))
        database.execute("DELETE FROM outbox")
    assert holding(rig.home, "Zorblatt") == [".sia/state.db"]
    wanted = plan(rig.home, target(rig.home, "Zorblatt"))
    assert wanted.left and not wanted.cells and not wanted.empty
    carry_out(rig.home, wanted, "somebody")
    assert holding(rig.home, "Zorblatt") == []


def test_one_that_was_broken_off_is_carried_through_by_the_next(make, skill) -> None:
    """Killed after any number of files, it finds the rest."""
    rig = lived(make, skill, "Zorblatt")
    home = rig.home
    rows = {row["id"] for row in rig.rows() if row["run"] == "r2"}
    for _ in range(1, 40):
        wanted = plan(home, target(home, "r2"))
        if not wanted.changes:
            break
        carry_out_first(home, wanted)
    else:
        pytest.fail("40 files and not done")
    forget(home, "r2")
    assert not rows & {row["id"] for row in rig.rows()} and "r2" not in rig.runs()
    assert not [label for label in rig.labels() if label["row"] in rows]


def carry_out_first(home, wanted) -> None:
    """As far as one file, with the database where its turn comes before that."""
    first = wanted.changes[0]
    if first.late:
        change(home.database, wanted.target, dry=False)
    first.apply()


def test_files_that_were_set_aside_keep_their_size(make, skill) -> None:
    rig = make()
    rig.all("thanks")
    aside = rig.home.state / "state.db.broken-20260101T000000.000000"
    aside.write_bytes(b"SQLite format 3\0 Zorblatt \xff\0 end")
    (rig.home.state / "Zorblatt.txt").write_text("nothing")
    forget(rig.home, "Zorblatt")
    assert aside.read_bytes() == b"SQLite format 3\0 ******** \xff\0 end"
    assert (rig.home.state / "[forgotten].txt").read_text() == "nothing"


def test_a_damaged_context_is_named_and_the_others_are_done(make, skill) -> None:
    rig = lived(make, skill, "Zorblatt")
    torn = sorted(rig.home.contexts.glob("*/*.xml"))[0]
    torn.write_bytes(torn.read_bytes()[:-30])
    wanted = plan(rig.home, target(rig.home, "r2"))
    assert wanted.unread == (torn,) and len(wanted.changes) > 3
    forget(rig.home, "Zorblatt")
    assert b"Zorblatt" not in torn.read_bytes()


# the words alone


@given(st.text(min_size=3), st.text(), st.text())
def test_a_text_is_found_in_every_way_it_is_written(found: str, left: str, right: str) -> None:
    shown = Text.of(left + found + right).text
    words = Words(found)
    kept, times = in_json(json.dumps({"said": left + found + right}), words)
    assert found not in json.loads(kept)["said"] and times
    assert says({"state": {"input": left + found}}, words)
    if shown == left + found + right:
        entry = WriteStdout("e1", "r1", Text(shown))
        after = in_xml(entry_text(entry).encode(), words)[0]
        assert found not in parse_entry(parse_document(after)).text.text


@pytest.mark.parametrize("word", ["status", "done", "123", "e1", "stdout"])
def test_keys_numbers_and_states_stay(word: str) -> None:
    value = {"id": "e1", "status": "done", "n": 1234, "stdout": f"it was {word}"}
    after = json.loads(in_json(json.dumps(value), Words(word))[0])
    assert after == {**value, "stdout": "it was [forgotten]"}


def test_a_mark_that_holds_the_text_is_not_taken() -> None:
    words = Words("forgotten")
    assert words.cut("it was forgotten") == ("it was ***", 1)


def test_database_cells_keep_what_the_program_counts_by(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(Store(path)) as store:
        store.set_meta("session", "20260101T000000Z-ab12")
        store.set_meta("note", "20260101 was fine")
    found = change(path, Target("text", "20260101", words=Words("20260101")), dry=False)
    assert found.cells == 1
    with closing(sqlite3.connect(path)) as database:
        kept = dict(database.execute("SELECT key, value FROM meta"))
    assert kept["session"].startswith("20260101T") and kept["note"] == "[forgotten] was fine"


def test_an_iteration_is_the_same_where_nothing_is_found(make, skill) -> None:
    rig = lived(make, skill, "Zorblatt")
    for path in rig.home.contexts.glob("*/*.xml"):
        data = path.read_bytes()
        assert in_xml(data, Words("never said")) == (data, 0)
        assert to_xml(parse_iteration(data)) == data == to_xml(record.read(path))
