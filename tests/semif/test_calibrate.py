"""Calibration on rows made so that the right values are known."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from semif.cli.main import main
from semif.cli.measure import _calibration_rows
from semif.errors import DecisionError, FileError
from semif.export import LabelledRow
from semif.log import DecisionLog, Label, append_labels
from semif.measuring.calibrate import ALL, _sides, calibrate, revised, threshold
from semif.measuring.costs import Cost, Costs, shipped_costs, with_costs
from semif.measuring.evaluate import Judged
from semif.measuring.fit import Fit, Scored
from semif.revision import DECIDE, WRITE, Contents, Revision, load, write
from semif.rows import build, shipped_data, split
from semif.testing import ScriptedDecider
from semif.types import Answer, Decision, Option


def judged(
    number: int, outcome: str, logits: Mapping[str, float], phase: str = "p", text: str = ""
) -> Judged:
    options = tuple(Option(id_, f"What {id_} is.") for id_ in logits)
    decision = Decision(
        f"{phase}{number}", phase, {"input": text or f"text {number}"}, "?", options
    )
    weights = {id_: math.exp(logit) for id_, logit in logits.items()}
    answer = Answer(
        decision=decision,
        probs={id_: weight / sum(weights.values()) for id_, weight in weights.items()},
        logits=dict(logits),
        selected=max(logits, key=lambda id_: logits[id_]),
        prompt_version="v",
        prompt_sha256="0" * 64,
        revision="r",
        tokens=1,
        prompt_tokens=1,
        ms=1.0,
        allowed_token_mass=1.0,
        plan={},
    )
    return Judged(LabelledRow(decision, outcome, (), "given", 1.0), answer, 1.0)


def too_sure(count: int, phase: str = "p") -> list[Judged]:
    """Rows whose logits are four times what the outcomes warrant."""
    draw = np.random.default_rng(1)
    rows = []
    for number in range(count):
        true = float(draw.normal(0, 1.5))
        outcome = "yes" if draw.random() < 1 / (1 + math.exp(-true)) else "no"
        rows.append(judged(number, outcome, {"yes": true * 4, "no": 0.0}, phase))
    return rows


@pytest.fixture
def contents(revision_json: dict[str, object]) -> Contents:
    plain = {**revision_json, "temperatures": {"q": 2.0}, "thresholds": {}, "none_bias": {"q": 1.0}}
    return msgspec.convert(plain, Contents)


def test_a_temperature_is_found_and_measured_on_rows_it_has_not_seen(contents: Contents) -> None:
    rows = too_sure(600)
    found = calibrate(rows, contents, Costs({}))
    assert found.fits["p"].temperature == pytest.approx(4, rel=0.15)
    before, after = found.before, found.after
    assert before["ece"] > 0.15 and after["ece"] < 0.05
    assert after["nll"] < before["nll"] and after["brier"] < before["brier"]
    assert after["accuracy"] == before["accuracy"]  # a temperature moves no selection
    assert set(found.curves) == {"p", ALL} and found.thresholds == {}
    # Cross-fitted: fits of four fifths differ a little from that of all.
    assert 0 < abs(after["nll"] - _nll(rows, found.fits["p"].temperature)) < 0.01


def _nll(rows: list[Judged], temperature: float) -> float:
    total = 0.0
    for row in rows:
        z = {id_: math.exp(x / temperature) for id_, x in row.answer.logits.items()}
        total -= math.log(z[str(row.row.outcome)] / sum(z.values()))
    return total / len(rows)


def test_a_fold_has_all_rows_of_a_text(contents: Contents) -> None:
    # One text only, so there are no other rows to fit on: judged as the model said it.
    rows = [judged(i, "yes", {"yes": 8.0, "no": 0.0}, text="One  text") for i in range(10)]
    rows += [judged(i, "no", {"yes": 8.0, "no": 0.0}, text="one text") for i in range(10, 20)]
    found = calibrate(rows, contents, Costs({}))
    assert found.kept == ("p",) and found.fits["p"] == Fit()
    assert found.after["nll"] == pytest.approx(4.0, abs=0.01) == found.before["nll"]


def test_a_phase_with_one_text_keeps_what_its_parent_had(contents: Contents) -> None:
    # As the model says it they are right; the parent's bias, which is one logit, makes them wrong.
    rows = [judged(i, "a", {"a": 0.5, "none": 0.0}, "q", text="one text") for i in range(10)]
    found = calibrate(rows, contents, Costs({}))
    assert found.kept == ("q",) and found.fits["q"] == Fit(2.0, 1.0)
    assert found.before["accuracy"] == found.after["accuracy"] == 0


def test_types_of_a_question_are_calibrated_as_one(contents: Contents, tuned: Revision) -> None:
    rows = [*too_sure(300, "noul"), judged(0, "a", {"a": 1.0, "none": 0.0}, "choice")]
    parent = msgspec.structs.replace(contents, none_bias={"choice": 1.5, "score": -0.5})
    found = calibrate(rows, parent, Costs({}))
    shared = found.fits["noul"].temperature
    assert shared == pytest.approx(4, rel=0.2) and not found.kept
    # One text says nothing about a bias, and no row nothing at all.
    assert found.fits["choice"] == Fit(shared, 1.5) and found.fits["score"] == Fit(shared, -0.5)
    new = revised(Revision(tuned.id, parent), found, "")
    assert {new.temperatures[phase] for phase in ("noul", "choice", "score")} == {shared}
    assert new.none_bias == {"choice": 1.5, "score": -0.5}


def test_a_parent_with_several_temperatures_for_one_family_is_not_kept(contents: Contents) -> None:
    sure = {"yes": math.log(9), "no": 0.0}  # .75 at a temperature of 2, which is right
    rows = [judged(i, "yes" if i % 4 else "no", sure, "noul") for i in range(24)]

    def parent(**temperatures: float) -> Contents:
        return msgspec.structs.replace(contents, temperatures=temperatures)

    found = calibrate(rows, parent(noul=2.0, choice=2.0, score=2.0), Costs({}))
    assert found.kept == ("noul",) and dict(found.fits) == {"noul": Fit(2.0)}
    found = calibrate(rows, parent(noul=2.0, choice=3.0), Costs({}))
    assert not found.kept and set(found.fits) == {"choice", "noul", "score"}
    assert len({each.temperature for each in found.fits.values()}) == 1
    one_text = [judged(i, "yes", sure, "noul", text="one") for i in range(9)]
    assert calibrate(one_text, parent(noul=2.0), Costs({})).kept == ("noul",)


def test_texts_of_one_family_are_in_one_fold() -> None:
    none = np.zeros(2, bool)
    rows = [Scored("noul", none, none, 0)] * 7 + [Scored("choice", none, none, 0)] * 2
    texts = [f"text {i}" for i in range(7)]
    sides = _sides(rows, [*texts, texts[5], texts[2]], 5).tolist()
    assert sides[7:] == [sides[5], sides[2]]
    assert sorted(sides[:7]) == [0, 0, 1, 1, 2, 3, 4]


def test_what_is_chosen_is_chosen_without_the_rows_it_is_judged_on(contents: Contents) -> None:
    # Forty phases of which the model knows how sure it may be: a fit of a few rows is mere chance.
    draw = np.random.default_rng(6)
    rows = []
    for phase in range(40):
        for number in range(15):
            true = float(draw.normal(0, 1))
            outcome = "yes" if draw.random() < 1 / (1 + math.exp(-true)) else "no"
            rows.append(judged(number, outcome, {"yes": true, "no": 0.0}, f"p{phase:02}"))
    found = calibrate(rows, contents, Costs({}))
    gains = {
        phase: before["nll"] - found.after["phases"][phase]["nll"]
        for phase, before in found.before["phases"].items()
    }
    assert 5 < len(found.kept) < 35
    # Chosen on the same rows no phase could lose, and all together would seem to gain.
    assert min(gains.values()) < -0.01 and sum(gains.values()) / 40 < 0.003


def test_a_phase_that_gains_nothing_keeps_what_its_parent_had(contents: Contents) -> None:
    # Right three times in four, and sure as that: a fit of fewer rows can only be worse.
    sure = {"yes": math.log(9), "no": 0.0}  # .75 at the parent's temperature of 2
    rows = [judged(i, "yes" if i % 4 else "no", sure, "q") for i in range(24)]
    kept = msgspec.structs.replace(contents, none_bias={})
    found = calibrate(rows + too_sure(200), kept, Costs({}))
    assert found.kept == ("q",) and found.fits["q"] == Fit(2.0, 0.0)
    assert found.before["phases"]["q"] == found.after["phases"]["q"]
    assert found.fits["p"].temperature > 3


def test_what_is_kept_and_what_is_new(contents: Contents, tuned: Revision) -> None:
    parent = Revision(tuned.id, contents, tuned.folder)
    rows = too_sure(200) + [judged(i, "none", {"a": 2.0, "none": 0.0}, "n") for i in range(40)]
    found = calibrate(rows, contents, Costs({}))
    new = revised(parent, found, "5" * 64)
    assert set(new.temperatures) == {"n", "p", "q"} and new.temperatures["q"] == 2.0
    assert new.none_bias["q"] == 1.0 and new.none_bias["n"] > 2  # "none" was always right
    assert "p" not in new.none_bias
    assert new.parent == tuned.id and new.adapters == contents.adapters
    assert new.metrics["rows"] == 240 and new.metrics["calibration_sha256"] == "5" * 64
    assert new.metrics["ece_before"] == found.before["ece"]
    assert revised(Revision("made-up", contents), found, "").parent == contents.parent
    # The adapter for writing goes along, with what it is proven for and was measured at.
    assert "writing" not in new.metrics
    measured = {"writing": {"prompts": "writing-v1"}, "ece": 0.5}
    writes = msgspec.structs.replace(contents, metrics=measured, proven=("report",))
    again = revised(Revision(tuned.id, writes, tuned.folder), found, "")
    assert again.metrics["writing"] == measured["writing"] and again.proven == ("report",)
    assert again.metrics["ece"] == found.after["ece"]


def test_the_parents_own_calibration_is_what_is_before(contents: Contents) -> None:
    rows = [judged(i, "yes", {"yes": 2.0, "no": 0.0}, "q") for i in range(10)]
    found = calibrate(rows, contents, Costs({}))
    assert found.before["nll"] == pytest.approx(math.log(1 + math.exp(-1)), abs=1e-4)


# thresholds


GATE = Cost("yes", 1.0, 3.0)


def test_bayes_is_by_hand() -> None:
    assert GATE.bayes == 0.25 and Cost("yes", 7, 3).bayes == pytest.approx(0.7)


def test_calibrated_probabilities_are_thresholded_at_bayes() -> None:
    draw = np.random.default_rng(3)
    probs = draw.random(800)
    positive = draw.random(800) < probs
    found = threshold(probs, positive, np.arange(800) % 5, GATE)
    assert found.value == found.bayes == 0.25 and not found.significant
    taken = probs >= 0.25
    by_hand = ((taken & ~positive).sum() * 1 + (~taken & positive).sum() * 3) / 800
    assert found.bayes_cost == pytest.approx(by_hand, abs=1e-4) and found.rows == 800


def test_a_better_threshold_is_taken_where_it_is_significant() -> None:
    # Positive from .6 on: at .25 every row from there to .6 is taken for nothing.
    probs = np.linspace(0, 1, 200)
    found = threshold(probs, probs >= 0.6, np.arange(200) % 5, GATE)
    assert found.significant and found.value == 0.6005
    assert found.empirical_cost < 0.05 < 0.34 < found.bayes_cost < 0.36
    # The same, with too few rows that are positive to say so.
    few = np.concatenate([np.linspace(0, 0.59, 180), np.linspace(0.6, 1, 19)])
    fewer = threshold(few, few >= 0.6, np.arange(199) % 5, GATE)
    assert fewer.value == 0.25 and fewer.empirical > 0.5 and not fewer.significant


def test_what_a_chosen_threshold_costs_is_measured_on_other_rows() -> None:
    draw = np.random.default_rng(10)
    probs, positive = draw.random(60), draw.random(60) < 0.5  # the two have nothing in common
    found = threshold(probs, positive, np.arange(60) % 5, GATE)
    taken = probs >= found.empirical
    flattered = ((taken & ~positive).sum() + 3 * (~taken & positive).sum()) / 60
    assert found.empirical_cost > found.bayes_cost > flattered and found.value == 0.25


def test_of_equal_thresholds_the_nearest_to_bayes_is_taken() -> None:
    probs = np.array([0.1, 0.2, 0.8, 0.9])
    found = threshold(probs, probs > 0.5, np.array([0, 1, 0, 1]), GATE)
    assert found.empirical == 0.25 and found.empirical_cost == 0 == found.bayes_cost


def test_a_threshold_is_set_where_there_is_one_or_its_costs_are_named(contents: Contents) -> None:
    rows = too_sure(100, "contains_request") + too_sure(100, "cover")
    assert calibrate(rows, contents, shipped_costs()).thresholds == {}
    has = msgspec.structs.replace(contents, thresholds={"contains_request": 0.9, "answers": 0.4})
    found = calibrate(rows, has, shipped_costs())
    assert {phase: each.value for phase, each in found.thresholds.items()} == {
        "contains_request": 0.25
    }
    assert revised(Revision("p", has), found, "").thresholds == {
        "contains_request": 0.25,
        "answers": 0.4,
    }
    named = calibrate(rows, contents, with_costs(["cover=4:1"]))
    assert named.thresholds["cover"].bayes == 0.8 and set(named.thresholds) == {"cover"}
    with pytest.raises(DecisionError, match="interrupt: no row has two options, one of them 'int"):
        calibrate(rows, contents, with_costs(["interrupt=1:1"]))


def test_costs_are_read() -> None:
    costs = with_costs(["interrupt=2:0.5", "mine=1:4"])
    assert costs.phases["interrupt"] == Cost("interrupt", 2.0, 0.5)
    assert costs.phases["mine"] == Cost("yes", 1.0, 4.0)
    assert costs.named == {"interrupt", "mine"} and not shipped_costs().named
    assert "mine" not in shipped_costs().phases
    assert shipped_costs().phases["contains_request"].bayes == 0.25
    for wrong in ("p", "p=1", "p=1:2:3", "p=0:1", "p=1:-1", "p=a:1", "=1:1", "p=inf:1", "p=nan:1"):
        with pytest.raises(DecisionError, match="--costs"):
            with_costs([wrong])


# files and the command


def test_the_new_revision_is_whole_and_has_the_same_adapters(
    tmp_path: Path, tuned: Revision
) -> None:
    adapters = {DECIDE: tuned.decide_path, WRITE: tuned.write_path}
    changed = msgspec.structs.replace(tuned.contents, temperatures={"p": 3.0})
    new = write(changed, adapters, tmp_path)
    assert new.folder == tmp_path / new.id and new.id != tuned.id
    assert new.decide_path and tuned.decide_path
    assert new.decide_path.read_bytes() == tuned.decide_path.read_bytes()
    assert load(new.folder).contents.temperatures == {"p": 3.0}
    again = write(new.contents, adapters, tmp_path)
    assert again.id == new.id
    assert [path.name for path in tmp_path.glob("[!r]*")] == [new.id]  # nothing half-made is left
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(FileError, match="cannot be written"):
        write(new.contents, adapters, file)


def rows_of(path: Path, tiny_texts: int = 30) -> Path:
    lines = []
    for i in range(tiny_texts):
        for phase, ids in (("gate", ("yes", "no")), ("way", ("a", "b", "none"))):
            row: dict[str, Any] = {
                "id": f"{phase}{i}",
                "phase": phase,
                "state": f"text {i}",
                "question": "Which?",
                "options": [{"id": id_, "description": f"What {id_} is."} for id_ in ids],
                "observed_outcome": ids[i % 2],
            }
            lines.append(json.dumps(row))
    path.write_text("\n".join(lines))
    return path


def test_the_command_writes_a_revision_and_a_diagram(
    tmp_path: Path, tiny_path: Path, tuned: Revision, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, out, plot = rows_of(tmp_path / "rows.jsonl"), tmp_path / "out", tmp_path / "plot.png"
    command = ["calibrate", str(rows), "--model", str(tiny_path), "--out", str(out)]
    command += ["--revision", str(tuned.folder), "--threads", "1"]
    assert main([*command, "--costs", "gate=1:4", "--plot", str(plot), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    new = load(out / found["revision"])
    assert found["folder"] == str(new.folder) and new.contents.parent == tuned.id == found["parent"]
    assert set(found["before"]["phases"]) == {"gate", "way"} == set(found["after"]["phases"])
    assert new.temperature("gate") == found["fits"]["gate"]["temperature"]
    assert new.threshold("gate") == found["thresholds"]["gate"]["value"] == 0.2
    assert new.threshold("interrupt") == 0.7  # the parent's; no row speaks about it
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and plot.stat().st_size > 20_000
    assert main(command) == 0
    text = capfd.readouterr().out
    assert text.splitlines()[0] == "60 rows, 0 failed; after: 5-fold cross-fitted"
    assert Path(text.splitlines()[-1]).parent == out and "temperature" in text


def test_the_command_takes_a_home(
    tmp_path: Path,
    tiny_path: Path,
    make: Callable[..., Decision],
    capfd: pytest.CaptureFixture[str],
) -> None:
    state = tmp_path / "home" / ".sia"
    state.mkdir(parents=True)
    answers = ScriptedDecider(lambda d: "a").decide([make()])
    DecisionLog(state / "decisions.jsonl").append(answers, "r1")
    command = ["calibrate", str(tmp_path / "home"), "--model", str(tiny_path)]
    command += ["--out", str(tmp_path / "out")]
    assert main(command) == 1
    assert "there is no row to calibrate on" in capfd.readouterr().err
    labels = state / "labels.jsonl"
    append_labels(labels, [Label.new("d1", "r1", "is", "b", "human", "ann")])
    append_labels(labels, [Label.new("d2", "r1", "is", "b", "human", "ann")])
    assert main(command) == 1  # a label of a row that is not there
    out, err = capfd.readouterr()
    assert out.startswith("1 rows, 1 failed") and "the row d2 is labelled but not in" in err
    new = load(Path(out.splitlines()[-1]))
    # Made for a model as it is, which lies in no folder.
    assert new.contents.parent is None and new.contents.base.sha256 == _sha256(tiny_path)


def test_the_default_rows_are_said_to_flatter(capfd: pytest.CaptureFixture[str]) -> None:
    rows = _calibration_rows(None, print)
    assert "its figures flatter" in capfd.readouterr().err
    held_out = split(build(shipped_data(), 0))[1]
    assert [entry.id for entry in rows] == [row.decision.id for row in held_out]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_usage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(tmp_path / "rows.jsonl", 1)
    command = ["calibrate", str(rows), "--out", str(tmp_path / "out")]
    assert main([*command, "--costs", "gate=0:4"]) == 2
    assert "--costs: 'gate=0:4': must be" in capfd.readouterr().err
    # Said before any model is looked for.
    assert main([*command, "--costs", "gaet=1:4", "--model", str(tmp_path / "none.gguf")]) == 2
    assert "--costs: gaet: no row has two options, one of them 'yes'" in capfd.readouterr().err
    for wrong in (["--folds", "1"], ["--limit", "0"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, *wrong])
        assert caught.value.code == 2
    assert main(["calibrate", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
