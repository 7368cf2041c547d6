from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

import semif
from semif.engine import Engine, select, softmax
from semif.errors import DecisionError, ModelError
from semif.llama import Model
from semif.models import Source
from semif.revision import Readout, Revision, untuned
from semif.types import Answer, Decider, Decision, Option

Make = Callable[..., Decision]


def test_is_a_decider(tiny: Model, plain: Revision, make: Make) -> None:
    with Engine(tiny, plain, 1) as engine:
        assert isinstance(engine, Decider)
        assert engine.revision == plain.id
        assert engine.decide([]) == []
        answer = engine.decide([make("b", "a")])[0]
    assert list(answer.probs) == ["a", "b"] and sum(answer.probs.values()) == pytest.approx(1)
    assert answer.selected == max(answer.probs, key=lambda id_: answer.probs[id_])
    assert answer.revision == plain.id and answer.prompt_version == "branches-v1"
    assert answer.ms > 0 and len(answer.prompt_sha256) == 64
    assert set(answer.plan) == {"build", "threads", "n_batch", "splits", "neighbours"}


def test_a_malformed_decision_is_refused(tiny: Model, plain: Revision, make: Make) -> None:
    with Engine(tiny, plain, 1) as engine, pytest.raises(DecisionError, match="no decision"):
        engine.decide([make(), make("only")])


def test_temperature_and_none_bias_of_the_phase(tiny: Model, tuned: Revision, make: Make) -> None:
    options = (Option("a"), Option("none"), Option("z"))

    def ask(phase: str) -> Answer:
        return engine.decide([replace(make(phase=phase), options=options)])[0]

    with Engine(tiny, tuned, 1) as engine:
        engine.decide([replace(make(), options=options)])  # now all three use one plan
        as_is, warm, biased = ask("other"), ask("warm"), ask("biased")
    assert as_is.logits == warm.logits == biased.logits
    assert as_is.probs == softmax(as_is.logits)
    assert warm.probs == softmax({id_: x / 2 for id_, x in as_is.logits.items()})
    assert biased.probs == softmax({**as_is.logits, "none": as_is.logits["none"] + 1.5})


@pytest.mark.parametrize("readout", ["branches", "letters"])
def test_what_is_forgotten_changes_no_bit(
    tiny: Model, tiny_source: Source, readout: Readout, make: Make
) -> None:
    first, second = make("a", "b", state="some text"), make("a", "b", "c", state="some other")
    revision = untuned(tiny_source, readout)
    with Engine(tiny, revision, 1) as fresh:
        (alone,) = fresh.decide([second])
    with Engine(tiny, revision, 1) as engine:
        engine.decide([first])
        assert engine.decide([second])[0].tokens < alone.tokens  # a beginning was kept
        engine.forget()
        (again,) = engine.decide([second])
    assert (again.logits, again.plan) == (alone.logits, alone.plan)
    assert again.tokens == alone.tokens == alone.prompt_tokens


def test_a_readout_with_the_prompt_of_another_is_refused(tiny: Model, plain: Revision) -> None:
    contents = msgspec.structs.replace(plain.contents, prompt_version="direct-options-v1")
    with pytest.raises(ModelError, match="not made for"):
        Engine(tiny, replace(plain, contents=contents), 1)


def test_softmax_and_ties() -> None:
    probs = softmax({"a": 1000.0, "b": 1000.0 - math.log(3)})
    assert probs == pytest.approx({"a": 0.75, "b": 0.25})
    assert select({"b": 0.4, "a": 0.4, "c": 0.2}) == "a"


def test_two_engines_in_two_threads_agree(tiny: Model, tuned: Revision, make: Make) -> None:
    decisions = [make(state=f"text {i}", question=f"{i % 3}?") for i in range(30)]
    results: dict[int, list[Answer]] = {}

    def work(n: int) -> None:
        with Engine(tiny, tuned, 1) as engine:
            results[n] = [engine.decide([decision])[0] for decision in decisions]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [a.logits for a in results[0]] == [a.logits for a in results[1]]
    assert len(results[0]) == 30


def test_the_package_offers_what_it_says() -> None:
    assert all(hasattr(semif, name) for name in semif.__all__)
