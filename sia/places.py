"""The person's files as skills see them: folders named in words, kinds, names and sizes shown."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

KINDS = {
    "Pictures": "jpg jpeg png gif webp heic heif bmp tif tiff svg raw cr2 nef dng avif",
    "Documents": "pdf doc docx odt rtf txt md tex epub mobi pages djvu ps",
    "Tables": "xls xlsx ods csv tsv numbers",
    "Slides": "ppt pptx odp key",
    "Music": "mp3 flac ogg opus m4a wav aac wma aiff mid",
    "Videos": "mp4 mkv mov avi webm m4v mpg mpeg wmv flv",
    "Archives": "zip tar gz tgz bz2 xz zst 7z rar iso",
    "Programs": "deb rpm appimage exe msi dmg apk sh run jar flatpakref",
}
OTHER = "Other"
MOST_TEXT = 1000  # characters of a request that are looked at
_NAMES = {
    "downloads": ("downloads", "download"),
    "desktop": ("desktop", "schreibtisch"),
    "documents": ("documents", "dokumente"),
    "pictures": ("pictures", "bilder", "photos"),
    "music": ("music", "musik"),
    "videos": ("videos",),
}
_PATH = re.compile(r"""(?<!\w)(["'])([~/].*?)\1|(?<![\w.])(~?/[^\s,;!?"']+|~)(?=[\s,;!?]|$)""")
# "in my documents", "tidy the pictures"; but "find my pictures" means files, not a folder.
_PLACED = re.compile(
    r"\b(?:in|from|on|under|im|auf|tidy(?:\s+up)?|sort(?:\s+out)?|organi[sz]e|clean(?:\s+up)?)\s+"
    r"(?:(?:my|the|our|meine[nm]?)\s+)?$",
    re.IGNORECASE,
)
_UNSEEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")  # they reorder what is read


@dataclass(frozen=True)
class Place:
    folder: Path
    span: tuple[int, int]  # where it was named in the text


def kind_of(name: str) -> str:
    """The kind a file name's ending stands for, one of KINDS or OTHER."""
    ending = os.path.splitext(name)[1].lstrip(".").lower()
    return next((kind for kind, endings in KINDS.items() if ending in endings.split()), OTHER)


def named_folder(text: str, files: Path) -> Place | None:
    """The folder that ``text`` names: a path (it may not exist), or one in ``files`` by name."""
    text = text[:MOST_TEXT]
    path = _PATH.search(text)
    if path:
        return Place(Path(path[2] or path[3].rstrip(".")).expanduser(), path.span())
    for match in re.finditer(r"\w[\w-]*", text):
        said = match[0].casefold()
        names = next((names for names in _NAMES.values() if said in names), ())
        before = _PLACED.search(text[: match.start()])
        folder_word = re.match(r"\s+(?:folder|directory|ordner)\b", text[match.end() :])
        if not folder_word and not (names and before):
            continue
        end = match.end() + (folder_word.end() if folder_word else 0)
        for folder in _children(files):
            if folder.name.casefold() in (names or (said,)):
                return Place(folder, (match.start(), end))
    return None


def _children(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(Path(e.path) for e in entries if e.is_dir() and not e.name.startswith("."))


def shown(name: str) -> str:
    """A file name for the screen: bytes that are no UTF-8 and control characters as U+FFFD."""
    text = _UNSEEN.sub("\ufffd", os.fsencode(name).decode("utf-8", "replace"))
    odd = ("Cc", "Zl", "Zp")
    return "".join("\ufffd" if unicodedata.category(c) in odd else c for c in text)


def size_words(size: float, base: int = 1000) -> str:
    """ "999 bytes", "1.2 MB"; base 1024 for memory."""
    if size < base:
        return f"{size:.0f} byte{'s' * (size != 1)}"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= base
        if size < base or unit == "TB":
            break
    return f"{size:.1f} {unit}"


@dataclass
class Walk:
    """Files below a folder, bounded by time and number; hidden ones and links are passed over."""

    root: Path
    seconds: float = 15.0
    most: int = 500_000
    looked: int = 0
    unreadable: int = 0  # folders
    stopped: str = ""  # why it ended early

    def files(self) -> Iterator[os.DirEntry[str]]:
        folders, end = [str(self.root)], monotonic() + self.seconds
        while folders:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        self.looked += 1
                        if self.looked > self.most:
                            self.stopped = f"after {self.most:,} names"
                        elif monotonic() > end:
                            self.stopped = f"after {self.seconds:g} seconds"
                        if self.stopped:
                            return
                        if entry.name.startswith("."):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        elif entry.is_file(follow_symlinks=False):
                            yield entry
            except OSError:
                self.unreadable += 1
