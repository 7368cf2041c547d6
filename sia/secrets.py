"""Secrets of a home: in the system's keyring, or in a file that only its owner can read.

A secret is named ``SECTION.NAME`` like a key of ``sia.toml`` ("email.password") and comes from the
first of: the environment variable that ``SECTION.NAME_env`` names, the file that
``SECTION.NAME_file`` names, what ``sia setup`` stored. Every value that is read here is known to
redaction from then on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semif.jsonl import write_whole
from sia.errors import ConfigError
from sia.redact import learn
from sia.skills.api import Secret

SERVICE = "sia"
IN_KEYRING = "the system keyring"


@dataclass(frozen=True)
class Secrets:
    """What ``sia setup`` stored for one home. ``folder``: the home."""

    folder: Path

    @property
    def file(self) -> Path:
        """Where each secret lies: by name its value, or null where the keyring holds it."""
        return self.folder / ".sia" / "secrets.json"

    def store(self, name: str, value: str) -> str:
        """Keep a secret; where it lies now, in words. Raises ConfigError, FileError."""
        learn([value])
        held = self._held()
        place = self._into_keyring(name, value)
        held[name] = None if place else value
        if self.file.exists():
            self.file.chmod(0o600)  # whatever somebody made of it
        write_whole(self.file, json.dumps(held, indent=1).encode())
        return place or str(self.file)

    def names(self, section: str) -> Iterator[str]:
        """The names stored for a section, without it."""
        for name in self._held():
            if name.startswith(f"{section}."):
                yield name.removeprefix(f"{section}.")

    def get(self, name: str) -> Secret:
        held = self._held()
        if name not in held:
            return Secret(problem=f"no {name} is stored: run `sia setup {name.split('.')[0]}`")
        value = held[name]
        return _known(value) if value is not None else self._from_keyring(name)

    def _held(self) -> dict[str, str | None]:
        try:
            held = json.loads(self.file.read_bytes())
            if self.file.stat().st_mode & 0o077:
                raise ConfigError(f"others may read {self.file}: chmod 600 it")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self.file}: cannot be read: {error.strerror}") from None
        except ValueError:
            held = None
        if not isinstance(held, dict):
            raise ConfigError(f"{self.file} is damaged: delete it and run `sia setup` again")
        return held

    def _account(self, name: str) -> str:
        return f"{name} of {self.folder}"

    def _into_keyring(self, name: str, value: str) -> str:
        """Where it lies; "" where there is no keyring that works."""
        import keyring
        from keyring.errors import KeyringError

        account = self._account(name)
        try:
            keyring.set_password(SERVICE, account, value)
            # A backend that takes everything and keeps nothing is none.
            return IN_KEYRING if keyring.get_password(SERVICE, account) == value else ""
        except (KeyringError, OSError, RuntimeError):
            return ""

    def _from_keyring(self, name: str) -> Secret:
        import keyring
        from keyring.errors import KeyringError

        section = name.split(".")[0]
        try:
            value = keyring.get_password(SERVICE, self._account(name))
        except (KeyringError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return Secret(problem=f"the system keyring does not give {name}: {reason}")
        if value is None:
            problem = f"{name} is gone from the system keyring: run `sia setup {section}`"
            return Secret(problem=problem)
        return _known(value)


def read(folder: Path, section: str, settings: Mapping[str, Any]) -> dict[str, Secret]:
    """The secrets of a section by name ("password"), with the reason where one has no value.

    folder: the home. settings: the section's values. Raises ConfigError where what is stored is
    damaged or open to others.
    """
    stored = Secrets(folder)
    found = {name: stored.get(f"{section}.{name}") for name in stored.names(section)}
    for kind, get in (("_file", _from_file), ("_env", _from_environment)):  # the last one wins
        for key, source in settings.items():
            if key.endswith(kind) and isinstance(source, str) and source:
                found[key.removesuffix(kind)] = get(folder, f"{section}.{key}", source)
    return found


def _known(value: str) -> Secret:
    learn([value])
    return Secret(value)


def _from_environment(folder: Path, key: str, variable: str) -> Secret:
    value = os.environ.get(variable, "")
    if not value:
        return Secret(problem=f"the variable {variable}, which {key} names, is not set")
    return _known(value)


def _from_file(folder: Path, key: str, path: str) -> Secret:
    file = folder / Path(path).expanduser()
    try:
        if file.stat().st_mode & 0o077:
            return Secret(problem=f"others may read {file}: chmod 600 it")
        value = file.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        return Secret(problem=f"{file}, which {key} names: {reason}")
    return _known(value) if value else Secret(problem=f"{file}, which {key} names, is empty")
