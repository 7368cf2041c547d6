"""A dream trained elsewhere: the bundle, what may happen to it on the way, and the same gate."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import first_revision, log

from semif import bundle
from semif.bundle import Decisions
from semif.cli.main import main as semif
from semif.errors import ModelError
from semif.llama import Model
from semif.revision import Registry, write
from sia.cli.main import main as sia
from sia.dream.away import Away, filled, words
from sia.dream.dream import Dreams, Outcome, Recipe, TuningFailed
from sia.dream.measured import Examiner
from sia.dream.scribe import Scribe
from sia.dream.writing import Writing
from sia.errors import SiaError, UsageError

pytest.importorskip("torch")
pytest.importorskip("gguf")

RECIPE = Recipe(epochs=4, layers=2, rate=1e-2, replay=0, least=10)


@pytest.fixture
def home(tmp_path: Path, model: Model) -> Path:
    """A home of the tiny model with labelled decisions."""
    home = tmp_path / "home"
    folder = home / ".sia/revisions"
    folder.mkdir(parents=True)
    (folder / "current").write_text(f"{first_revision(model, folder).id}\n")
    log(home)
    return home


@pytest.fixture
def away(home: Path, model: Model, path: Path, small_gate: None) -> Away:
    registry = Registry(home / ".sia/revisions")
    dreams = Dreams(home / ".sia/dreams", registry, print, str(path))
    dreams.folder.mkdir()
    writing = Writing(dreams, registry, Scribe(model, 1, 4096, 40, print))
    return Away(dreams, registry, writing, Examiner(model, 1, 512))


@pytest.fixture
def handed(home: Path, away: Away, tmp_path: Path) -> Path:
    """A bundle that a queue took away, as the other machine has it."""
    there = tmp_path / "there"
    outcome = away.hand_over(words(f"cp -r {{bundle}} {there}"), [home], RECIPE)
    assert outcome.status == "handed over" and "sia dream --import" in outcome.text
    return there


def trained(there: Path, path: Path) -> Path:
    out = there.parent / "trained"
    command = ["train", "--bundle", str(there), "--out", str(out), "--model", str(path)]
    assert semif([*command, "--threads", "1"]) == 0
    return out


def test_a_command_that_brings_it_back_is_a_whole_dream(home: Path, away: Away, path: Path) -> None:
    python = shlex.quote(sys.executable)
    template = f"{python} -m semif train --bundle {{bundle}} --out {{out}} --model {path}"
    parent = Registry(home / ".sia/revisions").current()
    outcome = away.hand_over(words(template), [home], RECIPE)
    assert outcome.status == "proven", outcome.text
    made = Registry(home / ".sia/revisions").get(outcome.candidate)
    assert made.contents.parent == parent.id
    assert "generator: the bundle had no pairs" in outcome.text
    assert outcome.folder and (outcome.folder / "proof-decisions.json").exists()
    again = away.hand_over(words(template), [home], RECIPE)
    assert again.status == "nothing" and "dreamed of already" in again.text


def test_what_comes_back_is_checked_then_proven_by_the_same_gate(
    home: Path, away: Away, handed: Path, path: Path, tmp_path: Path
) -> None:
    out = trained(handed, path)
    result = bundle.read_result(out)
    assert result.decisions
    adapter = out / result.decisions / "decide.gguf"
    whole = adapter.read_bytes()

    adapter.write_bytes(whole[:-100])
    with pytest.raises(ModelError, match=r"decide.gguf was changed or cut off on the way"):
        away.bring_in(out, [home])
    adapter.unlink()
    with pytest.raises(ModelError, match=r"decide.gguf is missing; copy it again"):
        away.bring_in(out, [home])
    adapter.write_bytes(whole)

    said = json.loads((out / "result.json").read_bytes())
    for change, why in (
        ({"bundle": "0" * 64}, "came of no bundle of this home"),
        ({"files": {"../x": "0"}}, "names '../x', which is no file of its folder"),
        ({"version": 2}, "result.json is damaged"),
    ):
        (out / "result.json").write_text(json.dumps({**said, **change}))
        with pytest.raises(ModelError, match=why):
            away.bring_in(out, [home])
    (out / "result.json").unlink()
    with pytest.raises(ModelError, match=r"there is no .*result.json") as caught:
        away.bring_in(out, [home])
    assert caught.value.exit_code == 69
    assert not Registry(home / ".sia/revisions").pending()

    (out / "result.json").write_text(json.dumps(said))
    outcome = away.bring_in(out, [home])
    assert outcome.status == "proven", outcome.text
    assert outcome.candidate == result.decisions
    with pytest.raises(UsageError, match="measured already"):
        away.bring_in(out, [home])


def test_a_result_for_another_parent_is_refused(
    home: Path, away: Away, handed: Path, path: Path
) -> None:
    out = trained(handed, path)
    registry = Registry(home / ".sia/revisions")
    contents = msgspec.structs.replace(registry.current().contents, thresholds={"asks": 0.6})
    registry.swap(write(contents, {}, registry.folder).id)
    with pytest.raises(ModelError, match="was trained from revision .* is pinned now"):
        away.bring_in(out, [home])


def test_a_bundle_that_was_hurt_is_not_trained(
    handed: Path, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--bundle", str(handed), "--out", str(tmp_path / "o"), "--model", str(path)]
    assert semif([*command, "--epochs", "3"]) == 2
    assert "leave out --epochs" in capsys.readouterr().err
    with (handed / "train.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert semif(command) == 78
    assert "train.jsonl was changed or cut off on the way" in capsys.readouterr().err
    shutil.rmtree(handed)
    assert semif(command) == 69
    assert not (tmp_path / "o").exists()


def test_a_template_is_words_without_a_shell() -> None:
    found = words("ssh big 'train {bundle}; echo $HOME > {out}/x'")
    assert filled(found, Path("/b c"), Path("/o")) == [
        "ssh", "big", "train /b c; echo $HOME > /o/x",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="does not say where the bundle goes"):
        words("sbatch train.sh")
    with pytest.raises(UsageError, match="cannot be read"):
        words("ssh 'big {bundle}")


def test_a_command_that_fails_leaves_what_it_was_handed(home: Path, away: Away) -> None:
    with pytest.raises(SiaError, match="no-such-command cannot be run: No such file"):
        away.hand_over(words("no-such-command {bundle}"), [home], RECIPE)
    with pytest.raises(TuningFailed, match="false ended with 1"):
        away.hand_over(words("false {bundle}"), [home], RECIPE)
    kept = sorted((home / ".sia/dreams").glob("*/bundle"))
    assert len(kept) == 2
    for folder in kept:
        found = bundle.read(folder)
        assert found.turns is None and isinstance(found.decisions, Decisions)
        assert set(found.files) == {"parent/revision.json", "train.jsonl"}


def test_nothing_is_handed_over_for_nothing(home: Path, away: Away) -> None:
    (home / ".sia/labels.jsonl").unlink()
    outcome: Any = away.hand_over(words("false {bundle}"), [home], RECIPE)
    assert outcome == Outcome("nothing", outcome.text)
    assert "no decision has a label" in outcome.text and "no response was approved" in outcome.text


def test_the_command_refuses_before_it_loads_anything(home: Path) -> None:
    where = ["dream", "--home", str(home)]
    for wrong in (["--now", "--on", "x {bundle}"], ["--on", "x {bundle}", "--import", "out"]):
        with pytest.raises(SystemExit) as caught:
            sia([*where, *wrong])
        assert caught.value.code == 2
    with pytest.raises(UsageError, match="does not say where the bundle goes"):
        sia([*where, "--on", ""])
    assert not (home / ".sia/dreams").exists()
