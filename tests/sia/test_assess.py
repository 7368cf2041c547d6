"""What an outcome says of the decisions that led to it, and when a judge begins to count."""

import pytest

from semif.log import Label
from sia import assess
from sia.assess import Verdict
from sia.store import RunVerdict

WAY = [
    ("d1", "email", "navigate_category"),
    ("d2", "compose", "navigate_skill"),
    ("d3", "anna", "read_next"),
    ("d4", "succeed", "predict"),
]


def said(verdict: Verdict, decided=WAY) -> list[tuple[str, str, str]]:
    return [(l.row, l.polarity, l.option) for l in assess.labels(decided, verdict, "r1")]  # noqa: E741


def test_success_labels_what_was_chosen_but_the_world_knows_nothing_of_arguments() -> None:
    way = [("d1", "is", "email"), ("d2", "is", "compose"), ("d4", "is", "succeed")]
    assert said(Verdict(True, "verified", "email/compose")) == way
    argument = ("d3", "is", "anna")
    assert said(Verdict(True, "assessed", "m")) == [*way[:2], argument, way[2]]


@pytest.mark.parametrize(
    ("cause", "decided", "labels"),
    [
        ("which", WAY, [("d3", "not", "anna")]),
        ("which", [WAY[0], WAY[1], WAY[3]], [("d2", "not", "compose")]),
        ("which", WAY[:1], [("d1", "not", "email")]),
        ("which", [], []),
        ("environment", WAY, [("d4", "not", "succeed")]),
        ("environment", [*WAY[:3], ("d4", "fail", "predict")], [("d4", "is", "fail")]),
        ("environment", WAY[:3], []),
        ("text", WAY, []),
        ("unknown", WAY, []),
    ],
)
def test_failure_labels_only_the_phase_that_its_cause_names(cause, decided, labels) -> None:
    assert said(Verdict(False, "verified", "s", cause), decided) == labels


def test_a_run_that_worked_against_the_prediction_proves_that_wrong() -> None:
    assert said(Verdict(True, "verified", "s"), [("d4", "fail", "predict")]) == [
        ("d4", "not", "fail")
    ]


def test_weights() -> None:
    (label, *_) = assess.labels(WAY, Verdict(True, "verified", "s"), "r1")
    assert (label.source, label.weight, label.run, label.by) == ("verified", 1.0, "r1", "s")
    (label, *_) = assess.labels(WAY, Verdict(True, "assessed", "m"), "r1", 0.3)
    assert (label.source, label.weight, label.by) == ("assessed", 0.3, "m")


@pytest.mark.parametrize(
    ("agreeing", "compared", "weight"),
    [(0, 0, 0.0), (29, 29, 0.0), (24, 30, 0.3), (23, 30, 0.0), (80, 100, 0.3), (79, 100, 0.0)],
)
def test_a_judge_counts_once_it_has_agreed_often_enough(agreeing, compared, weight) -> None:
    assert assess.trust(agreeing, compared) == weight


def human(row: str, polarity: str, option: str, **more) -> Label:
    return Label.new(row, "r", polarity, option, "human", by="person", **more)


def judged(run: str, success: bool, source: str = "assessed") -> RunVerdict:
    way = tuple((f"{run}-{row}", option, phase) for row, option, phase in WAY)
    return RunVerdict(run, source, success, way)


def test_agreement_with_the_world() -> None:
    verdicts = [
        *(judged("r1", True), judged("r1", True, "verified")),
        *(judged("r2", True), judged("r2", False, "verified")),
        *(judged("r3", False), judged("r3", False, "verified")),
        judged("r4", True),  # nobody else said anything
        judged("r5", True, "verified"),
    ]
    assert assess.agreement(verdicts, []) == (2, 3)
    assert assess.agreement([], []) == (0, 0)


def test_agreement_with_a_person_who_goes_before_the_world() -> None:
    verdicts = [judged(f"r{n}", True) for n in range(1, 7)]
    verdicts.append(judged("r1", True, "verified"))
    wrong = human("r5-d2", "not", "compose")
    labels = [
        human("r1-d3", "is", "bob"),  # it should have been another
        human("r2-d3", "not", "anna"),
        human("r3-d3", "is", "anna"),
        human("r4-d3", "not", "bob"),  # that it was not this one was known
        wrong,
        human("r5-d2", "is", "compose", supersedes=wrong.id),
        human("r6-d4", "not", "succeed"),  # of the prediction, not of the run
        human("elsewhere", "not", "x"),
        Label.new("r3-d1", "r3", "not", "email", "assessed", by="m"),
    ]
    assert assess.agreement(verdicts, labels) == (3, 5)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"server": "answers", "free GB": 3}, "server: answers; free GB: 3"),
        ({"to": [["Anna", "a@b.c"]], "ok": True}, "to: Anna, a@b.c; ok: yes"),
        ({"ok": False, "at": None}, "ok: no; at: unknown"),
        ({"body": "x" * 81, "line": "a\n b"}, "body: 81 characters; line: a b"),
        ({"a": {"b": 1, "c": []}}, "a: b 1, c none"),
        (list(range(15)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, and 3 more"),
        ({"note": "password: hunter2"}, "note: password: [redacted]"),
        ({"password": "hunter2"}, "password: [redacted]"),
        ("", ""),
        (0, "0"),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_was_observed_is_said_in_one_line_without_secrets(value, line) -> None:
    assert assess.words(value) == line


def test_what_changed() -> None:
    changed = assess.changes({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4})
    assert changed == "b: 2, now 3; c: unknown, now 4"
    assert assess.changes(1, {"a": 2}) == "1, now a: 2"
