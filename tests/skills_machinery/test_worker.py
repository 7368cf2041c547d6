"""Actions in a real worker process: what comes out, and that nothing a skill does gets further."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

import sia
from sia.skills.api import Failed, Unproven
from sia.skills.host import Worker, passed_environment


def gone(pid: int, seconds: float = 2.0) -> bool:
    """The process has ended; a zombie that another process has yet to reap counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_an_action_sees_what_it_is_given_and_its_calls_are_answered(worker, skill, run):
    calls = []

    def handle(method, args):
        calls.append((method, args))
        due = "2026-12-01T08:00:00+00:00"
        return {
            "choose": "b",
            "ask": "  yes please\n",
            "remind": "m1",
            "reminders": [
                {
                    **{"id": "m1", "due": due, "text": "x", "status": "waiting"},
                    **{"repeat": "", "rang": ""},
                }
            ],
            "skills": [["notes/write", "Notes."]],
            "effect_begin": {"status": "new", "key": "r7-act-4", "value": None},
        }.get(method)

    code = """
        from datetime import timedelta
        def act(ctx):
            chosen = ctx.choose("Which?", [("a", "A"), ("b", "B")])
            ctx.say("hello")
            answer = ctx.ask("Sure?", ["yes please", "no"])
            done = ctx.effect("touch", lambda key: {"key": key})
            id = ctx.remind(ctx.now + timedelta(hours=18), "feed")
            (reminder,) = ctx.reminders()
            ctx.state.update(
                chosen=chosen, answer=answer, done=done, id=id, due=reminder.due.isoformat(),
                now=ctx.now.isoformat(), zone=str(ctx.now.tzinfo), name=ctx.person.name,
                tasks=ctx.folders.tasks.name, host=ctx.settings["host"], skills=ctx.skills(),
                request=ctx.request, run=ctx.run,
            )
    """
    outcome = run(worker, skill(code), handle)
    assert outcome.kind == "done" and outcome.message == ""
    assert outcome.state == {
        "given": 1,
        "chosen": "b",
        "answer": "yes please",
        "done": {"key": "r7-act-4"},
        "id": "m1",
        "due": "2026-12-01T09:00:00+01:00",
        "now": "2026-11-30T15:00:00+01:00",
        "zone": "Europe/Berlin",
        "name": "Max",
        "tasks": "tasks",
        "host": "h",
        "skills": [["notes/write", "Notes."]],
        "request": "feed the cat",
        "run": "r7",
    }
    assert calls == [
        (
            "choose",
            {
                "ordinal": 1,
                "question": "Which?",
                "options": [["a", "A"], ["b", "B"]],
                "state": {"input": "feed the cat"},
                "none": False,
            },
        ),
        ("say", {"ordinal": 2, "text": "hello"}),
        ("ask", {"ordinal": 3, "question": "Sure?", "options": ["yes please", "no"]}),
        ("effect_begin", {"ordinal": 4, "name": "touch"}),
        ("effect_end", {"ordinal": 4, "name": "touch", "value": {"key": "r7-act-4"}}),
        (
            "remind",
            {
                **{"ordinal": 5, "due": "2026-12-01T09:00:00+01:00", "text": "feed"},
                **{"repeat": "", "timer": False},
            },
        ),
        ("reminders", {"ordinal": 6}),
        ("skills", {"ordinal": 7}),
    ]


def test_wall_clock_arithmetic_of_now_crosses_summer_time(worker, skill, run, payload):
    now = datetime(2026, 10, 24, 9, 0, tzinfo=payload.now.tzinfo)  # the night before the change
    code = """
        from datetime import timedelta
        def act(ctx):
            ctx.state["due"] = (ctx.now + timedelta(days=1)).isoformat()
    """
    outcome = worker.run(
        skill(code), "act", replace(payload, now=now), lambda *_: None, 20, threading.Event()
    )
    assert outcome.state["due"] == "2026-10-25T09:00:00+01:00"
    assert (now + timedelta(days=1)).isoformat() == "2026-10-25T09:00:00+01:00"


def test_observe_and_verify_give_their_value_an_action_does_not(worker, skill, run):
    code = """
        def observe(ctx): return {"free": 3}
        def act(ctx): return object()
        def verify(ctx): return ctx.state["given"] == 1
    """
    made = skill(code)
    assert run(worker, made, action="observe").value == {"free": 3}
    assert run(worker, made).value is None
    assert run(worker, made, action="verify").value is True


