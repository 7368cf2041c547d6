"""Labelled rows made from the texts that people wrote for the engine, in `data/`.

One line of a file gives a row for each phase that its label speaks about, in the wording of
`data/questions-v1.json`. What a row shows beside its text (which categories, under which
description) is drawn from a generator of its own, seeded by seed, phase and text: a line added
later leaves all other rows as they were.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from semif.errors import DecisionError, FileError
from semif.export import LabelledRow

_T = TypeVar("_T")
# Where no category says that it ships, these many of the first do (the golden set is older).
_FIRST = 6
QUESTIONS = "questions-v1.json"
_FILES = (
    "trees.json",
    "requests.tsv",
    "inputs.tsv",
    "answers.tsv",
    "choices.jsonl",
    "covers.jsonl",
    "same_action.jsonl",
    "predict.jsonl",
    "triage.jsonl",
    "general.jsonl",
)
# Share of the texts for skills that ship which also teach that they ask for something.
_ALSO_REQUESTS = 0.2
# One in ten texts is held out, with all its rows.
_HELD_OUT = 10


class Category(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A category of skills, with other ways to describe it and them.

    `shipped`: SIA comes with it, less the skills `unshipped`; `hidden` until it is set up.
    `fallbacks`: by skill, the leaf `category/skill` that serves where it is not there.
    """

    description: str
    skills: dict[str, str]
    descriptions: tuple[str, ...] = ()
    skill_descriptions: dict[str, tuple[str, ...]] = {}
    fallbacks: dict[str, str] = {}
    shipped: bool = False
    hidden: bool = False
    unshipped: tuple[str, ...] = ()

    def wordings(self) -> tuple[str, ...]:
        return (self.description, *self.descriptions)

    def skill_wordings(self, skill: str) -> tuple[str, ...]:
        return (self.skills[skill], *self.skill_descriptions.get(skill, ()))


class _Wording(msgspec.Struct, frozen=True):
    question: str
    options: dict[str, str]


class _Questions(msgspec.Struct, frozen=True):
    phases: dict[str, _Wording]


class _Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    input: str
    options: dict[str, str]
    answer: str


class _Cover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: str
    skill: str
    answer: str


