"""A tiny model, a home's revisions with one of it, and a gate of that size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from semif.llama import Model
from semif.revision import Registry
from semif.testing import write_tiny_model
from sia.dream import measured, proof

sys.path.insert(0, str(Path(__file__).parent))
import asking  # noqa: E402  (a module of its own: other processes import it too)


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
def registry(home: Path, model: Model) -> Registry:
    """With an adapterless revision of the tiny model pinned."""
    folder = home / ".sia/revisions"
    (folder / "current").write_text(f"{asking.first_revision(model, folder).id}\n")
    return Registry(folder)


@pytest.fixture
def small_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the same kind that are logged nowhere are the golden ones."""
    golden = asking.rows("g", "sun map net cup".split())
    monkeypatch.setattr(measured, "golden", lambda: list(golden))
    monkeypatch.setattr(proof, "GOLDEN_ROWS", 40)
    monkeypatch.setattr(proof, "SLOWER", 100.0)  # an adapter on a tiny model costs more than it
    monkeypatch.setattr(proof, "ECE_RISE", 1.0)  # of 40 rows
