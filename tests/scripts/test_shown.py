"""Bytes as the context shows them: legal in XML, cut where it harms nothing, little read."""

import re
from itertools import accumulate
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from sia.scripts.shown import Output, show, show_file

LEFT_OUT = re.compile(r"\[\.\.\. ([\d,]+) bytes left out; all of it is in FILE \.\.\.\]\n")
FAMILY, FLAG, ACUTE = "👩‍👩‍👧‍👦", "🇩🇪", "e\u0301"


def shown(data: bytes, keep: int) -> Output:
    return show(lambda at, count: data[at : at + count], len(data), keep, "FILE")


def parts(data: bytes, keep: int) -> tuple[str, int, str]:
    """(head, bytes left out, tail) of output that is cut, without the line break put in."""
    output = shown(data, keep)
    assert output.lossy and output.bytes == len(data) and output.file == "FILE"
    head, found, tail = LEFT_OUT.split(output.text)
    left_out = int(found.replace(",", ""))
    put_in = len(head.encode()) + left_out + len(tail.encode()) - len(data)
    assert put_in == 0 or put_in == 1 and head.endswith("\n")
    return head[: len(head) - put_in], left_out, tail


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("plain é 漢 👩‍👧\r\n\ttext \ufffd".encode(), "plain é 漢 👩‍👧\r\n\ttext \ufffd"),
    ],
)
def test_what_is_legal_is_shown_exactly(data: bytes, text: str) -> None:
    assert shown(data, 1000) == Output(text, False, len(data), "")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xf0", "\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        (b"\x1b[31mred\x1b[0m\x00\x0b", "\ufffd[31mred\ufffd[0m\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),  # a lone surrogate, three bytes that are not UTF-8
        ("\ufffe\uffff".encode(), "\ufffd\ufffd"),
        (b"half \xe6\xbc", "half \ufffd"),
    ],
)
def test_what_cannot_be_shown_is_marked_and_kept_in_the_file(data: bytes, text: str) -> None:
    assert shown(data, 1000) == Output(text, True, len(data), "FILE")


@given(st.binary(max_size=300), st.integers(1, 200))
def test_any_bytes_become_text_that_xml_holds(data: bytes, keep: int) -> None:
    output = shown(data, keep)
    element = etree.Element("stdout")
    element.text = output.text  # lxml refuses what XML cannot hold
    assert element.text == output.text
    assert output.bytes == len(data)
    assert output.lossy == (output.text.encode() != data) == bool(output.file)


CLUSTERS = ["a", "\n", "é", ACUTE, "漢", "🎉", FAMILY, "👍🏽", FLAG, "🇫", "\r\n", "각", "क्षि", "नि"]


@given(st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=60), st.data())
def test_a_cut_falls_between_clusters(clusters: list[str], data: st.DataObject) -> None:
    text = "".join(clusters) * data.draw(st.integers(1, 40))
    size = len(text.encode())
    keep = data.draw(st.integers(0, size - 1))
    head, _, tail = parts(text.encode(), keep)
    ends = {0, *accumulate(len(c.encode()) for c in regex.findall(r"\X", text))}
    assert text.startswith(head) and text.endswith(tail)
    assert len(head.encode()) in ends and size - len(tail.encode()) in ends
    assert keep // 2 - 32 <= len(head.encode()) <= keep // 2
    assert len(head.encode()) + len(tail.encode()) <= keep


@pytest.mark.parametrize("unit", ["é", "漢", FAMILY, FLAG, ACUTE], ids=ascii)
def test_two_mebibytes_cut_at_every_offset(unit: str) -> None:
    data = (unit * (2 * 1024 * 1024 // len(unit.encode()))).encode()
    width = len(unit.encode())
    for keep in range(4096, 4096 + 2 * width + 2):
        head, _, tail = parts(data, keep)
        assert head == unit * (keep // 2 // width)
        assert tail == unit * ((keep - keep // 2) // width)


def test_flags_after_an_odd_letter_stay_paired() -> None:
    text = "🇫" + "🇩🇪" * 100_000  # only the start of the run tells that the pairs are 🇫🇩 🇪🇩 ...
    head, _, tail = parts(text.encode(), 4096)
    assert head == "🇫🇩" + "🇪🇩" * 255
    assert tail == "🇪🇩" * 255 + "🇪"


def test_a_cluster_longer_than_the_margin_is_cut_between_characters() -> None:
    text = "a" + "\u0301" * 10_000
    head, _, tail = parts(text.encode(), 8000)
    assert "\ufffd" not in head + tail
    assert 8000 - 2 * 1100 <= len(head.encode()) + len(tail.encode()) <= 8000


def test_the_head_and_the_tail_are_all_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(10**10)
        file.seek(0, 2)
        file.write(b"\nlast\n")
    read = 0

    def count(at: int, count: int) -> bytes:
        nonlocal read
        with path.open("rb") as file:
            file.seek(at)
            data = file.read(count)
        read += len(data)
        return data

    output = show(count, path.stat().st_size, 1000, "FILE")
    assert read < 8000
    assert output.text.startswith("first\n") and output.text.endswith("\nlast\n")
    assert output.bytes == 10**10 + 6
    assert show_file(path, 1000, "FILE") == output


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert show_file(tmp_path / "stdout", 10, "FILE") == Output()
