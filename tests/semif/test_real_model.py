"""Claims about the embedded model with the shipped revision."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from semif.engine import Engine, load
from semif.letters import Letters
from semif.llama import Model
from semif.prompting import LettersPrompt, load_prompt
from semif.revision import Revision, shipped
from semif.revision import load as load_revision
from semif.types import Answer, Decision

pytestmark = pytest.mark.model
Real = tuple[Model, Revision]
# What a margin may move when the evaluation plan is another one, on F16.
TOLERANCE = 0.05


@pytest.fixture(scope="module")
def parity(data: Path) -> list[tuple[Decision, list[float]]]:
    rows = [json.loads(line) for line in (data / "parity.jsonl").read_text().splitlines()]
    return [(Decision.from_json(row, "parity"), row["margin_f16"]) for row in rows]


def starter(real: Real) -> Real:
    """With the adapter that the margins of `parity` are of; the shipped one was tuned from it."""
    return real[0], load_revision(shipped().with_name("starter"))


def equal(one: Answer, other: Answer) -> bool:
    """Equal as verification and replay mean it."""
    return one.selected == other.selected and all(
        abs(one.probs[id_] - other.probs[id_]) <= 0.01 for id_ in one.probs
    )


def test_the_shipped_revision_is_chosen(real: Real) -> None:
    model, revision = real
    assert revision.folder == shipped() and model.type == "f16"
    assert model.sha256.startswith("a269e318") and model.sha256.endswith("ccd0")


def test_parity_with_training_alone_and_together(
    real: Real, parity: list[tuple[Decision, list[float]]]
) -> None:
    real = starter(real)
    decisions = [decision for decision, _ in parity]
    alone: list[Answer] = []
    with Engine(*real) as engine:
        warm = [engine.decide([decision])[0] for decision in decisions]
        together = engine.decide(decisions[:8])
    for decision in decisions[:4]:
        with Engine(*real) as engine:
            alone += engine.decide([decision])
    for answers in (warm, together, alone):
        for answer, (_, margins) in zip(answers, parity, strict=False):
            assert list(answer.logits.values()) == pytest.approx(margins, abs=TOLERANCE)
    # From an empty memory, from a full one and among neighbours: equal.
    assert all(equal(a, b) for a, b in zip(alone, warm, strict=False))
    assert all(equal(a, b) for a, b in zip(warm, together, strict=False))
    assert max(a.plan["neighbours"] for a in together) > 0


def test_the_same_plan_gives_the_same_bits(real: Real, intake: list[Decision]) -> None:
    runs = []
    for _ in range(2):
        with Engine(*real) as engine:
            runs.append([(a.logits, a.probs) for _ in range(2) for a in engine.decide(intake)])
    assert runs[0] == runs[1]


def test_intake_is_read_in_one_decode_and_criteria_are_kept(
    real: Real, intake: list[Decision]
) -> None:
    with Engine(*real) as engine:
        cold = engine.decide(intake)
        warm = engine.decide(intake)
    assert [a.selected for a in cold] == [a.selected for a in warm] == ["yes", "defer", "medium"]
    assert all(equal(a, b) for a, b in zip(cold, warm, strict=True))
    assert [a.plan["neighbours"] for a in warm] == [2, 2, 2]
    evaluated, whole = sum(a.tokens for a in warm), sum(a.prompt_tokens for a in warm)
    assert sum(a.tokens for a in cold) == whole == 223
    assert evaluated == 75


def test_the_order_of_options_cannot_matter(
    real: Real, parity: list[tuple[Decision, list[float]]]
) -> None:
    shuffle = random.Random(7)
    with Engine(*real) as engine:
        for decision, _ in parity[:6]:
            options = list(decision.options)
            shuffle.shuffle(options)
            engine.decide([decision])
            pair = [decision, replace(decision, options=tuple(options))]
            one, other = (engine.decide([d])[0] for d in pair)
            assert one.logits == other.logits and one.selected == other.selected


def test_two_engines_in_two_threads(real: Real, parity: list[tuple[Decision, list[float]]]) -> None:
    real = starter(real)
    results: dict[int, list[Answer]] = {}

    def work(n: int) -> None:
        with Engine(*real, threads=1) as engine:
            results[n] = [engine.decide([decision])[0] for decision, _ in parity[:8]]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2):
        for answer, (_, margins) in zip(results[n], parity[:8], strict=True):
            assert list(answer.logits.values()) == pytest.approx(margins, abs=TOLERANCE)


def test_letters_are_byte_compatible(real: Real, data: Path) -> None:
    prompt = load_prompt("direct-options-v1")
    assert isinstance(prompt, LettersPrompt)
    readout = Letters(real[0], prompt, None, 2, 1024)
    rows = [json.loads(line) for line in (data / "fixture.jsonl").read_text().splitlines()]
    for row in rows:
        decision = Decision.from_json(row, "fixture")
        text, tokens = readout.prompt(decision)
        reading = readout.read([decision])[0]
        assert text == row["prompt"]
        assert reading.prompt_sha256 == row["prompt_sha256"]
        assert len(tokens) == reading.prompt_tokens == row["tokens"]
        assert reading.prompt_version == row["prompt_version"]
        assert 0 < reading.mass < 1
    readout.session.close()
    assert len(rows) == 3


def test_letters_of_the_untuned_model() -> None:
    model, revision = load(readout="letters")
    assert revision.decide_path is None and revision.contents.base.type == "q4_1"
    model.close()
