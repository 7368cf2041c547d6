"""``sia queue``: the same on a stopped home and beside a running agent; and a full queue."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sia.store import Run, Store
from sia.wire import Connection


@pytest.fixture
def full(home: Path) -> Path:
    """A home in which three requests wait, and that takes no more."""
    with (home / "sia.toml").open("a") as file:
        file.write("[queue]\nlimit = 3\n")
    (home / ".sia").mkdir(mode=0o700)
    store = Store(home / ".sia" / "state.db")
    now = datetime.now(UTC)
    for n in (1, 2, 3):
        arrived = now - timedelta(minutes=30 - n)
        store.save_run(Run(f"r{n}", "typed", f"echo {n}", 0.2, arrived, arrived))
    store.set_meta("last_r", "3")
    store.close()
    return home


def runs(home: Path) -> dict[str, tuple[str, float]]:
    store = Store.look(home / ".sia" / "state.db")
    try:
        return {run.id: (run.status, run.urgency) for run in store.runs("waiting", "cancelled")}
    finally:
        store.close()


def works(home: Path) -> bool:
    """Whether a request is on record as being worked."""
    store = Store.look(home / ".sia" / "state.db")
    try:
        return bool(store.runs("running"))
    finally:
        store.close()


def busy(cli, home: Path) -> None:
    """An agent that works a request until the home's file ``go`` is there."""
    script = f"while [ ! -e {home}/go ]; do sleep 0.05; done"
    answer = "<write_stdout>over</write_stdout>"
    (home / "replies").write_text(f"<single_shot>{script}</single_shot>\n{answer}")
    cli.agent()
    connection = Connection(home / ".sia" / "socket")
    connection.send(input="now free: wait")
    cli.until(lambda: works(home))
    connection.close()


def test_on_a_stopped_home(full: Path, cli) -> None:
    result = cli.run("queue", "raise", "r3", "0.9")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "r3 waits with the urgency 0.90 now: echo 3\n"
    result = cli.run("queue", "drop", "r2", "--home", str(full))
    assert (result.returncode, result.stdout) == (0, "dropped r2: echo 2\n")
    assert runs(full) == {"r1": ("waiting", 0.2), "r2": ("cancelled", 0.2), "r3": ("waiting", 0.9)}
    rows = json.loads(cli.run("queue", "--json").stdout)
    assert [(row["id"], row["ahead"]) for row in rows] == [("r3", 0), ("r1", 1)]
    assert rows[1]["why"].startswith("r3 is more urgent (0.9")
    shown = cli.run("queue", "show", "r2")
    assert shown.returncode == 0 and "cancelled" in shown.stdout
    assert json.loads(cli.run("queue", "show", "r1", "--json").stdout)["text"] == "echo 1"
    assert json.loads(cli.run("queue", "raise", "r1", "--json").stdout)["done"].startswith("r1 ")
    result = cli.run(input=b"")
    assert (result.returncode, result.stdout) == (0, "did echo 1\ndid echo 3\n"), result.stderr


def test_beside_a_running_agent(full: Path, cli) -> None:
    busy(cli, full)
    result = cli.run("queue", "raise", "r3")
    assert result.stdout == "r3 waits with the urgency 1.00 now: echo 3\n", result.stderr
    assert cli.run("queue", "drop", "r2").stdout == "dropped r2: echo 2\n"
    assert runs(full) == {"r1": ("waiting", 0.2), "r2": ("cancelled", 0.2), "r3": ("waiting", 1.0)}
    result = cli.run("queue", "drop", "r4")
    assert result.returncode == 1
    assert result.stderr == "sia: r4 is being worked now; tell the agent to stop\n"
    listed = cli.run("queue").stdout
    assert listed.index("r4") < listed.index("r3") < listed.index("r1")
    (full / "go").touch()
    path = full / ".sia" / "log" / "sia.log"
    cli.until(lambda: "did echo 1" in path.read_text())
    log = path.read_text()
    assert log.index("did echo 3") < log.index("did echo 1") and "did echo 2" not in log
    assert "Ended(run='r2', status='cancelled'" in log


