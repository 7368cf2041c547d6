"""The generator's part of a dream: what it learns from, and the gate, on a tiny model."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from semif import bundle
from semif.errors import ModelError
from semif.llama import Model
from semif.revision import Registry
from semif.writing import pairs as shipped
from semif.writing import pin
from semif.writing.turns import Turn
from sia import feedback, prompt, record
from sia.context import to_xml
from sia.dream import scribe, writing
from sia.dream.away import Away, words
from sia.dream.dream import Dreams, Outcome, Recipe
from sia.dream.measured import FILE, Examiner
from sia.dream.pairs import collect
from sia.dream.scribe import Replied, Scribe, prove
from sia.dream.writing import Writing, both
from sia.entries import Figures, InputEntry, Iteration, ProcessView, Reasoning, Response, Text

pytest.importorskip("torch")
pytest.importorskip("gguf")

NOW = datetime(2026, 11, 30, 15, tzinfo=UTC)
NOUNS = "cat dog oven mail door lamp bus key song tree rope wolf jar pin fog owl map net".split()
RECIPE = Recipe(epochs=2, rate=1e-2, replay=0, minutes=10, least=10)
SAID = "<reasoning>hm</reasoning>"


def turn(n: int, text: str, response: Response | None, session: str = "s1") -> Iteration:
    entries = (InputEntry("e1", "typed", f"r{n}", Text(text)),)
    process = ProcessView("", 1, f"r{n}", text)
    return Iteration(session, n, Figures(NOW), entries, process, response=response, run=f"r{n}")


def put(home: Path, iteration: Iteration) -> str:
    contexts = home / "contexts"
    contexts.mkdir(exist_ok=True)
    record.write_iteration(contexts, iteration.session, iteration.n, to_xml(iteration))
    return feedback.name(iteration)


def say(home: Path, name: str, kind: feedback.Kind, text: str | None = None) -> None:
    feedback.give(home / ".sia/feedback.jsonl", home / "contexts", name, kind, "Ada", text)


def texts() -> Iterator[tuple[str, str]]:
    """(request, reply)."""
    for noun in NOUNS:
        for end in "quickly tomorrow upstairs again below".split():
            yield f"{noun * 2} {end} feed {noun} {end}", "<stop/>"
            yield f"{end} {noun} nice {noun[::-1] * 3} {end}", "<read_stdin/>"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prompt, "system_text", lambda version: "You act.")
    (tmp_path / ".sia/revisions").mkdir(parents=True)
    return tmp_path


def log(home: Path) -> None:
    for n, (text, reply) in enumerate(texts(), start=1):
        say(home, put(home, turn(n, text, Response(SAID))), "edited", reply)


# what is learned from


def test_a_response_is_learned_where_a_person_stands_by_it(home: Path) -> None:
    approved = put(home, turn(1, "count the ticks", Response("<stop/>")))
    edited = put(home, turn(2, "feed the cat", Response(SAID)))
    changed = put(home, turn(3, "call the dog", Response(SAID)))
    rejected = put(home, turn(4, "paint the door", Response(SAID)))
    put(home, turn(5, "nobody said a word of this", Response(SAID)))
    by_hand = turn(6, "sing a song", Response("<read_stdin/>", "skill", edited=True))
    put(home, by_hand)
    say(home, approved, "approved")
    say(home, edited, "edited", '<delete id="e1"/>')
    say(home, changed, "rejected")
    say(home, changed, "approved")
    say(home, rejected, "approved")
    say(home, rejected, "rejected")
    problems: list[object] = []
    found = collect([home], problems.append)
    assert not problems and found.rejected == 1
    by_name = {one.iteration: one for one in found.every}
    assert {name: one.turn.output for name, one in by_name.items()} == {
        "s1/1": "<stop/>",
        "s1/2": '<delete id="e1"/>',
        "s1/3": SAID,
        "s1/6": "<read_stdin/>",
    }
    # The prompt is the one that inference reads.
    read = prompt.prompt(by_hand)
    assert by_name["s1/6"].turn.parts == read.parts[:-1] and by_name["s1/2"].ids == ("e1",)
    assert collect([home, home], problems.append).sha256 == found.sha256


def test_an_edit_that_a_crash_kept_from_the_file_counts(home: Path) -> None:
    before = turn(1, "count the ticks", Response(SAID))
    name = put(home, before)
    say(home, name, "edited", "<stop/>")
    put(home, before)
    (one,) = collect([home], print).every
    assert one.turn.output == "<stop/>"


def test_what_cannot_be_learned_is_said_and_left_out(home: Path) -> None:
    put(home, turn(1, "count the ticks", Response("ticks!", edited=True)))
    secret = "<write_stdout>password=hunter2hunter2</write_stdout>"
    put(home, turn(2, "count the ticks", Response(secret, edited=True)))
    put(home, turn(3, "count", Response("<stop/>", edited=True, lossy=True)))
    say(home, put(home, turn(4, "gone", Response("<stop/>"))), "approved")
    (home / "contexts/s1/000004.xml").unlink()
    (home / "contexts/s1/000005.xml").write_text('<iteration edited="true"')
    problems: list[str] = []
    found = collect([home], lambda problem: problems.append(str(problem)))
    assert found.every == ()
    whole = "\n".join(problems)
    assert "s1/1 is left out: the reply does not begin" in whole
    assert "s1/2 is left out: it holds what looks like a secret" in whole
    assert "there is no iteration s1/4" in whole and "s1/5 is left out" in whole
    assert "hunter2" not in whole


def test_turns_of_one_request_and_of_its_twins_stay_on_one_side(home: Path) -> None:
    for n in range(1, 25):
        said = turn(n, f"count the ticks of the old clock in the hall{'!' * (n % 3)}", None)
        more = tuple(Reasoning(f"e{i}", Text("x")) for i in range(2, n))
        said = replace(said, entries=said.entries + more, response=Response("<stop/>"))
        say(home, put(home, said), "approved")
    found = collect([home], print)
    assert len(found.every) == 24 and (not found.taught or not found.held)
    # What is said later moves nothing.
    put(home, turn(99, "count the ticks of the old clock in a hall", Response("<stop/>"), "s0"))
    say(home, "s0/99", "approved")
    again = collect([home], print)
    assert {one.turn.about for one in again.every} == {one.turn.about for one in found.every}


def test_of_two_replies_to_one_prompt_the_last_said_counts(home: Path) -> None:
    same = turn(1, "count", Response(SAID)), turn(1, "count", Response(SAID), "s2")
    one, two = (put(home, it) for it in same)
    say(home, two, "edited", "<stop/>")
    say(home, one, "edited", "<read_stdin/>")
    (kept,) = collect([home], print).every
    assert kept.turn.output == "<read_stdin/>"


# the whole of it


Night = Callable[..., Outcome]


@pytest.fixture
def night(
    home: Path,
    registry: Registry,
    model: Model,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Night:
    """The generator's part of a dream, with 6 golden pairs and no golden rows."""
    few = tmp_path / "golden.jsonl"
    few.write_bytes(b"".join(shipped.golden().read_bytes().splitlines(True)[::54]))
    for module in (shipped, pin):
        monkeypatch.setattr(module, "golden", lambda: few)
    monkeypatch.setattr(Examiner, "golden_rows", [])
    monkeypatch.setattr(Examiner, "golden", lambda *_: [])

    def run(**changes: Any) -> Outcome:
        dreams = Dreams(home / ".sia/dreams", registry, print, str(path))
        written = Writing(dreams, registry, Scribe(model, 1, 4096, 40, print))
        with dreams.lock():
            nothing = Outcome("nothing", "no rows")
            recipe = replace(RECIPE, **changes)
            return written.after(nothing, [home], recipe, Examiner(model, 1, 512))

    return run


