"""A whole dream on a tiny model: rows, training in a child, the gate, and what a kill costs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import log

from semif.errors import FileError
from semif.llama import Model
from semif.revision import Registry, Revision, write
from sia.dream import measured
from sia.dream.dream import Dreams, Outcome, Recipe
from sia.dream.measured import Examiner
from sia.errors import Unavailable

pytest.importorskip("torch")
pytest.importorskip("gguf")

RECIPE = Recipe(epochs=12, layers=2, rate=1e-2, replay=0, minutes=10, least=10)
Dream = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".sia/revisions").mkdir(parents=True)
    return home


@pytest.fixture
def dream(home: Path, registry: Registry, model: Model, path: Path, small_gate: None) -> Dream:
    def run(**changes: Any) -> Outcome:
        dreams = Dreams(home / ".sia/dreams", registry, print, str(path))
        with dreams.lock():
            return dreams.run([home], replace(RECIPE, **changes), Examiner(model, 1, 512))

    return run


def test_what_was_learned_is_proven_kept_and_not_dreamed_of_again(
    home: Path, registry: Registry, dream: Dream
) -> None:
    log(home, lambda i, said: said)
    parent = registry.current()
    outcome = dream()
    assert outcome.status == "proven", outcome.text
    made = registry.get(outcome.candidate)
    assert made.contents.parent == parent.id and made.folder is not None
    assert registry.current().id == parent.id and registry.pending() is None  # the swap is apart
    assert outcome.folder is not None
    found = json.loads((outcome.folder / "proof.json").read_bytes())
    assert found["passed"] and found["held"]["after"]["nll"]["mean"] < 0.5
    fixed = found["corrections"]
    assert fixed["rows"] > 0 and fixed["right now"] > fixed["right before"]
    # What it says on the golden set goes along, so that it is not asked again.
    assert len(json.loads((made.folder / measured.FILE).read_bytes())["rows"]) == 40
    again = dream()
    assert again.status == "nothing" and "dreamed of already" in again.text


def test_shuffled_labels_are_rejected_and_kept_with_their_figures(
    home: Path, registry: Registry, dream: Dream
) -> None:
    log(home, lambda i, said: "yes" if hash_of(i) else "no")
    outcome = dream(epochs=4)
    assert outcome.status == "rejected" and "held out: loss changes by" in outcome.text
    assert registry.ids() == (registry.current().id,)
    dreams = Dreams(home / ".sia/dreams", registry, print).past()
    assert [(past["passed"], past["candidate"]) for past in dreams] == [(False, outcome.candidate)]
    assert "held out" in dreams[0]["failed"]


def hash_of(i: int) -> bool:
    return (i * 2654435761 >> 7) % 2 == 0


def test_without_labels_of_others_there_is_nothing_to_learn(home: Path, dream: Dream) -> None:
    log(home, lambda i, said: "yes", source="assessed")  # weight 0: it agrees with nobody yet
    assert dream().text == (
        "nothing to learn: no decision has a label (/right, /wrong, sia review)"
    )


def test_the_own_pick_is_no_label(home: Path, dream: Dream) -> None:
    log(home, lambda i, said: said)
    (home / ".sia/labels.jsonl").unlink()
    assert dream().text.startswith("nothing to learn: no decision has a label")


def test_a_candidate_that_forgets_a_phase_is_rejected_with_the_line_named(
    home: Path, registry: Registry, dream: Dream
) -> None:
    """It learns what a person says now, and the golden rows of the phase say otherwise."""
    log(home, lambda i, said: said)
    known = dream().candidate
    registry.swap(known)
    log(home, lambda i, said: {"yes": "no", "no": "yes"}[said])
    outcome = dream()
    assert outcome.status == "rejected" and "; phases: asks loses " in outcome.text
    past = Dreams(home / ".sia/dreams", registry, print).past()[-1]
    assert "phases" in past["failed"] and "held out" not in past["failed"]
    assert registry.current().id == known and outcome.candidate not in registry.ids()


def test_few_labels_wait(home: Path, dream: Dream) -> None:
    log(home, lambda i, said: said)
    lines = (home / ".sia/labels.jsonl").read_text().splitlines(keepends=True)
    (home / ".sia/labels.jsonl").write_text("".join(lines[:12]))
    assert "not enough to prove" in dream().text
    assert dream(least=13).text == "nothing to learn yet: 12 labelled rows, 13 are needed"


def test_a_dream_that_was_killed_goes_on(
    home: Path, dream: Dream, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(home, lambda i, said: said)

    def killed(self: Dreams, command: list[str]) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Dreams, "_trained", killed)
        dream()
    (folder,) = (home / ".sia/dreams").glob("2*")
    assert sorted(path.name for path in folder.iterdir()) == [
        "dream.json", "held.jsonl", "train.jsonl",
    ]  # fmt: skip
    outcome = dream()
    assert outcome.folder == folder and outcome.status == "proven"


def test_two_do_not_dream_at_once(home: Path, registry: Registry) -> None:
    one, two = (Dreams(home / ".sia/dreams", registry, print) for _ in range(2))
    with one.lock(), pytest.raises(Unavailable, match="another process dreams"), two.lock():
        pass
    with two.lock():
        pass


def test_a_revision_added_is_whole_or_not_there(
    home: Path, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_elsewhere(registry, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(FileError, match="No space"):
        patch.setattr("semif.revision._copy", full)
        registry.add(made, {})
    assert made.id not in registry.ids() and not list(registry.folder.glob(".revision-*"))
    assert registry.add(made, {"golden.json": b"{}"}).id == made.id
    assert registry.add(made, {}).id == made.id  # once more does nothing


def made_elsewhere(registry: Registry, out: Path) -> Revision:
    contents = msgspec.structs.replace(registry.current().contents, parent="feed")
    return write(contents, {}, out / "elsewhere")


def full(source: Path, target: Path) -> None:
    raise OSError(28, "No space left on device")


def test_the_trainer_may_die_at_any_moment(
    home: Path, dream: Dream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL while it trains: the next dream takes its checkpoint or begins anew."""
    log(home, lambda i, said: said)
    trained = Dreams._trained

    def dying(self: Dreams, command: list[str]) -> Path:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stderr=pipe, stdout=null) as child:
            assert child.stderr is not None
            for line in child.stderr:
                if b"validation at step" in line:
                    os.kill(child.pid, signal.SIGKILL)
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Dreams, "_trained", dying)
        dream()
    assert Dreams._trained is trained
    assert dream().status == "proven"


def test_the_command_says_that_there_is_nothing(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sia", "dream", "--home", str(home)],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no decision has a label yet")
