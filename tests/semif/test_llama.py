from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from semif.errors import Aborted, ModelError
from semif.llama import Model, Session, build


def logits_of(model: Model, tokens: list[int], **options: object) -> np.ndarray:
    with Session(model, 256, threads=1, **options) as session:  # type: ignore[arg-type]
        session.decode(tokens, range(len(tokens)), [[0]] * len(tokens), [len(tokens) - 1])
        return session.logits(len(tokens) - 1)


def test_tokens_round_trip_and_control_tokens_are_a_choice(tiny: Model) -> None:
    text = "hé 漢😀\0\n<|im_end|> yes"
    plain, special = tiny.tokenize(text, special=False), tiny.tokenize(text, special=True)
    end = tiny.tokenize("<|im_end|>", special=True)
    assert tiny.detokenize(plain) == text
    assert tiny.detokenize(special) == text
    assert len(end) == 1 and tiny.ends(end[0]) and tiny.eos == end[0]
    assert end[0] in special and end[0] not in plain
    assert tiny.piece(end[0]) == b"<|im_end|>" and tiny.piece(end[0], special=False) == b""
    assert tiny.tokenize("", special=True) == []


def test_metadata(tiny: Model) -> None:
    assert tiny.meta("general.architecture") == "llama"
    assert tiny.meta("no.such.key") is None
    assert tiny.chat_template is not None and "<|im_start|>" in tiny.chat_template
    assert tiny.type == "f32" and tiny.n_vocab == 264 and tiny.n_ctx_train == 8192
    assert not tiny.adds_bos and len(tiny.sha256) == 64
    assert build().startswith("llama-cpp-python 0.")


def test_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file") as caught:
        Model.open(tmp_path / "none.gguf")
    assert caught.value.exit_code == 69


@pytest.mark.parametrize("keep", [0, 3, 1000, 200_000])
def test_damaged_model(tmp_path: Path, tiny_path: Path, keep: int, capfd: object) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_path.read_bytes()[:keep])
    with pytest.raises(ModelError) as caught:
        Model.open(path)
    assert caught.value.exit_code == 78 and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")  # type: ignore[attr-defined]


def test_an_adapter_changes_logits(tiny: Model, tiny_adapter: Path) -> None:
    without = logits_of(tiny, [1, 2, 3])
    with_it = logits_of(tiny, [1, 2, 3], adapter=tiny.adapter(tiny_adapter))
    assert np.abs(without - with_it).max() > 0.01
    assert np.array_equal(without, logits_of(tiny, [1, 2, 3]))


def test_an_adapter_is_loaded_once(tiny_path: Path, tiny_adapter: Path, tmp_path: Path) -> None:
    copy = tmp_path / "decide.gguf"
    copy.write_bytes(tiny_adapter.read_bytes())
    (tmp_path / "link.gguf").symlink_to(copy)
    model = Model.open(tiny_path)
    first = model.adapter(copy)
    assert (
        model.adapter(copy).handle == first.handle == model.adapter(tmp_path / "link.gguf").handle
    )
    assert model.adapter(tiny_adapter).handle != first.handle
    os.utime(copy, ns=(1, 1))  # written anew
    assert model.adapter(copy).handle != first.handle
    gone = weakref.ref(model)
    del model, first
    gc.collect()
    assert gone() is None


def test_an_adapter_for_another_base_is_refused(
    tiny: Model, tiny_path: Path, tmp_path: Path, tiny_adapter: Path
) -> None:
    import semif

    with pytest.raises(ModelError, match="another base") as caught:
        tiny.adapter(semif.shipped() / "decide.gguf")
    assert caught.value.exit_code == 78
    with pytest.raises(ModelError, match="adapter"):
        tiny.adapter(tiny_path)
    (tmp_path / "cut.gguf").write_bytes(tiny_adapter.read_bytes()[:2000])
    with pytest.raises(ModelError, match="damaged"):
        tiny.adapter(tmp_path / "cut.gguf")
    other = Model.open(tiny_path)
    with pytest.raises(ModelError, match="was loaded for"):
        Session(tiny, 64, threads=1, adapter=other.adapter(tiny_adapter))
    other.close()


