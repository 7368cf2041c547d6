"""What a category of skills needs set up: its ``setup.py`` declares it, here it is found and kept.

``skills/<category>/setup.py`` defines

- ``FIELDS``: a tuple of ``Field``, asked in this order;
- ``test(answers, home)``: yields a line for each thing that works and raises ``NotWorking`` with
  what does not (name not found, refused, TLS, login, folder); writes nothing. answers: the value
  of each field by its key, secrets too. home: the folder of the home, for relative paths.

The section of ``sia.toml`` is named like the category; its keys are declared in ``sia.config``,
secrets are not in it: a skill reads them with ``ctx.secret(key)``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semif.jsonl import write_whole
from sia import config
from sia.errors import Unavailable, UsageError

Answers = Mapping[str, Any]


class NotWorking(Unavailable):
    """The test of a setup failed: one line that says what and where."""


@dataclass(frozen=True)
class Field:
    """One thing to ask for.

    key: of the category's section; of a secret, its name. default: where neither sia.toml nor
    the person says otherwise; may be made of the answers so far, among which ``person.name`` and
    ``person.email`` stand too. when: whether it is asked at all. optional: may be left empty.
    """

    key: str
    question: str
    default: Any | Callable[[Answers], Any] = None  # None: that of sia.config
    options: tuple[str, ...] = ()
    secret: bool = False
    optional: bool = False
    when: Callable[[Answers], bool] = lambda answers: True

    def preset(self, answers: Answers) -> Any:
        return self.default(answers) if callable(self.default) else self.default


@dataclass(frozen=True)
class Setup:
    """What ``skills/<category>/setup.py`` declares."""

    category: str
    fields: tuple[Field, ...]
    test: Callable[[Answers, Path], Iterable[str]]

    def value(self, field: Field, text: str) -> Any:
        """What was typed for a field as a value of its type. Raises ConfigError."""
        text = text.strip() if not field.secret else text
        if not text and not field.optional:
            raise config.ConfigError(f"{field.key} is needed")
        if field.secret:
            return text
        if field.options and text not in field.options:
            raise config.ConfigError(f"{field.key} is one of: {', '.join(field.options)}")
        return config.value(self.category, field.key, text)


def found(roots: Sequence[Path]) -> dict[str, Path]:
    """The ``setup.py`` of each category that has one; a later root wins."""
    files = {}
    for root in roots:
        for file in sorted(root.glob("*/setup.py")):
            files[file.parent.name] = file
    return files


def load(roots: Sequence[Path], category: str) -> Setup:
    """Raises UsageError naming the categories that can be set up."""
    files = found(roots)
    if category not in files:
        known = ", ".join(sorted(files)) or "none"
        raise UsageError(f"there is nothing to set up for {category!r}; there is for: {known}")
    spec = importlib.util.spec_from_file_location(f"sia_setup_{category}", files[category])
    assert spec and spec.loader  # None only for an unknown kind of file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Setup(category, tuple(module.FIELDS), module.test)


def keep(path: Path, section: str, values: Mapping[str, Any]) -> None:
    """Put ``values`` into a section of ``sia.toml``; every other line stays as it is.

    What equals its default is only written over an older value. Raises ConfigError where the file
    would not be good afterwards (it is left alone then), FileError.
    """
    import tomlkit

    config.load(path)  # what was broken before is said as it is there
    document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
    table = document.get(section)
    defaults = config.section(config.Config(), section)
    for key, value in values.items():
        if table is not None and key in table:
            if table[key] != value:
                table[key] = value
        elif value != defaults[key]:
            if table is None:
                document[section] = tomlkit.table()
                table = document[section]
            table[key] = value
    text = tomlkit.dumps(document)
    config.parse(text, path)
    # A link to where the person really keeps it stays one.
    write_whole(path.resolve(), text.encode())