def test_what_persons_wrote_is_learned_proven_and_kept(
    home: Path, registry: Registry, night: Night
) -> None:
    log(home)
    parent = registry.current()
    outcome = night()
    assert outcome.status == "proven", outcome.text
    assert outcome.text.startswith("no rows; generator: ")
    made = registry.get(outcome.candidate)
    assert made.contents.parent == parent.id and made.write_path and made.folder
    assert (made.folder / FILE).exists() and outcome.folder
    found = json.loads((outcome.folder / "proof.json").read_bytes())
    assert [line["name"] for line in found["lines"]] == ["held out", "form", "kind", "writing"]
    act = found["act"]
    assert act["after"]["nll"] < act["before"]["nll"] - 1 and act["after"]["rows"] >= 40
    assert made.contents.metrics["act"] == act["after"]
    assert ("act" in made.proven) == (act["after"]["kind"] >= 0.9)
    assert scribe.acting(made) == made.write_path and scribe.acting(parent) is None
    again = night()
    assert again.status == "nothing" and "dreamed of already" in again.text


def test_what_is_proven_is_noted_once_it_is_kept(
    home: Path, registry: Registry, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one that is killed in between would not be dreamed of again, and be lost."""
    log(home)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            night()
    assert Dreams(home / ".sia/dreams", registry, print).past() == []
    outcome = night()
    assert outcome.status == "proven" and outcome.candidate in registry.ids()
    assert len(list((home / ".sia/dreams").glob("*/dream.json"))) == 1


def test_too_few_and_too_long_pairs_wait(
    home: Path, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert night().text == (
        "no rows; generator: nothing to learn: no response was approved or edited (sia feedback)"
    )
    log(home)
    monkeypatch.setattr(writing, "LIMIT", 100)
    assert "generator: nothing to learn yet" in night().text
    assert "longer pairs wait for sia dream --on)" in night().text
    monkeypatch.setattr(writing, "LIMIT", 2048)
    monkeypatch.setattr(writing, "HELD_ROWS", 1000)
    assert "not enough to prove" in night().text and "1000 are needed" in night().text


# the gate


def replied(count: int, loss: float, right: float = 1.0) -> Replied:
    from semif.measuring.paired import Said

    rows = tuple(
        Said(f"s/{i}", "act", f"t{i}", 1.0, loss + i % 3 / 10, 0.0, i < right * count, 0.0, "stop")
        for i in range(count)
    )
    return Replied(rows, rows)


def failed(*sides: Any) -> list[str]:
    old, new, golden, tasks = sides
    return [line.name for line in prove(old, new, golden, frozenset(tasks)).failed]


FINE = {"message": {"well_formed": 1.0, "passed": 0.97, "kept_of_passed": 0.97, "chrf": 83.0,
                    "chrf_of_input": 73.0}}  # fmt: skip


def test_each_line_of_the_gate() -> None:
    old, new = replied(60, 2.0), replied(60, 1.0)
    assert failed(old, new, (FINE, FINE), ["message", "act"]) == []
    assert failed(old, old, (FINE, FINE), []) == ["held out"]
    assert failed(replied(39, 2.0), replied(39, 1.0), ({}, {}), []) == ["held out"]
    assert failed(old, replied(60, 1.0, 0.8), ({}, {}), []) == ["form", "kind"]
    worse = {"message": {**FINE["message"], "chrf": 80.5}}
    assert failed(old, new, (FINE, worse), ["message"]) == ["writing"]
    assert failed(old, new, (FINE, worse), []) == []  # it was not proven for that
    below = {"message": {**FINE["message"], "kept_of_passed": 0.94}}
    (line,) = prove(old, new, (below, below), frozenset(["message"])).failed
    assert line.text == "message: kept_of_passed 0.94 is below 0.95"


@pytest.mark.parametrize(
    ("decided", "written", "status", "candidate"),
    [
        ("proven", "proven", "proven", "w"),
        ("proven", "rejected", "proven", "d"),
        ("rejected", "proven", "proven", "w"),
        ("nothing", "rejected", "rejected", "w"),
        ("rejected", "nothing", "rejected", "d"),
    ],
)
def test_a_night_of_two_parts(decided: Any, written: Any, status: str, candidate: str) -> None:
    found = both(Outcome(decided, "a", None, "d"), Outcome(written, "b", None, "w"))
    assert (found.status, found.candidate) == (status, candidate)
    assert found.text == "a; generator: b"


def test_a_turn_reads_as_it_was_written() -> None:
    one = Turn(prompt.prompt(turn(1, "count", None)).parts, "<stop/>", "count")
    assert Turn.from_json(json.loads(json.dumps(one.to_json())), "row") == one


# what came back from another machine


def test_an_adapter_that_was_trained_elsewhere_passes_the_same_gate(
    home: Path, registry: Registry, night: Night, model: Model, path: Path
) -> None:
    log(home)
    dreams = Dreams(home / ".sia/dreams", registry, print, str(path))
    written = Writing(dreams, registry, Scribe(model, 1, 4096, 40, print))
    away = Away(dreams, registry, written, Examiner(model, 1, 512))
    python = shlex.quote(sys.executable)
    template = f"{python} -m semif train --bundle {{bundle}} --out {{out}} --threads 1"
    with dreams.lock():
        outcome = away.hand_over(words(f"{template} --model {path}"), [home], RECIPE)
        assert outcome.folder is not None
        asked = bundle.read(outcome.folder / "bundle")
        assert asked.decisions is None and asked.turns and asked.turns.limit == 4096 - 40
        # A revision of this home cannot be made of half an adapter.
        adapter = outcome.folder / "out/write.gguf"
        adapter.write_bytes(adapter.read_bytes()[:-1])
        with pytest.raises(ModelError, match="write.gguf was changed or cut off"):
            away.bring_in(outcome.folder / "out", [home])
    assert outcome.status == "proven", outcome.text
    assert (outcome.folder / "proof-turns.json").exists()
    assert registry.get(outcome.candidate).contents.metrics["act"]["rows"] >= 40
