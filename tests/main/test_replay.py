"""A real session run again: every decision equal; what moved after an edit is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

LINES = "how much memory is free\nthanks, that was great\nwhat is 12% of 340\n"


def sia(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sia", *arguments, "--home", str(home)],
        input=given, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_a_session_is_replayed_and_an_edit_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = sia(home, "run", given=LINES)
    assert done.returncode == 0, done.stderr
    (session,) = [path for path in (home / "contexts").iterdir() if path.is_dir()]

    whole = sia(home, "replay", session.name, "--json")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    results = json.loads(whole.stdout)["files"]
    made = [one for result in results for one in result["decisions"]]
    phases = {one["phase"] for one in made}
    assert phases >= {"contains_request", "urgency", "navigate_category", "navigate_skill"}
    assert all(one["equal"] for one in made) and len(results) >= 4

    copy = tmp_path / "edited.xml"
    text = (session / "000001.xml").read_text()
    asked = "<![CDATA[how much memory is free]]></input>"
    assert text.count(asked) == 1
    copy.write_text(text.replace(asked, "<![CDATA[so much memory was free]]></input>"))
    again = sia(home, "replay", str(copy), "--json")
    assert again.returncode == 1
    result = json.loads(again.stdout)
    assert (result["equal"], result["prompt_equal"]) == (False, False)
    moved = {one["phase"] for one in result["decisions"] if not one["equal"]}
    assert "contains_request" in moved
    kept = [one for one in result["decisions"] if one["phase"] == "contains_request"]
    assert json.loads(kept[0]["state"])["input"] == "so much memory was free"

    told = sia(home, "replay", str(copy))
    assert "contains_request" in told.stdout and "the context was edited" in told.stdout
    differs = sia(home, "diff", f"{session.name}/1", str(copy))
    assert differs.returncode == 1 and "+" in differs.stdout


def test_what_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    missing = sia(home, "replay", "20261201T000000Z-0000/7")
    assert missing.returncode == 2
    assert "there is no iteration 20261201T000000Z-0000/7" in missing.stderr
    broken = tmp_path / "broken.xml"
    broken.write_text("<iteration session='s' n='1'>\n<context time='x'>")
    torn = sia(home, "replay", str(broken))
    assert torn.returncode == 1
    assert "broken.xml: not well-formed XML" in torn.stderr and "line 2" in torn.stderr
