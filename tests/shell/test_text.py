"""Text on a terminal."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia.shell.text import (
    ansi,
    clean,
    colourless,
    columns,
    paint_for,
    plain,
    shorten,
    width_of,
    wrap,
)


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("a\x1b[31mred\x07", "a␛[31mred␇"),
        ("one\r\ntwo\rthree", "one\ntwo␍three"),
        ("\x00\x7f\x0b", "␀␡␋"),
        ("\x9b2J\x85", "�2J�"),
        ("\u202eevil\u2066", "�evil�"),
        ("torn \ud83d half", "torn � half"),
        ("line\u2028line", "line\nline"),
        ("kept\tand\nkept é 漢 👍🏽", "kept\tand\nkept é 漢 👍🏽"),
    ],
)
def test_clean_shows_what_could_drive_a_terminal(foreign: str, shown: str) -> None:
    assert clean(foreign) == shown


@given(st.text())
def test_clean_text_holds_no_control_character(text: str) -> None:
    kinds = {unicodedata.category(c) for c in clean(text) if c not in "\n\t"}
    assert not kinds & {"Cc", "Cs"}
    clean(text).encode("utf-8")


def test_wrap_breaks_at_words_and_keeps_indents() -> None:
    text = "  - a list item that is long\nand\n\nthe end"
    assert wrap(text, 14) == ["  - a list", "  item that is", "  long", "and", "", "the end"]


def test_wrap_counts_cells_not_characters() -> None:
    assert wrap("漢字漢字 漢字", 8) == ["漢字漢字", "漢字"]
    assert wrap("漢字漢字漢字", 5) == ["漢字", "漢字", "漢字"]


def test_wrap_keeps_columns_that_fit() -> None:
    assert wrap("name   size\nfile   12 kB", 12) == ["name   size", "file   12 kB"]


@given(st.text(st.characters(codec="utf-8")), st.integers(4, 40))
def test_wrap_loses_nothing_and_overflows_nowhere(text: str, width: int) -> None:
    cleaned = clean(text)
    lines = wrap(cleaned, width)
    words = re.sub(r"\s+", "", cleaned)
    assert re.sub(r"\s+", "", "".join(lines)) == words
    assert all(width_of(line) <= width for line in lines)


def test_wrap_of_a_huge_word_is_quick() -> None:
    start = time.perf_counter()
    assert len(wrap("xé" * 250_000, 80)) == 6250
    assert time.perf_counter() - start < 3


def test_shorten_says_that_it_cut() -> None:
    assert shorten("one\ntwo", 20) == "one two"
    assert shorten("a long request indeed", 10) == "a long re…"
    assert shorten("漢字漢字漢字", 6) == "漢字…"


def test_columns_align_by_cells() -> None:
    assert ["".join(row) for row in columns([["漢", "x"], ["abc", "y"]])] == ["漢   x", "abc  y"]


def test_paint_follows_the_environment() -> None:
    assert paint_for({"TERM": "xterm"})("error", "x") == "\x1b[31mx\x1b[0m" == ansi("error", "x")
    assert paint_for({"TERM": "xterm", "NO_COLOR": "1"}) is colourless
    assert colourless("accent", "x") == "x"
    assert colourless("error", "x") == "\x1b[1mx\x1b[0m"
    assert paint_for({"TERM": "dumb"}) is plain
    assert paint_for({}) is plain
