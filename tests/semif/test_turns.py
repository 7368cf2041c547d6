"""Turns learned by the trainer of the writing adapter, alone and from a bundle, on a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from semif import bundle, revision
from semif.bundle import Decisions, Turns
from semif.chat import Chat, Part
from semif.cli.main import main
from semif.errors import DecisionError, ModelError
from semif.export import LabelledRow
from semif.llama import Model, Session
from semif.models import Source
from semif.revision import Revision
from semif.types import Decision, Option
from semif.writing import turns
from semif.writing.measure import bars
from semif.writing.pairs import Pair, data_sha256, golden, read
from semif.writing.pin import pin
from semif.writing.turns import Turn

NOUNS = ("cat", "dog", "oven", "mail", "door", "lamp", "bus", "key", "song", "tree")
ASKS = (Option("no", "It asks for nothing."), Option("yes", "It asks for something."))


def lessons(long: int = 0) -> list[Pair | Turn]:
    """60 turns, and 10 pairs."""
    made: list[Pair | Turn] = [
        Turn(
            (Part("system", "You act." + "." * long), Part("user", f"{noun} {number}")),
            "<stop/>" if number % 2 else "<read_stdin/>",
            f"{noun} {number}",
        )
        for noun in NOUNS
        for number in range(6)
    ]
    return made + [Pair("report", {"facts": f"{noun}: 1"}, f"{noun} 1") for noun in NOUNS]


def test_a_file_holds_turns_and_pairs_and_names_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "lessons.jsonl"
    file.write_bytes(turns.dumps(lessons()))
    assert turns.read(file) == lessons()
    value: dict[str, Any] = lessons()[0].to_json()
    for change, why in (
        ({"more": 1}, "more: is unknown"),
        ({"parts": []}, "must be a list"),
        ({"parts": [{"role": "judge", "text": "x"}]}, "a role of system, user, assistant"),
        ({"output": ""}, "output not empty"),
    ):
        with pytest.raises(DecisionError, match=why):
            Turn.from_json({**value, **change}, "row 1")


def test_only_the_reply_is_learned_in_the_prompt_that_is_read(tiny: Model) -> None:
    from semif.writing.net import turn_example

    chat, turn = Chat(tiny), lessons()[1]
    assert isinstance(turn, Turn)
    row = turn_example(tiny, chat, turn, 1024)
    assert list(row.tokens[: row.start]) == chat.tokens(turn.parts)
    assert tiny.detokenize(row.tokens[row.start :]) == "<stop/><|im_end|>"
    assert row.weights == (1.0,) * (len(row.tokens) - row.start)
    size = len(row.tokens)
    assert turn_example(tiny, chat, turn, size) == row
    with pytest.raises(DecisionError, match=rf"have {size} tokens of {size - 1}"):
        turn_example(tiny, chat, turn, size - 1)


def test_long_rows_are_learned_as_short_ones_are(tiny: Model, tiny_adapter: Path) -> None:
    """The fused kernel and layers that are computed again give the same losses and gradients."""
    from semif.writing.net import Net, turn_example

    turn = lessons(long=1100)[1]
    assert isinstance(turn, Turn)
    row = turn_example(tiny, Chat(tiny), turn, 2048)
    assert len(row.tokens) > 1024
    found = []
    for longest in (0, len(row.tokens)):
        net = Net(tiny, tiny_adapter, rank=4, seed=0, bfloat16=False, longest=longest)
        (losses,) = net.losses([row])
        losses.sum().backward()  # type: ignore[no-untyped-call]
        gradients = [w.grad.flatten().numpy() for w in net.weights().values() if w.grad is not None]
        found.append((losses.detach().numpy(), np.concatenate(gradients)))
    (short, a), (long, b) = found
    assert a.any() and np.allclose(short, long, atol=1e-4)
    assert np.allclose(a, b, atol=1e-3 * np.abs(a).max())
    with Session(tiny, 2048, threads=1, adapter=tiny.adapter(tiny_adapter)) as session:
        assert turns.nll(session, row.tokens, row.start) == pytest.approx(short.mean(), abs=0.02)


def figures(tiny: Model, adapter: Path) -> dict[str, Any]:
    from semif.llama import sha256_file

    rows = read(golden())
    return {
        "prompts": "writing-v1",
        "base_sha256": tiny.sha256,
        "adapter_sha256": sha256_file(adapter),
        "golden_sha256": data_sha256(rows),
        "rows": len(rows),
        "tasks": {},
    }


def test_a_revision_says_whether_its_adapter_answers_turns(
    tiny: Model, tiny_adapter: Path, tuned: Revision, tmp_path: Path
) -> None:
    said, good = figures(tiny, tiny_adapter), dict(bars()["act"])
    acts = revision.load(pin(tuned, tiny_adapter, said, tmp_path, good))
    assert acts.proven == {"act"} and acts.contents.metrics["act"] == good
    weak = revision.load(pin(tuned, tiny_adapter, said, tmp_path, {**good, "kind": 0.8}))
    assert not weak.proven and weak.contents.metrics["act"]["kind"] == 0.8
    # Another adapter that learned no turns answers none, and is not proven for them.
    other = revision.load(pin(acts, tiny_adapter, said, tmp_path))
    assert not other.proven and "act" not in other.contents.metrics
    # A base that was proven by itself stays so.
    contents = msgspec.structs.replace(tuned.contents, proven=("act",))
    alone = Revision(tuned.id, contents, tuned.folder)
    assert revision.load(pin(alone, tiny_adapter, said, tmp_path)).proven == {"act"}


# bundles


def rows() -> bytes:
    lines = []
    for noun in NOUNS * 2:
        for text, said in ((f"feed the {noun}", "yes"), (f"nice {noun}", "no")):
            id_ = f"r{len(lines)}"
            decision = Decision(id_, "asks", {"input": f"{text} {id_}"}, "A request?", ASKS)
            row = LabelledRow(decision, said, (), "given", 1.0)
            lines.append(json.dumps(row.to_json()) + "\n")
    return "".join(lines).encode()


@pytest.fixture
def asked(tiny: Model, tiny_source: Source, tuned: Revision, tmp_path: Path) -> Path:
    """A bundle for both adapters."""
    folder = tmp_path / "bundle"
    bundle.write(
        folder,
        tuned,
        {"rows.jsonl": rows(), "pairs.jsonl": turns.dumps(lessons())},
        Decisions(rows="rows.jsonl", epochs=2, layers=1, rate=1e-2, seed=0),
        Turns(pairs="pairs.jsonl", epochs=1, batch=8, rate=1e-3, seed=0, limit=1024),
    )
    return folder


_SCRIPT = """
import sys
from pathlib import Path
from semif.cli.main import main
from semif.training import loop
from semif.training.processes import Processes
from semif.writing import train

