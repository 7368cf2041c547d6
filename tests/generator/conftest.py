"""A tiny random model with every byte in its vocabulary: mechanics, not quality."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from semif.llama import Model
from semif.testing import write_tiny_model
from sia.generator.local import LocalGenerator


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generator") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Model:
    return Model.open(tiny_path)


@pytest.fixture
def local(tiny: Model) -> Iterator[Callable[..., LocalGenerator]]:
    """Makes generators on the tiny model, and closes them."""
    with ExitStack() as stack:

        def make(model: Model = tiny, **settings: Any) -> LocalGenerator:
            settings = {"n_ctx": 1024, "threads": 1, "max_tokens": 64, "seed": 1} | settings
            generator = LocalGenerator(model, **settings)
            stack.callback(generator.close)
            return generator

        yield make
