"""The life of a script: limits, ending, waiting, replacing, and restarts of the agent."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sia.scripts import Cancel, Policy, Refused, ScriptLimits, ScriptState, default_policy

Run = Callable[..., ScriptState]
STUBBORN = "trap '' TERM; setsid bash -c 'trap \"\" TERM; sleep 60; sleep 60' & echo up; wait; wait"


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def marked(place) -> set[int]:
    """Processes that work in the place's folder: all that its scripts started and did not end."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(place.work):
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("no-such-program", 127), ("", 0)]
)
def test_the_exit_code_is_the_shells(command: str, code: int, run: Run) -> None:
    state = run(command)
    assert (state.status, state.exit_code, state.note) == ("done", code, "")


def test_a_pipe_that_closes_early_ends_its_writer(run: Run) -> None:
    assert run("set -o pipefail; yes | head -1").exit_code == 128 + signal.SIGPIPE


def test_kill_0_reaches_the_script_and_not_its_runner(run: Run) -> None:
    assert run("kill 0; sleep 60").exit_code == 128 + signal.SIGTERM


def test_the_time_limit_is_by_mode_and_stated(place) -> None:
    scripts = place.scripts(seconds=0.3, repeat_seconds=0.2)
    scripts.start("e1", "single_shot", "echo begun; sleep 60")
    scripts.start("e2", "repeat", "setsid sleep 60 & sleep 60")
    scripts.start("e3", "background", "sleep 0.6")  # longer than either limit
    assert scripts.wait(["e1", "e2", "e3"], Cancel())
    first, second, third = map(scripts.state, ("e1", "e2", "e3"))
    assert (first.status, first.exit_code) == ("ended", None)
    assert (first.note, first.stdout.text) == ("ended after 0.3 s, the limit", "begun\n")
    assert (second.status, second.note) == ("ended", "ended after 0.2 s, the limit")
    assert (third.status, third.exit_code, third.note) == ("done", 0, "")
    wait_for(lambda: not marked(place))


def test_what_ignores_the_limit_is_killed(place, run: Run) -> None:
    begun = time.monotonic()
    state = run(STUBBORN, seconds=0.3, grace=0.3)
    assert (state.status, state.note) == ("ended", "ended after 0.3 s, the limit")
    assert 0.6 <= time.monotonic() - begun < 10
    wait_for(lambda: not marked(place))


def test_end_reaches_what_left_the_group_and_ignores_term(place) -> None:
    scripts = place.scripts(grace=0.3)
    scripts.start("e1", "background", STUBBORN)
    wait_for(lambda: scripts.state("e1").stdout.text)
    wait_for(lambda: len(marked(place)) >= 3)
    begun = time.monotonic()
    state = scripts.end("e1", "the person said stop")
    assert time.monotonic() - begun < 10  # what it runs sleeps for a minute
    assert (state.status, state.exit_code) == ("ended", None)
    assert (state.note, state.escaped) == ("the person said stop", ())
    assert marked(place) == set()
    assert scripts.end("e1") == state  # once more changes nothing


def test_end_straight_after_start(place) -> None:
    scripts = place.scripts()
    for _ in range(5):
        scripts.start("e1", "background", "sleep 60")
        assert scripts.end("e1", "never mind").note == "never mind"
    assert marked(place) == set()


