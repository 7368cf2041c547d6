"""``sia suggestions``: listed, asked for again, dropped; with an agent that runs and without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

MISSING = "demo sing a song"


def teach(home: Path) -> None:
    """The skill that was missing: it is called by the word "sing"."""
    shutil.copytree(home / "skills/demo/echo", home / "new")
    text = (home / "new/SKILL.md").read_text()
    (home / "new/SKILL.md").write_text(text.replace("echo", "sing"))
    (home / "new").rename(home / "skills/demo/sing")


def unproven(home: Path) -> None:
    """The generator of the double works what no skill covers, with its next reply."""
    (home / "replies").write_text("<write_stdout>I cannot sing.</write_stdout>\n" * 3)


def events(cli) -> list[tuple[str, str, int]]:
    data = json.loads(cli.run("suggestions", "--json").stdout)
    return [(row["id"], row["event"], row["count"]) for row in data]


def test_what_is_missing_is_listed_and_run_again_once_it_is_there(home: Path, cli) -> None:
    unproven(home)
    assert cli.run("suggestions").stdout == "  nothing was asked for that no skill covers\n"
    assert cli.run(MISSING).stdout == "I cannot sing.\n"
    again = cli.run("suggestions", "run", "s1")
    assert (again.returncode, again.stdout) == (0, "I cannot sing.\n")
    assert events(cli) == [("s1", "suggested", 2)]
    first, second = cli.run("suggestions").stdout.splitlines()
    assert first == f"  s1    {MISSING}"
    assert second.strip().startswith("demo has no skill for it · asked 2 times · since")
    teach(home)
    done = cli.run("suggestions", "run", "s1")
    assert (done.returncode, done.stdout) == (0, f"did {MISSING}\n")
    assert events(cli) == [("s1", "done", 2)]
    assert cli.run("suggestions").stdout == "  nothing was asked for that no skill covers\n"


def test_a_running_agent_does_it(home: Path, cli) -> None:
    unproven(home)
    cli.agent()
    assert cli.run(MISSING).stdout == "I cannot sing.\n"
    teach(home)
    cli.until(lambda: events(cli) == [("s1", "covered", 1)])
    told = "demo/sing seems to do it: sia suggestions run s1"
    assert told in cli.run("suggestions").stdout
    done = cli.run("suggestions", "run", "s1")
    assert (done.returncode, done.stdout) == (0, f"did {MISSING}\n")
    assert events(cli) == [("s1", "done", 1)]


def test_what_is_dropped_is_listed_no_more(home: Path, cli) -> None:
    unproven(home)
    cli.run(MISSING)
    assert cli.run("suggestions", "drop", "s1").returncode == 0
    assert events(cli) == [("s1", "dropped", 1)]
    assert cli.run("suggestions").stdout == "  nothing was asked for that no skill covers\n"


def test_an_id_that_is_missing_or_unknown_is_one_line_and_2(home: Path, cli) -> None:
    for words, line in (
        (("run",), "sia suggestions run needs an ID; `sia suggestions` lists"),
        (("drop", "s1"), "there is no suggestion s1; `sia suggestions` lists them"),
    ):
        result = cli.run("suggestions", *words)
        assert (result.returncode, result.stderr) == (2, f"sia: {line}\n")


def test_a_torn_file_costs_one_line(home: Path, cli) -> None:
    unproven(home)
    cli.run(MISSING)
    with (home / ".sia/suggestions.jsonl").open("a") as file:
        file.write('{"id": "s2", "ev')
    result = cli.run("suggestions")
    assert result.returncode == 0 and MISSING in result.stdout
    assert "suggestions.jsonl line 2" in result.stderr and result.stderr.count("\n") == 1