@pytest.mark.parametrize(
    ("body", "kind", "message", "cause"),
    [
        ("raise Finished('Nothing to do.')", "finished", "Nothing to do.", ""),
        ("raise Failed('No host.', 'environment')", "failed", "No host.", "environment"),
        (
            "1 / 0",
            "failed",
            "ZeroDivisionError: division by zero (demo/one/skill.py:3)",
            "unknown",
        ),
        ("raise ValueError", "failed", "ValueError (demo/one/skill.py:3)", "unknown"),
        (
            "import json; json.loads('{')",
            "failed",
            "JSONDecodeError: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1) (demo/one/skill.py:3)",
            "unknown",
        ),
        ("import sys; sys.exit(4)", "failed", "SystemExit: 4 (demo/one/skill.py:3)", "unknown"),
        ("raise KeyboardInterrupt", "failed", "KeyboardInterrupt (demo/one/skill.py:3)", "unknown"),
        (
            "ctx.state['rows'] = {1}",
            "failed",
            "ctx.state after act must be JSON: ['rows']: "
            "Object of type set is not JSON serializable",
            "unknown",
        ),
        (
            "ctx.state['x'] = float('nan')",
            "failed",
            "ctx.state after act must be JSON: ['x']: "
            "Out of range float values are not JSON compliant",
            "unknown",
        ),
        (
            "ctx.state = []",
            "failed",
            "ctx.state after act must be a dict, not []",
            "unknown",
        ),
        (
            "ctx.say('x' * 17_000_000)",
            "failed",
            "ValueError: ctx.say has 16.2 MiB, over the limit of 16 MiB (demo/one/skill.py:3)",
            "unknown",
        ),
        (
            "ctx.state['x'] = 'x' * 17_000_000",
            "failed",
            "ctx.state after act has 16.2 MiB, over the limit of 16 MiB",
            "unknown",
        ),
        (
            "ctx.say(7)",
            "failed",
            "TypeError: expected a text, got int: 7 (demo/one/skill.py:3)",
            "unknown",
        ),
        (
            "ctx.choose('Which?', [('a', 'A'), ('a', 'B')])",
            "failed",
            "ValueError: ctx.choose: ids must be texts, each one once: ['a', 'a'] "
            "(demo/one/skill.py:3)",
            "unknown",
        ),
        (
            "ctx.choose('Which?', [])",
            "failed",
            "ValueError: ctx.choose: no options for 'Which?' (demo/one/skill.py:3)",
            "unknown",
        ),
        (
            "ctx.choose('Which?', [('a', 'A')], state={'when': ctx.now})",
            "failed",
            "TypeError: ctx.choose must be JSON: ['state']: "
            "Object of type datetime is not JSON serializable (demo/one/skill.py:3)",
            "unknown",
        ),
        (
            "ctx.remind(ctx.now.replace(tzinfo=None), 'x')",
            "failed",
            "ValueError: ctx.remind: due needs a time zone: 2026-11-30T15:00:00 "
            "(demo/one/skill.py:3)",
            "unknown",
        ),
    ],
)
def test_how_an_action_ends(worker, skill, run, log, body, kind, message, cause):
    code = f"from sia.skills.api import Failed, Finished\ndef act(ctx):\n    {body}\n"
    outcome = run(worker, skill(code))
    assert (outcome.kind, outcome.message, outcome.cause) == (kind, message, cause)
    assert run(worker, skill("def act(ctx): ctx.state['x'] = 1")).state == {"given": 1, "x": 1}
    if "skill.py:3" in message:
        assert f'skill.py", line 3, in act\n    {body}' in log.read_text()


def test_a_module_that_cannot_be_imported_fails_with_the_line(worker, skill, run):
    outcome = run(worker, skill("import math\nimport nowhere\ndef act(ctx): pass\n"))
    assert outcome.kind == "failed"
    assert outcome.message == (
        "ModuleNotFoundError: No module named 'nowhere' (demo/one/skill.py:2)"
    )


def test_a_skill_may_import_its_neighbour_file(worker, skill, run, write):
    folder = write("demo/one", "def act(ctx): pass")
    (folder / "near.py").write_text("VALUE = 5\n")
    made = skill("from .near import VALUE\ndef act(ctx): ctx.state['v'] = VALUE\n")
    assert run(worker, made).state["v"] == 5


