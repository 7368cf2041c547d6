"""Revisions: what a decider is pinned to, and the folder that holds them.

A revision is `revision.json` with its adapters beside it; its id is the first 12 hex digits of the
file's sha256, so that nothing in it can change unseen.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import msgspec

from semif.errors import FileError, ModelError
from semif.jsonl import sync_folder, write_whole
from semif.llama import sha256_file
from semif.models import Source

Readout = Literal["branches", "letters"]
DECIDE, WRITE = "decide.gguf", "write.gguf"  # the adapters in a revision's folder
_ID = re.compile("[0-9a-f]{12}")
_PROMPTS: dict[str, str] = {"branches": "branches-v1", "letters": "direct-options-v1"}


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model a revision stands on: sha256 of the source file, and the type it is run as."""

    sha256: str
    type: str


class Adapters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """sha256 of `decide.gguf` and `write.gguf`; None where there is none."""

    deciding: str | None = None
    writing: str | None = None


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of revision.json; temperatures, thresholds and none_bias go by phase.

    `prompt_versions`, by phase, are those that differ from `prompt_version`.
    """

    parent: str | None
    base: Base
    adapters: Adapters
    proven: tuple[str, ...]
    readout: Readout
    prompt_version: str
    temperatures: dict[str, float]
    thresholds: dict[str, float]
    none_bias: dict[str, float]
    data_sha256: str | None
    metrics: dict[str, Any]
    prompt_versions: dict[str, str] = {}


@dataclass(frozen=True)
class Revision:
    """A loaded revision. `folder` is None for one made up for an untuned model."""

    id: str
    contents: Contents
    folder: Path | None = None

    @property
    def decide_path(self) -> Path | None:
        """The adapter for decisions."""
        return self.folder / DECIDE if self.folder and self.contents.adapters.deciding else None

    @property
    def write_path(self) -> Path | None:
        """The adapter for writing."""
        return self.folder / WRITE if self.folder and self.contents.adapters.writing else None

    @property
    def proven(self) -> frozenset[str]:
        """Writing tasks for which this revision's generator is good enough."""
        return frozenset(self.contents.proven)

    def temperature(self, phase: str) -> float:
        return self.contents.temperatures.get(phase, 1.0)

    def threshold(self, phase: str) -> float:
        return self.contents.thresholds.get(phase, 0.5)

    def none_bias(self, phase: str) -> float:
        return self.contents.none_bias.get(phase, 0.0)

    def prompt_for(self, phase: str) -> str:
        """The version of the prompt that a phase is read in."""
        return self.contents.prompt_versions.get(phase, self.contents.prompt_version)

    def check_base(self, source: Source) -> None:
        """ModelError 78 when the model is not the one this revision was made for."""
        if source.sha256 != self.contents.base.sha256:
            raise ModelError(
                f"revision {self.id} was made for a model with sha256 "
                f"{self.contents.base.sha256[:12]}…, but {source.path} has {source.sha256[:12]}…; "
                "choose the model it was made for, or another revision"
            )


def load(folder: Path) -> Revision:
    """Read and verify a revision folder; ModelError 69 when missing, 78 when damaged."""
    path = folder / "revision.json"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError.missing(f"no revision in {folder}: {error.strerror}") from error
    try:
        contents = msgspec.json.decode(data, type=Contents)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    if any(not t > 0 for t in contents.temperatures.values()):
        raise ModelError(f"{path} is damaged: a temperature must be above 0")
    revision = Revision(identify(data), contents, folder)
    for adapter, expected in (
        (revision.decide_path, contents.adapters.deciding),
        (revision.write_path, contents.adapters.writing),
    ):
        if adapter is None:
            continue
        if not adapter.is_file():
            raise ModelError(f"revision {revision.id} lacks its adapter {adapter}")
        if sha256_file(adapter) != expected:
            raise ModelError(f"{adapter} is not the adapter that {path} names; it was changed")
    return revision


def identify(data: bytes) -> str:
    """The id of a revision whose revision.json holds these bytes."""
    return hashlib.sha256(data).hexdigest()[:12]


