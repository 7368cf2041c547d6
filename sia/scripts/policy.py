"""Which scripts may run, and inside which walls."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Rule = Literal["ask", "sandbox", "allow", "deny"]
Author = Literal["generator", "person"]

_NAMES = frozenset("PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR".split())
_PREFIXES = ("LC_", "XDG_")
# Below the home folder: keys, passwords, mail and browsers' logins. What is not there is skipped.
_SECRETS = (
    ".ssh .gnupg .aws .azure .kube .docker .password-store .mozilla .thunderbird .netrc .pgpass "
    ".pypirc .npmrc .git-credentials .bash_history .config/gh .config/gcloud .config/rclone "
    ".config/google-chrome .config/chromium .config/BraveSoftware .config/Signal "
    ".local/share/keyrings .local/share/kwalletd"
).split()
# uid 0 may write these even without capabilities, and bubblewrap leaves some of them open to it.
_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")
_HOW = "install bubblewrap, or set policy in [scripts] of sia.toml"


class Refused(Exception):
    """A command that is not run, and why: an answer for who wrote it, not a fault of ours."""


@dataclass(frozen=True)
class Places:
    """Absolute folders. ``private`` is ``.sia``, which no sandboxed script sees."""

    work: Path
    tasks: Path
    private: Path
    home: Path


@dataclass(frozen=True)
class Policy:
    """The rule for scripts that the generator wrote; what a person wrote is run as it is.

    ``approve`` is asked with the command when the rule is ``ask``. In the sandbox, ``network`` lets
    scripts reach the network; ``hidden`` and ``read_only`` name paths besides the usual ones.
    ``reason`` says why the rule is ``deny`` and what to do about it.
    """

    rule: Rule
    approve: Callable[[str], bool] | None = None
    network: bool = False
    hidden: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    reason: str = f"the policy for scripts is deny; {_HOW}"

    def __post_init__(self) -> None:
        if self.rule == "ask" and self.approve is None:
            raise ValueError("the policy ask needs somebody to ask (approve)")

    def wrap(self, argv: Sequence[str], command: str, by: Author, places: Places) -> list[str]:
        """The argv that runs ``argv`` as the rule says. Raises Refused when it says no."""
        if by == "person" or self.rule == "allow":
            return list(argv)
        if self.rule == "deny":
            raise Refused(f"not run: {self.reason}")
        if self.rule == "ask":
            if self.approve is None or not self.approve(command):
                raise Refused("not run: the person said no to this script")
            return list(argv)
        if shutil.which("bwrap") is None:
            raise Refused(f"not run: bubblewrap (bwrap) is not installed; {_HOW}")
        return [*self._walls(places), "--", *argv]

    def _walls(self, places: Places) -> list[str]:
        walls = _base(self.network)
        walls += ["--bind", *_twice(places.work), "--bind-try", *_twice(places.tasks)]
        for path in self.read_only:
            walls += ["--ro-bind-try", *_twice(path)]
        for path in (places.private, *(places.home / name for name in _SECRETS), *self.hidden):
            real = os.path.realpath(path)  # a mount point may not be a symbolic link
            if os.path.isdir(real):
                walls += ["--tmpfs", real]
            elif os.path.exists(real):
                walls += ["--ro-bind", "/dev/null", real]
        return [*walls, "--chdir", os.path.realpath(places.work)]


def default_policy(interactive: bool, approve: Callable[[str], bool] | None = None) -> Policy:
    """``sandbox`` where bubblewrap works, else ``ask`` at a terminal, else ``deny``."""
    problem = sandbox_problem()
    if not problem:
        return Policy("sandbox")
    if interactive and approve is not None:
        return Policy("ask", approve)
    return Policy("deny", reason=f"{problem}, and nobody is here to ask; {_HOW}")


def sandbox_problem() -> str:
    """Why scripts cannot be sandboxed here, found by trying; empty when they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    try:
        trial = [*_base(network=False), "--", "true"]
        result = subprocess.run(trial, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return "bubblewrap does not answer here"
    return f"bubblewrap does not work here ({result.stderr.strip()})" if result.returncode else ""


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a script gets to see; a secret is in none of them."""
    allowed = {
        name: value
        for name, value in environment.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    return {"PATH": os.defpath, **allowed, "TERM": "dumb"}


def _twice(path: Path) -> tuple[str, str]:
    real = os.path.realpath(path)
    return real, real


def _base(network: bool) -> list[str]:
    """All of the machine read-only, apart from its processes, its network and its sockets.

    Not tied to the life of its parent: what a script leaves running lives on in its sandbox, as
    it would outside, and the runner ends it.
    """
    walls = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in _KERNEL:
        walls += ["--ro-bind-try", path, path]
    walls += ["--tmpfs", "/tmp", "--tmpfs", "/run", "--unsetenv", "TMPDIR"]
    walls += ["--unsetenv", "XDG_RUNTIME_DIR", "--cap-drop", "ALL"]
    walls += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not network:
        return [*walls, "--unshare-net"]
    names = os.path.realpath("/etc/resolv.conf")  # often below /run
    return [*walls, "--ro-bind-try", names, names]