def test_one_decode_over_sequences_equals_separate_ones(tiny: Model) -> None:
    prefix, left, right = [5, 6, 7, 8], [10, 11], [12]
    with Session(tiny, 256, threads=1, n_seq=2) as session:
        session.decode(
            prefix + left + right,
            [0, 1, 2, 3, 4, 5, 4],
            [[0, 1]] * 4 + [[0]] * 2 + [[1]],
            [5, 6],
        )
        np.testing.assert_allclose(session.logits(5), logits_of(tiny, prefix + left), atol=1e-3)
        np.testing.assert_allclose(session.logits(6), logits_of(tiny, prefix + right), atol=1e-3)
        assert (session.length(0), session.length(1)) == (6, 5)


def test_keep_copy_and_clear(tiny: Model) -> None:
    with Session(tiny, 256, threads=1, n_seq=2) as session:
        session.decode([1, 2, 3, 4], range(4), [[0]] * 4)
        session.copy(0, 1, 0, 2)
        session.decode([9], [2], [[1]], [0])
        np.testing.assert_allclose(session.logits(0), logits_of(tiny, [1, 2, 9]), atol=1e-3)
        session.keep(0, 3)
        assert (session.length(0), session.length(1)) == (3, 3)
        session.clear(1)
        assert (session.length(0), session.length(1)) == (3, 0)
        session.clear()
        assert session.length(0) == 0


def test_more_tokens_than_a_batch_are_split(tiny: Model) -> None:
    tokens = [i % 250 for i in range(50)]
    with Session(tiny, 256, threads=1, n_batch=16) as session:
        session.decode(tokens, range(50), [[0]] * 50, [15, 49])
        np.testing.assert_allclose(session.logits(49), logits_of(tiny, tokens), atol=1e-3)
        np.testing.assert_allclose(session.logits(15), logits_of(tiny, tokens[:16]), atol=1e-3)
        with pytest.raises(KeyError):
            session.logits(3)


@pytest.mark.parametrize(
    ("tokens", "seqs", "wanted"),
    [([], [], []), ([1], [[2]], []), ([1], [[]], []), ([1], [[0]], [1]), ([1, 2], [[0]], [])],
)
def test_misuse_is_refused_before_llama_aborts(
    tiny: Model, tokens: list[int], seqs: list[list[int]], wanted: list[int]
) -> None:
    with Session(tiny, 64, threads=1, n_seq=2) as session, pytest.raises(ValueError):
        session.decode(tokens, range(len(tokens)), seqs, wanted)
    with pytest.raises(ValueError, match="closed"):
        session.decode([1], [0], [[0]])


def test_more_rows_than_sequences_are_refused(tiny: Model) -> None:
    with Session(tiny, 64, threads=1) as session, pytest.raises(ValueError, match="at most 1 rows"):
        session.decode([1, 2], [0, 1], [[0], [0]], [0, 1])


def test_a_full_context_leaves_what_was_there(tiny: Model) -> None:
    with Session(tiny, 256, threads=1, n_batch=64) as session:
        n = session.n_ctx
        session.decode([1] * 100, range(100), [[0]] * 100)
        with pytest.raises(ModelError, match="full"):
            session.decode([1] * n, range(100, 100 + n), [[0]] * n)
        assert session.length(0) == 100


def test_abort_stops_a_running_decode_and_forgets_its_tokens(tiny: Model) -> None:
    asked = []

    def stop() -> bool:
        asked.append(threading.get_ident())
        return len(asked) > 3  # the first question comes before llama.cpp is entered

    with Session(tiny, 512, threads=1) as session:
        session.decode([1, 2, 3], range(3), [[0]] * 3)
        session.abort = stop
        with pytest.raises(Aborted):
            session.decode([4] * 300, range(3, 303), [[0]] * 300, [299])
        assert len(asked) == 4 and session.length(0) == 3
        session.abort = None
        session.decode([9], [3], [[0]], [0])
        np.testing.assert_allclose(session.logits(0), logits_of(tiny, [1, 2, 3, 9]), atol=1e-3)


def test_sessions_are_freed_without_close(tiny: Model) -> None:
    session = Session(tiny, 64, threads=1)
    gone, freed = weakref.ref(session), session._free
    del session
    gc.collect()
    assert gone() is None and not freed.alive


def test_closing_a_model_closes_its_sessions_first(tiny_path: Path) -> None:
    model = Model.open(tiny_path)
    session = Session(model, 64, threads=1)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        session.decode([1], [0], [[0]])
    session.close()
    model.close()


def test_sequences_are_bounded(tiny: Model) -> None:
    with pytest.raises(ValueError, match="256"):
        Session(tiny, 64, threads=1, n_seq=257)
