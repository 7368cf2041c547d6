"""Runs one script, apart from the agent: session leader, subreaper, keeper of its output.

Started as ``python -I -S runner.py FOLDER`` in a session of its own, with the write end of the
folder's FIFO ``running`` as descriptor 3. Standard library only, so that it starts at once.

    script.json     what to run (written by the agent, as is ``command``)
    runner.json     {pid, start, boot, unkept}: who the runner is, and what output was not kept
    stdout, stderr  the output
    reason          why the agent ends the script (written by the agent before SIGTERM)
    exit.json       {status, exit_code, note}, written when the *shell* exits
    running         the FIFO: end-of-file at its read end says that exit.json is there

Output comes through pipes, so that a script may write to ``/dev/stderr`` without emptying a file
and size limits are exact. Nobody waits for the end of the pipes: a grandchild that holds them
holds up nothing. The runner stays while anything that the script started lives; as subreaper it
is the parent of whatever left the group, and ends all of it on SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from resource import RLIMIT_AS, RLIMIT_CORE, RLIMIT_NPROC, setrlimit

RUNNING = 3  # descriptor: the write end of the FIFO
DRAIN_BYTES = 1 << 20  # no pipe of an ordinary user holds more
SPARE_BYTES = 1 << 16  # given back on a full disk, so that exit.json finds room
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PUNCH_HOLE, KEEP_SIZE = 2, 1


def private(path: str, flags: int) -> int:
    """An opener: for nobody else to read."""
    return os.open(path, flags, 0o600)


def write_json(path: str, value: dict) -> None:
    """Replace a file by a value, whole or not at all."""
    with open(f"{path}.new", "w", opener=private, encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process(pid: int) -> tuple[int, int] | None:
    """(parent, start in ticks since boot) of a live process; None for a dead one or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(ancestor: int) -> list[int]:
    """Live processes below ``ancestor``; below a subreaper, all that was ever started there."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        if found := process(pid):
            children.setdefault(found[0], []).append(pid)
    below = list(children.get(ancestor, ()))
    for pid in below:
        below += children.get(pid, ())
    return below


class Stream:
    """One stream of the script: a pipe on its side, a file of bounded size on ours.

    Of a stream over ``limit`` bytes the first ``head`` and at least the last half of the limit are
    kept; the middle becomes a hole, so that offsets stay true while the disk is given back.
    """

    def __init__(self, path: str, head: int, limit: int, libc: ctypes.CDLL) -> None:
        self.pipe, self.script_end = os.pipe()
        os.set_blocking(self.pipe, False)
        self.unkept = ""  # what is missing in the file and why, in words
        self._file = private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._head, self._limit, self._libc = head, limit, libc
        self._size = self._hole_end = 0
        self._closed = False

    def pump(self) -> bool:
        """Move what the pipe holds, within bounds, to the file. False at the pipe's end."""
        most = DRAIN_BYTES
        while most > 0:
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            most -= len(data)
            if not self._closed:
                self._write(memoryview(data))
        return True

    def _write(self, data: memoryview) -> None:
        try:
            while data:
                count = os.write(self._file, data)
                data, self._size = data[count:], self._size + count
            if self._size - self._hole_end > self._limit:
                self._drop_middle()
        except OSError as error:  # a full disk, or one without holes: the script itself goes on
            self._closed = True
            self._size = max(0, self._size - SPARE_BYTES)
            os.ftruncate(self._file, self._size)
            self.unkept = f"only its first {self._size:,} bytes are kept: {error.strerror}"

    def _drop_middle(self) -> None:
        end = (self._size - self._limit // 2) & ~4095
        hole = ctypes.c_long(self._head), ctypes.c_long(end - self._head)
        if self._libc.fallocate(self._file, PUNCH_HOLE | KEEP_SIZE, *hole):
            raise OSError(ctypes.get_errno(), f"{self._limit:,} bytes is the limit")
        self._hole_end = end
        missing = f"{end - self._head:,} bytes after the first {self._head:,}"
        self.unkept = f"{missing} are not kept: {self._limit:,} is the limit"


class Runner:
    """One run of one script, from start to the end of its last descendant."""

    def __init__(self, folder: str) -> None:
        with open(f"{folder}/script.json", encoding="utf-8") as file:
            self._script = json.load(file)
        self._folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        head, limit = self._script["head_bytes"], self._script["file_bytes"]
        self._streams = {
            name: Stream(f"{folder}/{name}", head, limit, self._libc)
            for name in ("stdout", "stderr")
        }
        self._recorded: dict[str, str] | None = None
        self._shell = 0
        self._reason = ""  # why the script is being ended
        self._due: float | None = None  # when the limit, or the next round of killing, strikes
        self._patience = 0.05

    def run(self) -> None:
        """Start the shell, and stay until nothing that it started lives."""
        os.set_inheritable(RUNNING, False)
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake = self._listen()
        self._shell = self._spawn()
        # Blocked until now, so that a SIGTERM is lost neither before we listen nor by a child
        # that still has our handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if self._script["seconds"] is not None:
            self._due = time.monotonic() + self._script["seconds"]
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        by_pipe = {stream.pipe: stream for stream in self._streams.values()}
        for stream in by_pipe.values():
            os.close(stream.script_end)
            poll.register(stream.pipe, select.POLLIN)
        self._record()
        while self._reap():
            wait = None if self._due is None else max(0.0, self._due - time.monotonic()) * 1000
            for handle, _ in poll.poll(wait):
                if handle == wake:
                    if signal.SIGTERM in os.read(wake, 4096):
                        self._end(self._told_reason())
                elif not by_pipe[handle].pump():
                    poll.unregister(handle)
            self._record()
            if self._due is not None and time.monotonic() >= self._due:
                self._strike()
        for stream in by_pipe.values():
            stream.pump()
        self._record()

    def _listen(self) -> int:
        """A descriptor that becomes readable when a child ends or the agent says SIGTERM."""
        readable, writable = os.pipe()
        for end in (readable, writable):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        return readable

    def _spawn(self) -> int:
        runner = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        argv = self._script["argv"]
        try:
            os.setpgid(0, 0)  # so that `kill 0` in a script does not reach the runner
            self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != runner:
                os._exit(127)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for stream, handle in zip(self._streams.values(), (1, 2), strict=True):
                os.dup2(stream.script_end, handle)
            os.chdir(self._script["cwd"])
            setrlimit(RLIMIT_CORE, (0, 0))
            for kind, name in ((RLIMIT_AS, "memory_bytes"), (RLIMIT_NPROC, "processes")):
                if (limit := self._script[name]) is not None:
                    setrlimit(kind, (limit, limit))
            os.execvp(argv[0], argv)
        except (OSError, ValueError) as error:
            os.write(2, f"the script could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _record(self) -> None:
        unkept = {name: s.unkept for name, s in self._streams.items() if s.unkept}
        if unkept == self._recorded:
            return
        self._recorded = unkept
        pid = os.getpid()
        found = process(pid)
        assert found is not None
        who = {"pid": pid, "start": found[1], "boot": boot_id(), "unkept": unkept}
        with contextlib.suppress(OSError) if unkept else contextlib.nullcontext():
            # A full disk takes no note of itself; but without the first record there is no runner.
            write_json(f"{self._folder}/runner.json", who)

    def _reap(self) -> bool:
        """Collect who ended. False when nothing that the script started lives any more."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._shell:
                self._over(os.waitstatus_to_exitcode(status))

    def _over(self, code: int) -> None:
        """The shell exited: the script is over, whatever else still runs."""
        self._shell = 0
        for stream in self._streams.values():
            stream.pump()
        self._record()
        end = {"status": "done", "exit_code": code if code >= 0 else 128 - code, "note": ""}
        if self._reason:
            end = {"status": "ended", "exit_code": None, "note": self._reason}
        else:
            self._due = None
        write_json(f"{self._folder}/exit.json", end)
        os.unlink(f"{self._folder}/running")
        os.close(RUNNING)

    def _told_reason(self) -> str:
        try:
            with open(f"{self._folder}/reason", encoding="utf-8") as file:
                return file.read() or "ended"
        except FileNotFoundError:
            return "ended by a signal from outside"

    def _end(self, reason: str) -> None:
        """Ask all that the script started to end; what has not by the grace's end is killed."""
        self._reason = self._reason or reason
        self._signal_all(signal.SIGTERM)
        self._due = time.monotonic() + self._script["grace"]

    def _strike(self) -> None:
        if not self._reason:
            self._end(f"ended after {self._script['seconds']:g} s, the limit")
            return
        self._signal_all(signal.SIGKILL)
        self._due = time.monotonic() + self._patience  # again: one may have forked meanwhile
        self._patience *= 2

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # sudo's is not ours
                os.kill(pid, number)


if __name__ == "__main__":
    os.closerange(RUNNING + 1, os.sysconf("SC_OPEN_MAX"))  # whatever a library left inheritable
    os.chdir("/")
    Runner(sys.argv[1]).run()
