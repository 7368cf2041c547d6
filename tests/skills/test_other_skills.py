"""notes/write, system/report, system/stop, response/reply, and what holds for every skill."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest

from sia.places import size_words
from sia.skills.api import Folders, Person
from sia.skills.manifest import parse_category, parse_skill
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Start = Callable[..., FakeCtx]
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))
CATEGORIES = {
    "email": "E-mail: read, write, send, forward.",
    "reminders": "Timers, alarms, reminders.",
    "system": "This machine: processes, disk, memory, network, updates.",
    "files": "Files and folders: find, sort, move.",
    "notes": "Notes and lists to write down.",
    "response": "Talk: answer, explain, say what SIA can do.",
    "calculator": "Sums, percentages, unit conversion.",
    "driving": "Drive the car: go, slow down, stop.",
    "shell": "Terminal: run commands and scripts on this machine.",
    "web": "Search and open web pages.",
}


@pytest.mark.parametrize(
    ("request_", "file", "text"),
    [
        ("add milk to my shopping list", "Shopping list", "# Shopping list\n\n- milk\n"),
        ("put milk, bread and eggs on the shopping list", "Shopping list",
         "# Shopping list\n\n- milk\n- bread\n- eggs\n"),
        ("add mac and cheese to the list", "List", "# List\n\n- mac and cheese\n"),
        ("make a shopping list: milk, eggs", "Shopping list",
         "# Shopping list\n\n- milk\n- eggs\n"),
        ("write down that the wifi password is on the fridge", "The wifi password is on the",
         "# The wifi password is on the\n\nthe wifi password is on the fridge\n"),
        ("note: call the plumber", "Call the plumber", "# Call the plumber\n\ncall the plumber\n"),
        ("note to self: buy stamps", "Buy stamps", "# Buy stamps\n\nbuy stamps\n"),
        ("please make a note called Ideas: a boat", "Ideas", "# Ideas\n\na boat\n"),
        ('create a note titled "Trip: Rome" saying pack light', "Trip Rome",
         "# Trip Rome\n\npack light\n"),
        ("take a note", "A thought", "# A thought\n\na thought\n"),
        ("note down ../../etc/passwd", "Etc passwd", "# Etc passwd\n\n../../etc/passwd\n"),
    ],
)  # fmt: skip
def test_notes(
    make: Start, skills: Path, folders: Folders, request_: str, file: str, text: str
) -> None:
    ctx = make(request_, answers=["a thought"])
    outcome = run_actions(skills / "notes/write", ctx)
    assert (outcome.kind, outcome.value) == ("done", True)
    assert {path.name for path in folders.notes.iterdir()} == {f"{file}.md"}
    assert (folders.notes / f"{file}.md").read_text() == text
    # The place is named where it is not plain from the words.
    lower = f"{file[0].lower()}{file[1:]}"
    assert ctx.said[0].startswith(f"Noted in {file}: ") != (ctx.said[0] == f"Noted: {lower}")


def test_a_note_is_appended_to(make: Start, skills: Path, folders: Folders) -> None:
    folders.notes.mkdir()
    file = folders.notes / "shopping list.md"
    file.write_text("# Mine\n- tea")
    run_actions(skills / "notes/write", make("add Käse 🧀 to my Shopping List"))
    run_actions(skills / "notes/write", make("add salt to my shopping list"))
    assert file.read_text() == "# Mine\n- tea\n- Käse 🧀\n- salt\n"
    assert len(list(folders.notes.iterdir())) == 1


def test_a_note_interrupted_everywhere_is_written_once(
    make: Start, skills: Path, folders: Folders
) -> None:
    ctx, outcome = run_interrupted(
        skills / "notes/write", lambda: make("add milk to the shopping list"), lose=["write note"]
    )
    assert outcome.value is True
    assert (folders.notes / "Shopping list.md").read_text() == "# Shopping list\n\n- milk\n"


def test_notes_that_cannot_be_written(make: Start, skills: Path, folders: Folders) -> None:
    folders.notes.write_text("a file where the folder should be")
    outcome = run_actions(skills / "notes/write", make("note: hello"))
    assert (outcome.kind, outcome.cause) == ("failed", "environment")
    assert "Hello.md" in outcome.message


def said(make: Start, folder: Path, request: str, **given: Any) -> str:
    ctx = make(request, **given)
    assert run_actions(folder, ctx).kind == "done"
    [text] = ctx.said
    return text


def test_report_of_memory_alone(make: Start, skills: Path) -> None:
    text = said(make, skills / "system/report", "how much memory is free")
    total = size_words(psutil.virtual_memory().total, 1024)
    match = re.fullmatch(rf"(\d+\.\d) GB of {total} memory are free \((\d+) %\)\.", text)
    assert match, text
    available = psutil.virtual_memory().available
    assert abs(float(match[1]) - available / 1024**3) < 1
    assert abs(int(match[2]) - 100 * available / psutil.virtual_memory().total) < 10


def test_report_of_the_disk(make: Start, skills: Path) -> None:
    text = said(make, skills / "system/report", "how much disk space is left")
    total = size_words(psutil.disk_usage("/").total)
    assert re.search(rf"^\d+\.\d \w+ of {total} disk space are free on / \(\d+ %\)\.$", text, re.M)


def test_report_of_other_things(make: Start, skills: Path) -> None:
    report = skills / "system/report"
    assert re.fullmatch(
        rf"The CPU is \d+ % busy \({psutil.cpu_count()} cores?, load \d+\.\d\d over a minute\)\.",
        said(make, report, "is the cpu busy"),
    )
    assert "battery" in said(make, report, "how much battery is left")
    assert re.match(r"The machine has been up for ", said(make, report, "show the uptime"))
    both = said(make, report, "how much memory and disk is free").split("\n")
    assert "memory" in both[0] and "disk" in both[1]
    everything = said(make, report, "how is this machine doing")
    assert all(word in everything for word in ("memory", "disk", "CPU", "battery", "up for"))


def test_report_of_processes(make: Start, skills: Path) -> None:
    text = said(make, skills / "system/report", "what is using the most memory").split("\n")
    assert text[0] == "Using the most memory:" and 2 <= len(text) <= 6
    sizes = [re.search(r"\(process \d+\): ([\d.]+) (\w+)$", line) for line in text[1:]]
    assert all(sizes)
    busy = said(make, skills / "system/report", "which process is eating my cpu")
    assert busy.startswith(("Using the most CPU, where 100 % is one core:", "No process"))


def test_stop(make: Start, skills: Path) -> None:
    stop = skills / "system/stop"
    running = ["find the tax", "wait"]
    assert said(make, stop, "stop!", interrupted=running) == "Stopped: find the tax; wait."
    assert said(make, stop, "stop!") == "Nothing was running."


UNKNOWN = 'I have no skill for that yet. Ask "what can you do" to see what I can.'


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("hello", "Good afternoon, Robin. What can I do for you?"),
        ("Hi SIA!", "Good afternoon, Robin. What can I do for you?"),
        ("what time is it?", "It is 15:00."),
        ("what's the time", "It is 15:00."),
        ("wie spät ist es?", "It is 15:00."),
        ("what day is it", "Today is Monday 30 November 2026."),
        ("What's today's date?", "Today is Monday 30 November 2026."),
        ("what date is next friday", "That is Friday 11 December 2026."),
        ("which week is it", "It is week 49."),
        ("thanks, that was great", "You are welcome."),
        ("how are you?", "All is well here, thank you. What can I do for you?"),
        ("good night", "Good bye."),
    ],
)
def test_reply(make: Start, skills: Path, request_: str, answer: str) -> None:
    assert said(make, skills / "response/reply", request_) == answer


@pytest.mark.parametrize(
    "request_",
    [
        "what time is it in Tokyo",
        "what day is easter",
        "what is the capital of France",
        "tell me a joke",
        "hello world program in rust",
        "",
    ],
)
def test_what_the_reply_does_not_know_is_not_covered(
    make: Start, skills: Path, request_: str
) -> None:
    ctx = make(request_)
    outcome = run_actions(skills / "response/reply", ctx)
    assert (outcome.kind, outcome.message, outcome.cause) == ("failed", UNKNOWN, "not covered")
    assert not ctx.said


def test_reply_without_a_name_in_the_evening(make: Start, skills: Path) -> None:
    person = Person("", "", "Europe/Berlin")
    now = NOW.replace(hour=20)
    text = said(make, skills / "response/reply", "hello", person=person, now=now)
    assert text == "Good evening. What can I do for you?"


def test_reply_says_what_sia_can_do(make: Start, skills: Path) -> None:
    have = [("reminders/set", "Set one."), ("files/find", "Find one."), ("reminders/list", "List.")]
    text = said(make, skills / "response/reply", "what can you do?", skills=have)
    assert text == "This is what I can do:\n- Files: Find one.\n- Reminders: List. Set one."


def test_categories(skills: Path) -> None:
    found = {
        folder.name: parse_category(folder)[1] for folder in skills.iterdir() if folder.is_dir()
    }
    added = {
        "calendar": "Calendar: appointments, meetings, when I am free.",
        "contacts": "Contacts: people, their phone numbers, addresses, birthdays.",
    }
    assert found == {**CATEGORIES, **added}


def test_every_skill_can_be_loaded_and_picked(skills: Path) -> None:
    manifests = [parse_skill(path.parent) for path in sorted(skills.glob("*/*/SKILL.md"))]
    assert {manifest.id for manifest in manifests} >= {
        "calculator/compute", "calculator/convert", "calendar/add", "calendar/free",
        "calendar/move", "calendar/show", "contacts/add", "contacts/find", "driving/decelerate",
        "driving/drive", "email/compose", "email/read", "email/reply", "email/search",
        "email/summarize", "files/archive", "files/find", "files/organize", "notes/find",
        "notes/write", "reminders/cancel", "reminders/list", "reminders/set", "reminders/snooze",
        "response/rejection", "response/reply", "shell/run", "system/processes", "system/report",
        "system/services", "system/stop", "system/updates", "web/feed", "web/fetch", "web/search",
    }  # fmt: skip
    descriptions = [manifest.description for manifest in manifests]
    assert len(set(descriptions)) == len(descriptions)
    assert all(len(description.split()) <= 12 for description in descriptions)
    assert all(manifest.has_code and manifest.body for manifest in manifests)
    outside = {manifest.id: manifest for manifest in manifests if manifest.effects == "outside"}
    assert outside.keys() >= {"calendar/add", "calendar/move", "contacts/add", "email/compose"}
    mail = outside["email/compose"]
    assert (mail.stakes, mail.requires) == ("high", ("config:email.host",))
    assert outside["calendar/add"].requires == ("config:calendar.url",)
    assert outside["shell/run"].stakes == "high"
