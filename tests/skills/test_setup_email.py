"""``sia setup email`` against real servers: asked, tested, said what failed, kept with comments."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pexpect
import pytest

from sia import config
from sia.setup import keep

Start = Callable[..., Any]
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    "LANG": "C.UTF-8",
    "TERM": "xterm",
    "PROMPT_TOOLKIT_NO_CPR": "1",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def servers(mailbox: Any, mail_server: Start, dovecots: ModuleType) -> dict[str, Any]:
    """What the person would answer."""
    smtp = mail_server(login=(mailbox.user, dovecots.PASSWORD))
    return {
        "sender": "robin@example.org", "host": "127.0.0.1", "port": smtp.port, "tls": "none",
        **mailbox.settings,
    }  # fmt: skip


def setup(
    home: Path, *options: str, password: str = "", **answers: Any
) -> subprocess.CompletedProcess[str]:
    given = [word for key, value in answers.items() for word in ("--set", f"{key}={value}")]
    return subprocess.run(
        [sys.executable, "-m", "sia", "--home", str(home), "setup", *options, *given],
        input=password,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **ENVIRONMENT},
    )


def test_with_all_values_given_it_is_tested_and_kept(
    home: Path, servers: dict[str, Any], dovecots: ModuleType, mailbox: Any, letter: Start
) -> None:
    mailbox.deliver(letter())
    (home / "sia.toml").write_text(
        "# mine\n[email]\n# the old one\nport = 25 # five\n\n[queue]\nlimit = 7\n"
    )
    done = setup(home, "email", password=f"{dovecots.PASSWORD}\n", **servers)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[:3] == [
        "sending: 127.0.0.1 takes mail", "reading: 1 in the inbox",
        "copies of what is sent: in Gesendet",
    ]  # fmt: skip
    assert dovecots.PASSWORD not in done.stdout
    text = (home / "sia.toml").read_text()
    for kept in ("# mine\n", "# the old one\n", "# five\n", "[queue]\nlimit = 7\n"):
        assert kept in text
    found = config.load(home / "sia.toml")
    assert {key: getattr(found.email, key) for key in servers} == servers
    assert dovecots.PASSWORD not in text
    secret = home / ".sia" / "secrets.json"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and dovecots.PASSWORD in secret.read_text()
    # Again, with one thing changed: the rest stands, also the password that is not given anew.
    again = setup(home, "email", sender="r.falk@example.org")
    assert (again.returncode, again.stderr) == (0, "")
    assert config.load(home / "sia.toml").email.sender == "r.falk@example.org"
    assert config.load(home / "sia.toml").email.port == servers["port"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"host": "smtp.invalid", "tls": "starttls"}, "no such name is known"),
        ({"port": 1}, "127.0.0.1:1 cannot be reached: Connection refused"),
        ({"tls": "starttls"}, "STARTTLS extension not supported"),
        ({"tls": "tls"}, "no safe connection"),
        ({"imap_host": "imap.invalid", "imap_tls": "tls"}, "no such name is known"),
        ({"imap_port": 1}, "127.0.0.1:1 cannot be reached"),
        ({"imap_tls": "tls"}, "no safe connection"),
        ({"sent": "Keller"}, "has no folder Keller"),
        ({"user": "robin-else"}, "refused user robin-else and the password"),
    ],
)
def test_what_failed_is_said_and_nothing_is_kept(
    home: Path, servers: dict[str, Any], dovecots: ModuleType, wrong: dict[str, Any], said: str
) -> None:
    done = setup(home, "email", password=dovecots.PASSWORD, **{**servers, **wrong})
    assert done.returncode == 69 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (home / "sia.toml").exists() and not (home / ".sia" / "secrets.json").exists()
    assert (
        setup(home, "email", "--untested", password="x" * 9, **{**servers, **wrong}).returncode == 0
    )


def test_without_a_terminal_it_says_what_to_give(home: Path) -> None:
    def refused(*options: str, **given: Any) -> str:
        done = setup(home, *options, **given)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
        return done.stderr

    assert "needs a terminal; without one give its values as --set sender=" in refused("email")
    assert "sender is needed: give it as --set sender=" in refused("email", host="h")
    given = {"sender": "a@b.c", "host": "h"}
    assert "password is needed: give it on standard input" in refused("email", **given)
    assert "host is needed" in refused("email", sender="a@b.c", host=" ")
    assert "write KEY=VALUE with one of: sender, host" in refused("email", hots="h")
    assert "write KEY=VALUE" in refused("email", "--set", "sender")
    assert "others can read it there" in refused("email", "--set", "password=x")
    assert "tls is one of: tls, starttls, none" in refused("email", **given, tls="ssl")
    assert "email.port" in refused("email", **given, port="often")
    assert "there is for: calendar, contacts, driving, email" in refused("emial")
    assert not (home / "sia.toml").exists()


def test_without_a_category_it_lists_them(home: Path) -> None:
    done = setup(home)
    assert done.returncode == 0 and "  sia setup email\n" in done.stdout


def test_a_broken_file_is_left_as_it_is(home: Path) -> None:
    (home / "sia.toml").write_text("[email\n")
    done = setup(home, "email", sender="a@b.c", host="h")
    assert done.returncode == 78 and (home / "sia.toml").read_text() == "[email\n"


def test_a_dialogue(
    home: Path, servers: dict[str, Any], dovecots: ModuleType, mailbox: Any
) -> None:
    (home / "sia.toml").write_text('[person]\nemail = "robin@example.org"\n')
    shell = pexpect.spawn(
        sys.executable, ["-m", "sia", "--home", str(home), "setup", "email"],
        env={**os.environ, **ENVIRONMENT}, timeout=30, encoding="utf-8", dimensions=(50, 200),
    )  # fmt: skip

    def answer(question: str, text: str | None = None) -> None:
        """text: instead of what is proposed."""
        shell.expect(question)
        shell.send("\r" if text is None else f"\x01\x0b{text}\r")

    try:
        answer("Your e-mail address: .*robin@example.org")
        answer("SMTP.*smtp.example.org", "127.0.0.1")
        answer("encryption .*starttls", "ssl")
        shell.expect("tls is one of")
        answer("encryption", "none")
        answer("port: .*25", str(servers["port"]))
        answer("IMAP.*imap.example.org", "127.0.0.1")
        answer("encryption .*tls", "none")
        answer("port: .*143", str(mailbox.port))
        answer("Folder for sent mail")
        answer("User name .*robin@example.org", mailbox.user)
        answer("Password .*:", "a-wrong-password")
        shell.expect("That does not work: 127.0.0.1:.* refused user")
        answer("What now\\? .*again")
        for question in ("address", "SMTP", "encryption", "port", "IMAP", "encryption", "port"):
            answer(question)
        answer("Folder for sent mail")
        answer("User name")
        answer("Password .*:", dovecots.PASSWORD)
        shell.expect("copies of what is sent: in Gesendet")
        shell.expect("The rest is in ")
        shell.expect(pexpect.EOF)
        shell.wait()
        assert shell.exitstatus == 0
        assert dovecots.PASSWORD not in shell.before
    finally:
        shell.close(force=True)
    found = config.load(home / "sia.toml")
    assert found.email.imap_port == mailbox.port and found.email.user == mailbox.user
    assert found.email.sender == "robin@example.org"
    assert dovecots.PASSWORD in (home / ".sia" / "secrets.json").read_text()


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_leaving_a_dialogue_changes_nothing(home: Path, key: str) -> None:
    shell = pexpect.spawn(
        sys.executable, ["-m", "sia", "--home", str(home), "setup", "email"],
        env={**os.environ, **ENVIRONMENT}, timeout=30, encoding="utf-8",
    )  # fmt: skip
    try:
        shell.expect("Your e-mail address")
        shell.send(key)
        shell.expect("Nothing was changed")
        shell.expect(pexpect.EOF)
        shell.wait()
        assert shell.exitstatus == 130 and not (home / "sia.toml").exists()
    finally:
        shell.close(force=True)


def test_keeping_changes_only_what_is_meant(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("[person]\nname = 'Ada' # no\n")
    path = tmp_path / "sia.toml"
    path.symlink_to(real)
    keep(path, "email", {"host": "h", "port": 587, "tls": "starttls"})
    assert path.is_symlink()
    # What equals its default is not written: a better default may come.
    assert real.read_text() == "[person]\nname = 'Ada' # no\n\n[email]\nhost = \"h\"\n"
    keep(path, "email", {"host": "h", "port": 25})
    keep(path, "email", {"host": "h", "port": 587})
    assert real.read_text().endswith('[email]\nhost = "h"\nport = 587\n')
    with pytest.raises(config.ConfigError):
        keep(path, "queue", {"limit": -1})
    assert "limit" not in real.read_text()
