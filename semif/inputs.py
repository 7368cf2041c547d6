"""Rows read from JSONL: each bad line is one error that names file, line, id and field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from semif.errors import DecisionError
from semif.jsonl import parse
from semif.types import named

_T = TypeVar("_T")
_Co = TypeVar("_Co", covariant=True)
Report = Callable[[DecisionError], None]
_END: tuple[str, object] = ("", object())


class Reader(Protocol[_Co]):
    """Makes something of a JSON object; DecisionError, named by `row`, when it is malformed."""

    def __call__(self, value: dict[str, Any], row: str, /) -> _Co: ...


@dataclass(frozen=True)
class Entry(Generic[_T]):
    """What a line holds, and where: "rows.jsonl:3"."""

    where: str
    id: str
    value: _T

    def error(self, error: DecisionError) -> DecisionError:
        """An error about this entry, said of its line too."""
        return DecisionError(named(self.where, {"id": self.id}), error.field, error.message)


def entries(
    lines: Iterable[bytes], file: str, read: Reader[_T], report: Report
) -> Iterator[Entry[_T]]:
    """The good lines, one after the other as they are read; all others go to `report`.

    `file` names the lines in errors. An id may stand once only, or answers could not be told
    apart. Blank lines are passed over.
    """
    first: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = _entry(line, f"{file}:{number}", read)
            if entry.id in first:
                message = f"stands twice, first in line {first[entry.id]}"
                raise DecisionError(named(entry.where, {"id": entry.id}), "id", message)
        except DecisionError as error:
            report(error)
            continue
        first[entry.id] = number
        yield entry


def _entry(line: bytes, where: str, read: Reader[_T]) -> Entry[_T]:
    value = parse(line)
    if isinstance(value, str):
        raise _unreadable(line, where, value)
    _check_numbers(value, where)  # 1e999 is read as infinite
    return Entry(where, str(value.get("id")), read(value, where))


def _unreadable(line: bytes, where: str, why: str) -> DecisionError:
    """The error for a line that is no JSON object; id and field where they can be told."""
    try:
        # Bytes that are no UTF-8 become lone surrogates, which the field is found by.
        value = json.loads(line.decode("utf-8-sig", "surrogateescape"))
        _check_numbers(value, where)
        found = find(value, _is_no_text)
    except DecisionError as error:
        return error
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            why = f"the last line is torn: {why}"
        return DecisionError(where, "row", why)
    return DecisionError(named(where, value), (found and found[0]) or "row", why)


def _check_numbers(value: object, where: str) -> None:
    found = find(value, is_infinite)
    if found is not None:
        raise DecisionError(named(where, value), found[0] or "row", "is NaN or infinite")


def _is_no_text(item: object) -> bool:
    return isinstance(item, str) and any("\udc80" <= c <= "\udcff" for c in item)


def is_infinite(item: object) -> bool:
    """Whether an item is a number that JSON does not have."""
    return isinstance(item, float) and not math.isfinite(item)


def find(value: object, wrong: Callable[[object], bool], at: str = "") -> tuple[str, object] | None:
    """Path, in the form `options[1].id`, and value of the first item that is wrong; None without.

    `at`: the path of the value itself. No recursion, as a value may be nested as deep as JSON is
    read; and no path but of what is wrong, as those of all items could take gigabytes.
    """
    path: list[str] = []  # of the value at hand, by its steps
    inside: list[Iterator[tuple[str, object]]] = [iter([(at, value)])]
    while inside:
        step, item = next(inside[-1], _END)
        if item is _END[1]:
            inside.pop()
            del path[-1:]
        elif wrong(item):
            return "".join([*path, step]).removeprefix("."), item
        elif isinstance(item, dict | list):
            path.append(step)
            inside.append(_parts(item))
    return None


def _parts(value: dict[str, object] | list[object]) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        return ((f".{key}", item) for key, item in value.items())
    return ((f"[{i}]", item) for i, item in enumerate(value))
