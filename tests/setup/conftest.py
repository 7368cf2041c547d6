"""What the tests of restart.sh start from."""

import shutil
import sys
import venv
from pathlib import Path

import pytest

from .checkout import Checkout

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / ".venv"
    venv.create(folder, symlinks=True, with_pip=False)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, environment: Path) -> Checkout:
    folder = tmp_path.resolve() / "check out"
    shutil.copytree(environment, folder / ".venv", symlinks=True)
    for name in "restart.sh", "pyproject.toml":
        shutil.copy(ROOT / name, folder / name)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made = Checkout(folder, folder / ".venv/lib" / version / "site-packages")
    made.stamp()
    return made
