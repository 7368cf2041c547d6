"""What SIA itself runs on, watched: its code, its configuration, the pinned revision.

What changed and works is taken up by a restart once the running turn is finished. Code is imported
in a child process first, and a configuration is read first: what is half saved restarts nothing,
and is said once. Skills are read again in place, see ``sia.skills.tree``.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from semif.errors import ModelError
from semif.revision import Registry
from sia import config
from sia.errors import ConfigError

# Milliseconds without a change until one is looked at, and the longest wait for that: an editor's
# save and a `git pull` are one change.
SETTLED, LONGEST = 1000, 30_000
CHECK_SECONDS = 60.0
SMALL = 1 << 20  # bytes: larger files, such as adapters, are not read but known by size and time
PACKAGES = ("sia", "semif")
ENTRY = ("sia.cli.main", "sia.cli.run", "sia.agent")

# root, modules that must import, "--", modules that may lack a package of an extra
CHECK = """
import importlib, importlib.util, sys
root, *names = sys.argv[1:]
sys.path.insert(0, root)
needed = names[: names.index("--")]
for name in names:
    if name.endswith(".__main__"):
        importlib.util.find_spec(name).loader.get_code(name)
    elif name != "--":
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            ours = (error.name or "").partition(".")[0] in ("sia", "semif")
            if ours or name in needed:
                raise
