"""Corrections from the command line: by row, one key each, piped and attached."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

from semif.export import in_force, labelled, read_labels
from semif.log import DecisionLog, Label, append_labels
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia.cli.label import Review, _keys
from sia.cli.main import main
from sia.corrections import unsure
from sia.errors import UsageError
from sia.home import Home, open_home
from sia.shell.text import width_of

CHANCES = {"low": 0.6, "medium": 0.3, "high": 0.1}


def decide(home: Home, id: str, about: str, phase: str = "urgency", **chances: float) -> None:
    probs = chances or CHANCES
    options = tuple(Option(name, f"About {name}.") for name in probs)
    decision = Decision(id, phase, {"input": about}, "How urgent is it?", options)
    answers = ScriptedDecider(lambda _: dict(probs), "a9c199d2792b").decide([decision])
    DecisionLog(home.decisions).append(answers, f"r{id[1:]}")


@pytest.fixture
def opened(home: Path) -> Home:
    return open_home(home)


def said(home: Home) -> list[tuple[str, str, str, float]]:
    labels = in_force(read_labels(home.labels, pytest.fail))
    return [(label.row, label.polarity, label.option, label.weight) for label in labels]


def sia(home: Home, *arguments: str) -> int:
    return main(["--home", str(home.folder), *arguments])


# sia correct


def test_a_row_is_corrected_by_its_id(opened: Home, capsys: pytest.CaptureFixture[str]) -> None:
    decide(opened, "d1", "feed the\x1b[2J cat")
    assert sia(opened, "correct", "d1", "high") == 0
    assert capsys.readouterr().out == "noted: urgency is high: feed the␛[2J cat\n"
    assert said(opened) == [("d1", "is", "high", 3.0)]
    assert sia(opened, "correct", "d1", "low", "--not") == 0
    assert capsys.readouterr().out == "noted: urgency is not low: feed the␛[2J cat\n"
    (row,) = labelled(opened.folder, pytest.fail)
    assert (row.outcome, row.source) == ("high", "human")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("d9", "low"), "there is no decision 'd9' in this home; `sia decisions` lists them"),
        (("d1", "hgih"), "the decision d1 has no option 'hgih'; it has: low, medium, high"),
    ],
)
def test_what_is_not_there_is_one_line(
    opened: Home, arguments: tuple[str, ...], words: str
) -> None:
    decide(opened, "d1", "feed the cat")
    with pytest.raises(UsageError, match=words) as error:
        sia(opened, "correct", *arguments)
    assert error.value.exit_code == 2 and "\n" not in str(error.value)
    assert not opened.labels.exists()


def test_a_correction_needs_no_agent_and_disturbs_none(cli, opened: Home) -> None:
    decide(opened, "d1", "feed the cat")
    cli.agent()
    result = cli.run("correct", "d1", "high")
    assert (result.returncode, result.stderr) == (0, "")
    assert said(opened) == [("d1", "is", "high", 3.0)]
    assert cli.run("correct", "d1").returncode == 2
    result = cli.run("correct", "nothing", "high")
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1


# sia decisions


def test_decisions_are_listed_with_what_is_said_of_them(
    opened: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sia(opened, "decisions") == 0
    assert capsys.readouterr().out == "  nothing has been decided yet\n"
    decide(opened, "d1", "feed the cat")
    decide(opened, "d2", "is it a\nrequest", "contains_request", yes=0.7, no=0.3)
    checked = Label.new("d1", "r1", "not", "low", "verified", "reminders/set")
    append_labels(opened.labels, [checked, Label.new("d1", "r1", "is", "high", "human", "Ann")])
    append_labels(opened.labels, [Label.new("d1", "r1", "is", "low", "verified", "x")])
    assert sia(opened, "decisions") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        "d1 r1 urgency low 0.60 human: high feed the cat".split(),
        "d2 r2 contains_request yes 0.70 is it a request".split(),
    ]
    for arguments in (("--phase", "urgency"), ("--run", "r1")):
        sia(opened, "decisions", *arguments, "--json")
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["id"], row["selected"]) == ("d1", "low")
        assert row["state"] == {"input": "feed the cat"}
        assert row["label"] == {"polarity": "is", "option": "high", "source": "human"}
        assert row["options"][0] == {"id": "low", "description": "About low.", "p": 0.6}
    sia(opened, "decisions", "--limit", "1", "--json")
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["d2"]
    sia(opened, "decisions", "--phase", "cover")
    assert capsys.readouterr().out == "  no decision is logged that fits\n"


# sia review


def review(home: Home, keys: str, limit: int = 50, width: int = 80) -> list[str]:
    """What is shown when these keys are pressed, the last one over and over."""
    found = unsure(home, in_force(read_labels(home.labels, pytest.fail)), "", limit)
    shown: list[str] = []
    pressed = iter(keys)
    Review(home, found, lambda: next(pressed, "q"), shown.append, width=width).work()
    return shown


@pytest.fixture
def three(opened: Home) -> Home:
    """By margin: d3 (0.1), d1 (0.3), d2 (0.8)."""
    decide(opened, "d1", "feed the cat")
    decide(opened, "d2", "thanks", "contains_request", no=0.9, yes=0.1)
    decide(opened, "d3", "who is it", "read_next", anna=0.5, berta=0.4, none=0.1)
    return opened


def test_the_least_certain_comes_first_with_a_key_for_each_option(three: Home) -> None:
    assert review(three, "q")[0].split("\n") == [
        "",
        "  1 of 3 · read_next · d3",
        "  input  who is it",
        "  How urgent is it?",
        "   1  About anna.    0.50  ████████",
        "   2  About berta.   0.40  ██████▍",
        "   3  none of these  0.10  █▋",
        "  n not About anna. · s skip · u undo · q quit",
    ]


def test_one_key_each_and_it_goes_on_where_it_was_left(three: Home) -> None:
    assert review(three, "x2sq")[-1] == "\n  1 said, 1 skipped, 1 left"
    assert said(three) == [("d3", "is", "berta", 3.0)]
    assert "d2" in review(three, "n")[0]
    assert said(three)[1:] == [("d2", "not", "no", 3.0)]
    assert unsure(three, in_force(read_labels(three.labels, pytest.fail)), "", 9) == []


def test_a_slip_is_taken_back(three: Home) -> None:
    shown = review(three, "u12uu3q")
    assert "  → taken back" in shown
    assert said(three) == [("d3", "is", "none", 3.0)]


def test_the_keyboard_that_goes_away_ends_it(three: Home) -> None:
    for key in ("", "\x04", "\x1b"):
        found = unsure(three, [], "", 9)
        Review(three, found, lambda key=key: key, lambda text: None).work()
    assert not three.labels.exists()


@pytest.mark.parametrize("width", [30, 80, 120])
def test_review_fits_the_terminal(opened: Home, width: int) -> None:
    many = {f"option-{n}-{'x' * n}": 1 / 40 for n in range(40)}
    decide(opened, "d1", "many words " * 30 + "x" * 300, "read_next", **many)
    for line in "\n".join(review(opened, "1", width=width)).split("\n"):
        assert width_of(line) <= width, line


def test_keys_come_one_by_one_and_arrows_are_passed_over() -> None:
    master, slave = pty.openpty()
    try:
        with _keys(slave) as key:
            os.write(master, b"1S\x1b[A\x1bOP\x1b[15~\xc3\xa4q")
            assert [key() for _ in range(4)] == ["1", "s", "ä", "q"]
            os.write(master, b"\x1b")
            assert key() == "\x1b"
    finally:
        os.close(master)
        os.close(slave)


def test_review_needs_a_terminal(cli, opened: Home) -> None:
    decide(opened, "d1", "feed the cat")
    result = cli.run("review")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "sia: sia review needs a terminal for both input and output; "
        "without one use: sia correct ROW OPTION\n"
    )


def test_review_at_a_terminal(cli, three: Home) -> None:
    terminal = cli.terminal("review", "--limit", "2")
    terminal.expect_exact("1 of 2 · read_next · d3")
    terminal.send("\x1b[B2")
    terminal.expect_exact("2 of 2 · urgency · d1")
    terminal.send("n")
    code, text = cli.ended(terminal)
    assert code == 0 and "2 said, 0 skipped, 0 left" in text
    assert said(three) == [("d3", "is", "berta", 3.0), ("d1", "not", "low", 3.0)]


# among the lines


def test_corrections_among_piped_lines_wait_for_what_they_are_about(cli, opened: Home) -> None:
    lines = b"echo me\n/right\n/undo\n/wrong\n2\n1\necho you\n/wrong\n1\n0\n"
    result = cli.run("run", input=lines)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["did echo me", "did echo you"]
    notes = result.stderr.splitlines()
    assert any(line.startswith("  right: a request yes, demo, echo ·") for line in notes)
    assert any(line.startswith("  taken back: a request yes") for line in notes)
    assert "? What was wrong?  echo me" in notes
    assert "   0  just not echo" in notes and "   0  just not demo" in notes
    rows = [(polarity, option) for _, polarity, option, _ in said(opened)]
    assert rows[-1] == ("not", "demo") and len(rows) == 2
    (first, second) = labelled(opened.folder, pytest.fail)
    assert {first.source, second.source} == {"human"}


def test_a_request_is_worked_again_with_the_right_skill(cli, opened: Home) -> None:
    result = cli.run("run", input=b"echo me\n/wrong\n2\nask\nyes\n2\n")
    assert "? Run it again with demo/ask?" in result.stderr, result.stderr
    assert result.stdout.splitlines() == ["did echo me", "How many? (one/two)", "So two"]


def test_corrections_over_the_socket(cli, opened: Home) -> None:
    cli.agent()
    attached = cli.begin("attach")
    attached.stdin.write(b"echo me\n/wrong\nskill echo\nask\nyes\n")
    attached.stdin.flush()
    assert attached.stdout.readline() == b"did echo me\n"
    assert attached.stdout.readline() == b"How many? (one/two)\n"
    attached.stdin.write(b"two\n/right\n")
    attached.stdin.flush()
    assert attached.stdout.readline() == b"So two\n"
    _, notes = attached.communicate(timeout=20)
    assert attached.returncode == 0 and b"Run it again with demo/ask?" in notes
    assert [option for _, _, option, _ in said(opened)][:1] == ["ask"]
