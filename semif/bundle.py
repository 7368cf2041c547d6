"""A bundle: all that another machine needs to train for a home, and the result that comes back.

A bundle is a folder with `bundle.json`, which names the sha256 of every other file, and so is known
by its own. A result names the bundle it came of and the sha256 of each of its files: what was
changed or cut off on the way is found before anything is made of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from semif.errors import FileError, ModelError
from semif.jsonl import write_whole
from semif.llama import sha256_file
from semif.revision import DECIDE, WRITE, Base, Revision

BUNDLE, RESULT, PARENT = "bundle.json", "result.json", "parent"
_NAME = re.compile(r"(?:[a-z0-9][\w-]*/)?[a-z0-9][\w.-]*")  # no way out of the folder
_T = TypeVar("_T", bound="_Sealed")


class Decisions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The adapter for decisions, tuned on SemIf rows (see `semif.train.Plan`)."""

    rows: str
    epochs: int
    layers: int
    rate: float
    seed: int


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The adapter for writing, tuned on pairs and turns (see `semif.writing.train.Plan`)."""

    pairs: str
    epochs: int
    batch: int
    rate: float
    seed: int
    limit: int


class _Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`files`: sha256 by name, relative to the folder."""

    version: Literal[1] = 1
    files: dict[str, str]


class Bundle(_Sealed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be trained; the parent revision lies in the folder `parent`."""

    base: Base
    parent: str
    decisions: Decisions | None = None
    turns: Turns | None = None


class Result(_Sealed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What came of a bundle. `bundle`: sha256 of its bundle.json; `decisions`: the id of the new
    revision, whose folder has that name; `turns`: the adapter's name."""

    bundle: str
    decisions: str | None = None
    turns: str | None = None


def write(
    folder: Path,
    parent: Revision,
    files: Mapping[str, bytes],
    decisions: Decisions | None,
    turns: Turns | None,
) -> None:
    """Make a bundle in a new folder; bundle.json is written last. Raises FileError."""
    assert parent.folder is not None
    try:
        (folder / PARENT).mkdir(parents=True)
        whole = dict(files)
        for name in ("revision.json", DECIDE, WRITE):
            if (path := parent.folder / name).is_file():
                whole[f"{PARENT}/{name}"] = path.read_bytes()
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}") from error
    for name, data in whole.items():
        write_whole(folder / name, data)
    base = parent.contents.base
    hashes = _hashes(folder, whole)
    _put(
        folder / BUNDLE,
        Bundle(files=hashes, base=base, parent=parent.id, decisions=decisions, turns=turns),
    )


def read(folder: Path) -> Bundle:
    """A bundle of which every file is there and as it was made; ModelError naming what is not."""
    return _read(folder, BUNDLE, Bundle, "make it again with sia dream --on, or copy it again")


def write_result(
    out: Path, bundle: Path, names: Iterable[str], decisions: str | None, turns: str | None
) -> Path:
    """Seal what was trained; the path of result.json in `out`."""
    result = Result(
        files=_hashes(out, names), bundle=identify(bundle), decisions=decisions, turns=turns
    )
    _put(out / RESULT, result)
    return out / RESULT


def read_result(out: Path) -> Result:
    """A result of which every file is there and as it was trained; ModelError naming what is
    not."""
    return _read(out, RESULT, Result, "copy it again from where it was trained")


def identify(folder: Path) -> str:
    """sha256 of a bundle, by which its result names it."""
    return sha256_file(folder / BUNDLE)


def _hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: sha256_file(folder / name) for name in sorted(names)}


def _put(path: Path, value: _Sealed) -> None:
    write_whole(path, json.dumps(msgspec.to_builtins(value), indent=1).encode() + b"\n")


def _read(folder: Path, name: str, kind: type[_T], remedy: str) -> _T:
    path = folder / name
    try:
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ModelError.missing(f"there is no {path}: {error.strerror}; {remedy}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is damaged: {error}; {remedy}") from error
    for file, expected in found.files.items():
        if not _NAME.fullmatch(file):
            raise ModelError(f"{path} names {file!r}, which is no file of its folder")
        if not (folder / file).is_file():
            raise ModelError(f"{folder / file} is missing; {remedy}")
        if sha256_file(folder / file) != expected:
            raise ModelError(
                f"{folder / file} was changed or cut off on the way: its sha256 is not the one "
                f"that {path} names; {remedy}"
            )
    return found