"""


class Watched(Protocol):
    """``look`` gives what SIA starts again with, in words, or "" for nothing new."""

    @property
    def name(self) -> str: ...

    @property
    def roots(self) -> tuple[Path, ...]: ...

    @property
    def recursive(self) -> bool: ...

    def look(self) -> str: ...


def watch(
    watched: Watched,
    stop_event: threading.Event,
    tell: Callable[[str], None],
    on_change: Callable[[str], None],
) -> threading.Thread:
    """Look at the start and whenever something changed, on a thread of its own, until there is
    something new or ``stop_event`` is set. ``tell``: hears why it is not watched any more."""

    def attend() -> None:
        from watchfiles import watch as changes

        try:
            first = True
            for changed in changes(
                *watched.roots,
                stop_event=stop_event,
                step=SETTLED if watched.recursive else 50,
                debounce=LONGEST,
                recursive=watched.recursive,
                yield_on_timeout=True,
                raise_interrupt=False,
            ):
                # The first time without a change too: what came before the watch was up.
                if not changed and not first:
                    continue
                first = False
                if new := watched.look():
                    on_change(new)
                    return
        except (OSError, RuntimeError) as error:
            tell(f"{watched.name} is not watched ({error}); restart SIA to take up changes")

    thread = threading.Thread(target=attend, name=watched.name, daemon=True)
    thread.start()
    return thread


class Pinned:
    """The revision that is pinned; ``id``: the one at work."""

    name, recursive = "the pinned revision", False

    def __init__(self, registry: Registry, id: str) -> None:
        registry.folder.mkdir(parents=True, exist_ok=True)
        self.roots = (registry.folder,)
        self._registry, self._id = registry, id

    def look(self) -> str:
        try:
            id_ = self._registry.current().id
        except ModelError:
            return ""  # half written or damaged: the next start says so
        return f"with revision {id_}" if id_ != self._id else ""


class ConfigFile:
    """``sia.toml`` of a home, as it is when this is made."""

    name, recursive = "sia.toml", False

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self.roots = (path.parent,)
        self._path, self._tell, self._told = path, tell, ""
        self._known = self._read()

    def _read(self) -> config.Config | str:
        """What it says, or what is wrong with it."""
        try:
            return config.load(self._path)
        except ConfigError as error:
            return str(error)

    def look(self) -> str:
        now = self._read()
        if isinstance(now, str):
            if now != self._told:
                self._told = now
                self._tell(f"SIA goes on with the old sia.toml: {now}")
            return ""
        self._told = ""
        return "with the new sia.toml" if now != self._known else ""


class Code:
    """The packages of a checkout, ``roots``, as they are when this is made. ``stop_event``: ends
    a check early. ``needed``: names of the modules that must import."""

    name, recursive = "the code", True

    def __init__(
        self,
        roots: Iterable[Path],
        stop_event: threading.Event,
        tell: Callable[[str], None],
        needed: Callable[[], Sequence[str]],
    ) -> None:
        from watchfiles import DefaultFilter

        self.roots = tuple(roots)
        self._stop_event, self._tell, self._told = stop_event, tell, ""
        self._needed = needed
        self._wanted = DefaultFilter()
        self._began = {path: _stamp(path) for path in self._files()}  # quick, for it delays a start
        self._known: dict[Path, object] = {}

    def look(self) -> str:
        now = self._state()
        if self._began:
            self._known = {
                path: now.get(path) if stamp == _stamp(path) else "another"
                for path, stamp in self._began.items()
            }
            self._began = {}
        changed = {path for path in {*now, *self._known} if now.get(path) != self._known.get(path)}
        if not changed:
            self._told = ""
            return ""
        wrong = self._wrong(changed & now.keys())
        if self._stop_event.is_set() or self._state() != now:
            return ""  # saved again meanwhile: that is looked at next
        if not wrong:
            return "with its new code"
        if wrong != self._told:
            self._told = wrong
            self._tell(f"SIA goes on with its old code, for the new does not work: {wrong}")
        return ""

    def _files(self) -> Iterator[Path]:
        from watchfiles import Change

        for root in self.roots:
            for folder, folders, names in os.walk(root):
                folders[:] = [name for name in folders if name not in self._wanted.ignore_dirs]
                for path in (Path(folder, name) for name in names):
                    if self._wanted(Change.modified, str(path)):
                        yield path

    def _state(self) -> dict[Path, object]:
        """By file, its digest, or size and time of a large one."""
        return {path: _digest(path) for path in self._files()}

    def _wrong(self, changed: Collection[Path]) -> str:
        """Why the code cannot be imported as it is now, or ""."""
        needed = self._needed()
        others = [name for path in sorted(changed) if (name := self._module(path)) not in needed]
        root = str(self.roots[0].parent)
        command = [sys.executable, "-P", "-c", CHECK, root, *needed, "--", *filter(None, others)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace",
        ) as child:  # fmt: skip
            end = time.monotonic() + CHECK_SECONDS
            while True:
                try:
                    _, said = child.communicate(timeout=0.2)
                    return _reason(said, root) if child.returncode else ""
                except subprocess.TimeoutExpired:
                    if self._stop_event.is_set() or time.monotonic() > end:
                        child.kill()
                        return f"importing it takes more than {CHECK_SECONDS:.0f} s"

    def _module(self, path: Path) -> str:
        """The name of the module in a file, or ""."""
        root = next(root for root in self.roots if path.is_relative_to(root))
        parts = list(path.relative_to(root.parent).with_suffix("").parts)
        if path.suffix != ".py" or not all(part.isidentifier() for part in parts):
            return ""
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_roots() -> tuple[Path, ...]:
    """The folders of the packages where they lie in a checkout; none where they are installed."""
    from sia.home import checkout

    root = checkout()
    folders = (root / name for name in PACKAGES if (root / name).is_dir())
    return tuple(folders) if (root / "pyproject.toml").is_file() else ()


def loaded() -> list[str]:
    """The modules of this process that are still there, and those that every start imports."""
    names = [
        name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in PACKAGES
        and (file := getattr(module, "__file__", None))
        and Path(file).exists()
    ]
    return list(dict.fromkeys((*ENTRY, *names)))


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time; (0, 0) of what is gone."""
    with suppress(OSError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    return 0, 0


def _digest(path: Path) -> object:
    stamp = _stamp(path)
    with suppress(OSError):
        return stamp if stamp[0] > SMALL else hashlib.sha256(path.read_bytes()).digest()
    return stamp


def _reason(traceback: str, root: str) -> str:
    """The last place in ``root`` that a traceback names, and the error."""
    lines = [line.strip() for line in traceback.splitlines() if line.strip()]
    places = re.findall(rf'File "{re.escape(root)}/([^"]+)", line (\d+)', traceback)
    where = f"{places[-1][0]}:{places[-1][1]}: " if places else ""
    return where + (lines[-1] if lines else "it ended without a word")
