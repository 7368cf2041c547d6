"""What the tests of restart.sh start from."""

import shutil
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from .checkout import Checkout, Running

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


@pytest.fixture
def whole(checkout: Checkout) -> Checkout:
    """A checkout with SIA's own code in it, whose home decides with a tiny model."""
    import msgspec

    from semif.llama import Model
    from semif.models import Source
    from semif.revision import untuned, write
    from semif.testing import write_tiny_model

    pytest.importorskip("gguf")
    unneeded = shutil.ignore_patterns("__pycache__", "revisions", "data")
    for name in "sia", "semif":
        shutil.copytree(ROOT / name, checkout.folder / name, ignore=unneeded)
    for name in "revisions", "data":
        (checkout.folder / "semif" / name).symlink_to(ROOT / "semif" / name)
    paths = [str(checkout.folder), sysconfig.get_paths()["purelib"]]
    (checkout.packages / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    home = checkout.folder
    write_tiny_model(home / "tiny.gguf")
    model = Model.open(home / "tiny.gguf")
    contents = untuned(Source(model.path, model.sha256, model.type), "branches").contents
    model.close()
    whole = msgspec.structs.replace(contents, thresholds={"answers": 0.5})
    revisions = home / ".sia/revisions"
    (revisions / "current").parent.mkdir(parents=True)
    (revisions / "current").write_text(f"{write(whole, {}, revisions).id}\n")
    (home / "sia.toml").write_text(f'[model]\npath = "{home}/tiny.gguf"\nthreads = 1\n')
    return checkout


@pytest.fixture
def running(whole: Checkout) -> Iterator[Running]:
    """SIA at work under restart.sh, ready."""
    running = Running(whole)
    try:
        running.until(lambda: running.said("Ready("))
        yield running
    finally:
        running.end()
