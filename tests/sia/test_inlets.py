"""Events from outside: real files, real changes, real sockets, real scripts."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from watchfiles import Change

from sia.config import WatchConfig
from sia.entries import InputEntry, Script
from sia.errors import OverLimit, SiaError
from sia.events import Admitted, Asked, Ended, Notice, Said
from sia.inlets.exits import TOLD
from sia.inlets.spool import KEPT, Spool, settled
from sia.inlets.watches import MOST, Watches
from sia.sockets import short
from sia.sources import SOURCES
from sia.store import Store

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
ROOT = Path(__file__).parents[2]


class Kept:
    """An intake that only keeps. ``full``: there is no room."""

    def __init__(self, store: Store | None = None) -> None:
        self.texts: list[str] = []
        self.store, self.full, self.fault = store, False, None

    def room(self, source: str) -> bool:
        assert source == "event"
        return not self.full

    def submit(self, text: str, source: str, within=lambda run: None) -> str:
        if self.fault:
            raise self.fault
        within("r1")
        self.texts.append(text)
        return f"r{len(self.texts)}"


# the spool


@pytest.fixture
def spool(tmp_path: Path):
    """A spool over its own folders; ``told`` is what it says."""
    for name in ("spool", "taken"):
        (tmp_path / name).mkdir()
    store = Store(tmp_path / "state.db")
    kept, told = Kept(store), []
    made = Spool(tmp_path / "spool", tmp_path / "taken", kept, store, told.append)
    made.kept, made.told, made.store = kept, told, store
    yield made
    store.close()


def drop(tmp_path: Path, name: str, data: str | bytes = "x") -> Path:
    path = tmp_path / "spool" / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_files_are_taken_oldest_first_and_whole(spool, tmp_path) -> None:
    for age, name in ((2, "b"), (3, "c"), (1, "a")):
        path = drop(tmp_path, name, f"\ufeff{name} äöü\nsecond line\n")
        os.utime(path, (1000 - age, 1000 - age))
    spool.scan()
    assert spool.kept.texts == [f"{name} äöü\nsecond line" for name in "cba"]
    assert list((tmp_path / "spool").iterdir()) == list((tmp_path / "taken").iterdir()) == []
    assert not spool.pending and spool.told == []


def test_a_file_that_is_being_written_is_left_until_it_is_closed(spool, tmp_path) -> None:
    with open(tmp_path / "spool" / "slow", "w") as file:
        file.write("half")
        file.flush()
        spool.scan()
        assert spool.kept.texts == [] and spool.pending
        file.write(" and half")
    spool.scan()
    assert spool.kept.texts == ["half and half"] and not spool.pending


def test_one_that_was_opened_again_while_it_was_taken_is_waited_for(
    spool, tmp_path, monkeypatch
) -> None:
    path = drop(tmp_path, "late", "one\n")
    take = spool._take
    files = []

    def opened(path: Path) -> Path:
        files.append(open(path, "a"))
        return take(path)

    monkeypatch.setattr(spool, "_take", opened)
    spool.scan()
    assert spool.kept.texts == [] and spool.pending and not path.exists()
    files[0].write("two\n")
    files[0].close()
    spool.scan()
    assert spool.kept.texts == ["one\ntwo"]


def test_who_opens_it_during_the_look_kills_nobody(spool, tmp_path) -> None:
    """A broken lease is told of by a signal; we live on, and the writer is not held up."""
    path = drop(tmp_path, "busy", "x" * 1000)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            with open(path, "a"):
                pass

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 1
    seen = {settled(path) for _ in iter(lambda: time.monotonic() < end, False)}
    done.set()
    for thread in threads:
        thread.join(5)
    assert seen <= {True, False} and settled(path)


@pytest.mark.parametrize("name", [".hidden", "a.tmp", "a.part", "a~", "a.swp"])
def test_what_will_yet_be_renamed_is_left_alone(spool, tmp_path, name) -> None:
    path = drop(tmp_path, name)
    spool.scan()
    assert spool.kept.texts == [] and path.exists() and not spool.pending
    path.rename(tmp_path / "spool" / "whole")
    spool.scan()
    assert spool.kept.texts == ["x"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a\xffb", "it is not UTF-8 at byte 1"),
        ("x" * 100_001, "it has more than 100,000 characters"),
        ("€" * 400_000, "it has more than 100,000 characters"),
        (None, "it is no file"),
        ("link", "it is no file"),
        ("fifo", "it is no file"),
    ],
)
def test_what_is_no_text_is_set_aside_and_told(spool, tmp_path, data, reason) -> None:
    path = tmp_path / "spool" / "odd"
    match data:
        case None:
            path.mkdir()
        case "link":
            path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(path)
        case _:
            drop(tmp_path, "odd", data)
    drop(tmp_path, "good", "fine")
    spool.scan()
    assert spool.kept.texts == ["fine"]
    assert spool.told == [f"spool/odd is refused: {reason}; it lies in spool/refused now"]
    assert os.path.lexists(tmp_path / "spool/refused/odd") and not os.path.lexists(path)
    # A second of that name does not write over the first.
    drop(tmp_path, "odd", b"\xff")
    spool.scan()
    assert len(list((tmp_path / "spool/refused").iterdir())) == 2


def test_a_text_of_just_the_limit_is_taken_and_an_empty_one_is_nothing(spool, tmp_path) -> None:
    drop(tmp_path, "long", "€" * 100_000)
    drop(tmp_path, "empty", " \n")
    spool.scan()
    assert [len(text) for text in spool.kept.texts] == [100_000]
    assert spool.told == [] and list((tmp_path / "spool").iterdir()) == []


def test_names_may_hold_anything(spool, tmp_path) -> None:
    names = ["a b", "-rf", "ü" * 100, "new\nline", "\udcff"]
    for name in names:
        drop(tmp_path, name, "from it")
    drop(tmp_path, "bad\x1b[2J\udcff", b"\xff")
    spool.scan()
    assert len(spool.kept.texts) == len(names)
    assert spool.told and all(text.isprintable() for text in spool.told)


def test_without_room_it_stays_on_disk(spool, tmp_path) -> None:
    drop(tmp_path, "a", "kept for later")
    spool.kept.full = True
    spool.scan()
    assert spool.kept.texts == [] and len(list((tmp_path / "taken").iterdir())) == 1
    spool.kept.full = False
    spool.scan()
    assert spool.kept.texts == ["kept for later"] and not list((tmp_path / "taken").iterdir())


def test_killed_between_any_two_steps_it_is_kept_once(spool, tmp_path) -> None:
    """Before and after each of: rename, commit, delete."""
    drop(tmp_path, "a", "one")
    spool._take(tmp_path / "spool" / "a")  # killed once it was renamed
    spool.scan()
    assert spool.kept.texts == ["one"]
    taken = spool._take(drop(tmp_path, "b", "two"))
    spool.kept.submit("two", "event")
    spool.store.set_meta(KEPT, taken.name)  # killed once it was committed
    spool.scan()
    assert spool.kept.texts == ["one", "two"] and not taken.exists()
    drop(tmp_path, "c", "three")
    spool.kept.fault = SiaError("state.db cannot be written: is the disk full?")
    with pytest.raises(SiaError):
        spool.scan()
    spool.kept.fault = None
    spool.scan()
    assert spool.kept.texts == ["one", "two", "three"]


@pytest.mark.parametrize("kind", ["spool_taken", "spool_kept", "spool_deleted"])
def test_an_agent_killed_while_it_takes_a_file_neither_loses_nor_doubles_it(
    make, skill, home, kind
) -> None:
    skill("echo", ECHO)
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("child.py")), str(home), kind],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.wait(60) == -signal.SIGKILL
    assert not list((home / "spool").iterdir())
    assert len(list((home / ".sia/spool").iterdir())) == (kind != "spool_deleted")
    rig = make().start()
    rig.wait(Said, text="did echo dropped")
    rig.until(lambda: not list((home / ".sia/spool").iterdir()))
    rig.say("echo after")
    rig.wait(Said, text="did echo after")
    assert rig.end() == 0
    assert rig.said == ["did echo dropped", "did echo after"]


def test_a_file_dropped_while_it_runs_and_while_it_does_not(make, skill, home) -> None:
    skill("echo", ECHO)
    rig = make()
    (home / "spool/before").write_text("echo before")
    assert stat.S_IMODE((home / "spool").stat().st_mode) == 0o700
    rig.start()
    rig.wait(Said, text="did echo before")
    (home / "spool/meanwhile").write_text("echo meanwhile\n")
    rig.wait(Said, text="did echo meanwhile")
    assert rig.end() == 0
    (given, _) = [e for e in rig.entries() if isinstance(e, InputEntry)]
    assert given.source == "event"
    assert not list((home / "spool").iterdir())


# watched files and folders


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watches(tmp_path: Path):
    """watches(*configs): as they are, with ``kept``, ``told`` and ``clock``."""

    def watches(*configs: dict[str, Any], ignored: tuple[Path, ...] = ()) -> Watches:
        kept, told, clock = Kept(), [], Clock()
        chosen = [WatchConfig(**config) for config in configs]
        made = Watches(chosen, tmp_path, ignored, kept, told.append, clock)
        made.kept, made.told, made.clock = kept, told, clock
        return made

    return watches


def test_a_burst_of_changes_is_one_event_once_it_is_over(watches, tmp_path) -> None:
    file = tmp_path / "a.txt"
    made = watches({"path": "."})
    file.write_text("x")
    made.see([(Change.added, str(file))])
    for tick in range(5):
        made.clock.now = tick * 0.9
        made.see([(Change.modified, str(file))])
        made.flush()
    assert made.kept.texts == []
    made.clock.now += 1.1
    made.flush()
    made.flush()
    assert made.kept.texts == [f"the file {file} was added"]


def test_a_file_that_never_rests_is_told_of_all_the_same(watches, tmp_path) -> None:
    file = tmp_path / "log"
    file.write_text("x")
    made = watches({"path": "log", "text": "{name} {change}", "seconds": 2})
    for second in range(101):
        made.clock.now = second
        made.see([(Change.modified, str(file))])
        made.flush()
    assert made.kept.texts == ["log changed"] * 4


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [(False, True, "added"), (True, True, "changed"), (True, False, "removed"),
     (False, False, None)],
)  # fmt: skip
@pytest.mark.parametrize("config", [{"path": "."}, {"path": "a"}, {"path": ".", "recursive": True}])
def test_what_was_done_is_said_in_one_word(watches, tmp_path, config, before, after, word) -> None:
    """By what is there: the same file may be added and deleted at once, in no order."""
    file = tmp_path / "a"
    if before:
        file.write_text("x")
    made = watches({**config, "text": "{change}"})
    file.unlink(missing_ok=True)
    if after:
        (tmp_path / "a.tmp").write_text("y")
        (tmp_path / "a.tmp").rename(file)
    made.see([(Change.deleted, str(file)), (Change.added, str(file))])
    made.clock.now = 5
    made.flush()
    assert made.kept.texts == ([word] if word else [])
    made.see([(Change.modified, str(file))])
    made.clock.now = 10
    made.flush()
    assert made.kept.texts[bool(word) :] == (["changed"] if after else [])


def test_only_what_is_meant_is_told(watches, tmp_path) -> None:
    (tmp_path / "deep/own").mkdir(parents=True)
    made = watches(
        {"path": "deep", "pattern": "*.pdf", "text": "flat {name}"},
        {"path": "deep", "recursive": True, "text": "deep {name}"},
        {"path": "one.txt", "text": "one {name}"},
        ignored=(tmp_path / "deep/own",),
    )
    names = [
        "deep/a.pdf", "deep/a.txt", "deep/x/b.pdf", "deep/.c.pdf", "deep/.git/d.pdf", "deep/e.pdf~",
        "deep/f.pdf.part", "deep/own/g.pdf", "one.txt", "two.txt", "deep/x",
    ]  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name != "deep/x":
            path.write_text("x")
    made.see([(Change.added, str(tmp_path / name)) for name in names])
    made.clock.now = 5
    made.flush()
    assert sorted(made.kept.texts) == [
        "deep a.pdf", "deep a.txt", "deep b.pdf", "flat a.pdf", "one one.txt"
    ]  # fmt: skip
    assert made.roots() == [tmp_path, tmp_path / "deep"]


def test_a_flood_is_bounded_and_says_so(watches, tmp_path) -> None:
    made = watches({"path": ".", "text": "{name}"})
    for n in range(MOST + 1234):
        (tmp_path / f"f{n}").touch()
        made.see([(Change.added, str(tmp_path / f"f{n}"))])
    made.clock.now = 5
    made.flush()
    assert len(made.kept.texts) == MOST + 1 and made.kept.texts[-1] == tmp_path.name
    assert made.told == ["watch .: 1,234 more changes are told as one"]


def test_a_watch_of_nothing_is_told_in_one_line(watches, tmp_path) -> None:
    made = watches({"path": "none/such/file"}, {"path": str(tmp_path)})
    assert made.roots() == [tmp_path]
    where = tmp_path / "none/such"
    assert made.told == [f"watch none/such/file: there is no folder {where}; make it and restart"]


def test_real_changes_come_in_as_events(make, skill, home) -> None:
    skill("echo", ECHO)
    box, deep = home / "box", home / "deep"
    for folder in (box, deep / "down"):
        folder.mkdir(parents=True)
    (home / "list.txt").write_text("one")
    with open(home / "sia.toml", "a") as file:
        file.write(
            '[[watch]]\npath = "box"\npattern = "*.pdf"\ntext = "echo {name} {change}"\n'
            '[[watch]]\npath = "list.txt"\ntext = "echo {name} {change}"\nseconds = 0.2\n'
            '[[watch]]\npath = "deep"\nrecursive = true\ntext = "echo {name} {change}"\n'
        )
    rig = make().start()
    rig.until(lambda: rig.agent._inlets and rig.agent._inlets._threads)
    time.sleep(1.5)  # until the watch is up: what came before it is not seen
    (box / "a.pdf").write_text("x")
    (box / "a.txt").write_text("x")
    (deep / "down" / "b").write_text("x")
    rig.wait(Said, text="did echo a.pdf added")
    rig.wait(Said, text="did echo b added")
    new = home / "list.new.tmp"  # as an editor saves
    new.write_text("two")
    new.rename(home / "list.txt")
    rig.wait(Said, text="did echo list.txt changed")
    (box / "a.pdf").unlink()
    rig.wait(Said, text="did echo a.pdf removed")
    assert rig.end() == 0
    assert len(rig.said) == 4, rig.said


# the event socket


def connect(home: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    try:
        with short(home / ".sia/events") as name:
            client.connect(name)
    except OSError:
        client.close()
        raise
    return client


@pytest.fixture
def listening(make, skill, home):
    skill("echo", ECHO)
    rig = make().start()
    rig.until((home / ".sia/events").exists)
    return rig


def test_each_line_is_an_event_and_is_answered(listening, home) -> None:
    assert stat.S_IMODE((home / ".sia/events").stat().st_mode) == 0o600
    with connect(home) as client, client.makefile("rwb") as file:
        file.write("echo eins äöü\n\n  \nthanks\r\n".encode() + b"a\xffb\n")
        file.flush()
        assert file.readline() == b"kept r1\n"
        assert file.readline() == b"kept r2\n"
        assert file.readline() == b"refused: not UTF-8 at byte 1\n"
        listening.wait(Said, text="did echo eins äöü")
        listening.wait(Admitted, text="thanks", action="ignore")
        file.write(b"x" * 1_000_000 + b"\necho zwei\n")
        file.flush()
        assert file.readline() == b"refused: the line is too long\n"
        assert file.readline() == b"kept r3\n"
        file.write(b"echo a half")
        file.flush()
        client.shutdown(socket.SHUT_WR)
        assert file.readline() == b"refused: the line has no end\n"
    listening.wait(Said, text="did echo zwei")
    assert listening.end() == 0
    assert listening.said == ["did echo eins äöü", "did echo zwei"]
    assert not (home / ".sia/events").exists()


def test_who_does_not_wait_for_an_answer_is_heard_all_the_same(listening, home) -> None:
    with connect(home) as client:
        client.sendall(b"".join(b"echo %d\n" % n for n in range(20)))
    for n in range(20):
        listening.wait(Said, text=f"did echo {n}")
    assert listening.end() == 0


def test_a_sender_that_is_too_fast_waits_and_nothing_is_lost(listening, home, monkeypatch) -> None:
    event = SOURCES["event"]
    fast = {**SOURCES, "event": type(event)(**{**vars(event), "burst": 2})}
    monkeypatch.setattr("sia.intake.SOURCES", fast)
    with connect(home) as client, client.makefile("rb") as file:
        client.sendall(b"".join(b"thanks %d\n" % n for n in range(30)))
        assert [file.readline() for _ in range(30)] == [b"kept r%d\n" % (n + 1) for n in range(30)]
    for n in range(30):
        listening.wait(Admitted, text=f"thanks {n}", action="ignore")
    assert listening.end() == 0


def test_a_client_that_stays_does_not_hold_up_the_end(listening, home) -> None:
    with connect(home) as client:
        client.sendall(b"echo one\n")
        listening.wait(Said, text="did echo one")
        assert listening.end() == 0
        with pytest.raises(OSError):
            connect(home)


# the end of a script


def test_the_end_of_a_background_script_is_told_once(make, home) -> None:
    replies = ["<background>sleep 0.2; exit 3</background>", "<write_stdout>ok</write_stdout>"]
    rig = make(replies).start()
    rig.say("free: start it")
    text = "the background script sleep 0.2; exit 3 ended with exit code 3"
    rig.wait(Admitted, text=text, action="ignore")
    (script,) = [e for e in rig.agent.loop._session.scripts() if e.mode == "background"]
    rig.until(lambda: script.id in rig.agent.store.meta(TOLD))
    assert rig.stop(75) == 75
    again = make().start()
    again.say("thanks")
    again.wait(Admitted, text="thanks")
    assert again.end() == 0
    assert [text for text, _ in again.admitted] == ["thanks"]


def test_one_that_ended_while_nobody_ran_is_told_at_the_start(make, home) -> None:
    rig = make(["<background>sleep 1.5</background>", "<write_stdout>ok</write_stdout>"]).start()
    rig.say("free: start it")
    rig.wait(Said, text="ok")
    (script,) = [e for e in rig.agent.loop._session.scripts() if e.mode == "background"]
    assert rig.stop(75) == 75
    rig.until((home / f".sia/scripts/{script.id}/exit.json").exists)
    again = make().start()
    again.wait(Admitted, text="the background script sleep 1.5 ended with exit code 0")
    assert again.end() == 0
    (seen,) = [e for e in again.entries() if isinstance(e, Script) and e.mode == "background"]
    assert (seen.status, seen.exit_code) == ("done", 0)


def test_what_the_agent_ended_itself_is_no_news(make) -> None:
    replies = ["<background>sleep 60</background>", '<delete id="e5"/>',
               "<write_stdout>ok</write_stdout>"]  # fmt: skip
    rig = make(replies)
    assert rig.all("free: start and end it") == 0
    assert [text for text, _ in rig.admitted] == ["free: start and end it"]


# authority


ASK = "def act(ctx):\n    ctx.say('sent' if ctx.confirm('Send it?') else 'not sent')\n"


@pytest.mark.parametrize("way", ["spool", "socket", "watch"])
def test_a_yes_from_outside_answers_nothing_that_the_person_was_asked(
    make, skill, home, way
) -> None:
    skill("send", ASK)
    with open(home / "sia.toml", "a") as file:
        file.write('[[watch]]\npath = "answer"\ntext = "yes"\nseconds = 0.1\n')
    rig = make().start()
    run = rig.say("send it")
    assert rig.wait(Asked).options == ("yes", "no")
    match way:
        case "spool":
            (home / "spool/answer").write_text("yes")
        case "socket":
            with connect(home) as client:
                client.sendall(b"yes\n")
        case "watch":
            time.sleep(1.5)
            (home / "answer").write_text("yes")
    heard = rig.wait(Admitted, text="yes")
    assert heard.action in ("queue", "run") and heard.to == ""
    rig.wait(Ended, run=heard.run)
    assert rig.agent.store.run(run).status == "asking" and "sent" not in rig.said
    rig.say("no")
    assert rig.wait(Ended, run=run).status == "done"
    rig.end()
    assert "not sent" in rig.said and "sent" not in rig.said


OUTSIDE = """
def act(ctx):
    value = ctx.effect("the mail to anna", lambda key: open({world!r}, "a").write("x"))
    ctx.say(f"sent {{value}}")
