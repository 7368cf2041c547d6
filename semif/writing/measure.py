"""What a writer is worth on the golden set, beside the same model untuned and a larger one.

Of every task, shares of its rows (chrF: 0..100, of the corpus, by sacrebleu):

- `well_formed`: ended by itself, and of the task's form;
- `kept`: has every fact that the reference took from the input;
- `invented`: says a number, link, date or name that the input lacks;
- `language`: not clearly another one than the input's (of a run, than the request's);
- `passed`: what the live check lets through (well formed, nothing lost or invented, language);
- `kept_of_passed`: of these, `kept`: what a person is shown;
- `success`, `cause`, `agreement` (both): of a judgement, as the reference has it;
- `agreement_of_passed`, `chrf`, `chrf_of_input` (the input itself for a text: copying is no skill).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import msgspec

from semif.errors import INSTALL, ModelError
from semif.writing.facts import broken, fault, in_language, kept, spoken
from semif.writing.pairs import Pair
from semif.writing.tasks import Task, Value, load

Write = Callable[[str, Mapping[str, str]], "Output"]


@dataclass(frozen=True)
class Output:
    """What was written for a pair; `value` None where it is not well formed, `ms` None unknown."""

    text: str
    value: Value | None
    whole: bool = True
    ms: float | None = None


@dataclass(frozen=True)
class Row:
    """A pair with what was written for it, and what is found of that."""

    pair: Pair
    output: Output
    well_formed: bool
    kept: bool
    invented: bool
    language: bool
    passed: bool

    def to_json(self) -> dict[str, Any]:
        found = {
            name: getattr(self, name)
            for name in ("well_formed", "kept", "invented", "language", "passed")
        }
        return {**self.pair.to_json(), "written": self.output.text, **found}


def judge(pair: Pair, output: Output) -> Row:
    """What is found of one output."""
    task, value = load().task(pair.task), output.value
    if value is None:
        return Row(pair, output, False, False, False, False, False)
    said, source = spoken(task, value), _source(pair.given)
    return Row(
        pair=pair,
        output=output,
        well_formed=output.whole,
        kept=kept(spoken(task, pair.output), source, said),
        invented=bool(broken(pair.task, pair.given, value).invented),
        language=in_language(pair.task, pair.given, value),
        passed=not fault(pair.task, pair.given, value, output.whole),
    )


def measure(
    pairs: Sequence[Pair], write: Write, reach: Callable[[int], None] | None = None
) -> tuple[dict[str, Any], list[Row]]:
    """Figures by task, and every row. `reach` hears how many are done."""
    rows = []
    for number, pair in enumerate(pairs, start=1):
        rows.append(judge(pair, write(pair.task, pair.given)))
        if reach is not None:
            reach(number)
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.pair.task, []).append(row)
    return {name: _figures(load().task(name), by_task[name]) for name in sorted(by_task)}, rows


def _figures(task: Task, rows: Sequence[Row]) -> dict[str, Any]:
    passed = [row for row in rows if row.passed]
    figures: dict[str, Any] = {
        "rows": len(rows),
        **{
            name: _share([getattr(row, name) for row in rows])
            for name in ("well_formed", "kept", "invented", "language", "passed")
        },
        "kept_of_passed": _share([row.kept for row in passed]),
    }
    if "success" in task.keys:
        for name in ("success", "cause"):
            figures[name] = _share([_same(row, (name,)) for row in rows])
        figures["agreement"] = _share([_same(row, ("success", "cause")) for row in rows])
        figures["agreement_of_passed"] = _share(
            [_same(row, ("success", "cause")) for row in passed]
        )
    references = [spoken(task, row.pair.output) for row in rows]
    said = ["" if row.output.value is None else spoken(task, row.output.value) for row in rows]
    figures["chrf"] = _chrf(said, references)
    figures["chrf_of_input"] = _chrf([_copy(row.pair) for row in rows], references)
    times = [row.output.ms for row in rows if row.output.ms is not None]
    if times:
        figures["ms_median"] = round(statistics.median(times))
    return figures


def _same(row: Row, keys: Sequence[str]) -> bool:
    value, wanted = row.output.value, row.pair.output
    if not isinstance(value, dict) or not isinstance(wanted, dict):
        return False
    return all(value[key] == wanted[key] for key in keys)


def _copy(pair: Pair) -> str:
    """What code would say without a model: the input's main words."""
    for name in ("facts", "lines", "output", "requests", "request"):
        if name in pair.given:
            return " ".join(pair.given[name].split())
    return _source(pair.given)


def _source(given: Mapping[str, str]) -> str:
    return "\n".join(given.values())


def _share(values: Sequence[bool]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _chrf(said: Sequence[str], references: Sequence[str]) -> float:
    try:
        from sacrebleu.metrics import CHRF
    except ModuleNotFoundError as error:
        raise ModelError.missing(f"sacrebleu is missing; {INSTALL}") from error
    return round(CHRF().corpus_score(list(said), [list(references)]).score, 2)


def bars() -> dict[str, dict[str, float]]:
    """What each task's figures must reach; a figure that is not there does not reach it."""
    data = files("semif").joinpath("writing", "bars.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[str, float]])


def short_of(name: str, figures: Mapping[str, Any]) -> list[str]:
    """The figures of a task that are below its bar, in words; none: the task is proven."""
    wanted = bars().get(name)
    if wanted is None:
        return ["no bar is set"]
    lines = []
    for key, bar in wanted.items():
        value = figures.get(key)
        if value is None or not value >= bar:
            lines.append(f"{key} {value} is below {bar}")
    # A turn is held against what a person stands by, not against its input.
    if name in load().tasks and not figures.get("chrf", 0.0) > figures.get("chrf_of_input", 0.0):
        lines.append("chrf is not above that of the input itself")
    return lines


def proven(figures: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The tasks whose figures reach their bars, sorted."""
    return tuple(sorted(name for name in figures if not short_of(name, figures[name])))


def dumps(rows: Sequence[Row]) -> bytes:
    """The rows as JSON lines."""
    return b"".join(json.dumps(row.to_json(), ensure_ascii=False).encode() + b"\n" for row in rows)
