"""``SKILL.md`` and ``CATEGORY.md`` as values: the Agent Skills format with our ``sia-*`` metadata.

Nothing of a skill is imported here: its ``skill.py`` is only parsed, so that a broken or hostile
one can be looked at safely.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sia.errors import SiaError
from sia.sources import SOURCES

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
REQUIREMENT = re.compile(r"config:\w+(\.\w+)+|(binary|socket):\S+")
MAX_NAME, MAX_DESCRIPTION, MAX_BYTES = 64, 1024, 1_000_000
PLAIN_KEYS = (
    "inputs", "actions", "predict", "interrupted-by", "interrupts", "requires", "degrade", "budget"
)  # fmt: skip
WORDS = {
    "stakes": ("low", "high"),
    "effects": ("none", "local", "outside"),
    "meanwhile": ("queue", "decline"),
    "decision-log": ("on", "off"),
}
# What the run does around the actions.
RESERVED = ("observe", "verify", "halt", "predict", "assess")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class MalformedSkill(SiaError):
    """A skill or category that cannot be used; one line with the file and, where known, line."""

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        at = f"{path}:{line}" if line else f"{path}"
        super().__init__(f"{at}: {message}")
        self.path, self.line = path, line


@dataclass(frozen=True)
class Budget:
    """What one run may take: seconds of work (waiting for the person is free), tokens written for
    it, actions entered (turns, where the generator works it), money. 0: no limit of its own."""

    seconds: float = 60.0
    tokens: int = 2000
    actions: int = 0
    money: float = 0.0


@dataclass(frozen=True)
class Manifest:
    """One skill. ``actions`` are in order, and none for a prompt skill (no ``skill.py``)."""

    name: str
    category: str
    description: str
    body: str  # the instructions
    folder: Path
    inputs: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    predict: str = ""  # the action before which success is predicted; "": the first
    budget: Budget = Budget()
    stakes: str = "low"  # low | high
    interrupted_by: tuple[str, ...] = ()  # the only sources it yields to; none named: all
    brakes: bool = False  # always may interrupt what runs of its category
    declines: bool = False  # what is typed while it runs, and does not interrupt, is declined
    effects: str = "local"  # none | local | outside
    requires: tuple[str, ...] = ()  # config:SECTION.KEY, binary:NAME, socket:PATH
    degrade: str = ""  # the goal when over budget
    decision_log: bool = True  # off: its decisions are not kept
    code: str = ""  # skill.py as it was checked; this is what runs, also when the file is edited
    has_observe: bool = False  # skill.py defines observe
    has_verify: bool = False  # skill.py defines verify
    has_halt: bool = False  # skill.py defines halt

    @property
    def has_code(self) -> bool:
        return bool(self.code)

    @property
    def careful(self) -> bool:
        """A mistake of it is not made good again: the person is asked where success is in doubt."""
        return self.stakes == "high" or self.effects == "outside"

    @property
    def id(self) -> str:
        return f"{self.category}/{self.name}"


def parse_skill(folder: Path) -> Manifest:
    """The skill in ``folder`` (its parent's name is the category). Raises MalformedSkill."""
    path = folder / "SKILL.md"
    head, body = _read(path)
    name, description = _named(path, head, folder.name)
    given = _metadata(path, head)
    words = {key: _word(path, given, key, allowed) for key, allowed in WORDS.items()}
    actions = _list(given, "actions")
    requires = _requires(path, given)
    stakes = words["stakes"] or "low"
    script = folder / "skill.py"
    code = (_text(script) or "\n") if script.is_file() else ""
    functions = _functions(script, code)
    _check_actions(path, actions, functions if code else None)
    return Manifest(
        name=name,
        category=folder.parent.name,
        description=description,
        body=body,
        folder=folder,
        inputs=_list(given, "inputs"),
        actions=actions,
        predict=_predict(path, given, actions),
        budget=_budget(path, given.get("budget", "")),
        stakes=stakes,
        interrupted_by=_sources(path, given) or (("typed",) if stakes == "high" else ()),
        brakes=_brakes(path, given),
        declines=words["meanwhile"] == "decline",
        effects=words["effects"] or "local",
        requires=requires,
        degrade=given.get("degrade", "").strip(),
        decision_log=words["decision-log"] != "off",
        code=code,
        has_observe="observe" in functions,
        has_verify="verify" in functions,
        has_halt="halt" in functions,
    )


def parse_category(folder: Path) -> tuple[str, str]:
    """(name, description) from ``CATEGORY.md``. Raises MalformedSkill."""
    path = folder / "CATEGORY.md"
    head, _ = _read(path)
    return _named(path, head, folder.name)


def category_requires(folder: Path) -> tuple[str, ...]:
    """What ``sia-requires`` of ``CATEGORY.md`` names. Raises MalformedSkill."""
    path = folder / "CATEGORY.md"
    return _requires(path, _metadata(path, _read(path)[0]))


def _requires(path: Path, given: Mapping[str, str]) -> tuple[str, ...]:
    requires = _list(given, "requires")
    for requirement in requires:
        if not REQUIREMENT.fullmatch(requirement):
            allowed = "config:SECTION.KEY, binary:NAME or socket:PATH"
            raise MalformedSkill(path, f"sia-requires: {requirement!r} is not {allowed}")
    return requires


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MalformedSkill(path, f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise MalformedSkill(path, f"is over {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise MalformedSkill(path, "is not UTF-8", line) from None


def _read(path: Path) -> tuple[dict[str, Any], str]:
    text = _text(path)
    parts = re.fullmatch(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n(.*))?", text, re.DOTALL | re.MULTILINE)
    if not parts:
        raise MalformedSkill(path, "must begin with front matter between two lines '---'", 1)
    return _yaml(path, parts[1]), (parts[2] or "").strip()


def _yaml(path: Path, text: str) -> dict[str, Any]:
    import yaml

    try:
        head = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = mark.line + 2 if mark else None  # marks count from 0, after the first ---
        raise MalformedSkill(path, f"front matter is not YAML: {problem}", line) from None
    except (ValueError, RecursionError) as error:  # a date like 2026-13-45, a deep nest
        raise MalformedSkill(path, f"front matter is not YAML: {error}") from None
    if not isinstance(head, dict):
        raise MalformedSkill(path, "front matter must be 'key: value' lines", 2)
    return head


def _named(path: Path, head: Mapping[str, Any], folder: str) -> tuple[str, str]:
    for key in ("name", "description"):
        if not isinstance(head.get(key), str) or not head[key].strip():
            raise MalformedSkill(path, f"{key} is missing or not a text")
    name, description = head["name"], " ".join(head["description"].split())
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise MalformedSkill(path, f"name {name!r} must be a-z, 0-9 and single hyphens, up to 64")
    if name != folder:
        raise MalformedSkill(path, f"name {name!r} must equal its folder {folder!r}")
    if len(description) > MAX_DESCRIPTION:
        raise MalformedSkill(path, f"description is over {MAX_DESCRIPTION} characters")
    return name, description


def _metadata(path: Path, head: Mapping[str, Any]) -> dict[str, str]:
    """The ``sia-*`` values without their prefix; other tools' metadata is left alone."""
    for key in head:
        if isinstance(key, str) and key.startswith("sia-"):
            raise MalformedSkill(path, f"{key} belongs under metadata")
    metadata = head.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise MalformedSkill(path, "metadata must be 'key: value' lines")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise MalformedSkill(path, f'metadata {key} must be a text: write {key}: "{value}"')
    given = {key[4:]: value for key, value in metadata.items() if key.startswith("sia-")}
    for key in given:
        if key not in PLAIN_KEYS and key not in WORDS:
            known = ", ".join(f"sia-{known}" for known in (*PLAIN_KEYS, *WORDS))
            raise MalformedSkill(path, f"unknown sia-{key}; known are {known}")
    return given


def _list(given: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(given.get(key, "").replace(",", " ").split())


def _sources(path: Path, given: Mapping[str, str]) -> tuple[str, ...]:
    names = _list(given, "interrupted-by")
    for name in names:
        if name not in SOURCES:
            known = ", ".join(SOURCES)
            raise MalformedSkill(path, f"sia-interrupted-by: {name!r} is no source; known: {known}")
    return names


def _brakes(path: Path, given: Mapping[str, str]) -> bool:
    """Whether it may always interrupt its category; another's would be for its author to grant."""
    names, own = _list(given, "interrupts"), path.parent.parent.name
    for name in names:
        if name != own:
            raise MalformedSkill(path, f"sia-interrupts: {name!r} is not its own category, {own!r}")
    return bool(names)


def _word(path: Path, given: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    word = given.get(key, "").strip()
    if key in given and word not in allowed:
        raise MalformedSkill(path, f"sia-{key} is {word!r}, must be {' | '.join(allowed)}")
    return word


def _predict(path: Path, given: Mapping[str, str], actions: tuple[str, ...]) -> str:
    action = given.get("predict", "").strip()
    if "predict" in given and action not in actions:
        raise MalformedSkill(path, f"sia-predict: {action!r} is none of sia-actions")
    return action or "".join(actions[:1])


def _budget(path: Path, text: str) -> Budget:
    values: dict[str, float] = {}
    for part in text.split():
        match = re.fullmatch(r"(seconds|tokens|actions|money)=(\d{1,9}(?:\.\d{1,6})?)", part)
        value = float(match[2]) if match else 0.0
        whole = not match or match[1] in ("seconds", "money") or value.is_integer()
        if not match or match[1] in values or value <= 0 or not whole:
            example = "'seconds=60 tokens=2000 actions=20 money=0.05'"
            raise MalformedSkill(path, f"sia-budget: {part!r} is not like {example}")
        values[match[1]] = value
    counts = {key: int(values[key]) for key in ("tokens", "actions") if key in values}
    return Budget(**{**values, **counts})


def _functions(script: Path, code: str) -> dict[str, Function]:
    """Top-level functions of ``skill.py`` by name, by parsing alone."""
    try:
        module = ast.parse(code, str(script))
    except SyntaxError as error:
        raise MalformedSkill(script, f"is not Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:  # NULs, a deep nest
        raise MalformedSkill(script, f"is not Python: {error}") from None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = {node.name: node for node in module.body if isinstance(node, kinds)}
    for name in ("observe", "verify", "halt"):
        if name in functions:
            _check_function(script, functions[name])
    return functions


def _check_actions(
    path: Path,
    actions: tuple[str, ...],
    functions: Mapping[str, Function] | None,
) -> None:
    script = path.parent / "skill.py"
    if functions is None:
        if actions:
            raise MalformedSkill(path, "sia-actions needs a skill.py, there is none")
        return
    if not actions:
        raise MalformedSkill(path, "there is a skill.py: name its functions in sia-actions")
    for action in actions:
        if action in RESERVED or actions.count(action) > 1:
            raise MalformedSkill(path, f"sia-actions: {action!r} may not stand there (again)")
        if action not in functions:
            raise MalformedSkill(script, f"has no function {action!r}, which sia-actions names")
        _check_function(script, functions[action])


def _check_function(script: Path, function: Function) -> None:
    given = function.args
    names = [*given.posonlyargs, *given.args]
    required = len(names) - len(given.defaults)
    takes_one = required <= 1 and (names or given.vararg)
    if given.kw_defaults.count(None) or not takes_one:
        raise MalformedSkill(
            script, f"{function.name} must take one argument, ctx", function.lineno
        )
    if isinstance(function, ast.AsyncFunctionDef):
        raise MalformedSkill(script, f"{function.name} must be a plain def", function.lineno)
