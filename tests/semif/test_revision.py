from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from semif.engine import load as load_both
from semif.errors import ModelError
from semif.models import Source
from semif.revision import Registry, load, shipped, untuned

Write = Callable[[Path, object], str]


def test_the_shipped_revision() -> None:
    revision = load(shipped())
    assert revision.contents.base.sha256 == (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    )
    assert revision.decide_path == shipped() / "decide.gguf"
    assert revision.write_path == shipped() / "write.gguf"
    assert revision.proven == {"message"} and revision.contents.readout == "branches"
    assert revision.threshold("interrupt") == 0.25 and revision.threshold("new") == 0.5
    assert revision.temperature("new") == 1.0 and revision.none_bias("new") == 0.0
    assert revision.contents.parent == load(shipped().with_name("second")).id
    assert len(revision.id) == 12


def test_reads_what_is_pinned(
    tmp_path: Path, revision_json: dict[str, object], write_revision: Write
) -> None:
    id_ = write_revision(tmp_path, revision_json)
    revision = load(tmp_path / id_)
    assert revision.id == id_ and revision.proven == {"report"}
    assert revision.temperature("warm") == 2.0 and revision.threshold("interrupt") == 0.7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"readout": "tea leaves"}, "tea leaves"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"temperatures": {"x": 0}}, "above 0"),
        ({"thresholds": {"x": "high"}}, "Expected `float`"),
        ({"adapters": {"deciding": "0" * 64, "writing": None}}, "was changed"),
        ({"adapters": {"deciding": None, "writing": "0" * 64}}, "lacks its adapter"),
    ],
)
def test_a_damaged_revision_is_refused(
    tmp_path: Path,
    revision_json: dict[str, object],
    write_revision: Write,
    change: dict[str, object],
    words: str,
) -> None:
    id_ = write_revision(tmp_path, {**revision_json, **change})
    with pytest.raises(ModelError, match=words) as caught:
        load(tmp_path / id_)
    assert caught.value.exit_code == 78 and "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\0" * 9, b"[]", b"\xff", b'{"parent": null}'])
def test_a_torn_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "revision.json").write_bytes(data)
    with pytest.raises(ModelError, match="damaged") as caught:
        load(tmp_path)
    assert caught.value.exit_code == 78


def test_a_missing_revision(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no revision in") as caught:
        load(tmp_path / "none")
    assert caught.value.exit_code == 69


def test_another_base_is_refused(tiny_path: Path) -> None:
    with pytest.raises(ModelError, match="made for a model with sha256 b179c9523d0e") as caught:
        load_both(str(tiny_path), shipped())
    assert caught.value.exit_code == 78 and "\n" not in str(caught.value)


def test_another_readout_is_refused(
    tmp_path: Path, tiny_path: Path, revision_json: dict[str, object], write_revision: Write
) -> None:
    folder = tmp_path / write_revision(tmp_path, revision_json)
    model, revision = load_both(str(tiny_path), folder)
    assert model.path == tiny_path.resolve() and revision.folder == folder
    with pytest.raises(ModelError, match="reads branches, not letters"):
        load_both(str(tiny_path), folder, "letters")
    quantised = {**revision_json, "base": {"sha256": model.sha256, "type": "q8_0"}}
    with pytest.raises(ModelError, match="is f32, the revision wants q8_0"):
        load_both(str(tiny_path), tmp_path / write_revision(tmp_path, quantised))


def test_an_untuned_revision_has_an_id_of_its_own() -> None:
    source = Source(Path("x"), "0" * 64, "f16")
    ids = {untuned(source, "branches").id, untuned(source, "letters").id}
    assert len(ids) == 2 and untuned(source, "letters").id in ids
    assert untuned(source, "letters").contents.prompt_version == "direct-options-v1"


def test_registry(tmp_path: Path, revision_json: dict[str, object], write_revision: Write) -> None:
    folder = tmp_path / ".sia" / "revisions"
    registry = Registry(folder)
    assert registry.ids() == () and registry.pending() is None
    assert registry.current() == load(shipped())
    one = write_revision(folder, revision_json)
    two = write_revision(folder, {**revision_json, "parent": one})
    assert registry.ids() == tuple(sorted((one, two)))
    registry.swap(two)
    assert (folder / "current").read_text() == (folder / "pending").read_text() == f"{two}\n"
    assert registry.current().contents.parent == one and registry.pending() == two
    registry.confirm()
    registry.confirm()
    assert registry.pending() is None and registry.current().id == two
    with pytest.raises(ModelError):
        registry.swap("0" * 12)
    assert registry.current().id == two and registry.pending() is None


@pytest.mark.parametrize("text", ["", "../../etc", "\0\0", "starter"])
def test_a_pin_that_names_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "current").write_text(text)
    with pytest.raises(ModelError, match="names no revision; delete it") as caught:
        Registry(tmp_path).current()
    assert caught.value.exit_code == 78


def test_a_changed_revision_is_noticed(
    tmp_path: Path, revision_json: dict[str, object], write_revision: Write
) -> None:
    id_ = write_revision(tmp_path, revision_json)
    (tmp_path / id_ / "revision.json").write_text(json.dumps({**revision_json, "proven": []}))
    with pytest.raises(ModelError, match="was changed"):
        Registry(tmp_path).get(id_)
