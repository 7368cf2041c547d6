"""Archives of the person's files: written whole, read back, and only then a reason to delete.

A zip or tar.gz is written to a temporary name, synced, and takes its name where nothing has it.
What may be deleted was read back from the archive and compared with the file on disk, byte by byte
(sha256); a file that changed since stays.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from semif.jsonl import sync_folder

MOST_FILES, BLOCK = 20_000, 1 << 20
FORMATS = {"zip": ".zip", "tar.gz": ".tar.gz"}


class ArchiveError(Exception):
    """It could not be packed: one line that says why."""


@dataclass(frozen=True)
class Found:
    """files: paths below the folder, sorted. bytes: of them. links: not followed. odd: neither
    files nor links (devices, sockets). unreadable: folders and files."""

    files: tuple[str, ...]
    bytes: int
    links: tuple[str, ...] = ()
    odd: int = 0
    unreadable: int = 0


def find(folder: Path, before: float = float("inf")) -> Found:
    """The files below ``folder``, hidden ones too, last changed before a time (s since 1970).

    Links are never followed. Raises ArchiveError over MOST_FILES.
    """
    files, links, size, odd, unreadable = [], [], 0, 0, 0
    places = [os.fspath(folder)]
    start = len(os.fspath(folder).rstrip("/")) + 1
    while places:
        try:
            entries = list(os.scandir(places.pop()))
        except OSError:
            unreadable += 1
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone since it was listed
            if stat.S_ISDIR(status.st_mode):
                places.append(entry.path)
            elif status.st_mtime >= before:
                continue
            elif stat.S_ISLNK(status.st_mode):
                links.append(entry.path[start:])
            elif not stat.S_ISREG(status.st_mode):
                odd += 1
            elif not os.access(entry.path, os.R_OK):
                unreadable += 1
            else:
                files.append(entry.path[start:])
                size += status.st_size
            if len(files) + len(links) > MOST_FILES:
                raise ArchiveError(f"{folder} holds more than {MOST_FILES:,} files")
    return Found(tuple(sorted(files)), size, tuple(sorted(links)), odd, unreadable)


def pack(
    folder: Path, target: Path, kind: str, files: Iterable[str], links: Iterable[str] = ()
) -> dict[str, str]:
    """Write the archive; the sha256 of each file as it was packed, by its path below ``folder``.

    Files lie in it under the folder's own name. kind: of FORMATS. links: packed as links, in a
    tar.gz. A file that is gone or cannot be read is left out. Raises ArchiveError; the target is
    then not there.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        with suppress(FileNotFoundError):
            part.unlink()  # what a cut left
        with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as out:
            write = _zipped if kind == "zip" else _tarred
            sums = write(out, folder, list(files), list(links))
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(part, target)  # never over another file
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            part.rename(target)
        sync_folder(target.parent)
    except FileExistsError:
        raise ArchiveError(f"{target} is there already") from None
    except (OSError, ValueError, zipfile.LargeZipFile, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArchiveError(f"{target} cannot be written: {reason}") from None
    finally:
        with suppress(OSError):
            part.unlink()
    return sums


def verified(folder: Path, target: Path, kind: str) -> dict[str, str]:
    """What is really in the archive: the sha256 of each file, by its path below ``folder``.

    Read back from disk, a block at a time. Raises ArchiveError.
    """
    root = f"{name_in(folder.name)}/"
    sums = {}
    try:
        if kind == "zip":
            with zipfile.ZipFile(target) as archive:
                for item in archive.infolist():
                    with archive.open(item) as packed:  # checks its CRC too
                        sums[item.filename.removeprefix(root)] = _sum(packed)
        else:
            with tarfile.open(target, "r:gz") as archive:
                for member in archive:
                    if member.isreg() and (data := archive.extractfile(member)):
                        sums[name_in(member.name).removeprefix(root)] = _sum(data)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, ValueError) as error:
        raise ArchiveError(f"{target} cannot be read back: {error}") from None
    return sums


def remove(folder: Path, name: str, kept: str | None) -> str:
    """Delete a file that the archive holds as ``kept`` (sha256); "" or why it stays."""
    path = folder / name
    if kept is None:
        return "is not in the archive"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                return "is no longer a file"
            if _sum(file) != kept:
                return "has changed since"
        if not os.path.samestat(before, os.lstat(path)):
            return "has changed since"
        path.unlink()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def remove_empty(folder: Path) -> None:
    """Delete the folders below (and ``folder``) that hold nothing any more."""
    for place, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(place)


def _zipped(out: IO[bytes], folder: Path, files: list[str], links: list[str]) -> dict[str, str]:
    sums = {}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files:
            opened = _opened(folder, name)
            if opened is None:
                continue
            with opened as data:
                # Older than 1980 or later than 2107 a zip cannot say.
                moment = time.localtime(os.fstat(data.fileno()).st_mtime)[:6]
                moment = min(max(moment, (1980, 1, 1, 0, 0, 0)), (2107, 12, 31, 23, 59, 58))
                item = zipfile.ZipInfo(f"{name_in(folder.name)}/{name_in(name)}", moment)
                item.compress_type = zipfile.ZIP_DEFLATED
                item.external_attr = (os.fstat(data.fileno()).st_mode & 0xFFFF) << 16
                with archive.open(item, "w", force_zip64=True) as packed:
                    sums[name_in(name)] = _sum(data, packed.write)
    return sums


def _tarred(out: IO[bytes], folder: Path, files: list[str], links: list[str]) -> dict[str, str]:
    sums = {}
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in links:
            with suppress(FileNotFoundError):
                archive.add(
                    folder / name, f"{name_in(folder.name)}/{name_in(name)}", recursive=False
                )
        for name in files:
            opened = _opened(folder, name)
            if opened is None:
                continue
            with opened as data:
                item = archive.gettarinfo(
                    arcname=f"{name_in(folder.name)}/{name_in(name)}", fileobj=data
                )
                if not item.isreg():  # a second name of a file that is in it already
                    item.type, item.linkname = tarfile.REGTYPE, ""
                    item.size = os.fstat(data.fileno()).st_size
                reader = _Summing(data)
                archive.addfile(item, reader)  # raises where the file is shorter than it was
                sums[name_in(name)] = reader.sum.hexdigest()
    return sums


class _Summing:
    def __init__(self, data: IO[bytes]) -> None:
        self._data, self.sum = data, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._data.read(size)
        self.sum.update(block)
        return block


def _opened(folder: Path, name: str) -> IO[bytes] | None:
    """The file, never through a link that took its place; None where it is gone or closed to us."""
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    data = open(handle, "rb")
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return data
    data.close()
    return None


def _sum(data: IO[bytes], also: Callable[[bytes], object] = lambda block: None) -> str:
    found = hashlib.sha256()
    while block := data.read(BLOCK):
        found.update(block)
        also(block)
    return found.hexdigest()


def name_in(name: str) -> str:
    """A name as it stands in an archive: bytes that are no UTF-8 as %XX, each name another."""
    return "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in name)
