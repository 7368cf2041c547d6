"""Around the loop: the lock, the socket, what is broken, threads that cannot go on."""

import fcntl
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest

from semif.errors import FileError
from sia import home as homes
from sia.errors import ConfigError, Unavailable
from sia.events import Admitted, Asked, Ended, Kept, Notice, Routed, Said
from sia.generator.testing import until_cancelled
from sia.machine import Machine
from sia.store import Run
from sia.wire import Connection, Server, from_json, to_json

ECHO = """
def act(ctx):
    ctx.say(f"did {ctx.request}")
"""
ASK = "def act(ctx):\n    ctx.say('So ' + ctx.ask('How many?', ['one', 'two']))\n"


def test_a_second_agent_is_refused_and_told_how_to_speak_to_the_first(home) -> None:
    opened = homes.open_home(home)
    assert not homes.locked(opened)
    with homes.lock(opened):
        assert homes.locked(opened)
        with pytest.raises(Unavailable, match=r"in use by process \d+; speak to it with") as caught:
            with homes.lock(opened):
                pass
        assert caught.value.exit_code == 69
    assert not homes.locked(opened)
    with homes.lock(opened):
        pass


def test_who_looks_at_the_lock_keeps_nobody_from_taking_it(home) -> None:
    opened = homes.open_home(home)
    with homes.lock(opened):
        pass
    with open(opened.state / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as long as a slow machine may need
        threading.Timer(0.2, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with homes.lock(opened):
            assert homes.locked(opened)


def test_a_home_that_cannot_be_made_is_one_line(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written: .*; choose another with --home"):
        homes.open_home(tmp_path / "file" / "home")


def test_a_home_is_made_with_its_folders(tmp_path) -> None:
    home = homes.open_home(tmp_path / "new" / "home")
    assert home.state.stat().st_mode & 0o777 == 0o700
    assert (home.work / "user.md").read_text().startswith("# About me")
    assert (home.work / "tasks").resolve() == home.tasks
    (home.folder / "user.md").write_text("mine")
    assert homes.open_home(home.folder).work.joinpath("user.md").read_text() == "mine"


class Client:
    """A connection whose events are gathered on a thread."""

    def __init__(self, path) -> None:
        self.events, self._heard = [], threading.Condition()
        self.connection = Connection(path)
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        for event in self.connection.events():
            with self._heard:
                self.events.append(event)
                self._heard.notify_all()

    def wait(self, kind: type) -> Any:
        with self._heard:
            found = lambda: [event for event in self.events if isinstance(event, kind)]  # noqa: E731
            assert self._heard.wait_for(found, 20), self.events
            return found()[0]

    def close(self) -> None:
        self.connection.leave()
        self.thread.join()
        self.connection.close()


@pytest.fixture
def client():
    made = []

    def client(rig) -> Client:
        made.append(Client(rig.home.socket))
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def serve(make):
    served = []

    def serve(*args, **more):
        rig = make(*args, **more)
        served.append(Server(rig.agent, rig.home.socket))
        return rig.start()

    yield serve
    for server in served:
        server.close()


def test_a_client_hears_what_is_its_own(serve, client, skill) -> None:
    skill("echo", ECHO)
    rig = serve()
    mine, watcher = client(rig), client(rig)
    watcher.connection.send(attach=True)
    mine.connection.send(input="echo mine")
    assert mine.wait(Ended).status == "done"
    rig.say("echo other")
    rig.wait(Said, text="did echo other")
    mine.connection.send(input="thanks")
    rig.wait(Admitted, text="thanks")
    rig.until(lambda: len(mine.events) == 7)
    assert [type(event) for event in mine.events] == [
        Kept, Admitted, Routed, Said, Ended, Kept, Admitted
    ]  # fmt: skip
    assert mine.events[3] == Said("r1", "did echo mine")
    rig.until(lambda: sum(isinstance(event, Ended) for event in watcher.events) == 2)
    assert (rig.home.socket.stat().st_mode & 0o777) == 0o600


def test_a_client_that_only_answers_hears_what_comes_of_it(serve, client, skill) -> None:
    skill("ask", ASK)
    rig = serve()
    rig.say("ask")
    rig.wait(Asked)
    mine = client(rig)
    mine.connection.send(input="two")
    assert mine.wait(Said).text == "So two"
    assert mine.wait(Ended).status == "done"


def test_a_client_whose_input_is_refused_is_told_why(serve, client) -> None:
    rig = serve()
    mine = client(rig)
    mine.connection.send(input="x" * 100_001)
    told = mine.wait(Admitted)
    assert told.action == "reject"
    assert "100,001 characters are more than 100,000" in told.reason


def test_a_client_whose_input_cannot_be_kept_is_told_why(serve, client) -> None:
    rig = serve()
    mine = client(rig)
    rig.until(lambda: rig.agent.loop and rig.agent.loop.idle())
    rig.agent.store._db.execute("PRAGMA max_page_count = 1")  # sqlite's full disk
    mine.connection.send(input="x" * 50_000)
    told = mine.wait(Admitted)
    assert (told.run, told.action) == ("", "reject") and "is the disk full?" in told.reason


def test_what_a_client_sent_before_it_went_away_is_taken(serve, skill) -> None:
    skill("echo", ECHO)
    rig = serve()
    gone = Connection(rig.home.socket)
    gone.send(attach=True)
    for n in range(20):
        gone.send(input=f"echo {n}")
    gone.close()
    rig.until(lambda: len(rig.said) == 20)


def test_an_event_that_is_not_known_here_is_passed_over() -> None:
    assert from_json(b'{"event": "Dreamt", "loss": 0.1}\n') is None
    asked = Asked("r1", "Which?", ("a", "b"))
    assert from_json(to_json(asked)) == asked


@pytest.mark.parametrize("line", [b"\xff\n", b"no json\n", b"[1]\n", b'{"input": 3}\n', b"{"])
def test_what_a_client_sends_wrong_harms_nobody(serve, client, skill, line) -> None:
    skill("echo", ECHO)
    rig = serve()
    with socket.socket(socket.AF_UNIX) as wrong:
        wrong.connect(str(rig.home.socket))
        wrong.sendall(line)
        wrong.shutdown(socket.SHUT_WR)
    mine = client(rig)
    mine.connection.send(input="echo")
    assert mine.wait(Said).text == "did echo"


def test_half_a_character_from_a_client(serve, client, skill) -> None:
    skill("echo", ECHO)
    rig = serve()
    mine = client(rig)
    mine.connection.send(input="echo \ud800 \x07")
    assert mine.wait(Said).text == "did echo � \x07"
    assert mine.wait(Ended).status == "done"


def test_a_client_changes_the_queue_and_is_answered(serve, client, skill) -> None:
    skill("ask", ASK)
    rig = serve()
    run = rig.say("ask")
    rig.wait(Asked)
    mine, other = client(rig), client(rig)
    for message, text in (
        ({"queue": "raise", "run": run, "urgency": 0.9}, f"{run} waits for your answer"),
        ({"queue": "drop", "run": "r99"}, "there is no request r99"),
        ({"queue": "drop"}, "expected {"),
        ({"queue": "drop", "run": 1}, "expected {"),
        ({"queue": "raise", "run": run, "urgency": "1"}, "expected {"),
        ({"queue": ["drop"], "run": run}, "expected {"),
        ({"queue": "raise", "run": run, "urgency": float("nan")}, "the urgency nan is not"),
    ):
        told = len(mine.events)
        mine.connection.send(**message)
        rig.until(lambda told=told: len(mine.events) > told)
        assert mine.events[-1].level == "error" and mine.events[-1].text.startswith(text), message
    mine.connection.send(queue="drop", run=run)
    rig.wait(Ended, run=run, status="cancelled")
    rig.until(lambda: mine.events[-1] == Notice(f"dropped {run}: ask"))
    assert other.events == []
    mine.connection.send(input="two")  # nobody asks any more
    rig.wait(Admitted, text="two", action="run")


def test_dropped_while_the_models_are_loaded(make, skill) -> None:
    skill("echo", ECHO)
    rig = make()
    rig.say("echo 1")
    rig.agent.store.save_run(rig_run := waiting_run("r9"))
    assert rig.agent.raise_urgency("r9", 0.9) == "r9 waits with the urgency 0.90 now: echo 9"
    assert rig.agent.drop("r9") == "dropped r9: echo 9"
    rig.start()
    assert rig.end() == 0 and rig.said == ["did echo 1"]
    assert rig.runs()[rig_run.id] == "cancelled"


def waiting_run(id: str) -> Run:
    now = datetime.now(UTC)
    return Run(id, "typed", f"echo {id[1:]}", 0.4, now, now)


def test_the_last_one_dropped_an_agent_without_more_input_ends(make, skill) -> None:
    skill("echo", ECHO)
    rig = make([until_cancelled]).start()
    rig.say("free: think")
    rig.until(lambda: rig.generator.calls)
    run = rig.say("echo")
    rig.wait(Admitted, run=run, action="queue")
    rig.agent.close_input()
    rig.agent.drop(run)
    rig.say("now echo last")
    rig.wait(Said, text="did now echo last")
    assert rig.stop(0) == 0
    assert "did echo" not in rig.said and rig.runs()[run] == "cancelled"


def test_nobody_listens(home) -> None:
    opened = homes.open_home(home)
    with pytest.raises(Unavailable, match="does not answer on .*; it may still be starting"):
        Connection(opened.socket)


def test_an_agent_that_hears_nothing_any_more_ends(make, skill) -> None:
    """The log cannot be written: the error comes out where the agent runs, and nothing is lost."""
    skill("echo", ECHO)
    rig = make()
    rig.home.decisions.mkdir()
    rig.start()
    rig.say("echo")
    with pytest.raises(FileError, match="decisions.jsonl: cannot be written: Is a directory"):
        rig.joined()
    rig.home.decisions.rmdir()
    again = make().start()
    assert again.end() == 0 and again.said == ["did echo"]


def test_a_generator_that_fails_ends_the_request_not_the_agent(make, skill) -> None:
    skill("echo", ECHO)
    rig = make()  # without a single reply
    assert rig.all("free: think", "echo") == 1
    assert rig.runs() == {"r1": "failed", "r2": "done"}
    assert "did echo" in rig.said and any("holds no reply" in text for text in rig.said)


def test_a_skill_that_changes_while_it_runs(make, skill) -> None:
    skill(
        "two",
        "def first(ctx):\n    ctx.ask('Go on?')\n\ndef second(ctx):\n    pass\n",
        actions="first second",
    )
    rig = make().start()
    rig.say("two")
    rig.wait(Asked)
    rig.stop(75)
    skill("two", "def only(ctx):\n    ctx.ask('Go on?')\n", actions="only")
    rig = make()
    run = rig.agent.store.run("r1")
    rig.agent.store.save_run(replace(run, status="waiting", question="", step=1))
    rig.start()
    rig.wait(Ended, run="r1", status="failed")
    assert rig.said == ["The skill demo/two changed meanwhile: ask again."]
    assert rig.end() == 1


def test_stopping_while_inputs_still_come(make, skill) -> None:
    """No thread may meet a closed database; what was not admitted is there at the next start."""
    skill("echo", ECHO)
    rig = make().start()
    texts = [f"echo {n}" for n in range(30)]
    for text in texts:
        rig.say(text)
    rig.stop(75)
    again = make().start()
    assert again.end() == 0
    first_said = [e.text for e in again.events if isinstance(e, Said) and not e.again]
    assert sorted(rig.said + first_said) == sorted(f"did {text}" for text in texts)


def test_a_reminder_that_cannot_be_kept_ends_the_agent_and_rings_at_the_next_start(make) -> None:
    rig = make()
    rig.agent.reminders.add(datetime.now(UTC) + timedelta(seconds=0.3), "cat", "r1")
    (rig.home.tasks / "reminders/m1.md").unlink()
    (rig.home.tasks / "reminders").rmdir()
    with pytest.raises(FileError, match="m1.md: cannot be written: No such file"):
        rig.start().joined()
    again = make().start()
    assert again.end() == 0 and again.said == ["Reminder: cat"]


def test_figures_are_read_and_never_invented(tmp_path) -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    found = Machine(tmp_path, tmp_path / "sys").figures(now, 7, 2)
    memory, disk = psutil.virtual_memory().total, psutil.disk_usage(str(tmp_path)).total
    assert (found.memory_total, found.disk_total) == (memory, disk)
    assert 0 < found.memory_used < memory and 0 < found.disk_used <= disk
    assert 0 <= found.cpu <= 100 and found.gpu is None
    assert (found.time, found.context, found.stdin) == (now, 7, 2)
    card = tmp_path / "sys/class/drm/card0/device"
    card.mkdir(parents=True)
    (card / "gpu_busy_percent").write_text("42\n")
    machine = Machine(tmp_path, tmp_path / "sys")
    assert machine.figures(now, None, 0).gpu == 42
    (card / "gpu_busy_percent").write_text("busy")
    assert machine.figures(now, None, 0).gpu is None


CHOOSE = """
def act(ctx):
    who = ctx.choose("Who?", [("anna", "Anna"), ("berta", "Berta")])
    ctx.say(f"{ctx.request}: {who} {ctx.ask('How many?', ['one', 'two'])}")
"""


def test_a_request_is_worked_again_with_what_a_person_chose(serve, client, skill) -> None:
    skill("pick", CHOOSE)
    rig = serve()
    rig.say("pick one")
    rig.wait(Asked)
    mine = client(rig)
    known = {"action": "act", "ordinal": 1, "method": "choose", "value": "berta"}
    again = {"text": "pick one", "skill": "demo/pick", "instead": "r1", "result": known}
    mine.connection.send(again=again)
    run = mine.wait(Kept).run
    rig.until(lambda: rig.agent.store.run(run).status == "asking")
    assert rig.agent.store.run("r1").status == "cancelled"  # nobody is asked twice
    assert rig.wait(Ended, run="r1").status == "cancelled"
    mine.connection.send(input="two")
    assert mine.wait(Said).text == "pick one: berta two"
    # Found by a person, it was navigated by none.
    assert [row["run"] for row in rig.rows() if row["phase"].startswith("navigate")] == ["r1"] * 2


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ({"text": "x", "skill": "demo/gone"}, "there is no skill 'demo/gone'"),
        ({"skill": "demo/pick"}, "missing required field `text`"),
        ("pick", "Expected `object`, got `str`"),
        ({"text": 3}, "Expected `str`, got `int`"),
    ],
)
def test_what_cannot_be_worked_again_is_refused_in_a_line(
    serve, client, skill, again: Any, words: str
) -> None:
    skill("pick", CHOOSE)
    rig = serve()
    mine = client(rig)
    mine.connection.send(again=again)
    refused = mine.wait(Admitted)
    assert (refused.run, refused.action) == ("", "reject")
    assert words in refused.reason and "\n" not in refused.reason
    assert rig.agent.store.runs() == []
