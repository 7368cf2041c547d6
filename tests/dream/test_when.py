"""When the agent dreams by itself, and how a dream makes way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest

from semif.jsonl import append
from semif.log import Label, append_labels, timestamp
from sia import home as homes
from sia.dream import status
from sia.dream.child import command
from sia.dream.dream import Dreams
from sia.dream.nights import Nights
from sia.dream.pause import Busy, MakesWay
from sia.dream.schedule import AGAIN, Conditions, Facts, check, look
from sia.errors import ConfigError, UsageError
from sia.events import Event, Notice
from sia.locks import held

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY = "0 3 * * *"
CONDITIONS = Conditions(timedelta(minutes=10), True, 20)


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 12, day, hour, minute, tzinfo=BERLIN)


def facts(now: datetime, **changes: object) -> Facts:
    usual = {"active": at(1, 18), "begun": at(1, 3, 20), "mains": True, "rows": 30}
    return Facts(now, **{**usual, **changes})


def test_it_is_due_when_its_time_has_come_and_not_before() -> None:
    before = look(NIGHTLY, CONDITIONS, facts(at(2, 2, 59)))
    assert (before.due, before.again) == (False, at(2, 3))
    assert look(NIGHTLY, CONDITIONS, facts(at(2, 3))).due
    after = look(NIGHTLY, CONDITIONS, facts(at(2, 3, 40), begun=at(2, 3, 39)))
    assert (after.due, after.again) == (False, at(3, 3))


def test_nights_that_were_missed_are_made_up_for_by_one() -> None:
    late = facts(at(5, 11), begun=at(1, 3, 20))
    assert look(NIGHTLY, CONDITIONS, late).due
    assert not look(NIGHTLY, CONDITIONS, facts(at(5, 12), begun=at(5, 11, 30))).due


def test_it_waits_until_nobody_has_been_there_for_a_while() -> None:
    verdict = look(NIGHTLY, CONDITIONS, facts(at(2, 3, 2), active=at(2, 2, 58)))
    assert (verdict.due, verdict.again) == (False, at(2, 3, 8))
    assert look(NIGHTLY, CONDITIONS, facts(at(2, 3, 8), active=at(2, 2, 58))).due


def test_it_waits_for_mains_where_that_is_wanted() -> None:
    verdict = look(NIGHTLY, CONDITIONS, facts(at(2, 3), mains=False))
    assert (verdict.due, verdict.again) == (False, at(2, 3) + AGAIN)
    anyhow = Conditions(CONDITIONS.idle, False, CONDITIONS.rows)
    assert look(NIGHTLY, anyhow, facts(at(2, 3), mains=False)).due


def test_too_few_labels_are_looked_at_again_the_next_night() -> None:
    verdict = look(NIGHTLY, CONDITIONS, facts(at(2, 3), rows=19))
    assert (verdict.due, verdict.again) == (False, at(3, 3))
    assert "19 new labels, 20 are needed" in verdict.reason
    assert look(NIGHTLY, CONDITIONS, facts(at(2, 3), rows=20)).due


def test_without_a_schedule_never() -> None:
    assert not look("", CONDITIONS, facts(at(9, 3))).due


def test_a_time_in_the_gap_of_the_clock_comes_right_after_it() -> None:
    morning = datetime(2027, 3, 28, 3, 0, tzinfo=BERLIN)  # 02:30 does not exist that day
    begun = datetime(2027, 3, 27, 3, 0, tzinfo=BERLIN)
    assert look("30 2 * * *", CONDITIONS, facts(morning, begun=begun)).due


@pytest.mark.parametrize("text", ["0 3 * *", "0 25 * * *", "nightly"])
def test_a_schedule_that_is_none_is_refused_with_its_key(text: str, tmp_path: Path) -> None:
    assert check(text)
    (tmp_path / "sia.toml").write_text(f'[dream]\nschedule = "{text}"\n')
    with pytest.raises(ConfigError, match=r"dream\.schedule = .*five fields"):
        homes.open_home(tmp_path)


def until(holds: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


COUNTS = """
import sys, time
n = 0
while True:
    n += 1
    sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
    time.sleep(0.01)
"""


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    path = tmp_path / "count"
    with path.open("wb") as file:
        child = subprocess.Popen(command(["-c", COUNTS]), stdout=file)
    until(lambda: path.stat().st_size > 0, "it counts")
    yield child, path
    child.kill()
    child.wait()


def test_training_stands_still_while_the_agent_works_and_goes_on_after(
    tmp_path: Path, counting: tuple[subprocess.Popen[bytes], Path]
) -> None:
    child, path = counting
    held, told = Busy(tmp_path / "busy"), []
    with MakesWay(tmp_path / "busy", 0, told.append) as way:
        way.train(child.pid)
        held.hold()
        held.hold()
        until(lambda: told == [True], "it was paused")
        assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
        before = path.stat().st_size
        time.sleep(0.2)
        assert path.stat().st_size == before
        held.release()
        until(lambda: path.stat().st_size > before, "it goes on")
        assert told == [True, False]
        way.wait()  # returns


def test_one_that_holds_does_not_wait_for_another(tmp_path: Path) -> None:
    one, other = Busy(tmp_path / "busy"), Busy(tmp_path / "busy")
    one.hold()
    other.hold()
    one.release()
    assert held(tmp_path / "busy", shared=True)
    other.release()
    assert not held(tmp_path / "busy", shared=True)


def test_a_killed_agent_leaves_nothing_paused(tmp_path: Path) -> None:
    hold = f"""
