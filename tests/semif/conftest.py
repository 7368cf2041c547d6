"""Models for these tests: a tiny random one for mechanics, the embedded one for claims."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import semif
from semif.llama import Model
from semif.models import Source
from semif.revision import Revision, load, untuned
from semif.testing import write_tiny_adapter, write_tiny_model
from semif.types import Decision, Option, State

MakeDecision = Callable[..., Decision]


@pytest.fixture(scope="session")
def data() -> Path:
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="session")
def tiny_adapter(tiny_path: Path) -> Path:
    path = tiny_path.with_name("adapter.gguf")
    write_tiny_adapter(path)
    return path


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Iterator[Model]:
    model = Model.open(tiny_path)
    yield model
    model.close()


@pytest.fixture(scope="session")
def tiny_source(tiny: Model) -> Source:
    return Source(tiny.path, tiny.sha256, tiny.type)


@pytest.fixture(scope="session")
def plain(tiny_source: Source) -> Revision:
    """The tiny model as it is, read by branches."""
    return untuned(tiny_source, "branches")


@pytest.fixture
def revision_json(tiny: Model, tiny_adapter: Path) -> dict[str, object]:
    """The contents of a revision of the tiny model, to be changed by the test."""
    return {
        "parent": None,
        "base": {"sha256": tiny.sha256, "type": "f32"},
        "adapters": {
            "deciding": hashlib.sha256(tiny_adapter.read_bytes()).hexdigest(),
            "writing": None,
        },
        "proven": ["report"],
        "readout": "branches",
        "prompt_version": "branches-v1",
        "temperatures": {"warm": 2.0},
        "thresholds": {"interrupt": 0.7},
        "none_bias": {"biased": 1.5},
        "data_sha256": None,
        "metrics": {},
    }


@pytest.fixture
def write_revision(tiny_adapter: Path) -> Callable[[Path, object], str]:
    """Write a revision folder under `parent`, named by its id, which is returned."""

    def write(parent: Path, contents: object) -> str:
        text = json.dumps(contents)
        id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
        (parent / id_).mkdir(parents=True)
        (parent / id_ / "revision.json").write_text(text)
        (parent / id_ / "decide.gguf").write_bytes(tiny_adapter.read_bytes())
        return id_

    return write


@pytest.fixture
def tuned(
    tmp_path: Path,
    revision_json: dict[str, object],
    write_revision: Callable[[Path, object], str],
) -> Revision:
    """The tiny model with the tiny adapter."""
    return load(tmp_path / "revisions" / write_revision(tmp_path / "revisions", revision_json))


@pytest.fixture
def make() -> MakeDecision:
    """A decision with the given option ids."""

    def decision(
        *ids: str, state: State = "some text", question: str = "Which?", phase: str = "test"
    ) -> Decision:
        options = tuple(Option(id_, f"What {id_} stands for.") for id_ in ids or ("a", "b"))
        return Decision("d1", phase, state, question, options)

    return decision


@pytest.fixture(scope="session")
def real() -> Iterator[tuple[Model, Revision]]:
    """The embedded model with the shipped revision."""
    model, revision = semif.load()
    yield model, revision
    model.close()


@pytest.fixture(scope="session")
def intake() -> list[Decision]:
    """The three decisions that every input meets, on one state."""
    state = {"current_process": "none", "input": "remind me to feed the cat tomorrow at 9"}

    def decision(phase: str, question: str, **options: str) -> Decision:
        described = tuple(Option(id_, text) for id_, text in options.items())
        return Decision(phase, phase, state, question, described)

    return [
        decision(
            "contains_request",
            "Does this message ask for something to be done?",
            yes="The message asks for something to be done.",
            no="Thanks, small talk or a remark; nothing is asked.",
        ),
        decision(
            "interrupt",
            "Must the running process be interrupted?",
            interrupt="Stop the running process at once.",
            defer="The running process can go on; this can wait.",
        ),
        decision(
            "urgency",
            "How urgent is this request?",
            critical="A danger or an outage in progress; act this second.",
            high="Due within hours or someone is blocked.",
            medium="Should be done in the next days.",
            low="No deadline; any time will do.",
        ),
    ]
