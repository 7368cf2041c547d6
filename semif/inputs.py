"""Rows read from JSONL: each bad line is one error that names file, line, id and field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from semif.errors import DecisionError
from semif.jsonl import parse
from semif.types import named

_T = TypeVar("_T")
_Co = TypeVar("_Co", covariant=True)
Report = Callable[[DecisionError], None]


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
        field = _find(value, _is_no_text)
    except DecisionError as error:
        return error
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            why = f"the last line is torn: {why}"
        return DecisionError(where, "row", why)
    return DecisionError(named(where, value), field or "row", why)


def _check_numbers(value: object, where: str) -> None:
    field = _find(value, lambda item: isinstance(item, float) and not math.isfinite(item))
    if field is not None:
        raise DecisionError(named(where, value), field or "row", "is NaN or infinite")


def _is_no_text(item: object) -> bool:
    return isinstance(item, str) and any("\udc80" <= c <= "\udcff" for c in item)


def _find(value: object, wrong: Callable[[object], bool]) -> str | None:
    """Path of an item that is wrong, in the form `options[1].id`; None where none is."""
    left = [("", value)]
    while left:  # no recursion: a row may be nested as deep as JSON is read
        path, item = left.pop()
        if wrong(item):
            return path
        if isinstance(item, Mapping):
            left += [(f"{path}.{key}" if path else str(key), part) for key, part in item.items()]
        elif isinstance(item, list):
            left += [(f"{path}[{i}]", part) for i, part in enumerate(item)]
    return None