import pathlib, time
from sia.dream.pause import Busy
Busy(pathlib.Path({str(tmp_path / "busy")!r})).hold()
print("held", flush=True)
time.sleep(60)
"""
    agent = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE)
    assert agent.stdout is not None and agent.stdout.readline() == b"held\n"
    assert held(tmp_path / "busy", shared=True)
    agent.kill()
    agent.wait()
    agent.stdout.close()
    assert not held(tmp_path / "busy", shared=True)


def test_a_paused_trainer_dies_with_the_dream(tmp_path: Path) -> None:
    code = """
import os, signal, subprocess, time
from sia.dream.child import command
child = subprocess.Popen(command(["-c", "import time; print('up', flush=True); time.sleep(99)"]),
                         stdout=subprocess.PIPE)
child.stdout.readline()
os.kill(child.pid, signal.SIGSTOP)
print(child.pid, flush=True)
time.sleep(99)
"""
    dream = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert dream.stdout is not None
    trainer = psutil.Process(int(dream.stdout.readline()))
    dream.kill()
    dream.wait()
    dream.stdout.close()
    assert not psutil.wait_procs([trainer], timeout=10)[1]


def test_a_trainer_that_takes_too_much_memory_is_ended(
    tmp_path: Path, counting: tuple[subprocess.Popen[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, _ = counting
    monkeypatch.setattr("sia.dream.pause.WEIGH", 0.1)
    with MakesWay(tmp_path / "busy", 1024, lambda paused: None) as way:
        way.train(child.pid)
        assert child.wait(timeout=20) == -signal.SIGKILL
        assert way.too_big


def test_status_says_how_far_a_dream_is(tmp_path: Path) -> None:
    dreams = Dreams(tmp_path, None, print)  # type: ignore[arg-type]
    assert status.running(tmp_path) is None
    with dreams.lock():
        told = status.Writer(tmp_path)
        told.hear("training: 25/1924 steps, loss 0.597, 57.4 min left")
        found = status.running(tmp_path)
        assert found is not None and (found.done, found.total, found.minutes) == (25, 1924, 57.4)
        assert found.words() == "training 1 %, 57 min left"
        told.paused(True)
        assert status.told(tmp_path).endswith(": paused")
        told.paused(False)
        told.hear("measuring the candidate against the revision it came from")
        found = status.running(tmp_path)
        assert found is not None and found.words().startswith("measuring the candidate")
    assert status.running(tmp_path) is None


@pytest.fixture
def home(tmp_path: Path) -> homes.Home:
    return homes.open_home(tmp_path / "home")


def label(home: homes.Home, rows: int) -> None:
    append_labels(
        home.labels,
        [Label.new(f"d{i}", "r1", "is", "yes", "human", by="test") for i in range(rows)],
    )


def test_one_asked_for_runs_in_a_child_and_its_end_is_told(home: homes.Home) -> None:
    events: list[Event] = []
    nights = Nights(home, events.append, lambda: datetime.now(UTC))
    nights.start()
    try:
        assert "goes first" in nights.now()
        with pytest.raises(UsageError, match="under way"):
            nights.now()
        until(lambda: any(isinstance(e, Notice) for e in events), "it was told", 60)
    finally:
        nights.stop()
    (notice,) = [e for e in events if isinstance(e, Notice)]
    assert notice.text.startswith("dreamed; nothing: nothing to learn: no decision has a label")
    last = status.last(home.dreams)
    assert last is not None and last.status == "nothing"


def approve(home: homes.Home, rows: int) -> None:
    append(
        home.feedback,
        [
            {"id": f"f{i}", "iteration": f"s1/{i}", "kind": "approved", "before": "<stop/>",
             "after": "<stop/>", "by": "test", "time": timestamp(datetime.now(UTC))}
            for i in range(rows)
        ],
    )  # fmt: skip


@pytest.mark.parametrize("gather", [label, approve])
def test_one_that_is_due_is_begun_by_the_clock(
    home: homes.Home, gather: Callable[[homes.Home, int], None]
) -> None:
    """It is an hour after three, the machine was off at three, and twenty labels came since."""
    status.keep_last(home.dreams, status.Last(datetime(2026, 11, 30, 2, 30, tzinfo=UTC), "none"))
    gather(home, 20)
    events: list[Event] = []
    now = [datetime(2099, 12, 2, 3, 50, tzinfo=UTC)]
    nights = Nights(home, events.append, lambda: now[0], mains=lambda: True)
    now[0] += timedelta(minutes=10)
    nights.start()
    try:
        until(lambda: any(isinstance(e, Notice) for e in events), "it dreamed", 60)
    finally:
        nights.stop()


def test_one_that_is_ended_with_the_agent_is_due_again(home: homes.Home) -> None:
    last = status.Last(datetime(2026, 11, 30, 2, 30, tzinfo=UTC), "none")
    status.keep_last(home.dreams, last)
    nights = Nights(home, lambda event: None, lambda: datetime.now(UTC))
    nights.start()
    nights.now()
    until(lambda: nights._child is not None, "it began")
    nights.stop()
    assert status.last(home.dreams) == last
    assert not held(home.dreams / "busy", shared=True)


def test_the_command_says_what_runs_and_what_was(home: homes.Home) -> None:
    def said(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sia", "dream", "--status", *arguments],
            env={**os.environ, "SIA_HOME": str(home.folder)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert said() == "no dream yet"
    ended = datetime(2026, 12, 1, 2, 30, tzinfo=UTC)
    status.keep_last(home.dreams, status.Last(ended, "rejected", "held out: no better"))
    assert said() == (
        "no dream runs; the last ended 2026-12-01 02:30 UTC, rejected: held out: no better"
    )
    assert json.loads(said("--json"))["last"]["status"] == "rejected"
