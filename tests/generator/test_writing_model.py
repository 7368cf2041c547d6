"""Writing with the embedded model and the shipped revision, in whichever state that is."""

import threading
from collections.abc import Iterator

import pytest

import semif
from semif.revision import Revision
from semif.writing import pairs
from semif.writing.measure import proven, short_of
from semif.writing.pin import prompts
from semif.writing.tasks import load
from sia.brain import make_generator
from sia.config import Config
from sia.generator.local import LocalGenerator
from sia.generator.types import Unfit

pytestmark = pytest.mark.model
NEVER = threading.Event()
LATE = {"to": "Ada", "request": "tell Ada I'll be 20 minutes late, the bus broke down"}


@pytest.fixture(scope="module")
def shipped() -> Iterator[tuple[LocalGenerator, Revision]]:
    model, revision = semif.load()
    generator = make_generator(Config(), model, revision)
    assert isinstance(generator, LocalGenerator)
    yield generator, revision
    generator.close()
    model.close()


def test_what_is_proven_stands_on_figures(shipped: tuple[LocalGenerator, Revision]) -> None:
    generator, revision = shipped
    assert generator.proven == revision.proven <= set(load().tasks) | {"act"}
    figures = revision.contents.metrics.get("writing")
    if revision.write_path is None:
        assert not revision.proven & set(load().tasks) and figures is None
        return
    assert figures is not None and figures["rows"] >= 300
    assert figures["adapter_sha256"] == revision.contents.adapters.writing
    assert figures["golden_sha256"] == pairs.data_sha256(pairs.read(pairs.golden()))
    assert revision.proven == set(proven(figures["tasks"]))
    assert all(
        short_of(name, figures["tasks"][name]) for name in set(load().tasks) - revision.proven
    )
    assert prompts(revision).version == figures["prompts"]


def test_a_text_keeps_to_the_facts_or_is_not_given(
    shipped: tuple[LocalGenerator, Revision],
) -> None:
    """Proven or not, what comes has the figure and the name, else there is no text."""
    generator, revision = shipped
    try:
        text = generator.compose("message", LATE, cancel=NEVER)
    except Unfit as error:
        assert "the text for message" in str(error) and "message" not in revision.proven
        return
    assert isinstance(text, str) and "20 minutes" in text
    assert "message" not in revision.proven or text.startswith("Hi Ada")


def test_every_proven_task_writes(shipped: tuple[LocalGenerator, Revision]) -> None:
    """The first golden rows of each: most are let through, and none invents a figure."""
    generator, revision = shipped
    for name in sorted(revision.proven - {"act"}):
        rows = [pair for pair in pairs.read(pairs.golden()) if pair.task == name][:4]
        given = 0
        for pair in rows:
            try:
                assert generator.compose(name, pair.given, cancel=NEVER)
                given += 1
            except Unfit:
                continue
        assert given >= 2