def write(contents: Contents, adapters: Mapping[str, Path | None], out: Path) -> Revision:
    """A new revision in a folder of its own in `out`, named by its id.

    `adapters`: the files to copy, by the names they get; None: there is none. Raises FileError;
    what is left then is no revision.
    """
    data = json.dumps(msgspec.to_builtins(contents), indent=1).encode() + b"\n"
    target = out / identify(data)
    if target.exists():
        return load(target)
    draft = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=".revision-", dir=out))
        for name, adapter in adapters.items():
            if adapter is not None:
                _copy(adapter, draft / name)
        write_whole(draft / "revision.json", data)
        draft.chmod(0o755)
        draft.rename(target)
        sync_folder(out)
    except OSError as error:
        raise FileError(target, f"cannot be written: {error.strerror}") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
    return load(target)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def shipped() -> Path:
    """The folder of the revision that comes with the package."""
    return Path(str(files("semif"))) / "revisions" / "third"


def untuned(source: Source, readout: Readout) -> Revision:
    """The revision of a model as it is, without adapters."""
    contents = Contents(
        parent=None,
        base=Base(source.sha256, source.type),
        adapters=Adapters(),
        proven=(),
        readout=readout,
        prompt_version=_PROMPTS[readout],
        temperatures={},
        thresholds={},
        none_bias={},
        data_sha256=None,
        metrics={},
    )
    return Revision(identify(msgspec.json.encode(contents)), contents)


class Registry:
    """The revisions of a home: folders by id, and `current` and `pending`, one line each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def current(self) -> Revision:
        """The pinned revision; the shipped one while nothing else was ever pinned."""
        id_ = self._line("current")
        return load(shipped()) if id_ is None else self.get(id_)

    def pending(self) -> str | None:
        """Id of a swap that has not proven itself yet."""
        return self._line("pending")

    def get(self, id_: str) -> Revision:
        """A revision of this home by id, or the shipped one; its contents must have that id."""
        folder = self.folder / id_
        if not folder.exists() and load(shipped()).id == id_:
            folder = shipped()
        revision = load(folder)
        if revision.id != id_:
            raise ModelError(
                f"{self.folder / id_ / 'revision.json'} was changed: its id is {revision.id}"
            )
        return revision

    def ids(self) -> tuple[str, ...]:
        """Ids of all revisions in the folder, sorted."""
        if not self.folder.is_dir():
            return ()
        return tuple(sorted(p.name for p in self.folder.iterdir() if _ID.fullmatch(p.name)))

    def add(self, revision: Revision, extra: Mapping[str, bytes]) -> Revision:
        """Put a revision made elsewhere among those of this home, with `extra` files beside it.

        One process at a time: what another has begun is deleted.
        """
        target = self.folder / revision.id
        if revision.folder is None or target.exists():
            return self.get(revision.id)
        for left in self.folder.glob(".revision-*"):  # whoever made it was killed
            shutil.rmtree(left, ignore_errors=True)
        draft = Path(mkdtemp(prefix=".revision-", dir=self.folder))
        try:
            for path in revision.folder.iterdir():
                _copy(path, draft / path.name)
            for name, data in extra.items():
                write_whole(draft / name, data)
            draft.chmod(0o755)
            draft.rename(target)
            sync_folder(self.folder)
        except OSError as error:
            raise FileError(target, f"cannot be written: {error.strerror}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return self.get(revision.id)

    def drop(self, id_: str) -> None:
        """Delete a revision's folder; ModelError for the pinned one and for its parent."""
        current = self.current()
        if id_ in (current.id, current.contents.parent):
            raise ModelError(f"{id_} is pinned, or what a rollback goes to; it stays")
        gone = self.folder / f".gone-{id_}"
        (self.folder / id_).rename(gone)
        shutil.rmtree(gone)

    def swap(self, id_: str) -> None:
        """Pin another revision on trial: it stays pending until `confirm`."""
        self.get(id_)
        # In this order: a crash in between leaves a pending swap, which is undone, never a
        # swap that nobody watches.
        with self._swapping():
            write_whole(self.folder / "pending", f"{id_}\n".encode())
            write_whole(self.folder / "current", f"{id_}\n".encode())

    def undo(self) -> str | None:
        """Undo a swap that was cut off before it pinned anything; the id that it was to pin.

        Else what is pinned would be taken for the one on trial, which never ends its trial.
        """
        with self._swapping():
            id_ = self.pending()
            if id_ is None or id_ == self._line("current"):
                return None
            self.confirm()
            return id_

    @contextmanager
    def _swapping(self) -> Iterator[None]:
        """One process at a time: another must not take a swap under way for one cut off."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def confirm(self) -> None:
        """The pinned revision works: end its trial."""
        (self.folder / "pending").unlink(missing_ok=True)

    def _line(self, name: str) -> str | None:
        path = self.folder / name
        try:
            text = path.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        if not _ID.fullmatch(text):
            raise ModelError(f"{path} names no revision; delete it to use the shipped one")
        return text
