"""The command line: names, exits, and what each prints; no model is loaded here."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sia.cli.main import COMMANDS, parser, with_command


def sia(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sia", "--home", str(home), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ["run"]),
        (["remind", "me"], ["run", "remind", "me"]),
        (["--home", "status", "hello"], ["run", "--home", "status", "hello"]),
        (["--home", "h", "status"], ["--home", "h", "status"]),
        (["--yes", "mail Anna"], ["run", "--yes", "mail Anna"]),
        (["--help"], ["--help"]),
        (["--", "status"], ["run", "--", "status"]),
    ],
)
def test_what_is_no_command_is_a_request(given: list[str], wanted: list[str]) -> None:
    assert with_command(given) == wanted


@pytest.mark.parametrize("command", ["status", "queue", "skills", "context", "history", "config"])
def test_the_commands_that_look_work_on_a_new_home(tmp_path: Path, command: str) -> None:
    words = sia(tmp_path, command)
    assert (words.returncode, words.stderr) == (0, "")
    data = sia(tmp_path, command, "--json")
    json.loads(data.stdout)
    assert data.returncode == 0


def test_config_says_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "sia.toml").write_text('[person]\nname = "Ada"\n')
    rows = {row["key"]: row for row in json.loads(sia(tmp_path, "config", "--json").stdout)}
    assert rows["person.name"] == {"key": "person.name", "value": "Ada", "from": "sia.toml"}
    assert rows["queue.limit"]["from"] == "default"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[email]\nprot = 25\n", "unknown key email.prot; did you mean port?"),
        ("[queue\n", "not valid TOML"),
        ('[generator]\nkind = "openai"\n', "set generator.url too"),
    ],
)
def test_a_broken_configuration_is_one_line_and_78(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "sia.toml").write_text(text)
    result = sia(tmp_path, "run", "hello")
    assert result.returncode == 78
    assert line in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_missing_model_is_one_line_and_69(tmp_path: Path) -> None:
    result = sia(tmp_path, "--model", str(tmp_path / "none.gguf"), "run", "hello")
    assert result.returncode == 69
    assert len(result.stderr.splitlines()) == 1 and "none.gguf" in result.stderr


def test_usage_errors_end_with_2(tmp_path: Path) -> None:
    limit, llm = ["history", "--limit", "0"], ["run", "--llm", "gpt"]
    for arguments in (["admit"], limit, llm, ["run", " "]):
        assert sia(tmp_path, *arguments).returncode == 2, arguments


def test_the_service_is_a_unit_that_restarts(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    where = tmp_path / "config"
    result = sia(home, "service", "install", XDG_CONFIG_HOME=str(where), PATH="/nowhere")
    assert result.returncode == 69 and "systemd is not here" in result.stderr
    unit = (where / "systemd" / "user" / "sia.service").read_text()
    assert re.search(rf'ExecStart=".*/restart\.sh" --home "{home}" run --listen\n', unit)
    assert "\nKillMode=process\n" in unit and "\nSuccessExitStatus=130\n" in unit


def test_the_state_is_for_the_person_alone(home: Path, cli) -> None:
    cli.run("echo", "me")
    assert stat.S_IMODE((home / ".sia").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / ".sia" / "state.db").stat().st_mode) == 0o600


def test_looking_changes_nothing(home: Path, cli) -> None:
    cli.run("status")
    database = home / ".sia" / "state.db"
    assert not database.exists()
    cli.run("echo", "me")
    before = database.read_bytes()
    assert json.loads(cli.run("status", "--json").stdout)["iteration"] > 0
    assert cli.run("queue").returncode == 0
    assert database.read_bytes() == before


@pytest.mark.parametrize("begin", [0, 4096])
def test_a_damaged_database_is_one_line_and_left_alone(home: Path, cli, begin: int) -> None:
    cli.run("echo", "me")
    database = home / ".sia" / "state.db"
    data = database.read_bytes()
    broken = data[:begin] + b"\xa5" * (len(data) - begin)
    database.write_bytes(broken)
    for command in ("status", "queue"):
        result = cli.run(command)
        assert result.returncode == 78
        assert len(result.stderr.splitlines()) == 1 and "damaged" in result.stderr
    assert database.read_bytes() == broken and not list(database.parent.glob("*.broken*"))


def test_every_command_of_the_readme_exists() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    named = set(re.findall(r"^sia ([a-z|]+)", readme, re.MULTILINE))
    words = {word for name in named for word in name.split("|")}
    assert words <= set(COMMANDS)
    assert {"attach", "status", "admit", "route", "service"} <= words
    parser().format_help()
