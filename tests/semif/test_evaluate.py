"""Measures checked by hand, and what happens to rows that cannot be measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semif.cli.main import main
from semif.errors import DecisionError
from semif.export import LabelledRow
from semif.inputs import Entry, entries
from semif.log import MassAlarm
from semif.measuring import measures
from semif.measuring.evaluate import Judged, evaluate, orders, summary
from semif.testing import ScriptedDecider
from semif.types import Answer, Decision


def labelled(
    id_: str, outcome: str, phase: str = "p", options: Sequence[str] = ("a", "b", "c")
) -> Entry[LabelledRow]:
    value = {
        "id": id_,
        "phase": phase,
        "state": f"the text of {id_}",
        "question": "Which?",
        "options": [{"id": option, "description": f"What {option} is."} for option in options],
        "observed_outcome": outcome,
    }
    return Entry(f"rows:{id_}", id_, LabelledRow.from_json(value, id_))


def refuse(problem: object) -> None:
    raise AssertionError(problem)


def by_id(**said: str | Mapping[str, float]) -> ScriptedDecider:
    return ScriptedDecider(lambda decision: said[decision.id])


# the measures


def test_reliability_bins_by_hand() -> None:
    found = measures.reliability([0.55, 0.59, 0.6, 1.0], [True, False, True, True])
    assert [b.rows if b else 0 for b in found] == [0, 0, 0, 0, 0, 2, 1, 0, 0, 1]
    assert found[5] and found[5].confidence == pytest.approx(0.57) and found[5].accuracy == 0.5
    # (2 * |.5 - .57| + |1 - .6| + |1 - 1|) / 4
    gap = measures.ece([0.55, 0.59, 0.6, 1.0], [True, False, True, True])
    assert gap == pytest.approx(0.135)


def test_brier_is_over_all_options() -> None:
    # .6^2 + .5^2 + .1^2 where the last was right with .9; nothing where all was sure and right
    assert measures.brier([[0.6, 0.5, 0.9]], [2]) == pytest.approx(0.62)
    assert measures.brier([[0.0, 1.0], [0.0, 1.0]], [1, 0]) == pytest.approx(1.0)


def test_nll_is_kept_off_infinity() -> None:
    assert measures.nll([0.5, 0.25]) == pytest.approx(1.5 * math.log(2))
    assert measures.nll([0.0]) == pytest.approx(52 * math.log(2))


def test_balanced_accuracy_is_the_mean_recall_of_what_occurs() -> None:
    observed = ["yes"] * 4 + ["no"]
    # Recall of yes 3/4, of no 0; "other" was said but never observed.
    said = ["yes", "yes", "yes", "other", "yes"]
    assert measures.balanced_accuracy(said, observed) == pytest.approx(0.375)


# rows put to a decider


def test_summary_by_hand() -> None:
    rows = [
        labelled("r1", "a"),
        labelled("r2", "b"),
        labelled("r3", "b"),
        labelled("q1", "yes", "gate", ("yes", "no")),
    ]
    decider = by_id(
        r1={"a": 0.7, "b": 0.2, "c": 0.1},
        r2={"a": 0.7, "b": 0.2, "c": 0.1},
        r3={"a": 0.2, "b": 0.7, "c": 0.1},
        q1={"yes": 0.3, "no": 0.7},
    )
    found = summary(evaluate(decider, rows, refuse), {"gate": 0.3})
    of_p, gate = found["phases"]["p"], found["phases"]["gate"]
    assert list(found["phases"]) == ["gate", "p"]
    assert of_p["rows"] == 3 and of_p["accuracy"] == 0.6667
    assert of_p["balanced_accuracy"] == 0.75  # recall of a 1, of b 1/2; c never occurs
    assert of_p["nll"] == pytest.approx(-(2 * math.log(0.7) + math.log(0.2)) / 3, abs=1e-4)
    # .09 + .04 + .01 twice, .49 + .64 + .01 once
    assert of_p["brier"] == pytest.approx((0.14 * 2 + 1.14) / 3, abs=1e-4)
    assert of_p["ece"] == pytest.approx(0.7 - 2 / 3, abs=1e-4)
    assert "accuracy_at_threshold" not in of_p
    # Not selected at .3, but counts from .3 on.
    assert gate["accuracy"] == 0 and gate["accuracy_at_threshold"] == 1 and gate["threshold"] == 0.3
    assert found["rows"] == 4 and found["accuracy"] == 0.5
    assert found["balanced_accuracy"] == 0.375  # (3/4 + 0) / 2: the mean over phases
    assert found["order_flips"] is None and found["low_mass"] == 0
    higher = summary(evaluate(decider, rows, refuse), {"gate": 0.31})
    assert higher["phases"]["gate"]["accuracy_at_threshold"] == 0


def test_a_threshold_that_is_just_reached_counts() -> None:
    decider = by_id(q={"yes": 0.5, "no": 0.5})
    rows = [labelled("q", "yes", "gate", ("yes", "no"))]
    found = summary(evaluate(decider, rows, refuse), {"gate": 0.5})["phases"]["gate"]
    assert found["accuracy"] == 0 and found["accuracy_at_threshold"] == 1


def test_nothing_to_measure_is_no_number() -> None:
    found = summary([], {})
    assert found["rows"] == 0 and found["phases"] == {}
    assert found["accuracy"] is None and found["balanced_accuracy"] is None and found["ece"] is None
    assert found["ms_per_decision"] == {"mean": None, "median": None}


def test_an_interrupt_counts_by_its_own_option() -> None:
    rows = [labelled("r", "interrupt", "interrupt", ("defer", "interrupt"))]
    decider = by_id(r={"interrupt": 0.6, "defer": 0.4})
    found = summary(evaluate(decider, rows, refuse), {"interrupt": 0.7})
    assert found["accuracy"] == 1 and found["phases"]["interrupt"]["accuracy_at_threshold"] == 0


def test_order_flips_are_measured() -> None:
    rows = [labelled("first", "a"), labelled("steady", "a"), labelled("middle", "a")]
    rows.append(labelled("behind", "a"))

    def policy(decision: Decision) -> str:
        ids = [option.id for option in decision.options]
        behind = "c" if ids == ["c", "b", "a"] else "a"
        return {"first": ids[0], "steady": "a", "middle": ids[1], "behind": behind}[decision.id]

    behind = evaluate(ScriptedDecider(policy), rows, refuse, orders("branches"))
    assert [row.flipped for row in behind] == [True, False, False, True]
    assert [row.answer.selected for row in behind] == ["a", "a", "b", "a"]  # in the order as given
    turned = evaluate(ScriptedDecider(policy), rows, refuse, orders("letters"))
    assert [row.flipped for row in turned] == [True, False, True, True]
    found = summary(turned, {})["order_flips"]
    assert found == {"rows": 4, "flipped": 3, "share": 0.75}


def test_the_time_of_a_batch_is_shared_by_tokens() -> None:
    class Counting(ScriptedDecider):
        def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
            return [
                replace(answer, tokens=tokens, prompt_tokens=10)
                for answer, tokens in zip(super().decide(decisions), (30, 10), strict=False)
            ]

    ticks = iter([0.0, 0.4, 7.0, 7.1])
    decider = Counting(lambda decision: "a")
    rows = [labelled(f"r{i}", "a") for i in range(3)]
    steps: list[int] = []
    judged = evaluate(decider, rows, refuse, (), 2, steps.append, lambda: next(ticks))
    assert [row.ms for row in judged] == pytest.approx([300, 100, 100])
    assert steps == [2, 1]
    found = summary(judged, {})
    assert found["ms_per_decision"] == {"mean": 166.67, "median": 100}
    assert found["tokens_per_decision"] == 23.3 and found["prompt_tokens_per_decision"] == 10


def test_a_row_that_is_refused_leaves_the_others_of_its_batch() -> None:
    class Strict(ScriptedDecider):
        def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
            for decision in decisions:
                if decision.id == "r1":
                    raise DecisionError("r1", "state", "is too long")
            return super().decide(decisions)

    told: list[str] = []
    rows = [labelled(f"r{i}", "a") for i in range(3)]
    judged = evaluate(Strict(lambda d: "a"), rows, lambda e: told.append(str(e)), orders("letters"))
    assert [row.row.decision.id for row in judged] == ["r0", "r2"]
    assert told == ["rows:r1 (r1): state: is too long"]


def test_an_error_of_no_row_is_no_row_of_ours() -> None:
    class Lost(ScriptedDecider):
        def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
            raise DecisionError("elsewhere", "state", "is too long")

    with pytest.raises(DecisionError, match="elsewhere"):
        evaluate(Lost(lambda d: "a"), [labelled("r", "a")], refuse)


def test_low_mass_counts_below_a_half() -> None:
    (judged,) = evaluate(by_id(r="a"), [labelled("r", "a")], refuse)

    def count(*masses: float) -> int:
        rows = [
            Judged(judged.row, replace(judged.answer, allowed_token_mass=mass), 1.0)
            for mass in masses
        ]
        return int(summary(rows, {})["low_mass"])

    assert count(0.5, 0.51) == 0 and count(0.499, 0.2, 0.9) == 2


def test_the_alarm_is_said_once_for_each_prompt_and_revision() -> None:
    (judged,) = evaluate(by_id(r="a"), [labelled("r", "a")], refuse)
    low = replace(judged.answer, allowed_token_mass=0.25, prompt_version="v1", revision="one")
    told: list[str] = []
    alarm = MassAlarm(told.append)
    alarm.look([replace(low, allowed_token_mass=0.5)])
    assert told == []
    alarm.look([low, low])
    alarm.look([replace(low, revision="two"), replace(low, prompt_version="v2"), low])
    assert len(told) == 3
    assert told[0].startswith(
        "r: allowed_token_mass 0.250 is below 0.5: prompt v1 with revision one"
    )
    assert "revision two" in told[1] and "prompt v2" in told[2]


# lines of a file


def good(id_: str, **change: Any) -> dict[str, Any]:
    return labelled(id_, "a").value.to_json() | change


def options(count: int) -> list[dict[str, str]]:
    return [{"id": f"o{i}", "description": "x"} for i in range(count)]


BAD: list[tuple[bytes, str]] = [
    (json.dumps(good("one", options=options(1))).encode(), "(one): options: 1 of them"),
    (json.dumps(good("many", options=options(256))).encode(), "(many): options: 256 are more"),
    (
        json.dumps(good("twice", options=options(2) + options(1))).encode(),
        "(twice): options: the id 'o0' stands twice",
    ),
    (json.dumps(good("r1")).encode(), "(r1): id: stands twice, first in line 1"),
    (json.dumps(good("empty", state=" ")).encode(), "(empty): state: is empty"),
    (json.dumps(good("nan", state={"x": math.nan})).encode(), "(nan): state.x: is NaN or infinite"),
    (json.dumps(good("inf", weight=-math.inf)).encode(), "(inf): weight: is NaN or infinite"),
    (b'{"id": "big", "state": [1, {"x": 1e999}]}', "(big): state[1].x: is NaN or infinite"),
    (json.dumps(good("other", observed_outcome="z")).encode(), "(other): observed_outcome: 'z' is"),
    (json.dumps(good("list", observed_outcome=["a"])).encode(), "(list): observed_outcome: ['a']"),
    (
        json.dumps({k: v for k, v in good("none").items() if k != "observed_outcome"}).encode(),
        "(none): observed_outcome: is missing",
    ),
    (json.dumps(good("heavy", weight="x")).encode(), "(heavy): weight: 'x' is no number"),
    (
        json.dumps(good("latin", state="caf!")).encode().replace(b"!", b"\xe9"),
        "(latin): state: not",
    ),
    (b"\xff\xfe", ": row: not UTF-8"),
    (b"[1, 2]", ": row: not a JSON object"),
    (b'{"id": 7}', ": id: "),
    (b"[" * 100_000, ": row: no JSON"),
    (b'{"a":' * 900 + b"1" + b"}" * 900, ": row: Object missing required field `id`"),
]


def test_each_bad_line_is_one_error_and_the_others_are_read() -> None:
    lines = [json.dumps(good("r1")).encode() + b"\n", b"\n"]
    lines += [line + b"\n" for line, _ in BAD]
    lines += [json.dumps(good("r2")).encode() + b"\n", b'{"id": "torn", "sta']
    told: list[str] = []
    found = list(entries(lines, "rows.jsonl", LabelledRow.from_json, lambda e: told.append(str(e))))
    assert [(entry.where, entry.id) for entry in found] == [
        ("rows.jsonl:1", "r1"),
        (f"rows.jsonl:{len(lines) - 1}", "r2"),
    ]
    expected = [
        *((number, text) for number, (_, text) in enumerate(BAD, start=3)),
        (len(lines), ": row: the last line is torn: no JSON"),
    ]
    for line, (number, text) in zip(told, expected, strict=True):
        assert line.startswith(f"rows.jsonl:{number}"), line
        assert text in line and "\n" not in line


def test_a_whole_last_line_needs_no_newline() -> None:
    found = list(entries([json.dumps(good("r")).encode()], "f", LabelledRow.from_json, refuse))
    assert [entry.id for entry in found] == ["r"]


# the commands


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(good(f"r{i}", phase="ab"[i % 2])).encode() for i in range(4)]
    lines += [line for line, _ in BAD[:3]]
    lines += [json.dumps(good("long", state="word " * 9000)).encode(), b"\xff"]
    path.write_bytes(b"\n".join(lines) + b'\n{"torn')
    return path


def test_eval_measures_what_is_whole(
    rows: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(rows), "--model", str(tiny_path), "--threads", "1"]
    assert main([*arguments, "--json"]) == 1
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert found["rows"] == 4 and found["failed"] == 6 and found["file"] == str(rows)
    assert found["readout"] == "branches" and found["prompt_versions"] == ["branches-v1"]
    assert set(found["phases"]) == {"a", "b"} and found["phases"]["a"]["rows"] == 2
    assert found["order_flips"] == {"rows": 4, "flipped": 0, "share": 0.0}
    assert found["ms_per_decision"]["mean"] > 0 and found["tokens_per_decision"] > 0
    assert "Brier 1950" in found["definitions"]["brier"]
    problems = err.splitlines()
    assert all(line.startswith(f"semif: {rows}:") for line in problems[:6])
    assert f"{rows}:8 (long): state: is too long" in err and f"{rows}:10: row: the last" in err
    # A random model says yes or no by chance: one line of warning, not one a row.
    assert len(problems) == 7 and "allowed_token_mass is below 0.5 in 4 of 4" in problems[6]


def test_eval_as_a_table_of_a_sample(
    rows: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["eval", str(rows), "--model", str(tiny_path), "--readout", "letters", "--once"]
    assert main([*arguments, "--limit", "2"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "2 rows" in lines[0] and "letters, direct-options-v1" in lines[0]
    head, last = lines[2].split(), lines[-1].split()
    assert head[:3] == ["phase", "rows", "accuracy"] and last[:2] == ["all", "2"]
    assert last[-4] == "-"  # flips were not asked for


def test_eval_of_nothing_and_of_what_is_not_there(
    tmp_path: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert main(["eval", str(empty), "--model", str(tiny_path), "--json"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["accuracy"] is None and "no row could be measured" in err
    assert main(["eval", str(tmp_path / "none"), "--model", str(tiny_path)]) == 2
    assert main(["eval", str(tmp_path), "--model", str(tiny_path)]) == 2
    assert capfd.readouterr().err.count("\n") == 2
    for wrong in ("0", "-1", "x"):
        with pytest.raises(SystemExit) as caught:
            main(["eval", str(empty), "--limit", wrong])
        assert caught.value.code == 2


def test_decide_reports_bad_rows_like_eval(
    rows: Path, tiny_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["decide", str(rows), "--model", str(tiny_path)]) == 1
    out, err = capfd.readouterr()
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["r0", "r1", "r2", "r3"]
    problems = [line for line in err.splitlines() if "allowed_token_mass" not in line]
    assert [line.split(":")[2].split()[0] for line in problems] == ["5", "6", "7", "8", "9", "10"]
    assert err.count("allowed_token_mass") == 1 and f"{rows}:8 (long): state: is too long" in err


def test_a_log_of_decisions_says_low_mass_once(
    tmp_path: Path, make: Callable[..., Decision]
) -> None:
    from semif.log import DecisionLog

    told: list[str] = []
    log = DecisionLog(tmp_path / "decisions.jsonl", told.append)
    (answer,) = ScriptedDecider(lambda d: "a").decide([make()])
    log.append([answer], "r1")
    for _ in range(2):
        log.append([replace(answer, allowed_token_mass=0.1)], "r1")
    assert len(told) == 1 and "d1: allowed_token_mass 0.100" in told[0]
