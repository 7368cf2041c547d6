"""Scripts in three modes: started, watched, read, ended, and found again after a restart.

All that is known of a script lies in ``<folder>/<id>/`` (see ``runner``); this object only adds the
thread that waits. So any process can read a script's state, and a restart loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from sia.scripts import runner
from sia.scripts.policy import Author, Places, Policy, Refused, allowed_environment
from sia.scripts.shown import Output, show_file
from sia.scripts.watch import Cancel, Watcher

Mode = Literal["single_shot", "repeat", "background"]
Status = Literal["running", "done", "ended", "refused", "lost"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_COMMAND_BYTES = 131_071  # Linux: one argument of a program, without its closing NUL
_KERNEL = ("memory_bytes", "processes")
_LOST = "its runner is gone, and with it how the script ended"
_TOKEN = "SIA_SCRIPT"  # marks in its environment all that one run started


@dataclass(frozen=True)
class ScriptLimits:
    """``seconds`` (single_shot), ``repeat_seconds``, ``background_seconds``: how long the shell may
    run, None for ever. ``shown_bytes``: of one stream in the context. ``file_bytes``: kept of one
    stream on disk, the head and the newest part. ``grace``: seconds between TERM and KILL.
    ``memory_bytes`` (address space of each process) and ``processes`` (of this user in all, root
    excepted) are the kernel's limits."""

    seconds: float | None = 60.0
    repeat_seconds: float | None = 20.0
    background_seconds: float | None = None
    shown_bytes: int = 16_384
    file_bytes: int = 512 * 1024 * 1024
    grace: float = 1.0
    memory_bytes: int | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.shown_bytes < 1 or self.file_bytes < 4 * max(self.shown_bytes, 4096):
            raise ValueError("file_bytes must be at least 16,384 and four times shown_bytes")

    def of(self, mode: Mode) -> float | None:
        """Seconds that a script of this mode may run."""
        return {
            "single_shot": self.seconds,
            "repeat": self.repeat_seconds,
            "background": self.background_seconds,
        }[mode]


@dataclass(frozen=True)
class ScriptState:
    """A script as it is now. ``exit_code`` is None unless the shell exited by itself; 128 + N when
    signal N ended it. ``note`` says which limit struck, why it was ended or refused. ``escaped``:
    processes that outlived their shell."""

    id: str
    mode: Mode
    command: str
    status: Status
    exit_code: int | None = None
    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)
    note: str = ""
    escaped: tuple[int, ...] = ()


