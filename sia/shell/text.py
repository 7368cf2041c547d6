"""Text on a terminal: foreign characters made harmless, words wrapped by display width, styles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from wcwidth import wcswidth

# (style, text) -> text. Styles: dim, bold, accent, warning, error; "" is normal text.
Paint = Callable[[str, str], str]

TAB = 4
_SGR = {"dim": "2", "bold": "1", "accent": "36", "warning": "33", "error": "31"}
_COLOURLESS = {"warning": "1", "error": "1", "accent": ""}
# Control characters as their pictures; what has none, turns text around or is no text as U+FFFD.
_PICTURES: dict[int, str | None] = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    ord("\n"): "\n",
    ord("\t"): "\t",
    0x7F: "␡",
    **{code: "�" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    0x2028: "\n",
    0x2029: "\n",
}
_HARMFUL = re.compile("[^\n\t -~\u00a0-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"( *)([^ ]+)")


def clean(text: str) -> str:
    """``text`` without anything that could drive a terminal: control characters are shown."""
    text = text.replace("\r\n", "\n")
    if not _HARMFUL.search(text):
        return text
    return _SURROGATE.sub("�", text.translate(_PICTURES))


def width_of(text: str) -> int:
    """Cells that one line of clean text takes."""
    return len(text) if text.isascii() else max(0, wcswidth(text))


def _pieces(text: str, width: int) -> Iterator[str]:
    """``text`` cut wherever ``width`` cells are full; at least one character in each."""
    start, room = 0, width
    for index, character in enumerate(text):
        room -= width_of(character)
        if room < 0 and index > start:
            yield text[start:index]
            start, room = index, width - width_of(character)
    yield text[start:]


def wrap(text: str, width: int) -> list[str]:
    """The lines of clean text, none wider than ``width`` cells; broken at words, and what goes on
    is indented like the line it belongs to."""
    lines: list[str] = []
    for line in text.expandtabs(TAB).split("\n"):
        if width_of(line) <= width:
            lines.append(line)
        else:
            lines += _wrapped(line, width)
    return lines


def _wrapped(line: str, width: int) -> list[str]:
    indent = line[: min(len(line) - len(line.lstrip(" ")), width // 2)]
    room = width - len(indent)
    lines, current, used = [], "", 0
    for gap, word in _WORD.findall(line):
        size = width_of(word)
        if current and used + len(gap) + size <= room:
            current, used = current + gap + word, used + len(gap) + size
            continue
        if current:
            lines.append(indent + current)
        current, used = word, size
        if size > room:
            *whole, current = _pieces(word, room)
            lines += [indent + piece for piece in whole]
            used = width_of(current)
    return [*lines, indent + current]


def shorten(text: str, width: int) -> str:
    """Clean text on one line of at most ``width`` cells, cut with an ellipsis."""
    line = " ".join(text.expandtabs(TAB).split("\n")).strip()
    if width_of(line) <= width:
        return line
    return next(_pieces(line, width - 1)).rstrip() + "…"


def pad(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def plain(style: str, text: str) -> str:
    """The paint of a terminal without any."""
    return text


def ansi(style: str, text: str, codes: Mapping[str, str] = _SGR) -> str:
    code = codes.get(style, "")
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def colourless(style: str, text: str) -> str:
    """Bold and dim alone."""
    return ansi(style, text, {**_SGR, **_COLOURLESS})


def paint_for(environment: Mapping[str, str]) -> Paint:
    """The paint for a terminal: https://no-color.org is honoured, and so is a dumb one."""
    if environment.get("TERM", "") in ("", "dumb"):
        return plain
    return colourless if environment.get("NO_COLOR") else ansi


def columns(rows: Sequence[Sequence[str]], gap: int = 2) -> list[list[str]]:
    """``rows`` with every cell but a row's last padded to its column's width."""
    widths = [max(width_of(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        [pad(cell, widths[i] + gap) if i < len(row) - 1 else cell for i, cell in enumerate(row)]
        for row in rows
    ]
