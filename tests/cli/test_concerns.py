"""``sia concerns``: the same on a stopped home and beside a running agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sia.concerns.table import Concerns
from sia.store import Store

DISK = ("concerns", "add", "backup of the disk", "--do", "echo", "the", "disk", "--every", "day")


def listed(cli, *more: str) -> list[dict]:
    return json.loads(cli.run("concerns", *more, "--json").stdout)


@pytest.mark.parametrize("running", [False, True])
def test_add_list_edit_why_and_drop(cli, home: Path, running: bool) -> None:
    if running:
        cli.agent()
    done = cli.run(*DISK)
    assert (done.returncode, done.stdout) == (0, "added c1: backup of the disk, every day\n")
    done = cli.run("concerns", "edit", "c1", "--every", "10")
    assert done.stdout == "changed c1: backup of the disk, every 12 hours\n"
    (row,) = listed(cli)
    assert (row["id"], row["instruction"], row["rhythm"]) == ("c1", "echo the disk", 12)
    assert row["state"].startswith("ready on ") and 0 <= row["activation"] < 0.001
    why = cli.run("concerns", "why", "c1").stdout
    assert "do: echo the disk" in why and "edited" in why and "rhythm" in why
    assert cli.run("concerns", "drop", "c1").stdout == "dropped c1: backup of the disk\n"
    assert listed(cli) == []
    assert [row["status"] for row in listed(cli, "list", "--all")] == ["dropped"]
    done = cli.run("concerns", "edit", "c1", "--every", "day")
    assert (done.returncode, done.stderr) == (
        1 if running else 2,
        "sia: c1 is over already: dropped\n",
    )


def test_an_obligation_is_discharged(cli, home: Path) -> None:
    add = ("concerns", "add", "the", "book", "--owed", "Kim", "--until", "2020-01-02T10:00")
    assert "owed to Kim, until 2 Jan 10:00, overdue since" in cli.run(*add).stdout
    assert cli.run("concerns", "discharge", "c1").stdout.startswith("discharged c1: the book")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("add", "x" * 121), "at most 120 characters"),
        (("add", "a", "--every", "fortnight"), "'fortnight' is no rhythm"),
        (("add", "a", "--every", "-1"), "name one above 0"),
        (("add", "a", "--owed", "Kim"), "an obligation needs"),
        (("add", "a", "--owed", "Kim", "--until", "green"), "no time that I understand"),
        (("edit", "c1"), "edit what?"),
        (("drop", "c7"), "there is no concern c7"),
        (("why", "c7"), "there is no concern c7"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(cli, given, words) -> None:
    done = cli.run("concerns", *given)
    assert done.returncode == 2 and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_autonomy_is_off_unless_asked_for(cli, home: Path) -> None:
    assert cli.run("concerns").stdout.startswith("  autonomy is off, so nothing fires")
    done = cli.run("--autonomy", "echo me")
    assert (done.returncode, done.stdout) == (2, "")
    assert "give it without a request" in done.stderr


def ready(home: Path) -> None:
    """Let all of them have built up."""
    store = Store(home / ".sia" / "state.db")
    with store.transaction() as db:
        db.execute("UPDATE concerns SET value = 1000000, due = 0")
    store.close()


@pytest.mark.parametrize("by", ["flag", "config"])
def test_a_service_acts_of_its_own_accord(cli, home: Path, by: str) -> None:
    with (home / "sia.toml").open("a") as file:
        file.write(f'[concerns]\nquiet = ""\nautonomy = {str(by == "config").lower()}\n')
    cli.run(*DISK)
    ready(home)
    cli.agent("--listen", *(["--autonomy"] if by == "flag" else []))

    def acted() -> bool:
        store = Store.look(home / ".sia" / "state.db")
        try:
            (one,) = Concerns(store, home / ".sia" / "autonomy.jsonl").all()
        finally:
            store.close()
        return one.value < 1_000_000 or one.defers > 0 or bool(one.fire)

    cli.until(acted)


def test_a_request_alone_is_not_mixed_with_what_fires(cli, home: Path) -> None:
    with (home / "sia.toml").open("a") as file:
        file.write('[concerns]\nquiet = ""\nautonomy = true\n')
    cli.run(*DISK)
    ready(home)
    assert cli.run("echo me").stdout == "did echo me\n"
    assert listed(cli)[0]["state"] == "ready"