losses = []
for kind in (loop.Loop, train.Loop):
    def step(*args, _step=kind._step):
        losses.append(_step(*args))
        return losses[-1]
    kind._step = step
code = main(sys.argv[2:])
if Processes().first:
    Path(sys.argv[1]).write_text(" ".join(map(str, losses)))
sys.exit(code)
"""


def test_two_processes_train_a_bundle_to_the_same_losses(
    tiny_path: Path, asked: Path, tmp_path: Path
) -> None:
    script = tmp_path / "watched.py"
    script.write_text(_SCRIPT)
    found = []
    for count in (1, 2):
        out, losses = tmp_path / f"out{count}", tmp_path / f"losses{count}"
        done = subprocess.run(
            [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu",
             "--num_processes", str(count), "--num_machines", "1", "--mixed_precision", "no",
             "--dynamo_backend", "no", "--main_process_port", "0",
             *map(str, (script, losses, "train", "--bundle", asked, "--out", out))]
            + ["--model", str(tiny_path), "--threads", "1", "--precision", "float32"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.split() == [str(out / "result.json")]
        result = bundle.read_result(out)
        assert result.bundle == bundle.identify(asked) and result.turns == "write.gguf"
        found.append([float(part) for part in losses.read_text().split()])
    one, two = found
    assert len(one) == len(two) >= 14
    assert two == pytest.approx(one, abs=2e-3)


def test_what_is_trained_of_a_bundle_is_not_trained_again(
    tiny_path: Path, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semif import bundled

    out = tmp_path / "out"
    command = ["train", "--bundle", str(asked), "--out", str(out), "--model", str(tiny_path)]
    command += ["--threads", "1"]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bundled, "_turns", killed)
        bundled_main(command)
    (made,) = out.glob("*/revision.json")
    assert not (out / "result.json").exists()
    with monkeypatch.context() as patch:
        patch.setattr(bundled.train, "train", killed)
        assert main([*command, "--resume"]) == 0
    result = bundle.read_result(out)
    assert result.decisions == made.parent.name
    assert set(result.files) == {
        f"{made.parent.name}/decide.gguf",
        f"{made.parent.name}/revision.json",
        "training.json",
        "write.gguf",
    }


def bundled_main(command: list[str]) -> None:
    """The command without what turns an interruption into an exit code."""
    if main(command) == 130:
        raise KeyboardInterrupt


def test_a_bundle_for_another_model_is_refused(
    tiny: Model, asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from semif.testing import write_tiny_model

    other = tmp_path / "other.gguf"
    write_tiny_model(other, seed=7)
    command = ["train", "--bundle", str(asked), "--out", str(tmp_path / "out")]
    assert main([*command, "--model", str(other)]) == 78
    assert "was made for a model with sha256" in capsys.readouterr().err
    # The parent's own hashes are looked at too.
    (asked / "parent/decide.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="decide.gguf was changed or cut off"):
        bundle.read(asked)
