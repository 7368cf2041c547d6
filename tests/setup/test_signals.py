"""restart.sh between the program, a terminal and those who end it by signal."""

import signal
import subprocess
import time
from collections.abc import Iterator

import pexpect
import pytest

from .checkout import Checkout, end_group, nothing_left


@pytest.fixture
def running(checkout: Checkout) -> Iterator[subprocess.Popen[str]]:
    """restart.sh with a program that says "ready"; its whole group is ended after the test."""
    checkout.program(
        "def end(number, frame):\n"
        "    time.sleep(0.3)\n"
        "    os.write(1, b'heard %d\\n' % number)\n"
        "    sys.exit(7)\n"
        "for number in signal.SIGTERM, signal.SIGHUP: signal.signal(number, end)\n"
        "print('ready', flush=True)\n"
        "time.sleep(15)\n"
    )
    process = subprocess.Popen(
        [checkout.folder / "restart.sh"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env=checkout.environment(), start_new_session=True,
        # Under nohup the tests would hand down a SIGHUP that no shell may trap.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.stdout.close()
    end_group(process.pid)
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_forwarded_and_ends_it(
    running: subprocess.Popen[str], checkout: Checkout, number: signal.Signals
) -> None:
    running.send_signal(number)
    assert running.stdout is not None
    assert running.stdout.read() == f"heard {int(number)}\n"
    assert running.wait(5) == 7
    assert len(checkout.starts()) == 1


def test_a_signal_ends_a_backoff(checkout: Checkout) -> None:
    checkout.program("sys.exit(3)")
    with subprocess.Popen(
        [checkout.folder / "restart.sh"],
        stderr=subprocess.PIPE, text=True, env=checkout.environment(SIA_BACKOFF_UNIT="15"),
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert "starting again" in process.stderr.readline()
        time.sleep(0.3)
        process.terminate()
        assert process.wait(5) == 143
        assert nothing_left(process.pid)
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("answer", "code"),
    [("print('caught', flush=True); time.sleep(0.3); sys.exit(0)", 0), ("raise", 130)],
)
def test_ctrl_c_goes_to_the_program(checkout: Checkout, answer: str, code: int) -> None:
    checkout.program(
        "try:\n    print('ready', flush=True)\n    time.sleep(15)\n"
        f"except KeyboardInterrupt:\n    {answer}\n"
    )
    child = checkout.at_a_terminal()
    child.expect("ready")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, child.signalstatus, len(checkout.starts())) == (code, None, 1)


def test_a_crash_at_the_prompt_leaves_the_terminal_as_it_was(checkout: Checkout) -> None:
    checkout.program(
        "import termios, tty\n"
        "if start == 1: tty.setraw(0); os.kill(os.getpid(), signal.SIGKILL)\n"
        "print('echo', bool(termios.tcgetattr(0)[3] & termios.ECHO), input())\n"
    )
    child = checkout.at_a_terminal()
    child.expect("starting again")
    child.sendline("typed")
    child.expect("echo True typed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
