"""state.db: whole after a kill at any moment, and set aside with one line when it is damaged."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from sia.errors import ConfigError
from sia.store import Run, Store

NOW = datetime(2026, 11, 30, 15, 0, 0, 123456, tzinfo=UTC)
RUN = Run("r7", "typed", "feed the cat", 0.4, NOW, NOW, preempts=True, question='{"a": 1}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_what_was_saved_is_read_back_after_reopening(path: Path) -> None:
    store = Store(path)
    item = store.add_input("typed", "a\0b “é” 👩‍👧\r\n", NOW)
    store.save_run(RUN)
    store.save_result("r7", "act", 1, "choose", {"a": [1, "ü\udcff"]})
    store.add_stdin("r7", "first")
    store.add_stdin("r7", "second")
    store.add_message("r7", "hello")
    store.save_entries([("e2", 2, "<b/>"), ("e1", 1, "<a/>")], [])
    store.save_unfiled("s", 3, b"<x/>")
    store.close()

    store = Store(path)
    assert store.inputs() == [item] and item.text == "a\0b “é” 👩‍👧\r\n"
    assert store.run("r7") == RUN and store.run("r8") is None
    assert RUN.open_question == {"a": 1}
    assert store.result("r7", "act", 1) == ("choose", "done", {"a": [1, "ü\udcff"]})
    assert store.result("r7", "act", 2) is None
    assert store.stdin_count("r7") == 2 and store.stdin_count("r8") == 0
    number, text = store.oldest_stdin("r7")
    assert text == "first"
    store.drop_taken([number])
    assert store.oldest_stdin("r7")[1] == "second"
    assert [row[1:] for row in store.messages()] == [("r7", "hello")]
    assert store.entries() == [(1, "<a/>"), (2, "<b/>")]
    assert store.unfiled() == [("s", 3, b"<x/>")]
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()


def test_times_of_any_zone_are_the_same_moment(path: Path) -> None:
    store = Store(path)
    moment = datetime(2026, 11, 30, 16, tzinfo=timezone(timedelta(hours=1)))
    store.save_run(replace(RUN, arrived=moment))
    assert store.run("r7").arrived == datetime(2026, 11, 30, 15, tzinfo=UTC)
    store.close()


def test_half_a_character_is_shown_as_such(path: Path) -> None:
    """A client may send a lone surrogate in JSON; it is no text, and must not end the agent."""
    store = Store(path)
    store.add_input("typed", "a\ud800b", NOW)
    store.add_message("r1", "a\udfffb")
    assert store.inputs()[0].text == "a�b"
    assert store.messages()[0][2] == "a�b"
    store.close()


def test_ids_go_on_and_are_drawn_once(path: Path) -> None:
    store = Store(path)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(store.next_id("r") for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=lambda id: int(id[1:])) == [f"r{n}" for n in range(1, 81)]
    with pytest.raises(RuntimeError), store.transaction():
        assert store.next_id("r") == "r81"
        raise RuntimeError
    store.close()
    store = Store(path)
    assert store.next_id("r") == "r81" and store.next_id("m") == "m1"
    store.close()


def test_an_error_rolls_all_of_it_back(path: Path) -> None:
    store = Store(path)
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.save_run(RUN)
        with store.transaction():
            store.set_meta("a", "b")
        _ = 1 / 0
    assert store.run("r7") is None and store.meta("a") == ""
    with store.transaction():
        store.save_run(RUN)
    assert store.run("r7") == RUN
    store.close()


def test_open_runs_come_by_arrival(path: Path) -> None:
    store = Store(path)
    statuses = ["done", "asking", "waiting", "running", "failed", "cancelled"]
    for n, status in enumerate(statuses):
        arrived = NOW - timedelta(minutes=n)
        store.save_run(replace(RUN, id=f"r{n}", status=status, arrived=arrived))
    assert [run.id for run in store.runs()] == ["r3", "r2", "r1"]
    assert [run.id for run in store.runs("done", "failed")] == ["r4", "r0"]
    assert store.waiting_count() == 1
    store.close()


KILLED = """
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from sia.store import Run, Store
store = Store(Path(sys.argv[1]))
now = datetime.now(UTC)
number = 0
while True:
    number += 1
    with store.transaction():
        for part in range(5):
            store.save_run(Run(f"r{5 * number + part}", "typed", "x" * 2000, 0.5, now, now))
        store.set_meta("number", str(number))
        if number == 20:
            print("go", flush=True)
"""


def test_killed_in_a_transaction_it_opens_whole(path: Path) -> None:
    """Killed at three moments: each commit is there as a whole or not at all."""
    for delay in (0.0, 0.013, 0.031):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "go\n"
        threading.Event().wait(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        problems: list[str] = []
        store = Store(path, problems)
        number = int(store.meta("number"))
        assert problems == [] and number >= 19
        assert len(store.runs("waiting")) == 5 * number
        with store.transaction() as db:
            db.execute("DELETE FROM runs")
            db.execute("DELETE FROM meta WHERE key = 'number'")
        store.close()


def damaged(path: Path, kind: str) -> None:
    store = Store(path)
    for n in range(200):
        store.save_run(replace(RUN, id=f"r{n}", text="x" * 500))
    store.close()
    size = path.stat().st_size
    data = path.read_bytes()
    path.write_bytes(
        {
            "nul": bytes(size),
            "text": b"not a database" * 100,
            "page": data[:8192] + os.urandom(size - 8192),
            "cut": data[: size // 2],
        }[kind]
    )


def test_an_empty_file_is_filled_anew_and_named(path: Path) -> None:
    path.touch()
    problems: list[str] = []
    Store(path, problems).close()
    assert problems[0].startswith("state.db was empty (0 bytes). ") and len(problems) == 1


@pytest.mark.parametrize("kind", ["nul", "text", "page", "cut"])
def test_a_damaged_file_is_set_aside_and_named(path: Path, kind: str) -> None:
    damaged(path, kind)
    broken = path.read_bytes()
    problems: list[str] = []
    store = Store(path, problems)
    assert store.runs() == []
    store.save_run(RUN)
    assert store.run("r7") == RUN
    store.close()
    (aside,) = path.parent.glob("state.db.broken-*")
    assert aside.read_bytes() == broken
    (problem,) = problems
    assert problem.startswith("state.db was damaged (") and aside.name in problem
    assert "\n" not in problem
    again: list[str] = []
    Store(path, again).close()
    assert again == []


def test_two_damaged_files_within_a_second_are_both_kept(path: Path) -> None:
    for text in (b"first" * 100, b"second" * 100):
        path.write_bytes(text)
        Store(path, []).close()
    kept = {aside.read_bytes()[:5] for aside in path.parent.glob("state.db.broken-*")}
    assert kept == {b"first", b"secon"}


def test_a_schema_from_the_future_is_refused_and_left_alone(path: Path) -> None:
    store = Store(path)
    store.save_run(RUN)
    store.set_meta("schema", "99")
    store.close()
    with pytest.raises(ConfigError, match="has schema 99, this program knows 4: upgrade") as caught:
        Store(path)
    assert caught.value.exit_code == 78
    db = sqlite3.connect(path)
    assert db.execute("SELECT id FROM runs").fetchall() == [("r7",)]
    db.close()


def test_what_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(ConfigError, match="state.db cannot be opened: unable to open"):
        Store(tmp_path / "state.db")
