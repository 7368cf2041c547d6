from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from semif.cli.main import main
from semif.cli.terminal import put
from semif.log import DecisionLog, Label, append_labels
from semif.revision import load, shipped
from semif.testing import ScriptedDecider
from semif.types import Decision

ENTRY = [sys.executable, "-c", "from semif.cli.main import entry; entry()"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def line(id_: str = "d1", **change: object) -> bytes:
    row = {
        "id": id_,
        "state": {"input": "schick Anna die Präsentation"},
        "question": "Is it?",
        "options": [{"id": "yes", "description": "It is."}, {"id": "no"}],
    }
    return json.dumps({**row, **change}).encode() + b"\n"


def test_decide_scores_what_is_whole_and_names_the_rest(
    tmp_path: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(
        line("one")
        + b"\n{oops\n"
        + line("two", options=[{"id": "only"}])
        + b"\xff\n"
        + line("three", state={"input": 3})
        + line("four", state="x" * 9000)
        + line("odd", options=[{"id": "a\ud800"}, {"id": "b"}])
        + line("od\nd")
        + line("five").rstrip()
    )
    assert main(["decide", str(rows), "--model", str(tiny_path)]) == 1
    out, err = capfd.readouterr()
    answers = [json.loads(text) for text in out.splitlines()]
    assert [answer["id"] for answer in answers] == ["one", "five"]
    assert set(answers[0]["predicted_probs"]) == {"yes", "no"}
    assert "Präsentation" in out and answers[0]["prompt_version"] == "branches-v1"
    # Once, whatever the random model makes of the answers it is asked for.
    problems = [line for line in err.splitlines() if "allowed_token_mass" not in line]
    assert len(err.splitlines()) - len(problems) == 1
    assert len(problems) == 7
    for problem, words in zip(
        problems,
        [
            f"{rows}:3: row: no JSON",
            f"{rows}:4 (two): options: 1 of them",
            f"{rows}:5: row: not UTF-8",
            f"{rows}:6 (three): state.input: must be a string",
            f"{rows}:7 (four): state: is too long",
            f"{rows}:8 (odd): options[0].id: holds a lone surrogate",
            f"{rows}:9 (od d): id: holds a line break",
        ],
        strict=True,
    ):
        assert problem.startswith("semif: ") and words in problem


def test_what_is_no_text_is_still_put(capfd: pytest.CaptureFixture[str]) -> None:
    put({"file": "r\udcff.jsonl"})  # as Python reads the name of a file that is no UTF-8
    assert capfd.readouterr().out == '{"file": "r\\udcff.jsonl"}\n'


def test_decide_reads_stdin_and_takes_a_readout(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    described = [{"id": "yes", "description": "It is."}, {"id": "no", "description": "No."}]
    text = line("one", state=["any", 1], options=described)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["decide", "--model", str(tiny_path), "--readout", "letters"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["prompt_version"] == "direct-options-v1"
    assert err.count("\n") == 1 and "allowed_token_mass" in err  # the model is a random one
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    assert main(["decide", "--model", str(tiny_path)]) == 1
    assert capfd.readouterr().err.startswith("semif: stdin:1: row: Object missing")


def test_models_and_files_that_are_not_there(
    tmp_path: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(tiny_path.read_bytes()[:5000])
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    model = ["--model", str(tiny_path)]
    for code, arguments in {
        69: [str(empty), "--model", str(tmp_path / "none.gguf")],
        78: [str(empty), "--model", str(damaged)],
        2: [str(tmp_path / "none.jsonl"), *model],
    }.items():
        assert main(["decide", *arguments]) == code
        out, err = capfd.readouterr()
        assert out == "" and err.startswith("semif: ") and err.count("\n") == 1
    assert main(["decide", str(empty), *model, "--revision", str(shipped())]) == 78
    assert main(["decide", str(empty), *model, "--revision", str(tmp_path)]) == 69
    assert main(["decide", str(empty), *model]) == 0


@pytest.mark.parametrize("arguments", [[], ["guess"], ["decide", "--readout", "x"], ["export"]])
def test_usage(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage: semif" in capfd.readouterr().err


def test_export(
    tmp_path: Path, make: Callable[..., Decision], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".sia").mkdir()
    answers = ScriptedDecider(lambda d: "a").decide([make()])
    DecisionLog(tmp_path / ".sia" / "decisions.jsonl").append(answers, "r1")
    labels = tmp_path / ".sia" / "labels.jsonl"
    append_labels(labels, [Label.new("d1", "r1", "not", "a", "verified", "files/find")])
    assert main(["export", "--home", str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert out == "" and "1 rows are only known not to be" in err
    append_labels(labels, [Label.new("d1", "r1", "is", "b", "human", "ann")])
    assert main(["export", "--home", str(tmp_path)]) == 0
    exported = json.loads(capfd.readouterr().out)
    assert exported["observed_outcome"] == "b" and exported["id"] == "d1"
    assert main(["export", "--home", str(tmp_path / "none")]) == 2


def test_revisions(
    tmp_path: Path,
    revision_json: dict[str, object],
    write_revision: Callable[[Path, object], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    starter = load(shipped()).id
    assert main(["revisions", "list"]) == 0
    assert capfd.readouterr().out == f"* {starter}  branches  branches-v2  shipped\n"
    folder = tmp_path / ".sia" / "revisions"
    id_ = write_revision(folder, {**revision_json, "parent": starter})
    (folder / "current").write_text(f"{id_}\n")
    (folder / "pending").write_text(f"{id_}\n")
    assert main(["revisions", "list", "--home", str(tmp_path)]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"  {starter}  branches  branches-v2  shipped",
        f"* {id_}  branches  branches-v1  from {starter}, pending",
    ]
    for arguments, expected in (
        ([], starter),
        (["--home", str(tmp_path)], id_),
        ([starter, "--home", str(tmp_path)], starter),
        ([id_, "--home", str(tmp_path)], id_),
    ):
        assert main(["revisions", "show", *arguments]) == 0
        assert json.loads(capfd.readouterr().out)["id"] == expected
    assert main(["revisions", "show", id_]) == 2
    (folder / "000000000000").mkdir()
    assert main(["revisions", "list", "--home", str(tmp_path)]) == 1


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path, tiny_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(line(f"d{i}") for i in range(50)))
    command = [*ENTRY, "decide", str(rows), "--model", str(tiny_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout and run.stderr
        assert json.loads(run.stdout.readline())["id"] == "d0"
        run.stdout.close()
        said = run.stderr.read()
        assert said.count(b"\n") == 1 and b"allowed_token_mass" in said and run.wait() == 1


def test_answers_come_line_by_line(tiny_path: Path) -> None:
    command = [*ENTRY, "decide", "--model", str(tiny_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdin and run.stdout
        for id_ in ("one", "two"):
            run.stdin.write(line(id_))
            run.stdin.flush()
            assert json.loads(run.stdout.readline())["id"] == id_
        run.stdin.close()
        assert run.wait() == 0


def test_help_is_true(capfd: pytest.CaptureFixture[str]) -> None:
    commands = (["decide"], ["export"], ["revisions", "list"], ["eval"], ["calibrate"], ["verify"])
    for command in ([], *commands):
        with pytest.raises(SystemExit) as caught:
            main([*command, "--help"])
        assert caught.value.code == 0 and "usage: semif" in capfd.readouterr().out
