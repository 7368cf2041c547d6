"""One text for inference, replay and training, whose head stays as it was from turn to turn."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sia.context import parse_iteration, to_xml
from sia.entries import (
    Figures,
    InputEntry,
    Iteration,
    Note,
    ProcessView,
    QueuedView,
    Reasoning,
    Response,
    Script,
    Text,
)
from sia.prompt import VERSION, prompt, sha256, system_text
from sia.scripts import Output

NOW = datetime(2026, 11, 30, 15, tzinfo=UTC)
RUNNING = Script("e4", "background", Text("sleep 9"), stdout=Output("tick\n", False, 5))
SETTLED = (
    InputEntry("e2", "typed", "r1", Text("count the ticks")),
    Reasoning("e3", Text("a && b")),
)
REPEAT = Script("e1", "repeat", Text("ls tasks"), "done", 0, Output("a\n", False, 2))
ITERATION = Iteration(
    "s", 5, Figures(NOW, cpu=3), (REPEAT, *SETTLED, RUNNING), ProcessView("", 1, "r1", "count")
)


def user(iteration: Iteration) -> str:
    return prompt(iteration).parts[1].text


def common(a: str, b: str) -> str:
    end = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    return a[:end]


def test_an_added_entry_leaves_all_before_it_as_it_was() -> None:
    before = user(ITERATION)
    settled = before[: before.index("<repeat")]
    assert "a && b" in settled and "count the ticks" in settled
    entry = Note("e5", Text("new"))
    after = user(replace(ITERATION, entries=(*ITERATION.entries, entry)))
    assert after.startswith(settled + '<note id="e5"><![CDATA[new]]></note>\n<repeat')


@given(st.integers(0, 100), st.integers(0, 9), st.text("ab ", max_size=9), st.datetimes())
def test_what_always_changes_stands_last(cpu: int, stdin: int, text: str, time: datetime) -> None:
    changed = replace(
        ITERATION,
        figures=Figures(time.replace(tzinfo=UTC, microsecond=0), cpu=cpu, stdin=stdin),
        queue=(QueuedView("r2", cpu / 100, "typed", text),),
        queue_depth=1,
        process=ITERATION.process if stdin else None,
        entries=(
            replace(REPEAT, stdout=Output(text, False, len(text))),
            *SETTLED,
            replace(RUNNING, stdout=Output(text, False, len(text))),
        ),
    )
    head = common(user(ITERATION), user(changed))
    assert head.startswith("<input ") and "<reasoning" in head and head.count("</reasoning>\n") == 1
    for last in ("<repeat", "<background", "<now", "<queue"):
        assert user(changed).index(last) >= user(changed).index("</reasoning>")
    assert prompt(changed).parts[0] == prompt(ITERATION).parts[0]


def test_a_script_that_is_over_belongs_to_the_settled_part() -> None:
    done = replace(RUNNING, status="done", exit_code=0)
    text = user(replace(ITERATION, entries=(REPEAT, *SETTLED, done)))
    assert text.index("<reasoning") < text.index("<background") < text.index("<repeat")


def test_the_loss_is_taken_on_what_was_written_alone() -> None:
    for by, trained in (("generator", True), ("person", True), ("code", False), ("skill", False)):
        found = prompt(replace(ITERATION, response=Response("<stop/>", by)))
        assert [part.role for part in found.parts] == ["system", "user", "assistant"]
        assert found.parts[2].text == "<stop/>"
        assert found.trained == (False, False, trained)
    lossy = prompt(replace(ITERATION, response=Response("�", lossy=True)))
    assert lossy.trained == (False, False, False)
    assert prompt(ITERATION).trained == (False, False)


def test_the_hash_is_of_what_a_model_reads() -> None:
    found = prompt(ITERATION)
    assert found.sha256 == prompt(replace(ITERATION, response=Response("<stop/>"))).sha256
    assert found.sha256 == sha256(f"system\0{system_text()}\0user\0{user(ITERATION)}")
    assert found.system_sha256 == sha256(system_text(VERSION))
    other = replace(ITERATION, figures=Figures(NOW, cpu=4))
    assert found.sha256 != prompt(other).sha256
    assert sha256("a\ud800") != sha256("a\ud801")


def test_the_file_gives_the_same_prompt() -> None:
    lossy = Script(
        "e6", "single_shot", Text("x"), "done", 0, Output("�", True, 1, "000004.d/e6.stdout")
    )
    iteration = replace(ITERATION, entries=(*ITERATION.entries, lossy))
    again = parse_iteration(to_xml(iteration))
    assert prompt(again) == prompt(iteration)