def test_a_fault_of_the_agent_reaches_the_skill_or_the_caller(worker, skill, run):
    code = """
        from sia.skills.api import Failed, Unproven
        def act(ctx):
            try:
                ctx.generate("message", {"to": "Tom", "request": "x"})
            except Unproven as error:
                ctx.state["unproven"] = str(error)
            ctx.ask("Anybody?")
    """

    def handle(method, args):
        if method == "generate":
            raise Unproven("not proven for message")
        raise Failed("nobody is there", "environment")

    outcome = run(worker, skill(code), handle)
    assert outcome.state["unproven"] == "not proven for message"
    assert (outcome.kind, outcome.message, outcome.cause) == (
        "failed",
        "nobody is there",
        "environment",
    )

    def broken(method, args):
        raise LookupError("our own bug")

    with pytest.raises(LookupError, match="our own bug"):
        run(worker, skill(code), broken)
    assert not worker.ready


def test_a_limit_kills_a_busy_loop_and_what_it_started(worker, skill, run, tmp_path):
    code = f"""
        import os, subprocess
        def act(ctx):
            child = subprocess.Popen(["sleep", "60"])
            open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
            while True:
                pass
    """
    begun = time.monotonic()
    outcome = run(worker, skill(code), seconds=0.5)
    assert time.monotonic() - begun < 0.8 + 0.2  # the limit, 0.3 s, and a busy machine
    assert outcome.kind == "limit" and outcome.state == {"given": 1}
    assert outcome.message == "act took longer than 0.5 s and was ended"
    assert 0.5 <= outcome.seconds < 1.0
    for pid in (tmp_path / "pids").read_text().split():
        assert gone(int(pid)), pid
    assert not worker.ready


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(60)"])
def test_a_cancel_ends_an_action_at_once(worker, skill, run, body):
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    begun = time.monotonic()
    outcome = run(worker, skill(f"def act(ctx):\n    {body}\n"), cancel=cancel)
    assert time.monotonic() - begun < 0.3 + 0.5
    assert (outcome.kind, outcome.message) == ("cancelled", "act was cancelled")


def test_a_limit_also_holds_for_the_answer_to_a_call(worker, skill, run):
    outcome = run(
        worker,
        skill("def act(ctx):\n    ctx.say('x')\n    ctx.say('y')\n"),
        handle=lambda method, args: time.sleep(0.3),
        seconds=0.2,
    )
    assert outcome.kind == "limit"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os._exit(3)", "act broke off: the worker ended with exit code 3"),
        (
            "os.kill(os.getpid(), 11)",
            "act broke off: the worker was ended by signal 11 (Segmentation fault)",
        ),
        (
            "os.write(int(sys.argv[1]), b'hello\\n')",
            "act broke off: the worker did not speak the protocol: b'hello'",
        ),
        (
            'os.write(int(sys.argv[1]), b\'{"end": {"kind": "won", "state": {}}}\\n\')',
            "act broke off: the worker did not speak the protocol: "
            'b\'{"end": {"kind": "won", "state": {}}}\'',
        ),
        (
            'os.write(int(sys.argv[1]), b\'{"call":1,"method":"__init__",'
            '"args":{"ordinal":1}}\\n\')',
            "act broke off: the worker did not speak the protocol: "
            'b\'{"call":1,"method":"__init__","args":{"ordinal":1}}\'',
        ),
        (
            "[os.write(int(sys.argv[1]), b'x' * 1_000_000) for _ in range(40)]",
            "act broke off: the worker sent a line without end",
        ),
    ],
)
def test_a_worker_that_breaks_is_reported_and_replaced(pool, skill, run, body, message):
    outcome = run(pool, skill(f"import os, sys\ndef act(ctx):\n    {body}\n    while 1: pass\n"))
    assert (outcome.kind, outcome.message, outcome.state) == ("crashed", message, {"given": 1})
    assert run(pool, skill("def act(ctx): pass")).kind == "done"


def test_printing_does_not_break_the_protocol_and_is_bounded(worker, skill, run, log):
    code = """
        import os, subprocess, sys
        def act(ctx):
            print("plain", {"end": {}})
            print("error", file=sys.stderr)
            os.write(1, b"raw\\n")
            subprocess.run(["echo", "child"])
            print("\\udcff")
            for _ in range(500):
                print("x" * 100_000)
            ctx.say("after")
    """
    said = []
    outcome = run(worker, skill(code), lambda method, args: said.append(args["text"]))
    assert outcome.kind == "done" and said == ["after"]
    text = log.read_text()
    for line in ("plain {'end': {}}", "error", "raw", "child", "\\udcff"):
        assert f"{line}\n" in text
    assert text.endswith("\n[... what else this action printed is left out]\n")
    assert log.stat().st_size < (1 << 20) + 100
    assert log.stat().st_mode & 0o777 == 0o600
    run(worker, skill("def act(ctx): print('next')"))
    assert log.read_text().endswith("next\n")


