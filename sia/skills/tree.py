"""The tree of skills: loaded from folders, immutable, replaced as a whole when files change."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sia.errors import SiaError
from sia.skills.manifest import (
    MalformedSkill,
    Manifest,
    category_requires,
    parse_category,
    parse_skill,
)

# The watcher looks at its list of changes this often (ms): soon enough for a person who saves a
# file, and next to nothing of a core.
WATCH_STEP, WATCH_DEBOUNCE, WATCH_TIMEOUT = 300, 1600, 3000


class UnknownSkill(SiaError):
    """No skill of that name is in the tree."""


@dataclass(frozen=True)
class Category:
    name: str
    description: str
    folder: Path
    skills: tuple[Manifest, ...] = ()  # by name; none yet, where only CATEGORY.md is there
    requires: tuple[str, ...] = ()  # unmet: hidden, for it is nothing to everyone else


@dataclass(frozen=True)
class Problem:
    """Why the skill or category in ``folder`` is refused, in one line."""

    folder: Path
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Tree:
    categories: tuple[Category, ...] = ()  # by name
    problems: tuple[Problem, ...] = ()

    @property
    def skills(self) -> tuple[Manifest, ...]:
        return tuple(skill for category in self.categories for skill in category.skills)

    def category(self, name: str) -> Category:
        """Raises UnknownSkill."""
        for category in self.categories:
            if category.name == name:
                return category
        raise UnknownSkill(f"there is no category {name!r}; `sia skills` lists them")

    def skill(self, id: str) -> Manifest:
        """The skill named ``category/name``. Raises UnknownSkill."""
        for skill in self.skills:
            if skill.id == id:
                return skill
        raise UnknownSkill(f"there is no skill {id!r}; `sia skills` lists them")

    def offered(self, config_lookup: Callable[[str], Any]) -> Tree:
        """Without the categories that require what is not there."""
        kept = tuple(
            category
            for category in self.categories
            if not any(_unmet(requirement, config_lookup) for requirement in category.requires)
        )
        return self if len(kept) == len(self.categories) else replace(self, categories=kept)

    def available(self, skill: Manifest, config_lookup: Callable[[str], Any]) -> str:
        """Empty when all that the skill requires is there, else what is missing, in one line.

        config_lookup: gives the value of a key such as ``email.host``, None or empty when unset.
        """
        for requirement in skill.requires:
            missing = _unmet(requirement, config_lookup)
            kind, _, name = requirement.partition(":")
            if missing and kind == "config" and self._set_up_by(name.split(".")[0]):
                missing = f"{name}: run `sia setup {name.split('.')[0]}`"
            if missing:
                return f"{skill.id} needs {missing}"
        return ""

    def _set_up_by(self, category: str) -> bool:
        """Whether ``sia setup`` knows the category."""
        folders = {skill.folder.parent for skill in self.skills if skill.category == category}
        return any((folder / "setup.py").is_file() for folder in folders)


def _unmet(requirement: str, config_lookup: Callable[[str], Any]) -> str:
    """What is missing, in words; "" where it is there."""
    kind, _, name = requirement.partition(":")
    if kind == "config":
        section, _, key = name.rpartition(".")
        if config_lookup(name) in (None, "", [], {}):
            return f"{name}: set {key} under [{section}] in sia.toml"
    elif kind == "binary":
        if not shutil.which(name):
            return f"the program {name}: install it"
    elif kind == "socket":
        path = os.path.expanduser(os.path.expandvars(name))
        try:
            there = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            there = False
        if not there:
            return f"the socket {path}: start the service that makes it"
    return ""


@dataclass
class _Found:
    """What a scan of the roots gives, before it is a tree."""

    skills: dict[str, Manifest] = field(default_factory=dict)
    categories: dict[str, Category] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def tree(self) -> Tree:
        by_category: dict[str, list[Manifest]] = {}
        for _, skill in sorted(self.skills.items()):
            by_category.setdefault(skill.category, []).append(skill)
        return Tree(
            tuple(
                replace(category, skills=tuple(by_category.get(category.name, ())))
                for _, category in sorted(self.categories.items())
            ),
            tuple(sorted(self.problems, key=str)),
        )


def load(roots: Sequence[Path]) -> Tree:
    """The skills below roots (``<root>/<category>/<name>/``); a later root wins by name.

    What is broken is left out and named in ``problems``; a root that does not exist is empty.
    """
    return _scan(roots).tree()


def _scan(roots: Sequence[Path]) -> _Found:
    found = _Found()
    folders: dict[str, Path] = {}
    for root in roots:
        for folder in _folders(root, found.problems):
            if (folder / "SKILL.md").is_file():
                message = f"{folder}: a skill lies in a category: move it to CATEGORY/{folder.name}"
                found.problems.append(Problem(folder, message))
                continue
            if _scan_category(folder, found):
                folders[folder.name] = folder
    for name in sorted(folders.keys() - found.categories.keys()):
        if not any(problem.folder == folders[name] for problem in found.problems):
            message = f"{folders[name]}: has no CATEGORY.md with name and description"
            found.problems.append(Problem(folders[name], message))
    return found


def _scan_category(folder: Path, found: _Found) -> bool:
    """Adds the category and its skills to found; True when there is a skill in it."""
    if (folder / "CATEGORY.md").is_file():
        try:
            name, description = parse_category(folder)
            found.categories[name] = Category(
                name, description, folder, requires=category_requires(folder)
            )
        except MalformedSkill as error:
            found.problems.append(Problem(folder, str(error)))
    skills = False
    for place in _folders(folder, found.problems):
        if not (place / "SKILL.md").exists() and not (place / "skill.py").exists():
            continue
        skills = True
        try:
            skill = parse_skill(place)
            found.skills[skill.id] = skill
        except MalformedSkill as error:
            found.problems.append(Problem(place, str(error)))
    return skills


def _folders(root: Path, problems: list[Problem]) -> Iterator[Path]:
    try:
        entries = sorted(root.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(Problem(root, f"{root}: cannot be read: {error.strerror}"))
        return
    for entry in entries:
        if not entry.name.startswith((".", "__")) and entry.is_dir():
            yield entry


class TreeHolder:
    """The present tree, for all threads; a skill that became broken keeps its last good version."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._lock = threading.Lock()
        self._tree = load(self._roots)

    @property
    def tree(self) -> Tree:
        return self._tree

    def reload(self) -> Tree:
        """Reads the folders again; the new tree, equal to the old one when nothing changed."""
        with self._lock:
            found = _scan(self._roots)
            broken = {problem.folder for problem in found.problems}
            for category in self._tree.categories:
                if category.folder in broken:
                    found.categories[category.name] = category
                for skill in category.skills:
                    if skill.folder in broken:
                        found.skills[skill.id] = skill
            self._tree = found.tree()
            return self._tree

    def watch(
        self,
        stop_event: threading.Event,
        on_change: Callable[[Tree, tuple[Problem, ...]], None],
    ) -> threading.Thread:
        """Reloads when files change, on a thread of its own, until stop_event is set.

        on_change: called on that thread with every new tree and its problems. A root that does not
        exist is made, so that a skill can be dropped into it.
        """
        thread = threading.Thread(
            target=self._watch, args=(stop_event, on_change), name="skills", daemon=True
        )
        thread.start()
        return thread

    def _watch(
        self,
        stop_event: threading.Event,
        on_change: Callable[[Tree, tuple[Problem, ...]], None],
    ) -> None:
        from watchfiles import watch

        try:
            for root in self._roots:
                root.mkdir(parents=True, exist_ok=True)
            first = True
            for changes in watch(
                *self._roots,
                stop_event=stop_event,
                step=WATCH_STEP,
                debounce=WATCH_DEBOUNCE,
                rust_timeout=WATCH_TIMEOUT,
                yield_on_timeout=True,
                raise_interrupt=False,
            ):
                # The first time without a change too: what came before the watch was up.
                if changes or first:
                    first = False
                    before = self._tree
                    tree = self.reload()
                    if tree != before:
                        on_change(tree, tree.problems)
        except (OSError, RuntimeError) as error:
            message = f"skills are not reloaded while running ({error}); restart to reload them"
            on_change(self._tree, (*self._tree.problems, Problem(self._roots[-1], message)))
