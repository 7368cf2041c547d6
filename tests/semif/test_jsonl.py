from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from semif.errors import FileError
from semif.jsonl import JsonlRead, append, iter_rows, read, write_whole


def test_appends_and_reads(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append(path, [{"a": 1}, {"b": "é 漢"}])
    append(path, [])
    append(path, [{"c": None}])
    assert read(path).rows == ({"a": 1}, {"b": "é 漢"}, {"c": None})
    assert read(path).problems == ()
    assert path.read_bytes().count(b"\n") == 3 and "漢" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_missing_and_empty_files_hold_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl").rows == ()
    (tmp_path / "empty.jsonl").touch()
    assert read(tmp_path / "empty.jsonl") == read(tmp_path / "none.jsonl")
    append(tmp_path / "empty.jsonl", [{"a": 1}])
    assert read(tmp_path / "empty.jsonl").rows == ({"a": 1},)


@pytest.mark.parametrize("cut", [1, 9, 17])
def test_a_torn_end_is_set_aside_before_the_next_row(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.jsonl"
    torn = b'{"id": 2, "text": "second"}'[:cut]
    path.write_bytes(b'{"id": 1}\n' + torn)
    problems = read(path).problems
    assert [p.line for p in problems] == [2] and f"{cut} bytes lost" in str(problems[0])
    append(path, [{"id": 3}])
    assert read(path).rows == ({"id": 1}, {"id": 3})
    assert read(path).problems == ()
    assert (tmp_path / "log.jsonl.torn-1").read_bytes() == torn
    path.write_bytes(path.read_bytes() + b"{")
    append(path, [{"id": 4}])
    assert (tmp_path / "log.jsonl.torn-2").read_bytes() == b"{"
    assert (tmp_path / "log.jsonl.torn-1").read_bytes() == torn


def test_cut_anywhere_only_what_was_cut_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [b'{"id": 1, "o": {"x": 1}}\n', b'{"id": 2, "text": "\xc3\xa9 {}"}\n']
    whole = b"".join(lines)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        append(path, [{"id": 3}])
        ends = (len(lines[0]) - 1, len(whole) - 1)  # a row is whole when only its newline lacks
        kept = [id_ for id_, end in enumerate(ends, start=1) if cut >= end]
        assert [row["id"] for row in read(path).rows] == [*kept, 3], cut
        assert read(path).problems == ()


def test_a_reader_waits_for_a_writer_and_sees_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append(path, [{"id": 1}])
    with path.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b'{"id"')
        writer.flush()
        seen: list[JsonlRead] = []
        reader = threading.Thread(target=lambda: seen.append(read(path)))
        reader.start()
        reader.join(0.1)
        assert seen == []
        writer.write(b": 2}\n")
        writer.flush()
        fcntl.flock(writer, fcntl.LOCK_UN)
        reader.join()
    assert seen[0].rows == ({"id": 1}, {"id": 2}) and seen[0].problems == ()


def test_a_row_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id": 2}')
    assert read(path).rows == ({"id": 1}, {"id": 2})
    append(path, [{"id": 3}])
    assert read(path).rows == ({"id": 1}, {"id": 2}, {"id": 3})
    assert list(tmp_path.glob("*.torn-*")) == []


def test_a_long_torn_end_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    torn = b'{"text": "' + b"x" * 200_000
    path.write_bytes(b'{"id": 1}\n' + torn)
    append(path, [{"id": 2}])
    assert read(path).rows == ({"id": 1}, {"id": 2})
    assert (tmp_path / "log.jsonl.torn-1").read_bytes() == torn


def test_a_file_of_nuls_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\0" * 5000)
    assert "NUL" in str(read(path).problems[0])
    append(path, [{"id": 1}])
    assert read(path).rows == ({"id": 1},) and read(path).problems == ()


def test_a_row_after_nuls_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'\0\0\0{"id": 1}\n')
    assert read(path).rows == ({"id": 1},)


def test_broken_lines_are_named_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    deep = b"[" * 100_000
    lines = [b'{"id": 1}', b"{oops", b"[1]", b"\xff\xfe{}", b"", b'{"x": NaN}', deep, b'{"id": 2}']
    path.write_bytes(b"\n".join(lines) + b"\n")
    seen: list[int] = []
    rows = list(iter_rows(path, lambda problem: seen.append(problem.line)))
    assert rows == [{"id": 1}, {"id": 2}]
    assert seen == [2, 3, 4, 6, 7]


def test_lone_surrogates_are_escaped(tmp_path: Path) -> None:
    append(tmp_path / "log.jsonl", [{"text": "\ud800 é"}])
    assert read(tmp_path / "log.jsonl").rows == ({"text": "\ud800 é"},)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    full = tmp_path / "full.jsonl"
    full.symlink_to("/dev/full")
    with pytest.raises(FileError, match="No space left on device"):
        append(full, [{"id": 1}])


def test_a_short_write_is_cut_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append(path, [{"id": 1}])
    before = path.read_bytes()
    # A file size limit makes the kernel write a part and say so, as a disk does when it fills up.
    script = f"""
import resource, pathlib
from semif.errors import FileError
from semif.jsonl import append
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 20}, resource.RLIM_INFINITY))
try:
    append(pathlib.Path({str(path)!r}), [{{"text": "x" * 100}}])
except FileError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip().endswith(
        "nothing was written, the disk refused it: only 20 of 113 bytes fitted"
    ), done
    assert path.read_bytes() == before
    append(path, [{"id": 2}])
    assert read(path).rows == ({"id": 1}, {"id": 2})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        append(tmp_path / "gone" / "log.jsonl", [{"id": 1}])
    with pytest.raises(FileError, match="Is a directory"):
        read(tmp_path)


def test_processes_append_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    script = f"""
import sys, pathlib
from semif.jsonl import append
for i in range(40):
    append(pathlib.Path({str(path)!r}), [{{"who": sys.argv[1], "i": i, "pad": "x" * 5000}}])
"""
    runs = [subprocess.Popen([sys.executable, "-c", script, who]) for who in "abc"]
    assert [run.wait() for run in runs] == [0, 0, 0]
    rows = read(path).rows
    assert read(path).problems == () and len(rows) == 120
    for who in "abc":
        assert [row["i"] for row in rows if row["who"] == who] == list(range(40))


def test_write_whole_replaces_or_keeps(tmp_path: Path) -> None:
    path = tmp_path / "current"
    write_whole(path, b"one\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_whole(path, b"two\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_bytes() == b"two\n"
    assert [p.name for p in tmp_path.iterdir()] == ["current"]
    with pytest.raises(FileError):
        write_whole(tmp_path / "gone" / "current", b"x")


def test_a_row_that_waited_for_the_lock_goes_into_the_file_that_replaced_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append(path, [{"n": 1}])
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=append, args=(path, [{"n": 2}]))
        writer.start()
        while not any(f"{os.getpid()} " in line and "->" in line for line in locks()):
            time.sleep(0.01)
        write_whole(path, b'{"n": 0}\n')
    writer.join()
    assert read(path).rows == ({"n": 0}, {"n": 2})


def locks() -> list[str]:
    """The kernel's table; one that waits has an arrow."""
    return Path("/proc/locks").read_text("ascii").splitlines()
