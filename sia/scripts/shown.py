"""What the context shows of a script's output: text that XML 1.0 can hold, of bounded size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Read = Callable[[int, int], bytes]  # (offset, count) -> that many bytes, fewer at the end

# What XML 1.0 cannot hold.
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # two of them show as one flag
_MARGIN = 1024  # bytes looked at on either side of a cut; a cluster beyond that may be cut
_CHUNK = 65_536  # a multiple of four, so that no flag letter straddles two chunks


@dataclass(frozen=True)
class Output:
    """What the context shows of one stream.

    ``lossy``: ``text`` is not exactly the bytes (U+FFFD was put in, or the middle cut out).
    ``bytes``: size of the whole stream. ``file``: where its exact bytes lie, relative to ``.sia``;
    empty when ``text`` is exact and complete.
    """

    text: str = ""
    lossy: bool = False
    bytes: int = 0
    file: str = ""


def show(read: Read, size: int, keep: int, file: str, rest: str = "all of it is") -> Output:
    """Show a stream of ``size`` bytes that ``read`` gives piece by piece.

    More than ``keep`` bytes are cut to head and tail, never inside a character or a grapheme
    cluster, with a line between them that says how much is left out and that ``rest`` in ``file``.
    """
    if size <= keep:
        data = read(0, size)
        text = _text(data)
        lossy = text.encode() != data
        return Output(text, lossy, size, file if lossy else "")
    head_end, _ = _cuts(read, size, keep // 2)
    _, tail_start = _cuts(read, size, size - (keep - keep // 2))
    head, tail = read(0, head_end), read(tail_start, size - tail_start)
    gap = "" if head.endswith(b"\n") or not head else "\n"
    left_out = f"[... {tail_start - head_end:,} bytes left out; {rest} in {file} ...]"
    return Output(f"{_text(head)}{gap}{left_out}\n{_text(tail)}", True, size, file)


def show_file(path: Path, keep: int, file: str, rest: str = "all of it is") -> Output:
    """Show a file, perhaps still growing, without reading more of it than is shown."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Output()
    try:
        size = os.fstat(handle).st_size
        return show(lambda at, count: os.pread(handle, count, at), size, keep, file, rest)
    finally:
        os.close(handle)


def _text(data: bytes) -> str:
    return ILLEGAL.sub("\ufffd", data.decode("utf-8", "replace"))


def _cuts(read: Read, size: int, at: int) -> tuple[int, int]:
    """The last place at or before ``at`` and the first at or after it where a cut harms nothing."""
    import regex  # only output too long to show whole pays for this import

    start = _flag_start(read, _character_start(read, max(0, at - _MARGIN)))
    end = _character_start(read, min(size, at + _MARGIN))
    # surrogateescape gives each byte that is not UTF-8 a code unit, so that offsets stay exact.
    text = read(start, end - start).decode("utf-8", "surrogateescape")
    before = place = start
    for cluster in regex.finditer(r"\X", text):
        if place >= at:
            break
        before = place
        place += len(cluster.group().encode("utf-8", "surrogateescape"))
    return (place if place == at else before), place


def _character_start(read: Read, at: int) -> int:
    """``at``, or the start of the UTF-8 character that it would cut."""
    first = max(0, at - 3)
    window = read(first, at - first + 4)
    if len(window) < at - first:  # the file has just shrunk
        return at
    for back in range(1, at - first + 1):
        lead = window[at - first - back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            whole = window[at - first - back :][:length]
            try:
                whole.decode()
            except UnicodeDecodeError:
                return at
            return at - back if length > back else at
        if lead < 0x80:
            return at
    return at


def _flag_start(read: Read, at: int) -> int:
    """``at``, or four bytes before it when that splits a flag: only the whole run can tell."""
    letters, place, chunk = 0, at, 64
    while place > 0:
        text = read(max(0, place - chunk), min(chunk, place)).decode("utf-8", "replace")
        run = len(text) - len(text.rstrip(_FLAG_LETTERS))
        letters += run
        place -= 4 * run
        if run < len(text):
            break
        chunk = min(2 * chunk, _CHUNK)
    return at - 4 if letters % 2 else at