@pytest.mark.parametrize("running", [False, True])
def test_what_cannot_be_done_is_one_line(full: Path, cli, running: bool) -> None:
    if running:
        busy(cli, full)
    for arguments, code, words in (
        (["drop", "r77"], 1, "there is no request r77; `sia queue` lists what waits"),
        (["show", "r77"], 1, "there is no request r77"),
        (["raise", "r1", "0.1"], 1, "r1 has the urgency 0.20 already; name a higher one"),
    ):
        result = cli.run("queue", *arguments)
        assert result.returncode == code and result.stdout == ""
        assert result.stderr.startswith(f"sia: {words}") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["drop"], ["raise", "r1", "2"], ["raise", "r1", "x"], ["drop", "r1", "r2"], ["x"]]
)
def test_wrong_usage_ends_with_2_and_changes_nothing(full: Path, cli, arguments: list[str]) -> None:
    before = runs(full)
    assert cli.run("queue", *arguments).returncode == 2
    assert runs(full) == before


def test_a_full_queue_is_told_to_whoever_sent(full: Path, cli) -> None:
    busy(cli, full)
    line = "the queue is full (3 waiting); not taken: echo 9"
    asked = cli.run("echo", "9")
    assert (asked.returncode, asked.stdout, asked.stderr) == (1, "", f"sia: {line}\n")
    attached = cli.run("attach", input=b"echo 9\nthanks\n")
    assert (attached.returncode, attached.stdout) == (1, "")
    assert f"sia: error: {line}\n" in attached.stderr
    assert len(runs(full)) == 3
    attached = cli.run("attach", input=b"thanks\n")
    assert attached.returncode == 0


def test_a_full_queue_is_told_to_one_who_starts_the_agent_with_a_request(full: Path, cli) -> None:
    result = cli.run("echo", "9")
    assert result.returncode == 1
    assert "sia: error: the queue is full (3 waiting); not taken: echo 9\n" in result.stderr
    assert "did echo 9" not in result.stdout


def test_lines_of_a_pipe_wait_for_room_and_are_all_taken(full: Path, cli) -> None:
    lines = "".join(f"echo line {n}\n" for n in range(6))
    result = cli.run(input=lines.encode())
    assert result.returncode == 0, result.stderr
    assert [f"did echo line {n}" for n in range(6)] == result.stdout.splitlines()[-6:]


def test_scripts_of_a_request_dropped_while_no_agent_ran_are_ended(full: Path, cli) -> None:
    pid = full / "pid"
    (full / "replies").write_text(
        f"<background>echo $$ > {pid}; exec sleep 60</background>\n<read_stdin/>"
    )
    agent = cli.agent()
    connection = Connection(full / ".sia" / "socket")
    connection.send(input="now free: watch")
    cli.until(lambda: any(status == "asking" for status in statuses(full)) and pid.exists())
    connection.close()
    agent.kill()
    agent.wait()
    number = int(pid.read_text())
    os.kill(number, 0)
    assert cli.run("queue", "drop", "r4").returncode == 0
    cli.agent()
    cli.until(lambda: not Path(f"/proc/{number}").exists())


def statuses(home: Path) -> list[str]:
    store = Store.look(home / ".sia" / "state.db")
    try:
        return [run.status for run in store.runs()]
    finally:
        store.close()


def test_in_the_shell(full: Path, cli) -> None:
    (full / "replies").write_text("<single_shot>sleep 60</single_shot>")
    shell = cli.terminal()
    shell.expect_exact("Try:")
    shell.sendline("now free: wait")
    cli.until(lambda: works(full))
    shell.sendline("/queue drop r2")
    shell.expect_exact("dropped r2: echo 2")
    shell.sendline("/queue raise r3 0.5")
    shell.expect_exact("r3 waits with the urgency 0.50 now: echo 3")
    shell.sendline("/queue show r3")
    shell.expect_exact("at the latest after")
    shell.sendline("/queue raise r3 x")
    shell.expect_exact("the urgency x is no number from 0 to 1")
    shell.sendline("/queue drop r4")
    shell.expect_exact("r4 is being worked now; tell the agent to stop")
    shell.sendline("/queue lift r1")
    shell.expect_exact("/queue takes show ID, drop ID, raise ID or raise ID URGENCY")
    shell.sendline("echo 8")
    shell.expect_exact("queued")
    shell.sendline("echo 9")
    shell.expect_exact("the queue is full (3 waiting); not taken: echo 9")
    shell.sendline("/quit")
    assert cli.ended(shell)[0] == 0
    assert runs(full)["r3"] == ("waiting", 0.5)