class Scripts:
    """The scripts of one agent. Its methods may be called from any thread.

    ``folder``: each script gets a folder in it. ``work``: where scripts run. ``environment``: what
    they see of it is chosen by name. ``on_change(id)`` is called from the watching thread when a
    script is over; it may hand the id on, no more: it must neither raise nor call back.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limits: ScriptLimits,
        policy: Policy,
        work: Path,
        tasks: Path,
        environment: Mapping[str, str],
        on_change: Callable[[str], None],
    ) -> None:
        self._folder = folder.resolve()
        private = next((p for p in self._folder.parents if p.name == ".sia"), None)
        self._shown_from = private or self._folder.parent
        home = Path(environment.get("HOME") or Path.home())
        self._places = Places(work.resolve(), tasks.resolve(), private or self._folder, home)
        if self._places.work.is_relative_to(self._places.private):
            raise ValueError(f"scripts cannot work in {work}: it is hidden from them")
        self._limits, self._policy, self._on_change = limits, policy, on_change
        self._environment = allowed_environment(environment)
        self._changed = threading.Condition()
        self._running: set[str] = set()
        self._children: dict[str, int] = {}  # id -> pid of its runner, until that is reaped
        self._watcher: Watcher | None = None

    def start(self, id: str, mode: Mode, command: str, *, by: Author = "generator") -> ScriptState:
        """Start a script; a finished one of this id, and all that it left running, makes way.

        Raises Refused when the policy, or the system, does not take the command; its state then
        says so too. Raises ValueError for an unknown mode, a bad id, and an id that still runs.
        """
        if mode not in get_args(Mode):
            raise ValueError(f"unknown script mode {mode!r}")
        folder = self._of(id)
        if self._status(folder)[0] == "running":
            raise ValueError(f"script {id} is still running")
        with self._changed:  # the watching thread may still have to note that the last run is over
            self._changed.wait_for(lambda: id not in self._running)
        self._finish(id, self._ask(id))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        (folder / "command").write_bytes(command.encode("utf-8", "replace"))
        script = self._script(mode)
        try:
            script["argv"] = self._argv(command, by)
        except Refused as refusal:
            runner.write_json(f"{folder}/exit.json", _end("refused", str(refusal)))
            raise
        finally:
            (folder / "script.json").write_text(json.dumps(script), "utf-8")
        self._launch(id, folder, script["token"])
        return self.state(id)

    def state(self, id: str) -> ScriptState:
        """What the script is now, from its files; reads no more of its output than is shown.

        Raises KeyError for an id that never started.
        """
        folder = self._of(id)
        script = _read(folder / "script.json")
        if script is None:
            raise KeyError(id)
        status, end = self._status(folder)
        record = _read(folder / "runner.json") or {}
        unkept = record.get("unkept", {})
        notes = [end.get("note", ""), *(f"{name}: {why}" for name, why in unkept.items())]
        if end.get("exit_code"):
            notes += [f"{k}: {script[k]:,} was the limit" for k in _KERNEL if script[k] is not None]
        stdout, stderr = (
            show_file(
                folder / name,
                self._limits.shown_bytes,
                str((folder / name).relative_to(self._shown_from)),
                "what was kept is" if name in unkept else "all of it is",
            )
            for name in ("stdout", "stderr")
        )
        escaped = status != "running" and _alive(record)
        return ScriptState(
            id=id,
            mode=script["mode"],
            command=(folder / "command").read_bytes().decode(),
            status=status,
            exit_code=end.get("exit_code"),
            stdout=stdout,
            stderr=stderr,
            note="; ".join(filter(None, notes)),
            escaped=tuple(runner.descendants(record["pid"])) if escaped else (),
        )

    def wait(self, ids: Iterable[str], cancel: Cancel) -> bool:
        """Sleep until all of ``ids`` are over (True) or ``cancel`` is set (False)."""
        waited = set(ids)
        cancel.add(self._wake)
        try:
            with self._changed:
                self._changed.wait_for(lambda: cancel() or not waited & self._running)
                return not waited & self._running
        finally:
            cancel.remove(self._wake)

    def end(self, id: str, reason: str = "") -> ScriptState:
        """End a script and all that it started, however far it went: TERM, after a grace KILL.

        Returns when all of it is gone, at the latest some seconds after the grace.
        """
        self._finish(id, self._ask(id, reason))
        return self.state(id)

    def running(self) -> tuple[ScriptState, ...]:
        """The scripts whose shell runs."""
        states = map(self.state, sorted(self._running))
        return tuple(state for state in states if state.status == "running")

    def adopt(self) -> tuple[ScriptState, ...]:
        """Take over what an earlier agent started here: those that run on, and those found lost.

        Known by the FIFO that a living runner holds; signalled by pid and start time.
        """
        found = []
        for folder in sorted(self._folder.glob("*/script.json")):
            id = folder.parent.name
            if id in self._running or (folder.parent / "exit.json").exists():
                continue
            if (handle := _held(folder.parent)) is not None:
                self._watch(id, handle)
            elif not (folder.parent / "exit.json").exists():
                self._lose(folder.parent)
            else:
                continue
            found.append(self.state(id))
        return tuple(found)

    def forget(self, keep: Iterable[str]) -> None:
        """Delete what is left of scripts that are over, except ``keep``."""
        kept = set(keep) | self._running
        for folder in self._folder.iterdir():
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self, keep_background: bool) -> None:
        """End what runs, and what scripts left running; ``keep_background`` spares what a turn
        does not wait for: background scripts, and what finished scripts left."""
        ids = set(self._running)
        if keep_background:
            ids = {id for id in ids if self.state(id).mode != "background"}
        else:
            ids |= {path.parent.name for path in self._folder.glob("*/runner.json")}
        asked = [(id, self._ask(id, "ended: the agent stopped")) for id in sorted(ids)]
        for id, handle in asked:
            self._finish(id, handle)
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        self._running.clear()

    def _of(self, id: str) -> Path:
        if not _ID.fullmatch(id):
            raise ValueError(f"{id!r} cannot name a script")
        return self._folder / id

    def _script(self, mode: Mode) -> dict[str, Any]:
        return {
            "mode": mode,
            "cwd": str(self._places.work),
            "seconds": self._limits.of(mode),
            "grace": self._limits.grace,
            "head_bytes": (self._limits.shown_bytes + 4095) & ~4095,
            "file_bytes": self._limits.file_bytes,
            "memory_bytes": self._limits.memory_bytes,
            "processes": self._limits.processes,
            "token": secrets.token_hex(16),
        }

    def _argv(self, command: str, by: Author) -> list[str]:
        try:
            size = len(command.encode())
        except UnicodeEncodeError:
            raise Refused("not run: the command holds half a character") from None
        if "\0" in command:
            raise Refused("not run: the command holds a NUL character")
        if size > _COMMAND_BYTES:
            raise Refused(
                f"not run: the command has {size:,} bytes and the system takes {_COMMAND_BYTES:,}; "
                "write it to a file and run that"
            )
        # People and models write bash; /bin/sh is for machines that lack it.
        shell = shutil.which("bash", path=self._environment["PATH"]) or "/bin/sh"
        return self._policy.wrap([shell, "-c", command], command, by, self._places)

    def _launch(self, id: str, folder: Path, token: str) -> None:
        os.mkfifo(folder / "running", 0o600)
        handle = os.open(folder / "running", os.O_RDONLY | os.O_NONBLOCK)
        try:
            held = os.open(folder / "running", os.O_WRONLY | os.O_NONBLOCK)
            try:
                pid = self._spawn(folder, held, token)
            finally:
                os.close(held)
        except OSError:
            os.close(handle)
            raise
        with self._changed:
            self._children[id] = pid
        self._watch(id, handle).add(os.pidfd_open(pid), partial(self._reap, id, pid))

    def _spawn(self, folder: Path, held: int, token: str) -> int:
        log = os.O_WRONLY | os.O_CREAT
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", runner.__file__, str(folder)],
            {**self._environment, _TOKEN: token},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, held, runner.RUNNING),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, folder / "runner.log", log, 0o600),
            ],
            setsid=True,
            setsigmask=[signal.SIGTERM],  # until the runner listens
        )

    def _watch(self, id: str, handle: int) -> Watcher:
        with self._changed:
            watcher = self._watcher = self._watcher or Watcher()
            self._running.add(id)
        watcher.add(handle, partial(self._over, id))
        return watcher

    def _over(self, id: str) -> None:
        if not (self._of(id) / "exit.json").exists():
            self._lose(self._of(id))
        with self._changed:
            self._running.discard(id)
            self._changed.notify_all()
        self._on_change(id)

    def _reap(self, id: str, pid: int) -> None:
        with self._changed:  # nobody may open a pid that is being given back
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            if self._children.get(id) == pid:
                del self._children[id]

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _status(self, folder: Path) -> tuple[Status, dict[str, Any]]:
        for _ in range(2):  # the second look is for one that was over just after the first
            if end := _read(folder / "exit.json"):
                return end["status"], end
            if (handle := _held(folder)) is not None:
                os.close(handle)
                return "running", {}
        return "lost", _end("lost", _LOST)

    def _lose(self, folder: Path) -> None:
        """Note that a runner is gone without a word, and end what it left behind."""
        if script := _read(folder / "script.json"):
            _sweep(script["token"])
        trouble = ""
        with contextlib.suppress(FileNotFoundError):  # killed before it opened its log
            trouble = (folder / "runner.log").read_text("utf-8", "replace").strip()
        note = ": ".join(filter(None, (_LOST, trouble.rpartition("\n")[2])))
        with contextlib.suppress(OSError):  # on a full disk it is found lost again
            runner.write_json(f"{folder}/exit.json", _end("lost", note))

    def _ask(self, id: str, reason: str = "") -> int | None:
        """Tell the runner to end everything. Its pidfd, or None when it is gone already."""
        folder = self._of(id)
        deadline = time.monotonic() + 2
        while True:
            named = (folder / "runner.json").exists()
            if (handle := self._open_runner(id, folder)) is not None:
                break
            # An agent that died in the act of starting leaves a runner yet to say who it is.
            if named or self._status(folder)[0] != "running" or time.monotonic() > deadline:
                return None
            time.sleep(0.02)
        (folder / "reason").write_text(reason or "ended", "utf-8")
        with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        return handle

    def _open_runner(self, id: str, folder: Path) -> int | None:
        with self._changed:
            if pid := self._children.get(id):
                return os.pidfd_open(pid)
        record = _read(folder / "runner.json") or {}
        try:
            handle = os.pidfd_open(record["pid"])
        except (KeyError, ProcessLookupError):
            return None
        if _alive(record):  # looked at while the pidfd is held: the pid now stays this process
            return handle
        os.close(handle)
        return None

    def _finish(self, id: str, handle: int | None) -> None:
        """Wait until the runner is gone; what it cannot end in time is killed from here."""
        if handle is None:
            return
        gone = select.poll()
        gone.register(handle, select.POLLIN)
        late = not gone.poll((self._limits.grace + 3) * 1000)
        if late and (script := _read(self._of(id) / "script.json")):
            _sweep(script["token"])
        os.close(handle)


def _end(status: Status, note: str) -> dict[str, Any]:
    return {"status": status, "exit_code": None, "note": note}


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None when there is none, or a power cut left half of it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _held(folder: Path) -> int | None:
    """The read end of the FIFO, when a runner holds the other."""
    try:
        handle = os.open(folder / "running", os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        os.read(handle, 1)
    except BlockingIOError:
        return handle
    os.close(handle)
    return None


def _alive(record: dict[str, Any]) -> bool:
    """Whether the runner of the record lives: the same pid, start time and boot."""
    found = runner.process(record["pid"]) if record else None
    return found is not None and (found[1], runner.boot_id()) == (record["start"], record["boot"])


def _sweep(token: str) -> None:
    """Kill whatever carries the token: the last resort, when the runner that knew is gone."""
    mark = f"{_TOKEN}={token}".encode()
    for _ in range(10):  # again, since one may fork while the others are killed
        marked = [pid for pid in runner.pids() if mark in _environment(pid)]
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
