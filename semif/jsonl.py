"""Append-only JSONL files that survive a torn write: locked, synced, read whole.

A row is written with one write under an exclusive lock and synced. What a crash left without a
newline at the end is completed when it is a whole object, else set aside in `<name>.torn-<n>`
before the next row, so that a fragment never spoils its neighbour.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semif.errors import FileError

_BLOCK = 65536


@dataclass(frozen=True)
class Problem:
    """A line that could not be read, and what was lost with it."""

    file: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.message}"


@dataclass(frozen=True)
class JsonlRead:
    """Everything whole in a file, and what was not."""

    rows: tuple[dict[str, Any], ...]
    problems: tuple[Problem, ...]


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows durably: all of them or, when the disk refuses, none (FileError)."""
    data = b"".join(_line(row) for row in rows)
    if not data:
        return
    new = not path.exists()
    fd = _locked(path)
    try:
        size = _mend(fd, path)
        _write_or_cut_back(fd, size, data, path)
        if new:
            sync_folder(path.parent)
    finally:
        os.close(fd)


def _locked(path: Path) -> int:
    """Open for appending, under the lock; anew where the file was replaced meanwhile."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FileError(path, f"cannot be written: {error.strerror}") from error
        fcntl.flock(fd, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def read(path: Path) -> JsonlRead:
    """All whole rows of a file (none when it does not exist) and the problems met."""
    problems: list[Problem] = []
    rows = tuple(iter_rows(path, problems.append))
    return JsonlRead(rows, tuple(problems))


def iter_rows(path: Path, on_problem: Callable[[Problem], None]) -> Iterator[dict[str, Any]]:
    """Stream the whole rows a file has now; each broken line is reported and passed over."""
    return (row for _, row in numbered_rows(path, on_problem))


def numbered_rows(
    path: Path, on_problem: Callable[[Problem], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same, each row with the number of its line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
    with file:
        # What a writer is adding at this moment is not torn: read up to where the last one ended.
        fcntl.flock(file, fcntl.LOCK_SH)
        size = os.fstat(file.fileno()).st_size
        fcntl.flock(file, fcntl.LOCK_UN)
        for number, line in enumerate(file, start=1):
            if size <= 0:
                break
            size -= len(line)
            if not line.strip():
                continue
            row = parse(line)
            if isinstance(row, dict):
                yield number, row
            else:
                on_problem(Problem(path, number, f"{row}; {len(line)} bytes lost"))


def read_backwards(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The whole rows of a file, last first; a broken line is passed over. `most`: bytes of its end
    that are read at the most."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
    with file:
        end = file.seek(0, os.SEEK_END)
        lowest, rest = max(0, end - most) if most is not None else 0, b""
        while end > lowest:
            begin = max(lowest, end - _BLOCK)
            file.seek(begin)
            # The first piece may be half a line: it waits for the block before it.
            rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from _whole(reversed(lines))
            end = begin
        if not lowest:
            yield from _whole([rest])


def _whole(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        row = parse(line) if line.strip() else ""
        if isinstance(row, dict):
            yield row


def parse(line: bytes) -> dict[str, Any] | str:
    """The JSON object of a line, or why there is none."""
    # A crash can leave a run of NULs where a write was lost; a row after them is whole.
    text = line.lstrip(b"\0").strip()
    if not text:
        return "only NUL bytes"
    try:
        # Decoded here: of bytes, json guesses the encoding.
        row = json.loads(text.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error})"
    return row if isinstance(row, dict) else "not a JSON object"


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in the folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file: temp + fsync + rename + folder fsync. One that was there keeps its
    mode; a new one is the owner's alone (0600)."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(fd, path.stat().st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise FileError(path, f"cannot be written: {error.strerror}") from error


def _line(row: Mapping[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=dict)
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: only its escape can be written
        return json.dumps(row, allow_nan=False, default=dict).encode("ascii") + b"\n"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _mend(fd: int, path: Path) -> int:
    """Deal with an end that has no newline; the length to append at."""
    size = os.fstat(fd).st_size
    start = _last_line(fd, size)
    if start == size:
        return size
    fragment = os.pread(fd, size - start, start)
    if isinstance(parse(fragment), dict):
        _write_or_cut_back(fd, size, b"\n", path)
        return size + 1
    _set_aside(path, fragment)
    os.ftruncate(fd, start)
    return start


def _last_line(fd: int, size: int) -> int:
    """Offset after the last newline."""
    end = size
    while end > 0:
        begin = max(0, end - _BLOCK)
        newline = os.pread(fd, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _set_aside(path: Path, fragment: bytes) -> None:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.torn-{number}")
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:
            number += 1
        except OSError as error:
            raise FileError(aside, f"cannot be written: {error.strerror}") from error
    try:
        _write_or_cut_back(fd, 0, fragment, aside)
    except FileError:
        aside.unlink()
        raise
    finally:
        os.close(fd)
    sync_folder(path.parent)


def _write_or_cut_back(fd: int, size: int, data: bytes, path: Path) -> None:
    try:
        written = os.write(fd, data)
        if written == len(data):
            os.fsync(fd)
            return
        reason = f"only {written} of {len(data)} bytes fitted"
    except OSError as error:
        reason = error.strerror or str(error)
    with suppress(OSError):  # the reader copes with a torn end; the first error is the news
        os.ftruncate(fd, size)
        os.fsync(fd)
    raise FileError(path, f"nothing was written, the disk refused it: {reason}")