def test_output_over_the_limit_keeps_its_head_and_its_newest_part(place, run: Run) -> None:
    mebibyte = 1 << 20
    state = run(
        "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last", file_bytes=mebibyte
    )
    file = place.folder / "e1/stdout"
    assert state.stdout.bytes == file.stat().st_size == 5_000_011
    assert file.stat().st_blocks * 512 <= mebibyte + 200_000
    assert file.read_bytes()[:16_384] == b"first\n" + b"x" * 16_378
    assert file.read_bytes()[-mebibyte // 2 :] == b"x" * (mebibyte // 2 - 5) + b"last\n"
    assert state.stdout.text.startswith("first\nx") and state.stdout.text.endswith("xlast\n")
    assert "what was kept is in scripts/e1/stdout" in state.stdout.text
    assert state.note.startswith("stdout: ")
    assert state.note.endswith("bytes after the first 16,384 are not kept: 1,048,576 is the limit")


def test_memory_limit_is_named_when_the_script_fails(run: Run) -> None:
    command = f"{sys.executable} -c 'x = bytes(1 << 30)'"
    state = run(command, memory_bytes=512 * 1024 * 1024)
    assert state.exit_code == 1 and "MemoryError" in state.stderr.text
    assert state.note == "memory_bytes: 536,870,912 was the limit"


def test_limits_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(ValueError, match="four times shown_bytes"):
        ScriptLimits(shown_bytes=100_000, file_bytes=200_000)


FULL_DISK = """
import os, sys
from pathlib import Path
from sia.scripts import *
root = Path(sys.argv[1])
scripts = Scripts(root / ".sia/scripts", limits=ScriptLimits(), policy=Policy("allow"),
    work=root, tasks=root, environment=os.environ, on_change=lambda id: None)
scripts.start("e1", "single_shot", "head -c 5000000 /dev/zero | tr '\\\\0' x; exit 3")
scripts.wait(["e1"], Cancel())
state = scripts.state("e1")
print(state.status, state.exit_code, state.note, sep="|")
"""


def test_a_full_disk_stops_the_file_and_not_the_script(sandbox: Policy, tmp_path: Path) -> None:
    walls = ["bwrap", "--dev-bind", "/", "/", "--size", "1048576", "--tmpfs", str(tmp_path)]
    result = subprocess.run(
        [*walls, sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True, text=True, timeout=30, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    status, code, note = result.stdout.strip().split("|")
    assert (status, code) == ("done", "3")
    assert note.startswith("stdout: only its first 9") and note.endswith("No space left on device")


def test_wait_ends_when_cancelled_and_the_script_runs_on(place) -> None:
    scripts = place.scripts()
    scripts.start("e1", "single_shot", "sleep 60")
    cancel, cancelled = Cancel(), []
    cancel.add(lambda: cancelled.append(time.monotonic()))
    threading.Timer(0.2, cancel.set).start()
    assert scripts.wait(["e1"], cancel) is False
    assert time.monotonic() - cancelled[0] < 1
    assert cancel() and [state.id for state in scripts.running()] == ["e1"]
    scripts.end("e1")
    assert scripts.wait(["e1", "unknown"], Cancel()) is True
    assert place.over == ["e1"] and scripts.running() == ()


def test_waiting_costs_no_processor_time(place) -> None:
    scripts = place.scripts()
    scripts.start("e1", "single_shot", "sleep 1")
    time.sleep(0.3)
    begun = time.process_time()
    scripts.wait(["e1"], Cancel())
    assert time.process_time() - begun < 0.05


def test_a_repeat_is_run_anew_under_its_id(place) -> None:
    scripts = place.scripts()
    for text in ("one", "two"):
        state = scripts.start("e1", "repeat", f"echo {text}; setsid sleep 60 & wait -n; exit")
        assert (state.status, state.exit_code) == ("running", None)
        with pytest.raises(ValueError, match="still running"):
            scripts.start("e1", "repeat", "true")
        scripts.end("e1")
        assert scripts.state("e1").stdout.text in (f"{text}\n", "")
    scripts.start("e1", "repeat", "setsid sleep 60 & echo three")
    scripts.wait(["e1"], Cancel())
    (left,) = scripts.state("e1").escaped
    scripts.start("e1", "repeat", "echo four")
    scripts.wait(["e1"], Cancel())
    assert scripts.state("e1").stdout.text == "four\n"
    assert not psutil.pid_exists(left)


def test_a_script_may_be_started_again_as_soon_as_it_is_seen_to_be_over(place) -> None:
    scripts = place.scripts()
    for _ in range(20):
        scripts.start("e1", "repeat", "exit 6")
        while (state := scripts.state("e1")).status == "running":
            pass
        assert (state.status, state.exit_code) == ("done", 6)


def test_an_agent_without_standard_descriptors(place) -> None:
    argv = [sys.executable, "-c", AGENT, str(place.root), "e1", "single_shot", "echo fine"]
    agent = subprocess.Popen(
        ["bash", "-c", f"exec {shlex.join(argv)} <&- >&- 2>&-"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    scripts = place.scripts()
    wait_for(lambda: (place.folder / "e1/exit.json").exists())
    assert scripts.state("e1").stdout.text == "fine\n"
    agent.kill()
    agent.wait()


def test_the_environment_holds_what_is_allowed(place, run: Run) -> None:
    state = run("env; cat /proc/$PPID/environ; cat /proc/self/environ; ls -l /proc/self/fd")
    assert f"HOME={place.root}\n" in state.stdout.text and "TERM=dumb\n" in state.stdout.text
    assert "hunter2" not in state.stdout.text and "PASSWORD" not in state.stdout.text
    assert ".sia" not in state.stdout.text.partition("total 0\n")[2]  # no handle leads there


def test_the_files_are_for_nobody_else(place, run: Run) -> None:
    run("echo secret")
    folder = place.folder / "e1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "stdout").stat().st_mode) == 0o600


@pytest.mark.parametrize("command", ["x" * 131_072, "echo \0", "echo \ud800"])
def test_a_command_that_the_system_does_not_take_is_refused(command: str, place) -> None:
    scripts = place.scripts()
    with pytest.raises(Refused, match="^not run: the command h"):
        scripts.start("e1", "single_shot", command)
    assert scripts.state("e1").status == "refused"


def test_the_longest_command_runs(run: Run) -> None:
    assert run("true " + "x" * 131_066).exit_code == 0


@pytest.mark.parametrize("id", ["", "../e1", "e/1", "-e", "e" * 65])
def test_an_id_is_a_plain_name(id: str, place) -> None:
    with pytest.raises(ValueError, match="cannot name a script"):
        place.scripts().start(id, "single_shot", "true")


def test_an_unknown_id_and_mode(place) -> None:
    with pytest.raises(KeyError):
        place.scripts().state("e9")
    with pytest.raises(ValueError, match="unknown script mode 'once'"):
        place.scripts().start("e1", "once", "true")


def test_close_spares_the_background_when_told(place) -> None:
    scripts = place.scripts()
    scripts.start("e1", "single_shot", "sleep 60")
    scripts.start("e2", "background", "sleep 60")
    scripts.close(keep_background=True)
    assert scripts.state("e1").note == "ended: the agent stopped"
    assert scripts.state("e2").status == "running"
    later = place.scripts()
    assert [(state.id, state.status) for state in later.adopt()] == [("e2", "running")]
    later.close(keep_background=False)
    assert later.state("e2").note == "ended: the agent stopped"
    assert marked(place) == set()


AGENT = """
import os, sys, time
from pathlib import Path
from sia.scripts import *
root = Path(sys.argv[1])
scripts = Scripts(root / ".sia/scripts", limits=ScriptLimits(), policy=Policy("allow"),
    work=root / "work", tasks=root / "tasks", environment=os.environ, on_change=print)
for id, mode, command in zip(*[iter(sys.argv[2:])] * 3):
    scripts.start(id, mode, command)
print("started", flush=True)
time.sleep(60)
"""


@pytest.fixture
def killed_agent(place) -> Callable[..., None]:
    """Start scripts in an agent of its own and kill that with SIGKILL."""

    def start(*scripts: str) -> None:
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(place.root), *scripts],
            stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert agent.stdout is not None and agent.stdout.readline() == "started\n"
        agent.kill()
        agent.wait()
        agent.stdout.close()

    return start


def test_scripts_outlive_the_agent_and_are_adopted(place, killed_agent) -> None:
    gate = place.work / "gate"
    until_gate = f"echo begun; until [ -e {gate} ]; do sleep 0.05; done; echo over; exit 4"
    killed_agent(
        "e1", "single_shot", until_gate, "e2", "background", "sleep 60", "e3", "repeat", "exit 5"
    )
    scripts = place.scripts()
    adopted = {state.id: state.status for state in scripts.adopt() if state.id != "e3"}
    assert adopted == {"e1": "running", "e2": "running"} and scripts.adopt() == ()
    gate.touch()
    assert scripts.wait(["e1", "e3"], Cancel())
    state = scripts.state("e1")
    assert (state.status, state.exit_code, state.stdout.text) == ("done", 4, "begun\nover\n")
    assert (scripts.state("e3").status, scripts.state("e3").exit_code) == ("done", 5)
    assert "e1" in place.over
    assert scripts.end("e2", "no longer wanted").note == "no longer wanted"
    assert marked(place) == set()


def test_what_escaped_is_ended_by_a_later_agent(place, killed_agent) -> None:
    killed_agent("e1", "single_shot", "setsid sleep 60 & echo started")
    scripts = place.scripts()
    wait_for(lambda: scripts.state("e1").status == "done")
    assert scripts.adopt() == () and len(scripts.state("e1").escaped) == 1
    scripts.end("e1")
    assert marked(place) == set()


def test_a_script_whose_runner_was_killed_is_lost_and_swept(place) -> None:
    scripts = place.scripts()
    scripts.start("e1", "background", "setsid sleep 60 & echo up; sleep 60")
    wait_for(lambda: scripts.state("e1").stdout.text)
    os.kill(json.loads((place.folder / "e1/runner.json").read_text())["pid"], signal.SIGKILL)
    assert scripts.wait(["e1"], Cancel())
    state = scripts.state("e1")
    assert (state.status, state.exit_code, state.stdout.text) == ("lost", None, "up\n")
    assert state.note == "its runner is gone, and with it how the script ended"
    assert marked(place) == set()


def test_a_later_agent_sweeps_after_a_killed_runner(place, killed_agent) -> None:
    killed_agent("e1", "background", "setsid sleep 60 & sleep 60")
    wait_for(lambda: (place.folder / "e1/runner.json").exists() and len(marked(place)) > 1)
    os.kill(json.loads((place.folder / "e1/runner.json").read_text())["pid"], signal.SIGKILL)
    scripts = place.scripts()
    wait_for(lambda: scripts.state("e1").status == "lost")
    assert [state.status for state in scripts.adopt()] == ["lost"]
    assert marked(place) == set() and scripts.adopt() == ()


def test_a_pid_that_now_belongs_to_another_is_left_alone(place, run: Run) -> None:
    run("true")
    record = json.loads((place.folder / "e1/runner.json").read_text())
    with subprocess.Popen(["sleep", "60"]) as other:
        record["pid"] = other.pid
        (place.folder / "e1/runner.json").write_text(json.dumps(record))
        scripts = place.scripts()
        assert scripts.end("e1").escaped == ()
        assert other.poll() is None
        other.kill()


def test_a_descriptor_the_agent_left_inheritable_does_not_reach_a_script(run: Run) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    assert run(f"ls /proc/self/fd/{write}").exit_code != 0
    os.close(read)
    os.close(write)


def test_a_person_may_run_what_the_generator_may_not(place) -> None:
    scripts = place.scripts(Policy("deny", reason="bubblewrap is missing"))
    with pytest.raises(Refused, match="^not run: bubblewrap is missing$"):
        scripts.start("e1", "single_shot", "touch here")
    state = scripts.state("e1")
    assert (state.status, state.note) == ("refused", "not run: bubblewrap is missing")
    scripts.start("e2", "single_shot", "touch there", by="person")
    scripts.wait(["e2"], Cancel())
    assert os.listdir(place.work) == ["there"]


def test_ask_asks_with_the_command(place) -> None:
    asked: list[str] = []

    def approve(command: str) -> bool:
        asked.append(command)
        return command == "echo yes"

    scripts = place.scripts(Policy("ask", approve))
    scripts.start("e1", "single_shot", "echo yes")
    with pytest.raises(Refused, match="the person said no"):
        scripts.start("e2", "single_shot", "echo no")
    assert asked == ["echo yes", "echo no"]
    with pytest.raises(ValueError, match="somebody to ask"):
        Policy("ask")


def test_the_default_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert default_policy(True, lambda command: True).rule == "ask"
    policy = default_policy(False)
    assert policy.rule == "deny"
    assert policy.reason.startswith(
        "bubblewrap (bwrap) is not installed, and nobody is here to ask"
    )
    assert "install bubblewrap, or set policy in [scripts] of sia.toml" in policy.reason


def test_a_script_whose_runner_was_killed_before_it_opened_its_log_is_lost(place) -> None:
    (place.folder / "e1").mkdir()
    (place.folder / "e1/command").write_text("true", "utf-8")
    script = {"mode": "single_shot", "token": "sia-test-of-a-lost-runner", "started": 0.0}
    (place.folder / "e1/script.json").write_text(json.dumps(script), "utf-8")
    (state,) = place.scripts().adopt()
    assert state.status == "lost"
    assert state.note == "its runner is gone, and with it how the script ended"
