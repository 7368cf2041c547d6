"""restart.sh as the guard: what exit codes mean, and what reaches the program."""

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

from .checkout import Checkout


@pytest.mark.parametrize("code", [0, 2, 69, 78, 130])
def test_these_codes_end_it(checkout: Checkout, code: int) -> None:
    checkout.program(f"sys.exit({code})")
    done = checkout.run()
    assert (done.returncode, len(checkout.starts()), done.stderr) == (code, 1, "")


def test_75_after_a_turn_starts_again_at_once(checkout: Checkout) -> None:
    checkout.program("print(start); turn(); sys.exit(75 if start < 8 else 0)")
    done = checkout.run(SIA_BACKOFF_UNIT="30")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(n) for n in range(1, 9)]
    assert not list(checkout.folder.glob(".sia/turn.*"))


def test_75_without_a_turn_of_its_own_is_a_crash(checkout: Checkout) -> None:
    checkout.program("if start == 1: turn()\nsys.exit(75 if start < 3 else 0)")
    done = checkout.run()
    assert done.returncode == 0
    assert len(checkout.starts()) == 3
    assert done.stderr == (
        "sia: the program asked for a restart without a completed turn, "
        "crash 1 of 5 in ten minutes; starting again\n"
    )


def test_the_fifth_crash_ends_it(checkout: Checkout) -> None:
    checkout.program("sys.exit(1)")
    done = checkout.run(SIA_BACKOFF_UNIT="0.05")
    starts = checkout.starts()
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(waits) == 4
    assert all(wait >= least for wait, least in zip(waits, [0.05, 0.1, 0.2, 0.4], strict=True))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "the program ended with code 1, crash 5 in ten minutes: not started again" in last
    assert f"{checkout.folder}/.sia/log/" in last
    assert f"{checkout.folder}/.venv/bin/sia history" in last


def test_crashes_over_ten_minutes_ago_do_not_count(checkout: Checkout) -> None:
    clock = checkout.folder / "bin/date"  # goes 200 s on at each reading
    clock.parent.mkdir()
    clock.write_text('#!/bin/sh\necho x >>"$0.n"; echo $(($(wc -l <"$0.n") * 200))\n')
    clock.chmod(0o755)
    checkout.program("sys.exit(0 if start == 7 else 3)")
    done = checkout.run(PATH=f"{clock.parent}:{os.environ['PATH']}")
    assert done.returncode == 0
    counted = [line.split("crash ")[1][0] for line in done.stderr.splitlines()]
    assert counted == ["1", "2", "3", "3", "3", "3"]


def test_death_by_signal_is_a_crash(checkout: Checkout) -> None:
    checkout.program("if start == 1: turn(); os.kill(os.getpid(), signal.SIGKILL)")
    done = checkout.run()
    assert done.returncode == 0
    assert "the program was ended by signal 9, crash 1 of 5" in done.stderr


def test_1_as_a_result_ends_it(checkout: Checkout) -> None:
    checkout.program("turn(); turn('end'); sys.exit(1)")
    done = checkout.run()
    assert (done.returncode, len(checkout.starts()), done.stderr) == (1, 1, "")


def test_arguments_arrive_unchanged(checkout: Checkout) -> None:
    arguments = ["run", "feed the cat", "", "*", "a\nb", "$HOME", "--", "--home", "é"]
    checkout.program("import json; print(json.dumps(sys.argv[1:]))")
    assert json.loads(checkout.run(*arguments).stdout) == arguments


def test_the_next_start_reads_on_in_the_same_input(checkout: Checkout) -> None:
    checkout.program(
        "if start == 1:\n"
        "    while os.read(0, 1) != b'\\n': pass\n"
        "    turn(); sys.exit(75)\n"
        "print(sys.stdin.read(), end='')\n"
    )
    assert checkout.run(stdin="one\ntwo\nthree\n").stdout == "two\nthree\n"


def test_a_closed_input_is_an_empty_one(checkout: Checkout) -> None:
    checkout.program("print(repr(sys.stdin.read()))")
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" <&-', checkout.folder / "restart.sh"],
        capture_output=True, text=True, timeout=20, env=checkout.environment(), check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "''\n", "")


def test_a_folder_named_sia_does_not_take_its_place(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "sia").mkdir()
    (tmp_path / "sia/__main__.py").write_text("print('the wrong one')")
    checkout.program("print('the right one')")
    assert checkout.run(cwd=tmp_path).stdout == "the right one\n"


def test_it_works_through_a_link(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkout.folder / "restart.sh")
    checkout.program("print('here')")
    done = subprocess.run(
        [tmp_path / "link"], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "here\n"


def test_a_second_start_adds_under_100_ms(checkout: Checkout) -> None:
    checkout.program("")
    python = checkout.folder / ".venv/bin/python"

    def least_seconds(command: list[Path | str]) -> float:
        """Of five runs, in processor time: the wall clock also counts what else is going on."""
        taken = []
        for _ in range(5):
            before = os.times()
            subprocess.run(command, env=checkout.environment(SIA_RESTART="1"), check=True)
            after = os.times()
            user = after.children_user - before.children_user
            taken.append(user + after.children_system - before.children_system)
        return min(taken)

    direct = least_seconds([python, "-P", "-m", "sia"])
    assert least_seconds([checkout.folder / "restart.sh"]) - direct < 0.1
