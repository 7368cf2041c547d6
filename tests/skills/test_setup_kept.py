"""What ``sia setup`` writes of a secret that lies elsewhere already: nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from sia.cli import setup as command
from sia.cli.main import main


def test_a_password_from_a_variable_is_not_written_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setenv("MAIL_PASSWORD", "hunter2-in-a-variable")
    (tmp_path / "sia.toml").write_text('[email]\npassword_env = "MAIL_PASSWORD"\n')
    monkeypatch.setattr(command.sys, "stdin", StringIO())
    values = ("sender=robin@example.org", "host=mail.example.org", "imap_host=")
    given = [word for value in values for word in ("--set", value)]
    home = ["--home", str(tmp_path)]
    assert main([*home, "setup", "email", "--untested", *given]) == 0
    assert not (tmp_path / ".sia" / "secrets.json").exists()
    assert "is kept in" not in capsys.readouterr().out
    assert 'host = "mail.example.org"' in (tmp_path / "sia.toml").read_text()
