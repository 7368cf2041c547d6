"""Secrets: where they are kept, which source wins, and that redaction knows their very values."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sia import redact, secrets
from sia.errors import ConfigError
from sia.secrets import Secrets
from sia.skills.api import Secret


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What redaction is told here is forgotten afterwards."""
    monkeypatch.setattr(redact, "_known", redact._Known())


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import keyring
    from keyring.backends.fail import Keyring

    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    yield
    keyring.set_keyring(before)


class Held:
    """What a keyring in memory holds."""

    def __init__(self) -> None:
        self.passwords: dict[tuple[str, str], str] = {}
        self.locked = self.forgetful = False


@pytest.fixture
def held() -> Iterator[Held]:
    """The system keyring is one in memory."""
    import keyring
    from keyring.backend import KeyringBackend
    from keyring.errors import KeyringLocked

    held = Held()

    class Memory(KeyringBackend):
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            if held.locked:
                raise KeyringLocked("the collection is locked")
            return held.passwords.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            if not held.forgetful:
                held.passwords[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del held.passwords[service, username]

    before = keyring.get_keyring()
    keyring.set_keyring(Memory())
    yield held
    keyring.set_keyring(before)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".sia").mkdir()
    return tmp_path


def read(home: Path, **settings: Any) -> dict[str, Secret]:
    return secrets.read(home, "email", settings)


def test_the_file_is_for_its_owner_alone(home: Path, no_keyring: None) -> None:
    place = Secrets(home).store("email.password", 'pa"ss ẅord')
    file = home / ".sia" / "secrets.json"
    assert place == str(file) and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read(home) == {"password": Secret('pa"ss ẅord')}
    Secrets(home).store("calendar.password", "other one")
    Secrets(home).store("email.password", "newer one")
    assert read(home)["password"].value == "newer one"
    assert secrets.read(home, "calendar", {})["password"].value == "other one"
    assert secrets.read(home, "cal", {}) == {}


def test_the_keyring_is_taken_where_one_works(home: Path, held: Held) -> None:
    assert Secrets(home).store("email.password", "hunter22") == "the system keyring"
    assert list(held.passwords.values()) == ["hunter22"]
    assert b"hunter22" not in (home / ".sia" / "secrets.json").read_bytes()
    assert read(home) == {"password": Secret("hunter22")}
    assert read(home / "..") == {}  # another home's are not these


def test_a_keyring_that_does_not_give_it_is_said(home: Path, held: Held) -> None:
    Secrets(home).store("email.password", "hunter22")
    held.locked = True
    assert (
        "does not give email.password: the collection is locked" in read(home)["password"].problem
    )
    held.locked = False
    held.passwords.clear()
    assert "run `sia setup email`" in read(home)["password"].problem


def test_a_keyring_that_keeps_nothing_is_none(home: Path, held: Held) -> None:
    held.forgetful = True
    assert Secrets(home).store("email.password", "hunter22").endswith("secrets.json")
    assert read(home) == {"password": Secret("hunter22")}


def test_no_keyring_is_asked_where_nothing_was_stored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keyring

    monkeypatch.setattr(keyring, "get_password", lambda *given: pytest.fail("asked"))
    assert read(home) == {}


def test_variable_then_file_then_what_is_stored(
    home: Path, no_keyring: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Secrets(home).store("email.password", "stored one")
    file = home / "password"
    file.write_text("in a file\n")
    file.chmod(0o600)
    monkeypatch.setenv("MY_MAIL", "in a variable")
    assert read(home, password_file="", password_env="")["password"].value == "stored one"
    assert read(home, password_file="password")["password"].value == "in a file"
    assert read(home, password_file=str(file), password_env="MY_MAIL")["password"] == Secret(
        "in a variable"
    )


def test_a_source_that_is_named_and_empty_is_said(
    home: Path, no_keyring: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Secrets(home).store("email.password", "stored one")
    monkeypatch.delenv("MY_MAIL", raising=False)
    assert read(home, password_env="MY_MAIL")["password"] == Secret(
        problem="the variable MY_MAIL, which email.password_env names, is not set"
    )
    assert "No such file" in read(home, password_file="none")["password"].problem
    file = home / "password"
    file.write_text("x")
    file.chmod(0o644)
    assert "chmod 600" in read(home, password_file="password")["password"].problem
    file.chmod(0o600)
    file.write_text("\n")
    assert "is empty" in read(home, password_file="password")["password"].problem
    file.write_bytes(b"\xff")
    assert "not UTF-8" in read(home, password_file="password")["password"].problem


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "\xff"])
def test_a_damaged_store_is_one_line(home: Path, text: str) -> None:
    file = home / ".sia" / "secrets.json"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="damaged: delete it"):
        read(home)


def test_a_store_that_others_may_read_is_refused(home: Path, no_keyring: None) -> None:
    Secrets(home).store("email.password", "hunter22")
    (home / ".sia" / "secrets.json").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read(home)


def test_no_repr_shows_it() -> None:
    assert "hunter22" not in repr(Secret("hunter22"))


def test_redaction_knows_the_very_value(home: Path, no_keyring: None) -> None:
    value = 'sp ä"c/e+d'
    assert redact.redact(f"it is {value}.") == f"it is {value}."
    Secrets(home).store("email.password", value)
    read(home)
    for form in (
        value,
        json.dumps(value)[1:-1],
        "sp%20%C3%A4%22c%2Fe%2Bd",
        "sp+%C3%A4%22c%2Fe%2Bd",
    ):
        assert redact.redact(f"it is {form}.") == "it is [redacted]."
    assert redact.hide("password: other") == "password: other"
    assert redact.hide_in({"a": [value, 1, None, {value: True}]}) == {
        "a": ["[redacted]", 1, None, {"[redacted]": True}]
    }


def test_the_longer_secret_goes_first_and_a_tiny_one_not_at_all() -> None:
    redact.learn(["abcd", "abcdef", "", "abc"])
    assert redact.redact("abcdef abcd abc") == "[redacted] [redacted] abc"


def test_a_home_without_secrets_loads_no_keyring(home: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sia import secrets\n"
        f"secrets.read(Path({str(home)!r}), 'email', {{}})\n"
        "sys.exit('keyring' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(secrets.__file__).parents[1])}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )
