"""Pairs of a task's input and the text that should come of it: read, checked, told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, TypeVar

from semif import similar
from semif.errors import DecisionError, FileError
from semif.jsonl import parse
from semif.writing.tasks import Prompts, Value, load

# Inputs that share this much of their 5-grams of characters are one and the same.
NEAR = 0.6
_HELD_OUT = 25  # one pair in so many
_T = TypeVar("_T")


@dataclass(frozen=True)
class Pair:
    """What a task is given and what should be written; checked against the task."""

    task: str
    given: Mapping[str, str]
    output: Value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], row: str, prompts: Prompts | None = None) -> Pair:
        """DecisionError naming the row and what is wrong with it."""
        if unknown := value.keys() - {"task", "input", "output"}:
            raise DecisionError(row, sorted(unknown)[0], "is unknown")
        name, given, output = (value.get(key) for key in ("task", "input", "output"))
        if not isinstance(name, str) or not isinstance(given, Mapping):
            raise DecisionError(row, "task", "and input must be a text and an object")
        try:
            task = (prompts or load()).task(name)
            task.body(name, given)
        except DecisionError as error:
            raise DecisionError(row, error.field, str(error)) from error
        if task.keys:
            if not isinstance(output, dict) or set(output) != set(task.keys):
                raise DecisionError(row, "output", f"must be an object with {', '.join(task.keys)}")
        elif not isinstance(output, str):
            raise DecisionError(row, "output", "must be a text")
        assert isinstance(output, dict | str)
        if task.parse(task.text(output)) is None:
            raise DecisionError(row, "output", "is not well formed for the task")
        return cls(name, dict(given), output)

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "input": dict(self.given), "output": self.output}

    @cached_property
    def key(self) -> str:
        """Hash of task and input; decides the side it is on."""
        whole = json.dumps([self.task, dict(self.given)], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()

    @property
    def held_out(self) -> bool:
        return int(self.key[:8], 16) % _HELD_OUT == 0

    @cached_property
    def grams(self) -> frozenset[str]:
        """Those of the input."""
        return similar.grams(" ".join(self.given.values()))


def shipped() -> Path:
    """The pairs that come with the package."""
    return Path(str(files("semif"))) / "data" / "writing" / "pairs.jsonl"


def golden() -> Path:
    """The frozen golden set; nothing in it is trained on."""
    return Path(str(files("semif"))) / "golden" / "writing.jsonl"


def read(path: Path) -> list[Pair]:
    """All pairs of a file. FileError when it cannot be read, DecisionError naming a bad line."""
    pairs, problems = sift([path], Pair.from_json)
    if problems:
        raise problems[0]
    return pairs


def sift(
    paths: Iterable[Path], make: Callable[[Mapping[str, Any], str], _T]
) -> tuple[list[_T], list[DecisionError]]:
    """What `make` gives for the good lines of some files, and what is wrong with the others."""
    pairs: list[_T] = []
    problems: list[DecisionError] = []
    for path in paths:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise FileError(path, f"cannot be read: {error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = f"{path} line {number}"
            value = parse(line)
            try:
                if isinstance(value, str):
                    raise DecisionError(row, "row", value)
                pairs.append(make(value, row))
            except DecisionError as error:
                problems.append(error)
    return pairs, problems


class Lesson(Protocol):
    """What a line of a file teaches."""

    def to_json(self) -> dict[str, Any]: ...


def data_sha256(pairs: Sequence[Lesson]) -> str:
    """Hash of what pairs say, in order."""
    whole = "\n".join(json.dumps(pair.to_json(), sort_keys=True) for pair in pairs)
    return hashlib.sha256(whole.encode()).hexdigest()


def near(one: Pair, other: Pair) -> bool:
    """Whether two inputs are nearly the same: Jaccard of their 5-grams of at least `NEAR`."""
    return one.task == other.task and similar.near(one.grams, other.grams, NEAR)


def near_any(pairs: Iterable[Pair], others: Sequence[Pair]) -> list[Pair]:
    """Those that are near one of the others."""
    return [pair for pair in pairs if any(near(pair, other) for other in others)]


def distinct(pairs: Iterable[Pair], others: Sequence[Pair] = ()) -> tuple[list[Pair], list[Pair]]:
    """(kept, dropped): each pair that is near none kept before it and none of `others`."""
    seen: dict[str, list[Pair]] = {}
    for other in others:
        seen.setdefault(other.task, []).append(other)
    kept: list[Pair] = []
    dropped: list[Pair] = []
    for pair in pairs:
        known = seen.setdefault(pair.task, [])
        if any(near(pair, other) for other in known):
            dropped.append(pair)
        else:
            kept.append(pair)
            known.append(pair)
    return kept, dropped


def spread(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """About `count` of the pairs, evenly from each task."""
    step = max(1, round(len(pairs) / count))
    by_task: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_task.setdefault(pair.task, []).append(pair)
    return [pair for group in by_task.values() for pair in group[::step]]