class _Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a phase whose state is written out."""

    state: dict[str, str]
    answer: str


class _Noul(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="noul"):
    ask: str
    answer: Literal["yes", "no"]


class _OfNamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="choice"):
    ask: str
    options: dict[str, str]
    answer: str


class _Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="score"):
    ask: str
    levels: list[str]
    answer: int


class _General(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: str
    questions: list[_Noul | _OfNamed | _Score]


def shipped_data() -> Path:
    """The folder of texts that comes with the package."""
    return Path(str(files("semif"))) / "data"


def golden_data() -> Path:
    """The folder of the golden set: texts that no training may touch."""
    return Path(str(files("semif"))) / "golden"


def golden() -> list[LabelledRow]:
    """The rows of the golden set, always the same."""
    return build(golden_data(), 0)


def data_sha256(data: Path) -> str:
    """One sha256 over names and contents of all files that rows are made from."""
    digest = hashlib.sha256()
    for name, path in ((QUESTIONS, shipped_data() / QUESTIONS), *((n, data / n) for n in _FILES)):
        digest.update(name.encode() + b"\0" + hashlib.sha256(_read(path)).digest())
    return digest.hexdigest()


def build(data: Path, seed: int) -> list[LabelledRow]:
    """All rows of a data folder; DecisionError names file and line, FileError what is missing."""
    return list(_Builder(data, seed).rows())


def sample(rows: Sequence[LabelledRow], limit: int | None, seed: int) -> list[LabelledRow]:
    """`limit` of the rows, drawn by hash, in their order; a larger limit only adds rows."""
    drawn = sorted(rows, key=lambda row: _hash(f"{seed}:{row.decision.id}"))[:limit]
    ids = {row.decision.id for row in drawn}
    return [row for row in rows if row.decision.id in ids]


# What the main job asks for most gets the most rows; the rest is kept from being forgotten.
_SHARES = {
    "navigate_category": 0.18,
    "navigate_skill": 0.08,
    "contains_request": 0.10,
    "interrupt": 0.10,
    "urgency": 0.08,
    "read_next": 0.13,
    "cover": 0.07,
    "same_action": 0.06,
    "triage": 0.06,
    "noul": 0.05,
    "answers": 0.03,
    "predict": 0.03,
    "choice": 0.02,
    "score": 0.01,
}


def focus(rows: Sequence[LabelledRow], limit: int, seed: int) -> list[LabelledRow]:
    """About `limit` of the rows for a short run, by fixed shares of the phases; a phase that has
    fewer gives all it has."""
    return [
        row
        for phase, share in _SHARES.items()
        for row in sample(
            [r for r in rows if r.decision.phase == phase], round(share * limit), seed
        )
    ]


def apart(
    rows: Sequence[LabelledRow], data: Path, older: Path
) -> tuple[list[LabelledRow], list[LabelledRow]]:
    """(rows of lines that the folder `older` has not, the others), both in their order.

    FileError for a folder that is no data.
    """
    new = set()
    for name in _FILES[1:]:
        known = set(_read(older / name).split(b"\n"))
        lines = enumerate(_read(data / name).split(b"\n"), start=1)
        new |= {f"{name}:{number}" for number, line in lines if line not in known}
    sides: tuple[list[LabelledRow], list[LabelledRow]] = ([], [])
    for row in rows:
        where = row.decision.id.partition(":")[2]
        name, _, number = where.partition(":")
        sides[f"{name}:{number.partition('.')[0]}" not in new].append(row)
    return sides


def split(rows: Sequence[LabelledRow]) -> tuple[list[LabelledRow], list[LabelledRow]]:
    """(training, held out): by a hash of the text, so that a text never changes sides."""
    sides: tuple[list[LabelledRow], list[LabelledRow]] = ([], [])
    for row in rows:
        sides[_hash(normal_text(row.decision.state)) % _HELD_OUT == 0].append(row)
    return sides


def main_text(state: object) -> str:
    """What a row is about, which rows made from one text have in common."""
    if not isinstance(state, Mapping):
        return str(state)
    return str(next((state[key] for key in MAIN if key in state), dict(state)))


def normal_text(state: object) -> str:
    """The same without what is no other text: case, and how much space is between words."""
    return " ".join(main_text(state).casefold().split())


MAIN = ("concern", "input", "request")  # keys of a state under which what it is about stands


class _Builder:
    def __init__(self, data: Path, seed: int) -> None:
        self._data = data
        self._seed = seed
        self._phases = _json(shipped_data() / QUESTIONS, _Questions).phases
        self._tree = _json(data / "trees.json", dict[str, Category])
        said = [name for name, category in self._tree.items() if category.shipped]
        self._grows = bool(said)
        self._shipped = said or list(self._tree)[:_FIRST]

    def rows(self) -> Iterator[LabelledRow]:
        for where, (text, leaf) in self._lines("requests.tsv", 2):
            yield from self._navigate(where, text, leaf)
        for where, fields in self._lines("inputs.tsv", 5):
            yield from self._input(where, *fields)
        for where, (question, text, answer) in self._lines("answers.tsv", 3):
            yield self._fixed(where, "answers", {"question": question, "input": text}, answer)
        for where, choice in self._objects("choices.jsonl", _Choice):
            state = {"input": choice.input}
            yield _row(where, "read_next", state, choice.question, choice.options, choice.answer)
        for where, cover in self._objects("covers.jsonl", _Cover):
            state = {"input": cover.input, "skill": cover.skill}
            yield self._fixed(where, "cover", state, cover.answer)
        for phase in ("same_action", "predict", "triage"):
            for where, given in self._objects(f"{phase}.jsonl", _Given):
                yield self._fixed(where, phase, given.state, given.answer)
        for where, general in self._objects("general.jsonl", _General):
            for number, asked in enumerate(general.questions):
                yield _general(f"{where}.{number}", general.state, asked)

    def _input(
        self, where: str, text: str, process: str, request: str, interrupt: str, urgency: str
    ) -> Iterator[LabelledRow]:
        state = {"current_process": process, "input": text}
        yield self._fixed(where, "contains_request", state, request)
        if interrupt != "-":
            yield self._fixed(where, "interrupt", state, interrupt)
        # What interrupts is not queued: its urgency is read only where it is beyond dispute.
        if request == "yes" and (interrupt != "interrupt" or urgency == "critical"):
            yield self._fixed(where, "urgency", state, urgency)

    def _fixed(self, where: str, phase: str, state: dict[str, str], said: str) -> LabelledRow:
        """A row of a phase whose options are always the same."""
        wording = self._phases[phase]
        return _row(where, phase, state, wording.question, wording.options, said)

    def _navigate(self, where: str, text: str, leaf: str) -> Iterator[LabelledRow]:
        category, _, skill = leaf.partition("/")
        if category not in self._tree or skill not in self._tree[category].skills:
            raise DecisionError(where, "leaf", f"{leaf!r} is not in trees.json")
        for phase, options, said in (
            ("navigate_category", *self._categories(text, category, skill)),
            ("navigate_skill", *self._skills(text, category, skill)),
        ):
            wording = self._phases[phase]
            shown = {**options, **wording.options}
            yield _row(where, phase, {"input": text}, wording.question, shown, said)
        # What a skill does is a request; talk alone may be none.
        if self._grows and category in self._shipped and category != "response":
            if random.Random(f"{self._seed}:request:{text}").random() < _ALSO_REQUESTS:
                state = {"current_process": "none", "input": text}
                yield self._fixed(where, "contains_request", state, "yes")

    def _categories(self, text: str, category: str, skill: str) -> tuple[dict[str, str], str]:
        """Categories to choose from, and the right one of them or `create_category`."""
        draw = random.Random(f"{self._seed}:category:{text}")
        as_shipped = self._as_shipped(text, category)
        if category in as_shipped and draw.random() < 0.7:
            return as_shipped, category
        left_out = draw.random() < 0.15
        if left_out and category not in as_shipped and draw.random() < 0.5:
            shown = as_shipped
        else:
            others = [name for name in self._tree if name != category]
            names = draw.sample(others, min(draw.randint(4, 10) - (not left_out), len(others)))
            names += [] if left_out else [category]
            shown = {name: draw.choice(self._tree[name].wordings()) for name in names}
        if left_out:
            instead = self._tree[category].fallbacks.get(skill, "").partition("/")[0]
            return shown, instead if instead in shown else "create_category"
        return shown, category

    def _as_shipped(self, text: str, category: str) -> dict[str, str]:
        """What SIA comes with, at times with what a person set up or made besides."""
        if not self._grows:
            return {name: self._tree[name].description for name in self._shipped}
        draw = random.Random(f"{self._seed}:shipped:{text}")
        hidden = {name for name in self._shipped if self._tree[name].hidden and name != category}
        names = [name for name in self._shipped if name not in hidden or draw.random() < 0.25]
        made = [name for name in self._tree if name not in self._shipped and name != category]
        names += draw.sample(made, min(draw.choice((0, 0, 0, 1, 3)), len(made)))
        if category not in self._shipped and draw.random() < 0.35:
            names.append(category)
        return {name: self._tree[name].description for name in names}

    def _skills(self, text: str, category: str, skill: str) -> tuple[dict[str, str], str]:
        """Skills of the category to choose from, and the right one or `create_skill`."""
        draw = random.Random(f"{self._seed}:skill:{text}")
        found = self._tree[category]
        if category in self._shipped and draw.random() < 0.7:
            there = {
                name: found.skills[name] for name in found.skills if name not in found.unshipped
            }
            instead = found.fallbacks.get(skill, "").removeprefix(f"{category}/")
            return there, skill if skill in there else instead or "create_skill"
        siblings = [name for name in found.skills if name != skill]
        names = draw.sample(siblings, draw.randint(1, min(5, len(siblings)))) if siblings else []
        left_out = bool(names) and draw.random() < 0.12
        names += [] if left_out else [skill]
        shown = {name: draw.choice(found.skill_wordings(name)) for name in names}
        return shown, "create_skill" if left_out else skill

    def _lines(self, name: str, fields: int) -> Iterator[tuple[str, list[str]]]:
        for where, line in self._text(name):
            parts = [part.strip() for part in line.split("\t")]
            if len(parts) != fields or not all(parts):
                raise DecisionError(where, "line", f"must have {fields} fields between tabs")
            yield where, parts

    def _objects(self, name: str, kind: type[_T]) -> Iterator[tuple[str, _T]]:
        for where, line in self._text(name):
            try:
                yield where, msgspec.json.decode(line, type=kind)
            except msgspec.DecodeError as error:
                raise DecisionError(where, "line", str(error)) from error

    def _text(self, name: str) -> Iterator[tuple[str, str]]:
        try:
            text = _read(self._data / name).decode()
        except UnicodeDecodeError as error:
            raise FileError(self._data / name, f"is not UTF-8: {error}") from error
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"{name}:{number}", line


def _general(where: str, state: str, asked: _Noul | _OfNamed | _Score) -> LabelledRow:
    """A question of any kind about a text, in the form that `semif serve` gives it."""
    if isinstance(asked, _Noul):
        return _row(where, "noul", state, asked.ask, {"yes": "Yes", "no": "No"}, asked.answer)
    if isinstance(asked, _OfNamed):
        return _row(where, "choice", state, asked.ask, asked.options, asked.answer)
    levels = {str(i): level for i, level in enumerate(asked.levels)}
    return _row(where, "score", state, asked.ask, levels, str(asked.answer))


def _row(
    where: str,
    phase: str,
    state: str | Mapping[str, str],
    question: str,
    options: Mapping[str, str],
    said: str,
) -> LabelledRow:
    value = {
        "id": f"{phase}:{where}",
        "phase": phase,
        "state": state if isinstance(state, str) else dict(state),
        "question": question,
        "options": [{"id": id_, "description": text} for id_, text in options.items()],
        "observed_outcome": said,
    }
    return LabelledRow.from_json(value, where)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])


def _json(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(_read(path), type=kind)
    except msgspec.DecodeError as error:
        raise FileError(path, f"is damaged: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
