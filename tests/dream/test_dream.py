"""A whole dream on a tiny model: rows, training in a child, the gate, and what a kill costs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from semif.errors import FileError
from semif.export import LabelledRow
from semif.llama import Model
from semif.log import Label, append_labels
from semif.models import Source
from semif.revision import Registry, Revision, untuned, write
from semif.testing import write_tiny_model
from semif.types import Decision, Option
from sia.dream import measured, proof
from sia.dream.dream import Dreams, Outcome, Recipe
from sia.dream.measured import Examiner
from sia.errors import Unavailable

pytest.importorskip("torch")
pytest.importorskip("gguf")

ASKS = (Option("no", "It asks for nothing."), Option("yes", "It asks for something."))
RECIPE = Recipe(epochs=12, layers=2, rate=1e-2, replay=0, minutes=10, least=10)
Dream = Callable[..., Outcome]


NOUNS = "cat dog oven mail door lamp bus key song tree rope wolf jar pin fog owl".split()


def texts(nouns: list[str] = NOUNS) -> Iterator[tuple[str, str]]:
    """(text, what it is)."""
    ends = "quickly tomorrow upstairs again below".split()
    for noun in nouns:
        for end in ends:
            yield f"{noun * 2} {end} feed the {noun} {end}", "yes"
            yield f"{end} {noun} nice {noun[::-1] * 3} {end}", "no"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[Model]:
    model = Model.open(path)
    yield model
    model.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".sia/revisions").mkdir(parents=True)
    return home


@pytest.fixture
def registry(home: Path, model: Model) -> Registry:
    """With an adapterless revision of the tiny model pinned."""
    contents = untuned(Source(model.path, model.sha256, model.type), "branches").contents
    pinned = write(msgspec.structs.replace(contents, thresholds={"asks": 0.5}), {}, _of(home))
    (_of(home) / "current").write_text(f"{pinned.id}\n")
    return Registry(_of(home))


def _of(home: Path) -> Path:
    return home / ".sia/revisions"


def log(home: Path, outcome: Callable[[int, str], str], source: Any = "human") -> None:
    """Decisions on all texts, the model's pick always yes, labelled by ``outcome``."""
    rows, labels = [], []
    for i, (text, said) in enumerate(texts()):
        decision = Decision(f"d{i}", "asks", {"input": text}, "A request?", ASKS)
        probs = {"no": 0.45, "yes": 0.55}
        time = f"2026-11-30T10:{i // 60:02}:{i % 60:02}.000Z"
        whole = {**decision.to_json(), "predicted_probs": probs, "run": "r1", "time": time}
        rows.append(json.dumps(whole))
        labels.append(Label.new(f"d{i}", "r1", "is", outcome(i, said), source, by="test"))
    (home / ".sia/decisions.jsonl").write_text("\n".join(rows) + "\n")
    append_labels(home / ".sia/labels.jsonl", labels)


def golden() -> list[LabelledRow]:
    """Rows of the same kind that are logged nowhere."""
    rows = []
    for i, (text, said) in enumerate(texts("sun map net cup".split())):
        decision = Decision(f"g{i}", "asks", {"input": text}, "A request?", ASKS)
        rows.append(LabelledRow(decision, said, (), "given", 1.0))
    return rows


@pytest.fixture
def dream(
    home: Path, registry: Registry, model: Model, path: Path, monkeypatch: pytest.MonkeyPatch
) -> Dream:
    monkeypatch.setattr(measured, "golden", golden)
    monkeypatch.setattr(proof, "GOLDEN_ROWS", 40)
    monkeypatch.setattr(proof, "SLOWER", 100.0)  # an adapter on a tiny model costs more than it
    monkeypatch.setattr(proof, "ECE_RISE", 1.0)  # of 40 rows

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
