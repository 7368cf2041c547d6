"""A password is set, mail is read and answered by the whole agent: it stands in no file, context,
row, log or environment, whatever the server or the skill says."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sia import redact
from sia.events import Asked
from sia.secrets import Secrets

Start = Callable[..., Any]
LEAKY = """
import os, subprocess

def act(ctx):
    password = ctx.secret("password")
    print("printed", password)
    ctx.state["kept"] = {"deep": [password]}
    ctx.say("said " + password)
    ctx.effect("touch", lambda key: {"result": password})
    ctx.choose("Which " + password + "?", [("a", password), ("b", "two")], {"input": password})
    with open(os.environ["HOME"] + "/environment", "w") as file:
        file.write(str(password in "".join(os.environ.values())))
    raise ValueError("raised " + password)
"""
OTHER = """
def act(ctx):
    ctx.say(ctx.secret("password"))
"""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_known", redact._Known())
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture(scope="session")
def rigs() -> ModuleType:
    path = Path(__file__).parents[1] / "sia" / "rig.py"
    spec = importlib.util.spec_from_file_location("skills_rig", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path: Path, skills: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the shipped e-mail skills, one that spills its secret, and one of another category."""
    folder = tmp_path / "home"
    shutil.copytree(skills / "email", folder / "skills" / "email")
    for category, name, code in (("email", "leaky", LEAKY), ("demo", "other", OTHER)):
        place = folder / "skills" / category / name
        place.mkdir(parents=True)
        (place / "skill.py").write_text(code)
        (place / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Does {name}.\nmetadata:\n  sia-actions: act\n---\n"
        )
    (folder / "skills/demo/CATEGORY.md").write_text("---\nname: demo\ndescription: Demo.\n---\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(elsewhere))
    return folder


def decide(decision: Any) -> str:
    """The first word names the skill."""
    ids = [option.id for option in decision.options]
    text = decision.state["input"] if isinstance(decision.state, dict) else ""
    word = text.split()[0]
    match decision.phase:
        case "contains_request" | "cover" | "answers":
            return "yes" if decision.phase != "answers" else "no"
        case "navigate_category":
            return "demo" if word == "other" else "email"
        case "navigate_skill":
            return next(id for id in ids if id == word)
        case "interrupt":
            return "defer"
        case "urgency":
            return "medium"
    return ids[0]


@pytest.fixture
def agent(rigs: ModuleType, home: Path) -> Iterator[Start]:
    made = []

    def make(**settings: Any) -> Any:
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        (home / "sia.toml").write_text("[email]\n" + "\n".join(lines) + "\n")
        made.append(rigs.Rig(home, decide=decide, yes=True))
        return made[-1]

    yield make
    for rig in made:
        rig.kill()


def holding(home: Path, value: str) -> list[str]:
    """The files of the home that hold it, in any of its forms."""
    forms = {value, json.dumps(value)[1:-1], value.replace("/", "%2F").replace("+", "%2B")}
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted(
        str(path.relative_to(home))
        for path in files
        if any(form.encode() in path.read_bytes() for form in forms)
    )


def test_the_canary(
    agent: Start, home: Path, mailbox: Any, mail_server: Start, dovecots: ModuleType, letter: Start
) -> None:
    password = dovecots.PASSWORD
    (home / ".sia").mkdir()
    Secrets(home).store("email.password", password)
    smtp = mail_server(login=(mailbox.user, password))
    mailbox.deliver(letter("Shall we eat at 8?"))
    rig = agent(
        host="127.0.0.1", port=smtp.port, tls="none", sender="robin@example.org",
        **mailbox.settings,
    )  # fmt: skip
    code = rig.all(
        "read the last mail", "search mails from Anna", "reply to Anna that I will come",
        "leaky thing", "other thing",
    )  # fmt: skip
    assert code == 1  # leaky and other failed, as they should
    text = "\n".join(rig.said)
    assert (
        "Shall we eat at 8?" in text and "Sent to Anna Berg" in text and "said [redacted]" in text
    )
    assert "ValueError: raised [redacted]" in text
    assert len(smtp.messages) == 1
    # Another category gets none.
    assert "No password is stored" in text
    # Where it belongs, and nowhere else.
    assert holding(home, password) == [".sia/secrets.json"]
    assert (Path(os.environ["HOME"]) / "environment").read_text() == "False"
    assert "printed [redacted]" in (home / ".sia/log/skills.log").read_text()


def test_a_variable_reaches_the_skill_and_not_its_environment(
    agent: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_MAIL", "c4nary-in-a-variable")
    rig = agent(host="127.0.0.1", password_env="CANARY_MAIL")
    rig.all("leaky thing")
    assert "said [redacted]" in rig.said
    assert (Path(os.environ["HOME"]) / "environment").read_text() == "False"
    assert holding(home, "c4nary-in-a-variable") == []


def test_a_server_that_repeats_the_password_is_not_believed(agent: Start, home: Path) -> None:
    password = "c4nary/echoed+back"
    (home / ".sia").mkdir()
    Secrets(home).store("email.password", password)
    with _echoing() as port:
        rig = agent(imap_host="127.0.0.1", imap_port=port, imap_tls="none", user="robin")
        assert rig.all("read the last mail") == 1
    [said] = rig.said
    assert "refused user robin and the password: bad LOGIN robin [redacted]" in said
    assert holding(home, password) == [".sia/secrets.json"]


class _echoing:
    """An IMAP server that refuses a login by repeating it."""

    def __enter__(self) -> int:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self.listener.getsockname()[1]

    def _serve(self) -> None:
        with suppress(OSError), self.listener.accept()[0] as client, client.makefile("rb") as lines:
            client.sendall(b"* OK hi\r\n")
            for line in lines:
                tag, command = line.strip().split(b" ", 1)
                if command.startswith(b"CAPABILITY"):
                    client.sendall(b"* CAPABILITY IMAP4rev1\r\n" + tag + b" OK done\r\n")
                elif command.startswith(b"LOGIN"):
                    client.sendall(tag + b" NO bad " + command.replace(b'"', b"") + b"\r\n")
                else:
                    client.sendall(b"* BYE\r\n" + tag + b" OK\r\n")
                    return

    def __exit__(self, *given: object) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)


def test_a_leaf_whose_settings_are_missing_says_what_to_run(agent: Start, home: Path) -> None:
    rig = agent()
    rig.all("read the last mail", "compose a mail")
    assert rig.said == [
        "I cannot do that yet: email/read needs email.imap_host: run `sia setup email`.",
        "I cannot do that yet: email/compose needs email.host: run `sia setup email`.",
    ]
    assert not [event for event in rig.events if isinstance(event, Asked)]
