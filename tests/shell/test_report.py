"""What a person may look at, from real stores, files and logs."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from semif.log import DecisionLog
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia import history, record, report
from sia.context import to_xml
from sia.entries import (
    DecisionView,
    Figures,
    InputEntry,
    Iteration,
    ProcessView,
    Reasoning,
    Response,
    Script,
    Text,
)
from sia.errors import SiaError
from sia.home import Home, open_home
from sia.shell import text, views
from sia.skills.tree import load
from sia.store import Run, Store

NOW = datetime(2026, 11, 30, 15, 0, tzinfo=UTC)
ESCAPE = "\x1b[31m"


@pytest.fixture
def opened(home: Path) -> Home:
    (home / "sia.toml").write_text('[person]\ntimezone = "UTC"\n')
    return open_home(home)


@pytest.fixture
def store(opened: Home):
    store = Store(opened.database)
    yield store
    store.close()


def run(id: str, text: str, urgency: float, minutes_ago: int, **more: object) -> Run:
    arrived = NOW - timedelta(minutes=minutes_ago)
    return Run(id, "typed", text, urgency, arrived, arrived, **more)


def test_status_of_an_empty_home(opened: Home, store: Store) -> None:
    data = report.status(opened, store)
    assert json.loads(json.dumps(data)) == data
    assert data["running"] is False
    assert data["process"] is None
    assert (data["waiting"], data["unread"], data["question"]) == (0, 0, None)
    assert data["reminders"] == {"waiting": 0, "next": None}
    assert len(data["revision"]["id"]) == 12
    assert "not running" in views.render_status(data)


def test_status_of_a_busy_home(opened: Home, store: Store) -> None:
    store.save_run(run("r1", f"tidy{ESCAPE}", 0.5, 9, status="running", skill="files/organize"))
    store.save_run(run("r2", "later", 0.1, 8))
    question = {"method": "ask", "text": "Which Anna?", "options": ["Anna B", "Anna K"]}
    store.save_run(run("r3", "write", 0.4, 7, status="asking", question=json.dumps(question)))
    store.add_input("typed", "not yet admitted", NOW)
    script = (
        '<background id="e7" status="running"><![CDATA[tail -f log]]>'
        "<stdout/><stderr/></background>"
    )
    store.save_entries([("e7", 1, script)], [])
    store.set_meta("session", "20261130T140000Z-7f3a")
    store.set_meta("session_n", "41")
    data = report.status(opened, store)
    assert data["process"] == {
        "run": "r1", "skill": "files/organize", "step": 1, "text": f"tidy{ESCAPE}",
    }  # fmt: skip
    assert (data["waiting"], data["unread"], data["iteration"]) == (1, 1, 41)
    assert data["question"] == {"run": "r3", "text": "Which Anna?", "options": ["Anna B", "Anna K"]}
    assert data["background"] == [{"id": "e7", "command": "tail -f log"}]
    shown = views.render_status(data)
    assert "files/organize: tidy␛[31m (r1)" in shown
    assert "1 waiting, 1 input not yet looked at" in shown
    assert "Which Anna? (Anna B, Anna K)" in shown


def test_a_damaged_revision_is_told_and_hides_nothing_else(opened: Home, store: Store) -> None:
    (opened.revisions / "current").write_text("0123456789ab\n")
    data = report.status(opened, store)
    assert data["revision"]["id"] == ""
    assert "no revision in" in views.render_status(data, 200)


def test_queue_says_why_each_waits(store: Store) -> None:
    store.save_run(run("r1", "running", 0.5, 60, status="running"))
    store.save_run(run("r2", "urgent", 0.9, 5))
    store.save_run(run("r3", "old", 0.4, 30))
    store.save_run(run("r4", "new", 0.4, 24))
    store.save_run(run("r5", "displaced", 0.3, 60, displaced_by="r1", preempts=False))
    question = json.dumps({"method": "ask", "text": "Which Anna?"})
    store.save_run(run("r6", "asking", 0.9, 2, status="asking", question=question))
    data = report.queue(store, 0.1, NOW)
    assert json.loads(json.dumps(data)) == data
    assert [(row["id"], row["why"]) for row in data] == [
        ("r1", "running now"),
        ("r2", "next, when r1 is done"),
        ("r3", "2 go first; r2 is more urgent (0.91)"),
        ("r4", "3 go first; r3 is more urgent (0.45)"),
        ("r5", "interrupted by r1; 4 go first; r4 is more urgent (0.44)"),
        ("r6", "waits for your answer: Which Anna?"),
    ]
    third = data[2]
    assert (third["urgency"], third["effective"]) == (0.4, 0.45)
    assert third["waits_since"] == "2026-11-30T14:30:00+00:00"
    assert third["latest"] == "2026-11-30T20:30:00+00:00"  # (1 - 0.4) / 0.1 hours later
    assert [(row["ahead"], row["before"]) for row in data] == [
        (0, 0), (1, 3), (2, 1), (3, 2), (4, 0), (0, 0)
    ]  # fmt: skip
    shown = views.render_queue(data, 200)
    assert "its turn at the latest after 20:30 and the 1 that came before it\n" in shown


def test_queue_ties_and_preempts_in_words(store: Store) -> None:
    store.save_run(run("r1", "first", 0.5, 10))
    store.save_run(run("r2", "second", 0.5, 10))
    store.save_run(run("r3", "answered", 0.1, 1, preempts=True))
    assert [(row["id"], row["why"]) for row in report.queue(store, 0.1, NOW)] == [
        ("r3", "next"),
        ("r1", "r3 goes first: it interrupts, or was just answered"),
        ("r2", "2 go first; as urgent as r1, which came earlier"),
    ]


def test_an_interrupted_request_says_after_what_it_goes_on(store: Store) -> None:
    store.save_run(run("r1", "report", 0.5, 10, displaced_by="r2"))
    store.save_run(run("r2", "stop", 0.9, 1, status="running"))
    assert report.queue(store, 0.1, NOW)[1]["why"] == "interrupted by r2, goes on after it"


def test_what_is_put_back_says_so_and_what_runs_names_its_budget(
    store: Store, tmp_path: Path
) -> None:
    write_skill(tmp_path, "mail", "send")
    tree = load((tmp_path,))
    work = {"status": "running", "skill": "mail/send", "seconds": 4.2}
    store.save_run(run("r1", "mail", 0.5, 10, **work))
    store.save_run(run("r2", "again", 0.5, 9, attempt=2))
    store.save_run(run("r3", "gone", 0.1, 1, status="running", skill="mail/gone"))
    assert [row["why"] for row in report.queue(store, 0.1, NOW, tree)] == [
        f"running now: mail/send, 4 of its {tree.skill('mail/send').budget.seconds:g} seconds used",
        "running now",
        "put back, attempt 2; next, when r3 is done",
    ]
    (row, *_) = report.queue(store, 0.1, NOW, tree, alive=False)
    assert row["why"].startswith("was cut off, goes on at the next start: mail/send, 4 of its ")


def test_one_request_in_full(store: Store) -> None:
    displaced = {"displaced_by": "r9", "attempt": 2, "skill": "-", "seconds": 1.5}
    store.save_run(run("r1", "call\x1b[31m mum", 0.3, 60, **displaced))
    store.save_run(run("r2", "soon", 0.9, 5))
    store.add_stdin("r1", "more")
    data = report.request(store, 0.1, NOW, "r1")
    assert json.loads(json.dumps(data)) == data
    assert (data["effective"], data["ahead"], data["unread"]) == (0.4, 1, 1)
    shown = views.render_request(data)
    for words in (
        "call␛[31m mum",
        "waiting: interrupted by r9; r2 is more urgent (0.91)",
        "typed, 30 Nov 14:00",
        "0.30, by waiting 0.40 now",
        "its turn at the latest after 21:00",
        "no skill covers it, 1.5 seconds used",
        "1 input",
    ):
        assert words in shown
    question = json.dumps({"method": "ask", "text": "Which Anna?", "options": ["B", "K"]})
    store.save_run(run("r3", "write", 0.4, 7, status="asking", question=question))
    assert "Which Anna? (B, K)" in views.render_request(report.request(store, 0.1, NOW, "r3"))
    store.save_run(run("r4", "old", 0.4, 7, status="failed", outcome="no server"))
    over = views.render_request(report.request(store, 0.1, NOW, "r4"))
    assert "failed" in over and "no server" in over and "at the latest" not in over
    with pytest.raises(SiaError, match="there is no request r5; `sia queue` lists what waits"):
        report.request(store, 0.1, NOW, "r5")


def test_an_input_that_is_not_yet_looked_at_is_there_too(store: Store) -> None:
    item = store.add_input("piped", "read me", NOW - timedelta(minutes=3))
    (row,) = report.queue(store, 0.1, NOW)
    assert (row["id"], row["status"], row["source"]) == (item.run, "unread", "piped")
    shown = views.render_queue([row], 200)
    assert shown.split()[:4] == [item.run, "–", "read", "me"] and "not yet looked at" in shown
    with pytest.raises(SiaError, match=f"{item.run} is not yet looked at"):
        report.request(store, 0.1, NOW, item.run)


def test_a_long_queue_is_cut_and_says_so(store: Store) -> None:
    with store.transaction():
        for n in range(60):
            store.save_run(run(f"r{n}", f"text {n}", 0.5, 60 - n))
    store.save_run(run("r99", "ask", 0.5, 1, status="asking"))
    shown = views.render_queue(report.queue(store, 0.1, NOW), 100)
    assert "text 49" in shown and "text 50" not in shown and "r99" in shown
    assert shown.endswith("  and 10 more that wait")


def write_skill(root: Path, category: str, name: str, requires: str = "") -> None:
    folder = root / category / name
    folder.mkdir(parents=True)
    (root / category / "CATEGORY.md").write_text(
        f"---\nname: {category}\ndescription: About {category}.\n---\n"
    )
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: Does {name}.\nmetadata:\n  sia-requires: '{requires}'\n"
        "---\nOne paragraph\nof prose.\n\n- a list\n"
    )


def test_skills_with_what_they_need(opened: Home, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "email", "compose", "config:email.host")
    write_skill(tmp_path / "skills", "notes", "write")
    data = report.skills(load([tmp_path / "skills"]), opened.setting)
    assert json.loads(json.dumps(data)) == data
    assert [(c["category"], [s["id"] for s in c["skills"]]) for c in data] == [
        ("email", ["email/compose"]),
        ("notes", ["notes/write"]),
    ]
    assert "set host under [email]" in data[0]["skills"][0]["missing"]
    assert data[1]["skills"][0]["missing"] == ""
    shown = views.render_skills(data)
    assert "  email/compose  Does compose." in shown.split("\n")
    assert "  One paragraph of prose.\n\n  - a list" in views.render_skill(data[1]["skills"][0])


def iteration(session: str, n: int, **more: object) -> Iteration:
    return Iteration(
        session=session,
        n=n,
        figures=Figures(NOW + timedelta(minutes=n), cpu=3, stdin=0),
        **more,
    )


def keep(home: Home, value: Iteration) -> None:
    record.write_iteration(home.contexts, value.session, value.n, to_xml(value))


ROUTED = (
    DecisionView("d1", "navigate_category", "r5", "files", "q", "{}",
                 (("files", "Files.", 0.9), ("notes", "Notes.", 0.1))),
    DecisionView("d2", "navigate_skill", "r5", "find", "q", "{}",
                 (("find", "Find.", 0.7), ("organize", "Tidy.", 0.3))),
)  # fmt: skip


def test_history_across_sessions(opened: Home) -> None:
    old, new = "20261129T080000Z-aaaa", "20261130T080000Z-bbbb"
    for n in range(1, 4):
        keep(opened, iteration(old, n))
    process = ProcessView("", 1, "r5", "find the tax file")
    say = Response("<write_stdout><![CDATA[Found it.\nHere.]]></write_stdout>", "skill")
    keep(opened, iteration(new, 1, run="r5", process=process, decisions=ROUTED, response=say))
    torn = opened.contexts / new / "000002.xml"
    torn.write_bytes(b"<iteration")
    data = history.find(opened, history.Wanted(limit=3))
    assert json.loads(json.dumps(data)) == data
    assert [(row["session"], row["n"]) for row in data] == [(old, 3), (new, 1), (new, 2)]
    assert data[1] == {
        "session": new,
        "n": 1,
        "problem": "",
        "time": "2026-11-30T15:01:00+00:00",
        "run": "r5",
        "request": "find the tax file",
        "skill": "files/find",
        "edited": False,
        "outcome": "",
        "decisions": [
            {"phase": "navigate_category", "selected": "files", "p": 0.9},
            {"phase": "navigate_skill", "selected": "find", "p": 0.7},
        ],
        "response": "Found it.",
    }
    assert str(torn) in data[2]["problem"]
    assert len(history.find(opened, history.Wanted(session=old))) == 3
    state = '{"current_process": "none", "input": "thanks"}'
    ignored = DecisionView("d3", "contains_request", "i5", "no", "q", state, (("no", "", 1.0),))
    keep(opened, iteration(new, 3, decisions=(ignored,)))
    assert history.find(opened, history.Wanted(limit=1))[0]["request"] == "thanks"
    shown = views.render_history(data)
    assert "files/find · find the tax file" in shown
    assert str(torn) in shown


def test_context_sizes_by_section(opened: Home) -> None:
    assert report.context(opened) is None
    entries = (
        InputEntry("e1", "typed", "r1", Text.of("hello")),
        Reasoning("e2", Text.of(f"think{ESCAPE}")),
        Reasoning("e3", Text.of("more")),
        Script("e4", "repeat", Text.of("ls tasks"), "done", 0),
    )
    keep(opened, iteration("20261130T080000Z-bbbb", 7, entries=entries))
    data = report.context(opened, count=lambda text: 10)
    assert json.dumps(data)
    assert (data["n"], data["counted"], data["tokens"]) == (7, True, 60)
    assert [(s["name"], s["entries"], s["tokens"]) for s in data["sections"]] == [
        ("instructions", 1, 10),
        ("input", 1, 10),
        ("reasoning", 2, 20),
        ("repeat", 1, 10),
        ("now", 1, 10),
    ]
    guessed = report.context(opened)
    assert guessed["counted"] is False
    whole = views.render_context(guessed)
    assert "about" in whole
    assert '<input id="e1" source="typed" run="r1"><![CDATA[hello]]></input>' in whole
    short = views.render_context(data, whole=False)
    assert "  input e1      hello" in short.split("\n")
    assert "<input" not in short


def decide(log: DecisionLog, run: str, phase: str, id: str, text: str, probs: dict) -> None:
    options = tuple(Option(name, f"About {name}.") for name in probs)
    decision = Decision(id, phase, {"input": text}, "Which?", options)
    log.append(ScriptedDecider(lambda _: probs, "a9c199d2792b").decide([decision]), run)


def test_why_shows_the_last_request_whole(opened: Home) -> None:
    log = DecisionLog(opened.decisions)
    assert report.why(opened) == []
    decide(log, "r1", "contains_request", "d1", "older", {"yes": 0.9, "no": 0.1})
    decide(log, "r2", "contains_request", "d2", "find it", {"yes": 0.93, "no": 0.07})
    decide(log, "r1", "navigate_category", "d3", "older", {"notes": 0.6, "files": 0.4})
    decide(log, "r2", "navigate_category", "d4", "find it", {"notes": 0.2, "files": 0.8})
    with opened.decisions.open("ab") as file:
        file.write(b'{"torn": ')
    rows = report.why(opened)
    assert [(row["id"], row["phase"], row["selected"]) for row in rows] == [
        ("d2", "contains_request", "yes"),
        ("d4", "navigate_category", "files"),
    ]
    first = rows[0]
    assert first["about"] == "find it"
    assert (first["threshold"], first["threshold_option"]) == (pytest.approx(0.5, abs=0.4), "yes")
    assert rows[1]["threshold"] is None
    assert [option["id"] for option in rows[1]["options"]] == ["files", "notes"]
    assert [row["id"] for row in report.why(opened, run="r1")] == ["d1", "d3"]


def test_why_reads_only_the_end_of_a_huge_log(opened: Home) -> None:
    with opened.decisions.open("wb") as file:
        file.seek(300 * 1024 * 1024)  # a sparse file: as large to read as a full one
        file.write(b"\n")
    log = DecisionLog(opened.decisions)
    for n in range(300):
        decide(log, f"r{n // 2}", "urgency", f"d{n}", "x" * 900, {"low": 0.7, "high": 0.3})
    tracemalloc.start()
    start = time.perf_counter()
    rows = report.why(opened)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [row["id"] for row in rows] == ["d298", "d299"]
    assert seconds < 2
    assert peak < 20_000_000


def test_why_as_bars(opened: Home) -> None:
    log = DecisionLog(opened.decisions)
    names = [f"category-{n}" for n in range(7)]
    decide(log, "r2", "contains_request", "d1", f"find{ESCAPE} it", {"yes": 0.75, "no": 0.25})
    probs = dict.fromkeys(names, 0.05) | {"category-3": 0.7}
    decide(log, "r2", "navigate_category", "d2", f"find{ESCAPE} it", probs)
    rows = report.why(opened)
    rows[0]["threshold"] = 0.6
    shown = views.render_why(rows, 60).split("\n")
    assert shown[0] == "  find␛[31m it  r2"
    assert shown[2] == "  contains_request  yes counts from 0.60"
    assert shown[3] == "    ● yes  0.75  ██████████████████"
    assert shown[4] == "      no   0.25  ██████"
    assert shown[6] == "  navigate_category"
    assert shown[7].startswith("    ● category-3  0.70  ████████████████")
    assert "      and 3 less likely" in shown
    assert all(text.width_of(line) <= 60 for line in shown)


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_nothing_is_wider_than_the_terminal(opened: Home, store: Store, width: int) -> None:
    store.save_run(run("r1", "words " * 60, 0.5, 9, status="running", skill="files/organize"))
    store.save_run(replace(run("r2", "words " * 60, 0.5, 9)))
    keep(opened, iteration("s", 1, process=ProcessView("", 1, "r1", "words " * 60)))
    shown = [
        views.render_status(report.status(opened, store), width),
        views.render_queue(report.queue(store, 0.1, NOW), width),
        views.render_history(history.find(opened, history.Wanted()), width),
        views.render_context(report.context(opened), width, whole=False),
    ]
    home = len(str(opened.folder))
    for line in "\n".join(shown).split("\n"):
        assert text.width_of(line) <= max(width, 34) or home > width - 12, line


def test_bars() -> None:
    assert views.bar(0.0, 8) == ""
    assert views.bar(1.0, 8) == "████████"
    assert views.bar(0.5, 8) == "████"
    assert views.bar(0.5625, 8) == "████▌"
