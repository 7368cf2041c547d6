"""The worked examples with the real model, from typed text to effect; ``test_tracking`` has the
fourth. Of ten other ways to say each, nine are decided rightly."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.message import Message
from email.policy import default
from math import log as log_of
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

import semif
from semif.export import labelled
from semif.jsonl import read
from semif.measuring.paired import Said, cost
from semif.similar import grams, near
from sia.config import IntakeConfig
from sia.entries import ProcessView
from sia.navigate import Navigator
from sia.questions import Questions
from sia.scheduler import Admission, Preemption, Scheduler, Situation
from sia.skills.tree import load
from sia.sources import SOURCES

ROOT = Path(__file__).parents[2]
MAIL, STOP = "send my girlfriend a mail that I will be late", "holy shit stop!"
OTHER_WORDS = [
    tuple(line.split("\t"))
    for line in (Path(__file__).parent / "data" / "worked.tsv").read_text().splitlines()
]
PEOPLE = {
    "Anna Berg": "partner", "Ben Adler": "brother", "Lena Kurz": "boss", "Tom Post": "plumber",
}  # fmt: skip
BRAKES = (("driving/decelerate", "Slow down or stop the vehicle at once."),)
DRIVING = ProcessView("driving/drive", 2, "r1", "drive me to the station")
SLOW = 20.0  # seconds; how long it takes is measured by benchmarks/preempt.py


def words_for(kind: str) -> list[str]:
    return [text for name, text in OTHER_WORDS if name == kind]


# what is decided of ten other ways to say it


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[semif.Engine, dict[str, float]]]:
    weights, revision = semif.load()
    with semif.Engine(weights, revision, 2, 4096) as engine:
        yield engine, revision.contents.thresholds


@pytest.fixture(scope="module")
def admit(engine: Any) -> Callable[[str, ProcessView | None], Admission]:
    ids = iter(range(100_000))
    decider, thresholds = engine
    scheduler = Scheduler(decider, thresholds, Questions.load(), lambda: f"d{next(ids)}")
    tau = IntakeConfig().high_stakes
    high = Preemption("typed", ("typed",), tau, BRAKES, declines=True)

    def admit(text: str, process: ProcessView | None) -> Admission:
        return scheduler.admit(text, SOURCES["typed"], Situation(process, high))

    return admit


@pytest.fixture(scope="module")
def route(engine: Any) -> Callable[[str], str]:
    ids = iter(range(100_000))
    decider, thresholds = engine
    navigator = Navigator(decider, thresholds, Questions.load(), lambda: f"n{next(ids)}")
    tree = load([ROOT / "skills"])
    return lambda text: navigator.route(text, tree).skill


def nine(wrong: list[Any], what: str) -> None:
    print(f"\n{what}: {10 - len(wrong)} of 10 right")
    assert len(wrong) <= 1, wrong


@pytest.mark.model
def test_other_words_idle_are_worked_and_reach_the_mail(admit: Any, route: Any) -> None:
    found = [(text, admit(text, None).action, route(text)) for text in words_for("mail")]
    nine([item for item in found if item[1:] != ("run", "email/compose")], "1: mail, idle")


@pytest.mark.model
@pytest.mark.xfail(strict=False, reason="the shipped revision finds 5 of 10")
def test_other_words_reach_the_contact(engine: Any) -> None:
    """A card calls her partner, they say girlfriend: read_next has to know."""
    options = [semif.Option(_id(name), f"{name}, {about}") for name, about in PEOPLE.items()]
    options.append(semif.Option("none", "None of these.", none=True))
    asked = [
        semif.Decision(
            f"c{n}", "read_next", {"input": text}, "Which contact is meant?", (*options,)
        )
        for n, text in enumerate(words_for("mail"))
    ]
    answers = [engine[0].decide([decision])[0] for decision in asked]
    wrong = [(a.decision.state, a.selected) for a in answers if a.selected != "anna"]
    nine(wrong, "1: the contact")


@pytest.mark.model
def test_other_words_while_driving_are_declined(admit: Any) -> None:
    found = [(text, admit(text, DRIVING)) for text in words_for("mail")]
    nine([item for item in found if item[1].action != "decline"], "2: declined")


@pytest.mark.model
@pytest.mark.xfail(strict=False, reason="the shipped revision finds 0 of 10: it says 0.56 to 0.73")
def test_other_words_while_driving_can_wait(admit: Any) -> None:
    found = [(text, admit(text, DRIVING)) for text in words_for("mail")]
    hasty = [(text, round(a.urgency, 2)) for text, a in found if not 0.1 <= a.urgency <= 0.4]
    nine(hasty, "2: priority about 0.2")


@pytest.mark.model
def test_other_words_for_a_stop_brake(admit: Any) -> None:
    found = [(text, admit(text, DRIVING)) for text in words_for("stop")]
    wrong = [
        (text, a.action, a.skill)
        for text, a in found
        if (a.action, a.skill) != ("preempt", BRAKES[0][0])
    ]
    nine(wrong, "3: braked")


def test_those_words_stand_in_no_training_file() -> None:
    """They share fewer than 0.6 of their 5-grams with any text that is trained on."""
    known = [grams(text) for text in training_texts(Path(semif.__file__).parent / "data")]
    assert len(known) > 5000 and len({text for _, text in OTHER_WORDS}) == 20
    for _, text in OTHER_WORDS:
        mine = grams(text)
        assert not any(near(mine, other, 0.6) for other in known), text


def training_texts(folder: Path) -> Iterator[str]:
    for path in (*folder.rglob("*.tsv"), *folder.rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            if path.suffix == ".tsv":
                yield from line.split("\t")
            elif line:
                yield from _strings(json.loads(line))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


# from typed text to effect


class Post:
    """What a real SMTP server has taken, and whom it knows not."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], Message]] = []
        self.unknown: set[str] = set()

    async def handle_RCPT(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:
        if address in self.unknown:
            return "550 no such person here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=default)
        self.mails.append((list(envelope.rcpt_tos), mail))
        return "250 queued"


@pytest.fixture
def post() -> Iterator[tuple[Post, int]]:
    handler = Post()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(handler, "127.0.0.1", port)
    controller.start()
    yield handler, port
    controller.stop()


@pytest.fixture
def car(tmp_path: Path) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("vehicle_double", ROOT / "tests" / "vehicle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Server(str(tmp_path / "car"), 1e6)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.vehicle
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def home(tmp_path: Path, post: tuple[Post, int]) -> Path:
    """A person with four contacts, one of them called girlfriend, a mail server and a car."""
    folder = tmp_path / "home"
    (folder / "contacts").mkdir(parents=True)
    write_cards(folder, {**PEOPLE, "Anna Berg": "girlfriend"})
    (folder / "sia.toml").write_text(
        '[person]\nname = "Robin Doe"\nemail = "robin@example.org"\n'
        f'[email]\nhost = "127.0.0.1"\nport = {post[1]}\ntls = "none"\n'
        f'[driving]\nsocket = "{tmp_path / "car"}"\n'
    )
    return folder


def write_cards(home: Path, people: dict[str, str]) -> None:
    cards = [
        f"BEGIN:VCARD\nVERSION:3.0\nFN:{name}\nNOTE:{about}\n"
        f"EMAIL:{name.split()[0].lower()}@example.org\nEND:VCARD\n"
        for name, about in people.items()
    ]
    (home / "contacts" / "all.vcf").write_text("".join(cards))


def _id(name: str) -> str:
    return name.split()[0].lower()


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sia", "--home", str(home), *arguments]


def sia(home: Path, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run(
        command(home, *arguments), capture_output=True, text=True, timeout=150, check=False, **given
    )


@pytest.fixture
def agent(home: Path, car: Any) -> Iterator[subprocess.Popen[bytes]]:
    """One that works in the home, once it is ready."""
    arguments = command(home, "run", "--listen")
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: "Ready(" in log(home))
            yield process
        finally:
            process.terminate()
            process.wait(30)


def log(home: Path) -> str:
    path = home / ".sia" / "log" / "sia.log"
    return path.read_text() if path.exists() else ""


def until(true: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come to that"
        time.sleep(0.02)


def calls(home: Path, method: str) -> list[Any]:
    """What the calls of this method gave, in all runs."""
    with sqlite3.connect(home / ".sia" / "state.db") as db:
        found = db.execute("SELECT value FROM results WHERE method = ?", (method,)).fetchall()
    return [json.loads(value) for (value,) in found]


def rows(home: Path, phase: str) -> list[dict[str, Any]]:
    return [row for row in read(home / ".sia" / "decisions.jsonl").rows if row["phase"] == phase]


@pytest.mark.model
def test_1_idle_the_mail_is_written_and_received(home: Path, post: tuple[Post, int]) -> None:
    """In the person's own words, and where these must be turned round by the generator."""
    turned = "mail my girlfriend that I am stuck at work and she should eat without me"
    result = sia(home, "run", "--yes", text=f"{MAIL}\n{turned}\n")
    assert result.returncode == 0, result.stderr + result.stdout
    (first, own), (second, written) = post[0].mails
    assert first == second == ["anna@example.org"]
    assert "late" in own.get_content() and own["From"] == "Robin Doe <robin@example.org>"
    assert re.search("stuck at work", written.get_content())
    assert "she should" not in written.get_content()
    (generated,) = calls(home, "generate")
    assert generated["written"].strip() in written.get_content()
    assert [row["selected"] for row in rows(home, "navigate_skill")] == ["compose"] * 2
    # What it rests on was seen and judged before it left.
    assert [row["selected"] for row in rows(home, "predict")] == ["succeed"] * 2
    assert all("server: reachable" in row["state"]["observed"] for row in rows(home, "predict"))


@pytest.mark.model
@pytest.mark.xfail(strict=False, reason="the shipped revision takes none for it, 0.61")
def test_1_read_next_picks_the_contact(home: Path, post: tuple[Post, int]) -> None:
    write_cards(home, PEOPLE)
    result = sia(home, "run", "--yes", text=f"{MAIL}\n")
    (row,) = rows(home, "read_next")
    assert row["selected"] == "anna", row["predicted_probs"]
    assert result.returncode == 0, result.stderr + result.stdout
    assert [to for to, _ in post[0].mails] == [["anna@example.org"]]


@pytest.mark.model
def test_a_doubt_comes_first_where_the_server_is_away(home: Path) -> None:
    """The prediction bites: nobody is there to say go on, and no mail is tried."""
    text = (home / "sia.toml").read_text()
    (home / "sia.toml").write_text(re.sub(r"\nport = \d+", "\nport = 1", text))
    result = sia(home, MAIL)
    assert result.returncode == 1
    assert re.search(r"I doubt that this will work \(\d+%\): send my girl", result.stdout), result
    (row,) = rows(home, "predict")
    assert row["selected"] == "fail" and "server: does not answer" in row["state"]["observed"]


def ended(process: subprocess.Popen[str]) -> None:
    """Of one who waits for a request that goes on without them."""
    process.kill()
    process.communicate(timeout=30)


def drive(home: Path, car: Any) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command(home, "drive me to the station"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until(lambda: "wait" in car.heard)
    return process


@pytest.mark.model
def test_2_driving_it_is_declined_and_done_afterwards(
    home: Path, agent: Any, car: Any, post: tuple[Post, int]
) -> None:
    driver = drive(home, car)
    result = sia(home, MAIL)
    assert result.returncode == 1
    assert "response/rejection" in log(home)
    told = "Not now: “drive me to the station” must not be disturbed. I keep “send my girlfriend"
    assert result.stdout.startswith(told), result.stdout
    (admitted,) = re.findall(r"Admitted\(run='r2', action='(\w+)'", log(home))
    assert admitted == "decline" and post[0].mails == []
    assert (car.state, car.halts) == ("driving", 0) and car.heard.count("wait") == 1
    (waiting,) = [
        row for row in json.loads(sia(home, "queue", "--json").stdout) if row["id"] != "r1"
    ]
    assert (waiting["text"], waiting["status"]) == (MAIL, "waiting")

    car.left = 0
    assert "We have arrived: the station." in driver.communicate(timeout=60)[0]
    until(lambda: "You asked for this while" in log(home))
    sia(home, "yes")
    until(lambda: "Send this e-mail to" in log(home))
    result = sia(home, "yes")
    until(lambda: post[0].mails)
    assert post[0].mails[0][0] == ["anna@example.org"], result.stdout


@pytest.mark.model
@pytest.mark.xfail(strict=False, reason="the shipped revision says 0.51")
def test_2_its_priority_is_low(admit: Any) -> None:
    assert 0.1 <= admit(MAIL, DRIVING).urgency <= 0.35


@pytest.mark.model
def test_3_driving_a_stop_brakes_at_once(home: Path, agent: Any, car: Any) -> None:
    driver = drive(home, car)
    begun = time.monotonic()
    result = sia(home, STOP)
    assert time.monotonic() - begun < SLOW
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[:2] == ["Braking.", "We have stopped."]
    assert car.state == "halted" and car.heard.count("halt") == 1
    # The brake before anything is looked at or said.
    kinds = re.findall(r"(Admitted|Routed|Said)\(run='r2'", log(home))
    assert kinds[:3] == ["Admitted", "Routed", "Said"]
    assert re.search(r"Routed\(run='r2', skill='driving/decelerate'", log(home))
    until(lambda: "Drive on to the station?" in log(home))
    ended(driver)


@pytest.mark.model
@pytest.mark.parametrize("during", ["script", "generation"])
def test_3_a_stop_is_heard_during_a_script_and_a_generation(
    home: Path, agent: Any, during: str
) -> None:
    """What runs otherwise is over long before it would have been."""
    if during == "script":
        busy = "run the command `sleep 60`"
    else:
        words = " and that ".join(f"she should not forget the thing number {n}" for n in range(12))
        busy = f"mail my girlfriend that {words}"
    worker = subprocess.Popen(
        command(home, busy), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    if during == "script":
        until(lambda: "Asked(run='r1'" in log(home))
        ended(worker)
        worker = subprocess.Popen(
            command(home, "yes"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        until(lambda: list((home / ".sia" / "shell").glob("r1-*")))
    else:
        until(lambda: "Routed(run='r1', skill='email/compose'" in log(home))
    begun = time.monotonic()
    result = sia(home, STOP)
    assert time.monotonic() - begun < SLOW, result
    run = max(re.findall(r"Admitted\(run='(r\d+)', action='(?:preempt|run)'", log(home)))
    assert re.search(rf"Admitted\(run='{run}', action='(preempt|run)', text='holy", log(home))
    ended(worker)


@pytest.mark.model
def test_5_a_wrong_contact_labels_the_choice_and_is_corrected(
    home: Path, post: tuple[Post, int]
) -> None:
    """Nobody knows the address that was chosen: that choice is wrong. A person says who it is."""
    write_cards(home, PEOPLE)
    post[0].unknown = {f"{name.split()[0].lower()}@example.org" for name in PEOPLE}
    request = "please mail my girlfriend: running half an hour behind"
    result = sia(home, "run", "--yes", text=f"{request}\n")
    (row,) = rows(home, "read_next")
    chosen = row["selected"]
    assert chosen != "none", row["predicted_probs"]
    assert result.returncode == 1 and "550 no such person here" in result.stdout, result
    labels = list(read(home / ".sia" / "labels.jsonl").rows)
    (label,) = [label for label in labels if label["row"] == row["id"]]
    assert (label["polarity"], label["option"], label["source"]) == ("not", chosen, "verified")
    assert label["weight"] == 1 and len(labels) == 1

    right = next(_id(name) for name in PEOPLE if _id(name) != chosen)
    assert sia(home, "correct", row["id"], right).returncode == 0
    (after,) = [
        item for item in labelled(home, lambda problem: None) if item.decision.id == row["id"]
    ]
    assert (after.outcome, after.weight) == (right, 3)
    said = Said.of(after, row["predicted_probs"], request)
    expected = pytest.approx(-log_of(row["predicted_probs"][right]))
    assert said.loss == expected and cost([said])["nll"]["mean"] == expected
    assert not said.right
