from __future__ import annotations

import time

import pytest

from semif.inputs import find, is_infinite

INF = float("inf")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (INF, ""),
        ({"a": INF}, "a"),
        ([1, INF], "[1]"),
        ({"a": [1, {"b": 2}, []], "c": {"d": [[], [3, INF]]}, "e": INF}, "c.d[1][1]"),
        ({"options": [{"id": "x"}, {"id": INF}]}, "options[1].id"),
    ],
)
def test_the_path_of_what_is_wrong(value: object, path: str) -> None:
    assert find(value, is_infinite) == (path, INF)
    assert find(value, is_infinite, "state") == (
        "state" + ("." if path[:1] not in ("", "[") else "") + path,
        INF,
    )


def test_nothing_is_wrong() -> None:
    assert find({"a": [1, "x", None, True, 0.5], "b": {}}, is_infinite) is None


def test_long_names_and_deep_nesting_cost_nothing() -> None:
    deep: object = INF
    for _ in range(10_000):
        deep = [deep]
    started = time.perf_counter()
    found = find({"k" * 500_000: [0] * 100_000, "deep": deep}, is_infinite)
    assert found is not None and found[0] == "deep" + "[0]" * 10_000
    assert time.perf_counter() - started < 10
