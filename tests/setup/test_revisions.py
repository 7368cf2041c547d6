"""restart.sh puts the parent of a revision back when its trial fails."""

import json
import time
from pathlib import Path

import pytest

from .checkout import Checkout


def put_on_trial(home: Path, parent: str | None, has_parent: bool = True) -> Path:
    """Leaves revision `cafe` pending, as a swap does; gives the folder of revisions."""
    revisions = home / ".sia/revisions"
    (revisions / "cafe").mkdir(parents=True)
    fields = {"id": "cafe", "parent": parent, "metrics": {"parent_accuracy": 0.9}}
    (revisions / "cafe/revision.json").write_text(json.dumps(fields, indent=1))
    if parent and has_parent:
        (revisions / parent).mkdir()
        (revisions / parent / "revision.json").write_text("{}")
    for name in "current", "pending":
        (revisions / name).write_text("cafe\n")
    return revisions


@pytest.mark.parametrize("form", ["none", "two words", "one word", "relative", "variable"])
def test_a_crash_on_trial_puts_the_parent_back(
    checkout: Checkout, tmp_path: Path, form: str
) -> None:
    home = checkout.folder if form == "none" else tmp_path / "a home"
    revisions = put_on_trial(home, parent="beef")
    checkout.program("sys.exit(3 if start == 1 else 0)")
    arguments = {
        "none": [],
        "two words": ["run", "--home", str(home), "--json"],
        "one word": ["run", f"--home={home}"],
        "relative": ["--home", "a home"],
        "variable": [],
    }[form]
    variables = {"SIA_HOME": str(home)} if form == "variable" else {}
    done = checkout.run(*arguments, cwd=tmp_path, **variables)
    assert done.returncode == 0
    assert (revisions / "current").read_text() == "beef\n"
    assert sorted(path.name for path in revisions.iterdir()) == [
        "beef", "cafe", "current", "rolled_back",
    ]
    when, what = (revisions / "rolled_back").read_text().split(" ", 1)
    time.strptime(when, "%Y-%m-%dT%H:%M:%SZ")
    assert what == "cafe put back to beef: the program ended with code 3\n"
    assert "sia: revision cafe is put back to beef" in done.stderr


@pytest.mark.parametrize(("parent", "known"), [("5eed", False), ("", False), (None, False)])
def test_without_the_parent_the_shipped_one_holds(
    checkout: Checkout, parent: str | None, known: bool
) -> None:
    revisions = put_on_trial(checkout.folder, parent, known)
    checkout.program("sys.exit(3 if start == 1 else 0)")
    assert checkout.run().returncode == 0
    assert sorted(path.name for path in revisions.iterdir()) == ["cafe", "rolled_back"]
    assert "cafe put back to starter" in (revisions / "rolled_back").read_text()


def test_the_parent_is_found_in_one_line_of_json(checkout: Checkout) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    fields = {"id": "cafe", "parent": "beef", "metrics": {"x": {"parent": "dead"}}}
    (revisions / "cafe/revision.json").write_text(json.dumps(fields, separators=(",", ":")))
    checkout.program("sys.exit(3 if start == 1 else 0)")
    assert checkout.run().returncode == 0
    assert (revisions / "current").read_text() == "beef\n"


def test_78_is_blamed_on_the_revision_on_trial_once(checkout: Checkout) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    checkout.program("sys.exit(78)")
    assert checkout.run().returncode == 78
    assert len(checkout.starts()) == 2
    assert (revisions / "current").read_text() == "beef\n"


def test_the_start_that_puts_it_on_trial_is_not_its_trial(checkout: Checkout) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    (revisions / "pending").unlink()
    checkout.program(
        f"pending = Path({str(revisions / 'pending')!r})\n"
        "if start == 1: pending.write_text('cafe\\n'); sys.exit(75)\n"
    )
    done = checkout.run(SIA_BACKOFF_UNIT="30")
    assert (done.returncode, done.stderr, len(checkout.starts())) == (0, "", 2)
    assert (revisions / "current").read_text() == "cafe\n"
    assert (revisions / "pending").read_text() == "cafe\n"


@pytest.mark.parametrize("name", ["../cafe", "", ".", "ca fe"])
def test_a_damaged_pending_names_no_revision(checkout: Checkout, name: str) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    (revisions / "pending").write_text(f"{name}\n")
    checkout.program("sys.exit(3 if start == 1 else 0)")
    assert checkout.run().returncode == 0
    assert (revisions / "current").read_text() == "cafe\n"
    assert not (revisions / "rolled_back").exists()


@pytest.mark.parametrize("on_term", ["SIG_DFL", "SIG_IGN", "lambda *_: sys.exit(0)"])
def test_a_trial_that_takes_too_long_is_ended(checkout: Checkout, on_term: str) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    handler = f"signal.{on_term}" if on_term.startswith("SIG") else on_term
    checkout.program(
        f"signal.signal(signal.SIGTERM, {handler})\nif start == 1: time.sleep(15)\n"
    )
    done = checkout.run(SIA_PENDING_SECONDS="1.5")
    assert done.returncode == 0
    assert (revisions / "current").read_text() == "beef\n"
    reason = "it did not pass its health check within 1.5 s"
    assert f"cafe put back to beef: {reason}\n" in (revisions / "rolled_back").read_text()
    first, second = checkout.starts()
    assert second - first < 10


def test_a_revision_that_passes_is_left_alone(checkout: Checkout) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    checkout.program(
        f"os.unlink({str(revisions / 'pending')!r}); time.sleep(1.8)\n"
    )
    done = checkout.run(SIA_PENDING_SECONDS="1.5")
    assert (done.returncode, done.stderr, len(checkout.starts())) == (0, "", 1)
    assert (revisions / "current").read_text() == "cafe\n"


def test_an_end_on_trial_leaves_it_for_the_next_start(checkout: Checkout) -> None:
    revisions = put_on_trial(checkout.folder, "beef")
    checkout.program("print('done')")
    done = checkout.run(SIA_PENDING_SECONDS="60")
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert (revisions / "pending").read_text() == "cafe\n"
