"""``sia setup CATEGORY``: asks what the skills of a category need, tests it, and keeps it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sia import config, setup
from sia import home as homes
from sia.errors import DONE, INTERRUPTED, ConfigError, UsageError
from sia.home import Home
from sia.secrets import Secrets
from sia.setup import Field, NotWorking, Setup

AGAIN, KEEP, STOP = "again", "keep", "stop"


def run(options: argparse.Namespace, folder: Path) -> int:
    home = homes.open_home(folder)
    if not options.category:
        print("Nothing was named to set up. There is:")
        for category in sorted(setup.found(home.skill_roots)):
            print(f"  sia setup {category}")
        return DONE
    declared = setup.load(home.skill_roots, options.category)
    given = _given(declared, options.set)
    asking = _Asking(home, declared, given)
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _dialogue(asking, options.untested)
    if not given:
        keys = " ".join(f"--set {item.key}=…" for item in declared.fields if not item.secret)
        raise UsageError(
            f"sia setup {declared.category} asks questions and needs a terminal; without one give "
            f"its values as {keys}, and the password on standard input"
        )
    answers = asking.ask(_unattended)
    if not options.untested:
        _test(asking, answers)
    _keep(asking, answers)
    return DONE


def _given(declared: Setup, pairs: Sequence[str]) -> dict[str, Any]:
    fields = {item.key: item for item in declared.fields}
    given = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key not in fields:
            known = ", ".join(key for key, item in fields.items() if not item.secret)
            raise UsageError(f"--set {key}: write KEY=VALUE with one of: {known}")
        if fields[key].secret:
            raise UsageError(f"--set {key}: others can read it there; give it on standard input")
        try:
            given[key] = declared.value(fields[key], text)
        except ConfigError as error:
            raise UsageError(f"--set {error}") from None
    return given


# Asks for one field: (field, default as text, checks what was typed) -> value.
Ask = Callable[[Field, str, Callable[[str], Any]], Any]


@dataclass
class _Asking:
    home: Home
    declared: Setup
    given: dict[str, Any]
    before: dict[str, Any] = field(default_factory=dict)  # answers of the last round

    def ask(self, ask: Ask) -> dict[str, Any]:
        """The value of each field that is wanted, and the rest of the section as it stands."""
        home, section = self.home, self.declared.category
        answers = {f"person.{k}": v for k, v in config.section(home.config, "person").items()}
        answers |= home.settings(section) | self.given
        for item in self.declared.fields:
            if item.key in self.given or not item.when(answers):
                continue
            answers[item.key] = ask(item, self._preset(item, answers), partial(self._value, item))
        self.before = answers
        return answers

    def _preset(self, item: Field, answers: dict[str, Any]) -> str:
        """What an empty answer means, as it would be typed; never a secret."""
        section = self.declared.category
        if item.secret:
            return ""
        if item.key in self.before:
            return _typed(self.before[item.key])
        now = config.section(self.home.config, section)[item.key]
        default = item.preset(answers)
        if default is None or now != config.section(config.Config(), section)[item.key]:
            return _typed(now)
        return _typed(default)

    def _value(self, item: Field, text: str) -> Any:
        if item.secret and not text:
            text = self.before.get(item.key) or self.stored(item)
        return self.declared.value(item, text)

    def stored(self, item: Field) -> str:
        secret = self.home.secrets(self.declared.category).get(item.key)
        return secret.value if secret else ""


def _typed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _unattended(item: Field, preset: str, value: Callable[[str], Any]) -> Any:
    text = sys.stdin.readline().rstrip("\r\n") if item.secret else preset
    try:
        return value(text)
    except ConfigError as error:
        how = "on standard input" if item.secret else f"as --set {item.key}=…"
        raise UsageError(f"{error}: give it {how}") from None


def _dialogue(asking: _Asking, untested: bool) -> int:
    """Ask, test, and ask again until it works or the person wants it otherwise."""
    try:
        while True:
            answers = asking.ask(_attended)
            if untested or _works(asking, answers):
                break
            choice = _choice("What now?", (AGAIN, KEEP, STOP), AGAIN)
            if choice == STOP:
                print("Nothing was changed.")
                return NotWorking.exit_code
            if choice == KEEP:
                break
            asking.given = {}  # what was given may be what is wrong
    except (EOFError, KeyboardInterrupt):
        print("Nothing was changed.")
        return INTERRUPTED
    _keep(asking, answers)
    return DONE


def _attended(item: Field, preset: str, value: Callable[[str], Any]) -> Any:
    from prompt_toolkit import prompt

    options = f" ({' | '.join(item.options)})" if item.options else ""
    while True:
        text = prompt(f"{item.question}{options}: ", default=preset, is_password=item.secret)
        try:
            return value(text)
        except ConfigError as error:
            print(f"  {error}")


def _choice(question: str, options: Sequence[str], default: str) -> str:
    from prompt_toolkit import prompt

    while True:
        text = prompt(f"{question} ({' | '.join(options)}): ", default=default).strip().lower()
        if text in options:
            return text


def _works(asking: _Asking, answers: dict[str, Any]) -> bool:
    try:
        _test(asking, answers)
    except NotWorking as error:
        print(f"  That does not work: {error}")
        return False
    return True


def _test(asking: _Asking, answers: dict[str, Any]) -> None:
    for line in asking.declared.test(answers, asking.home.folder):
        print(f"  {line}", flush=True)


def _keep(asking: _Asking, answers: dict[str, Any]) -> None:
    """The secrets first: what sia.toml then says is usable."""
    home, section = asking.home, asking.declared.category
    settings = home.settings(section)
    wanted = [item for item in asking.declared.fields if item.key in answers]
    for item in (item for item in wanted if item.secret and answers[item.key]):
        key = item.key
        if answers[key] == asking.stored(item):
            continue  # kept where it is: what comes from a variable is not written to the disk
        place = Secrets(home.folder).store(f"{section}.{key}", answers[key])
        print(f"The {key} is kept in {place}.")
        for source in (f"{key}_env", f"{key}_file"):
            if settings.get(source):
                print(f"But {section}.{source} in sia.toml wins over it: delete that line.")
    path = home.folder / "sia.toml"
    setup.keep(path, section, {i.key: answers[i.key] for i in wanted if not i.secret})
    print(f"The rest is in {path}.")
    if homes.locked(home):
        again = home.config.reload.config
        when = "and starts again for it" if again else "at its next start"
        print(f"The agent that is running takes it up {when}.")
