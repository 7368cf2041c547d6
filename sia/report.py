"""What a person may look at: status, queue, skills, context and decisions of one home.

Pure functions from the store, the folders and the files to plain JSON-able dicts, used by the
command line and by the shell; the ``render_*`` functions turn them into text for a terminal.
Times are RFC 3339 in the person's zone.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from semif import jsonl
from semif.errors import SemifError
from semif.revision import Registry
from sia import home as homes
from sia import prompt, record
from sia import queue as queues
from sia.context import parse_document, parse_entry
from sia.entries import Script
from sia.home import Home
from sia.navigate import UNCOVERED
from sia.reminders import Reminders
from sia.scheduler import TAU
from sia.shell.views import compact
from sia.shell.views import render_context as render_context
from sia.shell.views import render_history as render_history
from sia.shell.views import render_queue as render_queue
from sia.shell.views import render_request as render_request
from sia.shell.views import render_skill as render_skill
from sia.shell.views import render_skills as render_skills
from sia.shell.views import render_status as render_status
from sia.shell.views import render_suggestions as render_suggestions
from sia.shell.views import render_why as render_why
from sia.skills.manifest import Manifest
from sia.skills.tree import Tree, UnknownSkill
from sia.store import Run, Store
from sia.suggestions import load as load_suggestions

TAIL_LIMIT = 1 << 23  # bytes of a log's end that are read at the most
LOOK_BACK = 200  # rows
# The option whose probability is compared with the phase's threshold.
GATES = {
    "contains_request": "yes",
    "answers": "yes",
    "interrupt": "interrupt",
    "cover": "yes",
    "predict": "succeed",
    "same_action": "yes",
}


# status


def status(home: Home, store: Store) -> dict[str, Any]:
    """What the agent of ``home`` does now. ``running``: a loop holds the home."""
    running = store.runs("running")
    return {
        "home": str(home.folder),
        "running": homes.locked(home),
        "session": store.meta("session"),
        "iteration": int(store.meta("session_n", "0")),
        "process": _process(running[-1]) if running else None,
        "waiting": store.waiting_count(),
        "unread": len(store.inputs()),
        "question": question(store),
        "reminders": _reminders(home, store),
        "background": background(store),
        "decider": home.config.decider.url,
        "revision": _revision(home),
    }


def _process(run: Run) -> dict[str, Any]:
    return {"run": run.id, "skill": run.skill, "step": run.step + 1, "text": run.text}


def question(store: Store) -> dict[str, Any] | None:
    """The open question that an answer would go to: the one asked last."""
    asking = store.runs("asking")
    if not asking:
        return None
    return question_of(max(asking, key=lambda run: run.requeued))


def question_of(run: Run) -> dict[str, Any]:
    asked = run.open_question
    text = asked.get("text") or f"More input is wanted for: {run.text}"
    return {"run": run.id, "text": text, "options": list(asked.get("options") or ())}


def _reminders(home: Home, store: Store) -> dict[str, Any]:
    kept = Reminders(store, home.tasks / "reminders", str(home.zone), lambda: None).waiting()
    first = {"due": kept[0].due.isoformat(), "text": kept[0].text} if kept else None
    return {"waiting": len(kept), "next": first}


def background(store: Store) -> list[dict[str, str]]:
    """The background scripts that run, as the last turn saw them."""
    entries = (
        parse_entry(parse_document(xml.encode()))
        for _, xml in store.entries()
        if xml.startswith("<background")
    )
    return [
        {"id": entry.id, "command": entry.command.text}
        for entry in entries
        if isinstance(entry, Script) and entry.status == "running"
    ]


def _revision(home: Home) -> dict[str, str]:
    try:
        revision = Registry(home.revisions).current()
    except SemifError as error:
        return {"id": "", "readout": "", "problem": str(error)}
    return {"id": revision.id, "readout": revision.contents.readout, "problem": ""}


# queue


def queue(
    store: Store, rate: float, now: datetime, tree: Tree | None = None, alive: bool = True
) -> list[dict[str, Any]]:
    """Open requests in the order they will be worked: the running one, the waiting ones, those
    that wait for an answer, and inputs about which nothing is decided yet.

    ``why`` says in words why each waits, ``ahead`` how many go first as things stand; from
    ``latest`` on nothing that came later goes first, only the ``before`` that came earlier.
    rate: urgency per hour. now: in the person's zone. tree: names the budget of what
    runs. alive: an agent runs.
    """
    running = store.runs("running")
    waiting = queues.ordered(store.runs("waiting"), rate, now)
    arrivals = sorted(run.arrived for run in waiting)
    rows = [_row(run, rate, now, _why_runs(run, tree, alive)) for run in running]
    before = running[-1:]
    for place, run in enumerate(waiting):
        why = _why_waits(run, before[0] if before else None, place + len(running), rate, now)
        if not run.skill and queues.declined_for(store, run.id):
            why += "; you are asked then whether you still want it"
        ahead = {"ahead": place + len(running), "before": bisect_left(arrivals, run.arrived)}
        rows.append(_row(run, rate, now, why) | ahead)
        before = [run]
    for run in store.runs("asking"):
        asked = run.open_question.get("text") or "more input"
        rows.append(_row(run, rate, now, f"waits for your answer: {asked}"))
    for item in store.inputs():
        unread = Run(item.run, item.source, item.text, 0.0, item.time, item.time, status="unread")
        rows.append(_row(unread, rate, now, "not yet looked at: what came before is done first"))
    return rows


def request(
    store: Store,
    rate: float,
    now: datetime,
    id: str,
    tree: Tree | None = None,
    alive: bool = True,
) -> dict[str, Any]:
    """All about one request, open or over. Raises SiaError when there is none of this id."""
    run = queues.known(store, id)
    row = next((row for row in queue(store, rate, now, tree, alive) if row["id"] == id), None)
    return (row or _row(run, rate, now, run.status)) | {
        "step": run.step + 1,
        "actions": list(_actions(run, tree)),
        "seconds": round(run.seconds, 1),
        "displaced_by": run.displaced_by,
        "question": question_of(run) if run.status == "asking" else None,
        "unread": store.stdin_count(id),
        "outcome": run.outcome,
    }


def _row(run: Run, rate: float, now: datetime, why: str) -> dict[str, Any]:
    zone = now.tzinfo
    return {
        "id": run.id,
        "text": run.text,
        "status": run.status,
        "source": run.source,
        "skill": run.skill,
        "attempt": run.attempt,
        "urgency": round(run.urgency, 3),
        "effective": round(queues.effective(run, rate, now), 3),
        "waits_since": run.arrived.astimezone(zone).isoformat(timespec="seconds"),
        "latest": queues.latest(run, rate).astimezone(zone).isoformat(timespec="seconds"),
        "ahead": 0,
        "before": 0,
        "why": why,
    }


def _actions(run: Run, tree: Tree | None) -> tuple[str, ...]:
    skill = _manifest(run, tree)
    return skill.actions if skill else ()


def _manifest(run: Run, tree: Tree | None) -> Manifest | None:
    try:
        return tree.skill(run.skill) if tree and run.skill not in ("", UNCOVERED) else None
    except UnknownSkill:
        return None


def _why_runs(run: Run, tree: Tree | None, alive: bool) -> str:
    skill = _manifest(run, tree)
    words = "running now" if alive else "was cut off, goes on at the next start"
    if skill is None:
        return words
    place = f", action {run.step + 1} of {len(skill.actions)}" if skill.actions else ""
    used = f"{run.seconds:.0f} of its {skill.budget.seconds:g} seconds used"
    return f"{words}: {skill.id}{place}, {used}"


def _why_waits(run: Run, ahead: Run | None, place: int, rate: float, now: datetime) -> str:
    """place: how many go first; ahead: the last of them."""
    if ahead is None:
        return "next"
    past = ""
    if run.displaced_by == ahead.id:
        return f"interrupted by {ahead.id}, goes on after it"
    if run.displaced_by:
        past = f"interrupted by {run.displaced_by}; "
    elif run.attempt > 1:
        past = f"put back, attempt {run.attempt}; "
    if ahead.status == "running":
        return f"{past}next, when {ahead.id} is done"
    if place > 1:
        past += f"{place} go first; "
    if ahead.preempts and not run.preempts:
        return f"{past}{ahead.id} goes first: it interrupts, or was just answered"
    if queues.level(run, rate, now) < queues.level(ahead, rate, now):
        return f"{past}{ahead.id} is more urgent ({queues.effective(ahead, rate, now):.2f})"
    return f"{past}as urgent as {ahead.id}, which came earlier"


# skills


def skills(tree: Tree, setting: Callable[[str], Any]) -> list[dict[str, Any]]:
    """Categories with their skills; ``missing`` says what a skill still needs, else ""."""
    return [
        {
            "category": category.name,
            "description": category.description,
            "skills": [
                {
                    "id": skill.id,
                    "description": skill.description,
                    "actions": list(skill.actions),
                    "stakes": skill.stakes,
                    "effects": skill.effects,
                    "seconds": skill.budget.seconds,
                    "missing": tree.available(skill, setting),
                    "folder": str(skill.folder),
                    "body": skill.body,
                }
                for skill in category.skills
            ],
        }
        for category in tree.categories
    ]


# suggestions


def suggestions(
    home: Home, on_problem: Callable[[jsonl.Problem], None] = lambda _: None
) -> list[dict[str, Any]]:
    """What no skill covered, oldest first: its first row, with how often it was asked for, and
    whether it is suggested, covered (by ``skill``), done or dropped now."""
    return [
        {
            **item.first.to_json(),
            "time": datetime.fromisoformat(item.first.time).astimezone(home.zone).isoformat(),
            "event": item.status,
            "count": item.count,
            "skill": item.skill,
            "requests": list(item.requests),
        }
        for item in load_suggestions(home.suggestions, on_problem)
    ]


# the context, from the iteration files


def _iteration_files(home: Home) -> Iterator[Path]:
    """Newest first. A session's name begins with its time."""
    try:
        names = sorted(os.listdir(home.contexts), reverse=True)
    except FileNotFoundError:
        return
    for name in names:
        folder = home.contexts / name
        if folder.is_dir():
            files = [path for path in folder.glob("*.xml") if path.stem.isdigit()]
            yield from sorted(files, key=lambda path: int(path.stem), reverse=True)


