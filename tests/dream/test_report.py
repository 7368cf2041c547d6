"""What decisions cost, in words and as a page that needs nothing else."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lxml import etree

from semif.log import Label, append_labels
from sia import home as homes
from sia.dream.dataset import collect
from sia.dream.page import page
from sia.dream.report import Night, read_nights, report
from sia.errors import UsageError
from sia.forget import stones

pytest.importorskip("matplotlib")

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
TEXTS = (
    "feed the cat at nine", "what a lovely morning", "close the window upstairs",
    "my uncle sold his boat", "print the tax form twice", "it rained in Ghent",
    "<script>alert(1)</script> & more", "where did I put the lease",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> homes.Home:
    """Eight decisions, of which a person says what they are; two were wrong."""
    home = homes.open_home(tmp_path / "home")
    lines, labels = [], []
    for i, text in enumerate(TEXTS):
        row = {
            "id": f"d{i}",
            "phase": "contains_request" if i < 6 else "urgency",
            "state": {"input": text},
            "question": "A request?",
            "options": [{"id": "no", "description": "No."}, {"id": "yes", "description": "Yes."}],
            "predicted_probs": {"no": 0.2, "yes": 0.8},
            "run": f"r{i}",
            "time": f"2026-11-{28 + i // 4}T10:00:0{i}.000Z",
        }
        lines.append(json.dumps(row))
        said = "no" if i in (1, 6) else "yes"
        source = "human" if i % 2 else "verified"
        labels.append(Label.new(f"d{i}", f"r{i}", "is", said, source, by="test"))
    home.decisions.write_text("\n".join(lines) + "\n")
    append_labels(home.labels, labels)
    return home


def proof(home: homes.Home, passed: bool) -> None:
    folder = home.dreams / "20261130T030000.000000Z"
    folder.mkdir(parents=True)
    lines = [
        {"name": "held out", "passed": True, "text": "loss changes by -0.1"},
        {"name": "golden", "passed": passed, "text": "accuracy 81.0 % to 79.0 %"},
    ]
    value = {
        "candidate": "ab12cd34ef56", "parent": "8e60e17a30aa", "passed": passed, "lines": lines,
        "corrections": {"rows": 2, "right before": 0, "right now": 1},
    }  # fmt: skip
    (folder / "proof.json").write_text(json.dumps(value))


def test_figures_are_those_of_the_rows(home: homes.Home) -> None:
    found = report(collect([home.folder], print), home.dreams)
    assert found.rows == 8 and found.sources == {"human": 4, "verified": 4}
    assert found.whole is not None
    ece = found.whole["ece"]
    assert ece["mean"] == pytest.approx(0.05) and 0 <= ece["low"] <= ece["high"] <= 0.8
    assert found.whole["brier"]["low"] < found.whole["brier"]["mean"] < found.whole["brier"]["high"]
    assert found.whole["accuracy"]["mean"] == pytest.approx((4 * 3 - 3 + 4 * 1 - 1) / 16)
    assert [day.day for day in found.days] == ["2026-11-28", "2026-11-29"]
    (first, second) = found.confusions
    assert (first.phase, first.names, first.counts) == (
        "contains_request", ("no", "yes"), ((0, 1), (0, 5)),
    )  # fmt: skip
    assert second.counts == ((0, 1), (0, 1))
    assert [row.text for row in found.corrections] == ["what a lovely morning"]
    worst = found.worst[0]
    assert (worst.selected, worst.outcome, worst.p, worst.right_p) == ("yes", "no", 0.8, 0.2)


def test_the_page_holds_all_of_it_and_asks_for_nothing(home: homes.Home) -> None:
    proof(home, passed=False)
    nights = [Night(n, arm, 0.6 + n / 10, 0.5, 0.9) for n in (0, 1) for arm in ("gate", "none")]
    text = page(report(collect([home.folder], print), home.dreams, nights), NOW)
    root = etree.HTML(text)
    words = " ".join(root.itertext())
    assert "8 labelled decisions" in words and "<script>alert(1)</script> & more" in words
    assert "rejected" in words and "accuracy 81.0 % to 79.0 %" in words
    assert "0 of 2 right before, 1 now" in " ".join(words.split())
    assert len(root.findall(".//svg")) == 2 + 2 + 1  # reliability, days, two phases, nights
    assert root.find(".//script") is None
    links = root.xpath("//@src | //@href | //@*[local-name()='href']")
    assert not [link for link in links if not link.startswith("#")]


def test_rare_options_are_shown_as_one(home: homes.Home) -> None:
    names = [f"o{n:02}" for n in range(14)]
    for n, name in enumerate(names):
        row = {
            "id": f"n{n}", "phase": "navigate_skill",
            "state": {"input": f"{TEXTS[n % 8]} {name * 9}"},
            "question": "Which?", "options": [{"id": id, "description": id} for id in names],
            "predicted_probs": {id: 0.35 if id == "o00" else 0.05 for id in names},
            "run": f"q{n}", "time": "2026-11-29T10:00:00.000Z",
        }  # fmt: skip
        with home.decisions.open("a") as file:
            file.write(json.dumps(row) + "\n")
        append_labels(home.labels, [Label.new(f"n{n}", f"q{n}", "is", name, "human", by="test")])
    found = report(collect([home.folder], print), home.dreams)
    (many,) = [one for one in found.confusions if one.phase == "navigate_skill"]
    assert len(many.names) == 10 and many.names[0] == "o00" and many.names[-1] == "others"
    assert sum(map(sum, many.counts)) == 14 and many.counts[-1][0] == 5


def test_rows_that_another_home_forgot_are_left_out_and_counted(
    home: homes.Home, tmp_path: Path
) -> None:
    other = homes.open_home(tmp_path / "other")
    stone = stones.Stone("2026-12-01T00:00:00.000Z", "x", "row", "d0", "", 1, 0, ("d0", "d1"), ())
    stones.put(other.state, stone)
    found = report(collect([home.folder, other.folder], print), home.dreams)
    assert (found.rows, found.forgotten) == (6, 2)
    assert collect([home.folder], print).forgotten == 0


def test_an_empty_period_says_so(tmp_path: Path) -> None:
    home = homes.open_home(tmp_path)
    text = page(report(collect([home.folder], print), home.dreams), NOW)
    assert "No decision has a label yet" in " ".join(etree.HTML(text).itertext())


def sia(home: homes.Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sia", "dream", *arguments],
        env={**os.environ, "SIA_HOME": str(home.folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_prints_a_table_and_writes_the_page(home: homes.Home, tmp_path: Path) -> None:
    proof(home, passed=True)
    done = sia(home, "--report", "--html", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "8 labelled decisions (4 human, 4 verified)" in done.stdout
    assert "contains_request  6" in done.stdout
    assert "of 2 corrections 0 were right before, 1 with it" in done.stdout
    assert "ab12cd34ef56  proven" in done.stdout
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    whole = json.loads(sia(home, "--json").stdout)
    assert whole["phases"]["urgency"]["rows"] == 2 and whole["dreams"][0]["failed"] == []
    assert sia(home).stdout == done.stdout and not (home.dreams / "report.html").exists()


def test_nights_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nights.jsonl"
    path.write_text('{"night": 1, "arm": "gate", "accuracy": 0.7, "low": 0.6, "high": 0.8}\n')
    assert read_nights(path) == [Night(1, "gate", 0.7, 0.6, 0.8)]
    path.write_text('{"night": "one", "arm": "gate"}\n')
    with pytest.raises(UsageError, match=r"nights\.jsonl line 1"):
        read_nights(path)
