"""Workers kept warm, reused for one version of a skill, and never for the next one."""

import os
import threading
import time

import pytest

from sia.skills.host import WorkerError, WorkerPool, passed_environment

PID = "import os\ndef act(ctx): ctx.state['pid'] = os.getpid()\n"


def pid(outcome) -> int:
    assert outcome.kind == "done", outcome
    return outcome.state["pid"]


def test_a_worker_is_reused_for_the_same_version_only(pool, skill, run, write):
    made = skill(PID)
    first = pid(run(pool, made))
    assert pid(run(pool, made)) == first
    assert pid(run(pool, skill(PID + "# edited\n"))) != first
    again = skill(PID)
    second = pid(run(pool, again))
    (again.folder / "near.py").write_text("# another file of the skill\n")
    assert pid(run(pool, again)) != second


def test_what_runs_is_what_was_checked(pool, skill, run):
    """A file broken by an edit does not break the skill that was loaded before."""
    made = skill("def act(ctx): ctx.state['v'] = 1")
    (made.folder / "skill.py").write_text("def act(ctx: this is no Python")
    assert run(pool, made).state["v"] == 1


def test_each_skill_has_a_worker_of_its_own(pool, skill, run):
    pids = {pid(run(pool, skill(PID, id=f"demo/n{n}"))) for n in range(3)}
    assert len(pids) == 3


def test_the_spare_takes_the_next_skill_and_the_kept_are_bounded(pool, skill, run):
    pool.warm()
    spare = pool._spare.result()._process.pid
    assert pid(run(pool, skill(PID, id="demo/n0"))) == spare
    for n in range(1, 5):
        run(pool, skill(PID, id=f"demo/n{n}"))
    assert [folder.name for folder in pool._idle] == ["n3", "n4"]


def test_a_warm_action_starts_fast(pool, skill, run):
    pool.warm()
    pool._spare.result()
    made = skill("def act(ctx): pass")
    begun = time.perf_counter()
    run(pool, made)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    run(pool, made)
    again = time.perf_counter() - begun
    # Measured 4 ms and 1 ms; the bound is the goal, with room for a busy machine.
    assert first < 0.1 and again < 0.02, (first, again)


def test_a_spare_that_died_is_replaced(pool, skill, run):
    pool.warm()
    pool._spare.result()._process.kill()
    pool._spare.result()._process.wait()
    assert run(pool, skill("def act(ctx): pass")).kind == "done"


def test_two_threads_run_the_same_skill_in_two_workers(pool, skill, run):
    made = skill("import os, time\ndef act(ctx):\n    time.sleep(0.3)\n    " + PID.split(": ")[1])
    pids: list[int] = []
    threads = [threading.Thread(target=lambda: pids.append(pid(run(pool, made)))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 2
    assert len(pool._idle) == 1


def test_a_worker_in_which_a_thread_still_talks_is_not_reused(pool, skill, run):
    code = """
        import os, threading, time
        def act(ctx):
            def late():
                time.sleep(0.2)
                ctx.say("from the past")
            threading.Thread(target=late, daemon=True).start()
            ctx.state["pid"] = os.getpid()
    """
    made = skill(code)
    first = pid(run(pool, made))
    time.sleep(0.5)
    said = []
    assert pid(run(pool, made, lambda method, args: said.append(args))) != first
    assert said == []


def test_a_worker_that_cannot_start_says_so_and_where_to_look(tmp_path, skill, run, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    pool = WorkerPool(tmp_path / "log", passed_environment(os.environ))
    with pytest.raises(WorkerError) as error:
        run(pool, skill("def act(ctx): pass"))
    assert str(error.value) == (
        f"no worker for skills could start (the worker ended with exit code 1); see {tmp_path}/log"
    )
    pool.close()


def test_close_ends_every_worker(log, skill, run):
    pool = WorkerPool(log, passed_environment(os.environ))
    kept = pid(run(pool, skill(PID)))
    spare = pool._spare.result()._process.pid
    pool.close()
    for number in (kept, spare):
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    pool.close()
