"""An agent of scripted doubles over a temporary home."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"sia_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def rigs() -> ModuleType:
    """The module of the rig: also what a child process runs."""
    return _load("rig")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where scripts may write; they are run without walls here, which have tests of their own."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "sia.toml").write_text(
        '[person]\ntimezone = "Europe/Berlin"\n[scripts]\npolicy = "allow"\n'
    )
    return folder


@pytest.fixture
def make(rigs: ModuleType, home: Path) -> Iterator[Callable[..., object]]:
    """make(replies, **more): an agent over ``home``; ended after the test, if need be."""
    made = []

    def make(replies: object = (), **more: object) -> object:
        made.append(rigs.Rig(more.pop("folder", home), replies, **more))
        return made[-1]

    yield make
    for rig in made:
        rig.kill()


@pytest.fixture
def skill(rigs: ModuleType, home: Path) -> Callable[..., None]:
    """skill(name, code, actions=..., more=...): write a skill into the home."""
    return lambda name, code, **more: rigs.write_skill(home, name, code, **more)
