"""A decision log that reproduces, and each way in which a row no longer does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from semif.cli.main import main
from semif.engine import Engine
from semif.errors import DecisionError, ModelError
from semif.llama import Model
from semif.log import DecisionLog
from semif.measuring.verify import Logged, summary, verify
from semif.models import Source
from semif.revision import Revision, untuned
from semif.testing import ScriptedDecider
from semif.types import Answer, Decision

Make = Callable[..., Decision]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def row(tmp_path: Path, make: Make) -> Row:
    """A row of a log, by a scripted decider that says a with .7."""
    answers = scripted().decide([make("a", "b", "c")])
    return DecisionLog(tmp_path / "one.jsonl").append(answers, "r1")[0]


def scripted() -> ScriptedDecider:
    return ScriptedDecider(lambda decision: {"a": 0.7, "b": 0.2, "c": 0.1})


def once(answers: Callable[[Decision], Answer]) -> Callable[[Row], dict[str, Any]]:
    """Verify one row against what `answers` says now."""

    def check(row: Row) -> dict[str, Any]:
        return summary(verify([Logged.from_json(row, "log")], lambda id_: answers), "b1")

    return check


def now(decision: Decision) -> Answer:
    return scripted().decide([decision])[0]


def test_equal_is_the_same_selection_and_a_hundredth(row: Row) -> None:
    found = once(now)(row)
    assert (found["rows"], found["equal"], found["unequal"]) == (1, 1, 0)
    assert found["problems"] == [] and found["largest_dp"] == 0 and found["why"] == {}

    def moved(by: float) -> dict[str, Any]:
        probs = {"a": 0.7, "b": 0.2 - by, "c": 0.1 + by}
        return once(lambda d: replace(now(d), probs=probs))(row)

    assert moved(0.0099)["equal"] == 1 and moved(0.0099)["largest_dp"] == 0.0099
    found = moved(0.0101)
    assert found["equal"] == 0 and found["why"] == {"dp": 1}
    (problem,) = found["problems"]
    assert problem["id"] == "d1" and problem["phase"] == "test" and problem["dp"] == 0.0101
    assert problem["why"]["dp"].startswith("p of ") and "0.20" in problem["why"]["dp"]


def test_another_selection_is_unequal_however_near(row: Row) -> None:
    found = once(lambda d: replace(now(d), selected="b"))(row)
    assert found["why"] == {"selection": 1}
    assert found["problems"][0]["why"]["selection"] == "selected 'a', now 'b'"


def test_no_number_is_not_equal(row: Row) -> None:
    probs = {"a": float("nan"), "b": float("nan"), "c": float("nan")}
    assert "dp" in once(lambda d: replace(now(d), probs=probs))(row)["why"]


def test_a_changed_prompt_is_named(row: Row) -> None:
    found = once(now)({**row, "prompt_sha256": "1" * 64})["problems"][0]["why"]
    assert found == {"prompt": "scripted renders 000000000000…, not 111111111111…"}
    found = once(now)({**row, "prompt_version": "older"})["problems"][0]["why"]
    assert found == {"prompt": "read in prompt older, the revision has scripted"}


def test_rows_of_a_missing_revision_are_told_as_such(row: Row) -> None:
    asked: list[str] = []

    def find(id_: str) -> Callable[[Decision], Answer]:
        asked.append(id_)
        raise ModelError.missing(f"revision {id_} is gone")

    # A known prompt is still rendered: that needs no revision.
    lost = {**row, "prompt_version": "branches-v1"}
    rows = [Logged.from_json(each, "log") for each in (lost, lost, {**row, "revision": "other"})]
    found = summary(verify(rows, find), "b1")
    assert asked == ["scripted", "other"]
    assert found["unequal"] == 3 and found["why"] == {"prompt": 3, "revision": 3}
    assert found["largest_dp"] is None
    first, _, last = found["problems"]
    assert first["why"]["revision"] == "revision scripted is gone"
    assert first["why"]["prompt"].endswith("not 000000000000…")
    assert "'scripted' is unknown" in last["why"]["prompt"]


def test_a_decision_that_cannot_be_asked_now(row: Row) -> None:
    def refuse(decision: Decision) -> Answer:
        raise DecisionError(decision.id, "state", "is too long")

    found = once(refuse)(row)["problems"][0]["why"]
    assert found["refused"] == "state: is too long"


def test_what_a_revision_cannot_make_ends_no_audit(row: Row) -> None:
    def fail(decision: Decision) -> Answer:
        if decision.phase == "other":
            raise ModelError("prompt 'newer' is unknown")
        return now(decision)

    rows = [Logged.from_json({**row, **change}, "log") for change in ({"phase": "other"}, {})]
    found = summary(verify(rows, lambda id_: fail), "b1")
    assert (found["equal"], found["why"]) == (1, {"prompt": 1, "revision": 1})
    assert found["problems"][0]["why"]["revision"] == "prompt 'newer' is unknown"


def test_other_builds_are_counted(row: Row) -> None:
    assert once(now)({**row, "plan": {"build": "b0"}})["other_build"] == 1
    assert once(now)({**row, "plan": {"build": "b1"}})["other_build"] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"selected": 3}, "(d1): selected: Expected `str`"),
        ({"predicted_probs": {"a": "x"}}, "(d1): predicted_probs"),
        ({"predicted_probs": {"a": 1.0}}, "(d1): predicted_probs: do not name the options"),
        ({"time": "yesterday"}, "(d1): time: "),
        ({"time": "2026-11-30T10:00:00"}, "(d1): time: has no zone"),
        ({"options": [{"id": "a"}]}, "(d1): options: 1 of them"),
    ],
)
def test_what_is_no_row_of_a_log(row: Row, change: Row, words: str) -> None:
    with pytest.raises(DecisionError) as caught:
        Logged.from_json({**row, **change}, "log")
    assert str(caught.value).startswith("log ") and words in str(caught.value)


# the command, on a model


@pytest.fixture
def home(
    tmp_path: Path, tiny: Model, tiny_source: Source, tuned: Revision, make: Make
) -> Iterator[Path]:
    """A home whose log has rows by a revision of its own and by the model as it is."""
    state = tmp_path / "home" / ".sia"
    (state / "revisions").mkdir(parents=True)
    assert tuned.folder
    tuned.folder.rename(state / "revisions" / tuned.id)
    pinned = replace(tuned, folder=state / "revisions" / tuned.id)
    log = DecisionLog(state / "decisions.jsonl")
    decisions = [replace(make(state=f"text {i}", phase="warm"), id=f"d{i}") for i in range(4)]
    with Engine(tiny, pinned, 1) as engine:
        log.append(engine.decide(decisions[:3]), "r1")  # together, verified alone
        log.append(engine.decide(decisions[3:]), "r2")
    for readout in ("branches", "letters"):
        plain = untuned(tiny_source, readout)
        with Engine(tiny, plain, 1) as engine:
            answers = engine.decide([replace(decisions[0], id=readout)])
        log.append(answers, "r3")
    yield tmp_path / "home"


def changed(home: Path, **changes: Callable[[Row], Row | None]) -> None:
    """Rewrite rows of the log by id; None leaves a row out."""
    path = home / ".sia" / "decisions.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [changes.get(row["id"], lambda row: row)(row) for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept if row))


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["verify", *arguments, "--json"])
    out, err = capfd.readouterr()
    return code, json.loads(out), err


def test_a_log_reproduces(home: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found, err = run(capfd, str(home), "--model", str(tiny_path))
    assert (code, err) == (0, "") and found["problems"] == []
    assert found["rows"] == found["equal"] == 6 and found["unreadable"] == 0
    assert found["largest_dp"] <= 0.01 and found["other_build"] == 0
    path = home / ".sia" / "decisions.jsonl"
    assert run(capfd, str(path), "--model", str(tiny_path))[1]["equal"] == 6
    assert main(["verify", str(home), "--model", str(tiny_path)]) == 0
    assert "6 rows, 6 equal, 0 not, 0 unreadable; largest Δp 0.0" in capfd.readouterr().out


def test_every_change_is_found(
    home: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changed(
        home,
        d0=lambda row: {**row, "state": "text 0 edited"},
        d1=lambda row: {**row, "selected": "a" if row["selected"] == "b" else "b"},
        d2=lambda row: {**row, "revision": "0" * 12},
        letters=lambda row: {**row, "prompt_sha256": "f" * 64},
    )
    with (home / ".sia" / "decisions.jsonl").open("ab") as log:
        log.write(b'{"id": "odd"}\n{"id": "to')
    code, found, err = run(capfd, str(home), "--model", str(tiny_path))
    assert code == 1 and found["unreadable"] == 2 and err.count("\n") == 2
    assert "decisions.jsonl:7 (odd): row: Object missing" in err and "line 8: no JSON" in err
    why = {row["id"]: row["why"] for row in found["problems"]}
    assert set(why) == {"d0", "d1", "d2", "letters"} and found["equal"] == 2
    assert "branches-v1 renders" in why["d0"]["prompt"]
    assert set(why["d1"]) == {"selection"} and set(why["letters"]) == {"prompt"}
    assert set(why["d2"]) == {"revision"} and "neither in the home nor" in why["d2"]["revision"]
    assert main(["verify", str(home), "--model", str(tiny_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].startswith("d0  20") and "prompt: " in lines[0]
    assert lines[-1].startswith("6 rows, 2 equal, 4 not, 2 unreadable")


def test_a_torn_line_alone_is_a_failure_too(
    home: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (home / ".sia" / "decisions.jsonl").open("ab") as log:
        log.write(b'{"id": "to')
    code, found, _ = run(capfd, str(home), "--model", str(tiny_path))
    assert (code, found["unequal"], found["unreadable"]) == (1, 0, 1)


def test_a_revision_that_was_changed_reproduces_nothing(
    home: Path, tiny_path: Path, tuned: Revision, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = home / ".sia" / "revisions" / tuned.id
    (folder / "decide.gguf").write_bytes(b"other")
    code, found, _ = run(capfd, str(home), "--model", str(tiny_path))
    assert code == 1 and found["why"] == {"revision": 4}
    assert "is not the adapter" in found["problems"][0]["why"]["revision"]


class Counted(Engine):
    """Counts the engines that are opened, by revision, with their cells."""

    opened: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, model: Model, revision: Revision, threads: int, n_ctx: int) -> None:
        super().__init__(model, revision, threads, n_ctx)
        self.opened.append((revision.id, n_ctx))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    monkeypatch.setattr("semif.measuring.verify.Engine", Counted)
    Counted.opened.clear()
    return Counted.opened


def test_rows_of_a_revision_are_made_by_one_engine(
    home: Path,
    tiny_path: Path,
    tiny_source: Source,
    tuned: Revision,
    opened: list[tuple[str, int]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run(capfd, str(home), "--model", str(tiny_path))[1]["equal"] == 6
    plain = [untuned(tiny_source, readout).id for readout in ("branches", "letters")]
    assert opened == [(id_, 4096) for id_ in (tuned.id, *plain)]


def test_a_row_gets_as_many_cells_as_it_needs(
    home: Path,
    tiny: Model,
    plain: Revision,
    make: Make,
    opened: list[tuple[str, int]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = home / ".sia" / "decisions.jsonl"
    path.unlink()
    with Engine(tiny, plain, 1, 8192) as engine:
        answers = engine.decide([make(state="öäü 7 " * 700)])
        DecisionLog(path).append(answers * 2, "r1")
        # Now too long for the model, and refused for another reason.
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for change in ({"state": "öäü 7 " * 9000}, {"state": {"input": 3}}):
            rows.append({**rows[0], "id": f"d{len(rows)}", **change})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, found, _ = run(capfd, str(home), "--model", str(tiny.path))
    assert found["equal"] == 2 and found["why"]["refused"] == 2
    said = [row["why"]["refused"] for row in found["problems"]]
    assert said[0].startswith("state: is too long") and said[0].endswith("the context holds 8192")
    assert said[1].startswith("state.input: must be a string")
    (_, first), (_, second) = opened
    assert first == 4096 < second < answers[0].prompt_tokens < 8192


def test_a_revision_that_cannot_be_opened_ends_no_audit(
    home: Path,
    tiny_path: Path,
    tuned: Revision,
    revision_json: dict[str, object],
    write_revision: Callable[[Path, object], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = home / ".sia" / "revisions"
    newer = write_revision(folder, {**revision_json, "prompt_version": "branches-v99"})
    cut = b"GGUF" + b"\0" * 100
    adapters = {"deciding": hashlib.sha256(cut).hexdigest(), "writing": None}
    damaged = write_revision(folder, {**revision_json, "adapters": adapters})
    (folder / damaged / "decide.gguf").write_bytes(cut)
    changed(
        home,
        d0=lambda row: {**row, "revision": newer},
        d1=lambda row: {**row, "revision": damaged},
    )
    code, found, _ = run(capfd, str(home), "--model", str(tiny_path))
    assert (code, found["equal"], found["why"]) == (1, 4, {"revision": 2})
    first, second = (row["why"]["revision"] for row in found["problems"])
    assert "branches-v99" in first and "does not fit the model" in second


def test_only_the_last_rows_or_those_since(
    home: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def old(row: Row) -> Row:
        return {**row, "time": "2020-01-01T00:00:00.000Z", "selected": "?"}

    changed(home, d0=old, d1=old)
    model = ("--model", str(tiny_path))
    assert run(capfd, str(home), *model)[0] == 1
    code, found, _ = run(capfd, str(home), *model, "--since", "2021-01-01")
    assert code == 0 and found["rows"] == 4
    assert run(capfd, str(home), *model, "--since", "2020-01-01T00:00:00Z")[1]["rows"] == 6
    assert run(capfd, str(home), *model, "--since", "2020-01-01T00:00:01Z")[1]["rows"] == 4
    code, found, _ = run(capfd, str(home), *model, "--limit", "2")
    assert code == 0 and found["rows"] == 2


def test_usage(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert "is no decision log" in capfd.readouterr().err
    assert main(["verify", str(home), "--model", str(tmp_path / "none.gguf")]) == 69
    for wrong in (["--since", "soon"], ["--limit", "0"], []):
        with pytest.raises(SystemExit) as caught:
            main(["verify", *wrong])
        assert caught.value.code == 2