def test_a_large_log_is_set_aside(log):
    log.parent.mkdir()
    log.write_bytes(b"x" * 1_100_000)
    Worker.spawn(log, passed_environment(os.environ)).close()
    assert log.stat().st_size == 0
    assert log.with_name("skills.log.1").stat().st_size == 1_100_000


def test_what_a_worker_does_not_have(log, skill, run):
    source = {**os.environ, "OPENAI_API_KEY": "secret", "MAIL_PASSWORD": "mine"}
    worker = Worker.spawn(log, passed_environment(source, ["MAIL_PASSWORD"]))
    code = """
        import os, sys
        def act(ctx):
            ctx.state["names"] = sorted(os.environ)
            ctx.state["stdin"] = sys.stdin.read()
            ctx.state["group"] = os.getpgrp() == os.getpid()
            ctx.state["path"] = sys.path[0] != ""
            try:
                open("/dev/tty")
            except OSError as error:
                ctx.state["tty"] = error.errno
    """
    state = run(worker, skill(code)).state
    worker.close()
    assert "OPENAI_API_KEY" not in state["names"] and "PYTHONPATH" not in state["names"]
    assert {"PATH", "HOME", "MAIL_PASSWORD"} <= set(state["names"])
    assert (state["stdin"], state["group"], state["path"]) == ("", True, True)
    assert state["tty"] == 6  # ENXIO: there is no controlling terminal


def test_a_memory_limit_fails_the_action_alone(log, skill, run):
    worker = Worker.spawn(log, passed_environment(os.environ), memory=512 << 20)
    outcome = run(worker, skill("def act(ctx):\n    bytearray(1 << 30)\n"))
    assert (outcome.kind, outcome.message) == ("failed", "MemoryError (demo/one/skill.py:2)")
    assert run(worker, skill("def act(ctx): pass")).kind == "done"
    worker.close()


def test_bytes_of_a_file_name_survive_in_the_state_and_are_replaced_in_words(worker, skill, run):
    code = """
        import os
        def act(ctx):
            name = os.fsdecode(b"caf\\xe9.txt")
            ctx.say(f"found {name}")
            ctx.state["name"] = name
    """
    said = []
    outcome = run(worker, skill(code), lambda method, args: said.append(args["text"]))
    assert said == ["found caf\ufffd.txt"]
    assert os.fsencode(outcome.state["name"]) == b"caf\xe9.txt"


def test_the_worker_dies_with_the_agent(tmp_path, write):
    """An agent killed with -9 leaves no action running behind its back."""
    pids = tmp_path / "pids"
    folder = write(
        "demo/one",
        f"import os\ndef act(ctx):\n    open({str(pids)!r}, 'w').write(str(os.getpid()) + '\\n')\n"
        "    while True: pass\n",
    )
    agent = f"""
import json, os, pathlib, sys, threading
from datetime import UTC, datetime
from sia.skills.api import Folders, Person
from sia.skills.calls import Payload
from sia.skills.host import Worker
from sia.skills.manifest import parse_skill
here = pathlib.Path({str(tmp_path)!r})
worker = Worker.spawn(here / "log", dict(os.environ))
payload = Payload("", "r1", datetime.now(UTC), Person("", "", "UTC"), Folders(*[here] * 4))
skill = parse_skill(pathlib.Path({str(folder)!r}))
worker.run(skill, "act", payload, lambda *_: None, 60, threading.Event())
"""
    env = {**os.environ, "PYTHONPATH": str(Path(sia.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", agent], env=env)
    try:
        deadline = time.monotonic() + 20
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        pid = int(pids.read_text())
        assert psutil.pid_exists(pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gone(pid)


def test_everything_sent_is_one_line_of_ascii(worker, skill, run):
    """A newline or a line separator inside a text cannot end a message early."""
    said = []
    text = 'a\nb\r\u2028\x85"}\n{"end": 1}'
    outcome = run(
        worker,
        skill(f"def act(ctx): ctx.say({text!r})"),
        lambda method, args: said.append(args["text"]),
    )
    assert outcome.kind == "done" and said == [text]
    assert json.dumps(text).isascii()