"""


@pytest.mark.parametrize(
    ("source", "answer", "done"),
    [("typed", None, 1), ("piped", None, 1), ("event", "yes", 1), ("event", "no", 0),
     ("skill", "yes", 1), ("concern", "no", 0)],
)  # fmt: skip
def test_an_effect_outside_that_no_person_asked_for_is_asked_first(
    make, skill, tmp_path, source, answer, done
) -> None:
    world = tmp_path / "world"
    skill("mail", OUTSIDE.format(world=str(world)), more="sia-effects: outside")
    rig = make(yes=True).start()  # what was confirmed in advance was the person's own
    run = rig.say("mail anna", source=source)
    if answer:
        asked = rig.wait(Asked)
        assert asked.options == ("yes", "no")
        assert asked.text == (
            "Shall I do this: the mail to anna? "
            f"(the source {source} asks for it, not you: mail anna)"
        )
        assert not world.exists()
        rig.say(answer)
    ended = rig.wait(Ended, run=run)
    assert ended.status == ("done" if done else "failed")
    rig.end()
    assert (world.read_text() if world.exists() else "") == "x" * done
    assert rig.said == (["sent 1"] if done else ["not done, as you said: the mail to anna"])


def test_what_the_skill_itself_had_confirmed_is_not_asked_twice(make, skill, tmp_path) -> None:
    world = tmp_path / "world"
    code = OUTSIDE.format(world=str(world)).replace(
        "    value", "    if not ctx.confirm('Send?'):\n        return\n    value"
    )
    skill("mail", code, more="sia-effects: outside")
    rig = make(yes=True).start()
    rig.say("mail anna", source="event")
    assert rig.wait(Asked).text == "Send?"
    rig.say("yes")
    rig.wait(Said, text="sent 1")
    assert rig.end() == 0 and rig.asked == ["Send?"] and world.read_text() == "x"


# limits


def limited(monkeypatch, name: str, **more: object) -> None:
    source = SOURCES[name]
    table = {**SOURCES, name: type(source)(**{**vars(source), **more})}
    monkeypatch.setattr("sia.intake.SOURCES", table)


def test_what_a_person_types_too_fast_is_held_told_once_and_not_lost(
    make, skill, monkeypatch
) -> None:
    limited(monkeypatch, "typed", rate=120, burst=2)
    rig = make().start()
    texts = [f"thanks {n}" for n in range(8)]
    started = time.monotonic()
    rig.say(*texts)
    assert rig.end() == 0
    assert [text for text, _ in rig.admitted] == texts
    assert time.monotonic() - started >= 2.9  # 6 of them, at two a second
    (notice,) = [event for event in rig.events if isinstance(event, Notice)]
    assert notice.text == (
        "more than 120 inputs a minute came from the source typed; the rest waits, and is not lost"
    )


def test_what_is_over_the_limit_of_a_skill_is_refused_and_told_once(
    make, skill, monkeypatch
) -> None:
    skill("echo", ECHO)
    limited(monkeypatch, "skill", burst=2)
    rig = make().start()
    rig.until(lambda: rig.agent._intake)
    rig.say("echo 1", "echo 2", source="skill")
    for _ in range(3):
        with pytest.raises(OverLimit, match="more than 30 inputs a minute .* was not taken"):
            rig.say("echo 3", source="skill")
    assert rig.end() == 0
    assert rig.said == ["did echo 1", "did echo 2"]
    assert len([event for event in rig.events if isinstance(event, Notice)]) == 1


def test_a_flood_of_events_keeps_no_stop_waiting(make, skill) -> None:
    """What is typed is heard before all events that came earlier."""
    gate = threading.Event()
    waited: list[str] = []

    def decide(decision):
        gate.wait()
        if decision.phase == "contains_request":
            waited.append(decision.state["input"])
        return {"contains_request": "no"}.get(decision.phase, decision.options[0].id)

    rig = make(decide=decide)
    rig.say(*(f"event {n}" for n in range(30)), source="event")
    rig.start()
    rig.until(lambda: rig.decider.calls)
    rig.say("stop!")
    gate.set()
    assert rig.end() == 0
    assert waited[:2] == ["event 0", "stop!"] and len(waited) == 31


# what skills hand over


def test_a_skill_hands_over_a_request_once_also_when_it_is_entered_again(make, skill) -> None:
    skill("echo", ECHO)
    skill("split", """
def act(ctx):
    run = ctx.hand_over("echo the second part")
    ctx.say(f"handed over as {run}: {ctx.ask('Well?')}")
""")  # fmt: skip
    rig = make().start()
    rig.say("split it")
    rig.wait(Said, text="did echo the second part")
    rig.say("re fine")
    rig.wait(Said, text="handed over as r2: re fine")
    assert rig.end() == 0
    assert len(rig.said) == 2 and rig.runs() == {"r1": "done", "r2": "done"}
    store = Store(rig.home.database)
    handed = store.run("r2")
    store.close()
    assert (handed.source, handed.urgency) == ("skill", SOURCES["skill"].urgency)


def test_a_skill_that_hands_over_to_itself_is_stopped_by_the_limit(
    make, skill, monkeypatch
) -> None:
    limited(monkeypatch, "skill", burst=5)
    skill("loop", "def act(ctx):\n    ctx.hand_over('loop')\n    ctx.say('again')\n")
    rig = make()
    assert rig.all("loop") == 1
    assert rig.said[:5] == ["again"] * 5 and len(rig.said) == 6
    assert "came from the source skill; this one was not taken" in rig.said[5]