def context(home: Home, count: Callable[[str], int] | None = None) -> dict[str, Any] | None:
    """The last iteration: its file, its XML, and the size of each section of its prompt; None
    when there is none. count: text -> tokens; without it, tokens are guessed at four characters
    each and ``counted`` is false."""
    path = next(_iteration_files(home), None)
    if path is None:
        return None
    iteration = record.read(path)
    measure = count or (lambda text: (len(text) + 3) // 4)
    parts: dict[str, list[str]] = {}
    parts["instructions"] = [prompt.system_text(iteration.prompt_version or prompt.VERSION)]
    for entry in iteration.entries:
        text = prompt.entry_text(entry)
        parts.setdefault(text[1:].split(" ", 1)[0], []).append(text)
    parts["now"] = [prompt.now_text(replace(iteration, entries=()))]
    sections = [
        {
            "name": name,
            "entries": len(texts),
            "characters": sum(map(len, texts)),
            "tokens": sum(map(measure, texts)),
        }
        for name, texts in parts.items()
    ]
    return {
        "session": iteration.session,
        "n": iteration.n,
        "file": str(path.relative_to(home.folder)),
        "time": iteration.figures.time.isoformat(),
        "counted": count is not None,
        "tokens": sum(section["tokens"] for section in sections),
        "sections": sections,
        "entries": [row for entry in iteration.entries for row in compact(entry)],
        "xml": path.read_text("utf-8"),
    }


# decisions


def why(home: Home, limit: int = 8, run: str | None = None) -> list[dict[str, Any]]:
    """The decisions about the last request (or ``run``), at most the last ``limit`` when they
    belong to none; oldest first. Only the end of the log is read."""
    last = list(islice(_rows_backwards(home.decisions), LOOK_BACK))
    if run is None and last:
        run = last[0].get("run", "")
    rows = [row for row in last if row.get("run", "") == run]
    if not run:
        rows = rows[:limit]
    thresholds = _thresholds(home)
    return [_decision(row, thresholds) for row in reversed(rows)]


def _rows_backwards(path: Path) -> Iterator[dict[str, Any]]:
    for row in jsonl.read_backwards(path, TAIL_LIMIT):
        if isinstance(row.get("predicted_probs"), dict):
            yield row


def _thresholds(home: Home) -> dict[str, float]:
    try:
        return dict(Registry(home.revisions).current().contents.thresholds)
    except SemifError:
        return {}  # `status` tells; what was decided can be shown without it


def _decision(row: dict[str, Any], thresholds: dict[str, float]) -> dict[str, Any]:
    phase, probs = row.get("phase", ""), row["predicted_probs"]
    gate = GATES.get(phase, "")
    default = None if phase in ("cover", "predict", "same_action") else TAU
    state = row.get("state")
    return {
        "id": row.get("id", ""),
        "time": row.get("time", ""),
        "run": row.get("run", ""),
        "phase": phase,
        "about": about(state),
        "question": row.get("question", ""),
        "options": [
            {"id": id, "p": p} for id, p in sorted(probs.items(), key=lambda item: -item[1])
        ],
        "selected": row.get("selected", ""),
        "threshold": thresholds.get(phase, default) if gate in probs else None,
        "threshold_option": gate if gate in probs else "",
        "revision": row.get("revision", ""),
    }


def about(state: Any) -> str:
    """The words that a decision was made from."""
    if isinstance(state, str) and state.startswith("{"):
        try:
            state = json.loads(state)
        except ValueError:
            return state
    return str(state.get("input", "")) if isinstance(state, dict) else str(state or "")
