"""The server on loopback: over a scripted decider, the tiny model, and as a process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from semif.cli.main import main
from semif.engine import Engine
from semif.errors import Aborted, ModelError
from semif.llama import Model
from semif.models import Source
from semif.revision import Revision, untuned
from semif.serving import connections, work
from semif.serving.server import (
    Bench,
    Busy,
    Cost,
    Limits,
    ListenError,
    Server,
    about,
    address,
    listen,
)
from semif.testing import ScriptedDecider
from semif.types import Answer, Decider, Decision, Option

NOUL = {"type": "noul", "instructions": "Is it?"}
YES_NO = {"type": "choice", "instructions": "Is it?", "criteria": {"no": "No", "yes": "Yes"}}
LEVELS = {"type": "score", "instructions": "Is it?", "criteria": ["No", "Yes"]}
TOKEN = "a-token-0123456789"


@pytest.fixture(autouse=True)
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of models stays out of the person's cache, unless the real one is used."""
    if request.node.get_closest_marker("model") is None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Gate:
    """A decider that works only when let, and says when it has begun."""

    def __init__(self, decider: ScriptedDecider) -> None:
        self.decider = decider
        self.revision = decider.revision
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        self.begun.release()
        assert self.let.acquire(timeout=20)
        return self.decider.decide(decisions)

    @property
    def sizes(self) -> list[int]:
        return [len(call) for call in self.decider.calls]


class Slow:
    """A decider at work until it is told to break off; then one that answers."""

    def __init__(self, decider: ScriptedDecider) -> None:
        self.decider = decider
        self.revision = decider.revision
        self.abort: Callable[[], bool] | None = None
        self.begun = threading.Semaphore(0)
        self.aborted = 0

    def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
        if decisions[0].state != "slow":
            return self.decider.decide(decisions)
        self.begun.release()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.abort is not None and self.abort():
                self.aborted += 1
                raise Aborted
            time.sleep(0.01)
        raise AssertionError("it was never told")


@contextmanager
def working(decider: Decider, limits: Limits) -> Iterator[Bench]:
    bench = Bench(decider, limits)
    try:
        bench.start()
        yield bench
    finally:
        bench.close()


@contextmanager
def serving(
    decider: Decider,
    revision: Revision,
    token: str = "",
    limits: Limits | None = None,
    cost: Cost | None = None,
) -> Iterator[httpx2.Client]:
    ready = threading.Event()
    bound = listen("127.0.0.1", 0)
    url = address(bound)
    said = about("tiny", revision, 4096)
    server = Server(decider, said, bound, token, limits or Limits(), ready.set, cost)
    thread = threading.Thread(target=server.serve_until_ended)
    thread.start()
    try:
        assert ready.wait(20)
        with httpx2.Client(base_url=url, trust_env=False, timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def ask(client: httpx2.Client, *questions: Any, state: Any = "some text") -> httpx2.Response:
    asked = {f"q{i}": question for i, question in enumerate(questions or [NOUL])}
    return client.post("/v1/systemone", json={"model": "m", "state": state, "questions": asked})


@pytest.fixture(scope="module")
def engine(tiny: Model, plain: Revision) -> Iterator[Engine]:
    with Engine(tiny, plain) as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: Engine, plain: Revision) -> Iterator[httpx2.Client]:
    with serving(engine, plain) as client:
        yield client


@pytest.fixture
def scripted() -> ScriptedDecider:
    return ScriptedDecider(lambda decision: decision.options[-1].id)


def test_three_types_in_one_call(client: httpx2.Client, plain: Revision) -> None:
    reply = ask(client, NOUL, YES_NO, LEVELS)
    assert reply.status_code == 200
    said = reply.json()
    assert (said["model"], said["revision"]) == ("tiny", plain.id)
    noul, choice, score = (said["answers"][f"q{i}"] for i in range(3))
    assert noul.keys() == {"type", "noul", "prompt_version"} and 0 < noul["noul"] < 1
    assert choice["probabilities"].keys() == {"yes", "no"}
    assert score["probabilities"].keys() == {"0", "1"}
    for answer in (choice, score):
        assert sum(answer["probabilities"].values()) == pytest.approx(1)
    # The same question in another type: the same prompt.
    assert noul["noul"] == pytest.approx(choice["probabilities"]["yes"], abs=1e-6)


def test_a_phase_is_answered_in_full(
    client: httpx2.Client, engine: Engine, make: Callable[..., Decision]
) -> None:
    decision = make("a", "b", state={"input": "schick Anna die Präsentation"}, phase="test")
    criteria = {option.id: option.description for option in decision.options}
    asked = {"type": "choice", "instructions": "Which?", "criteria": criteria, "phase": "test"}
    (full,) = ask(client, asked, state=dict(decision.state)).json()["answers"].values()
    (answer,) = engine.decide([decision])
    assert full["prompt_sha256"] == answer.prompt_sha256
    assert full["logits"] == pytest.approx(dict(answer.logits), abs=1e-3)
    assert full["probabilities"] == pytest.approx(dict(answer.probs), abs=1e-3)
    assert full["prompt_tokens"] == answer.prompt_tokens and full["plan"]["threads"] == 2


def test_the_key_is_in_no_prompt(client: httpx2.Client) -> None:
    asked = {**YES_NO, "phase": "choice"}
    body = {"state": "s", "questions": {"is_it_urgent": asked, "not_urgent": asked}}
    answers = client.post("/v1/systemone", json=body).json()["answers"]
    one, other = answers["is_it_urgent"], answers["not_urgent"]
    assert one["prompt_sha256"] == other["prompt_sha256"]
    assert one["logits"] == pytest.approx(other["logits"], abs=1e-3)


def test_what_it_says_of_itself(client: httpx2.Client, plain: Revision) -> None:
    assert client.get("/v1/health").json() == {"status": "ok"}
    said = client.get("/v1/revision").json()
    assert said["engine"] == "semif" and said["revision"] == plain.id
    assert said["prompt_version"] == "branches-v1" and said["base"]["type"] == "f32"
    assert said["thresholds"] == {} and said["phases"] == [] and said["context"] == 4096


def test_refusals(client: httpx2.Client) -> None:
    reply = ask(client, NOUL, {**YES_NO, "criteria": {"a": "A"}})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["question"], error["field"]) == ("q1", "criteria")
    assert error["message"].startswith("question 'q1': criteria: 1 of them is no decision")
    reply = ask(client, NOUL, state="x" * 9000)
    assert reply.status_code == 400 and reply.json()["error"]["field"] == "state"
    assert "is too long: the prompt needs" in reply.json()["error"]["message"]
    large = client.post("/v1/systemone", content=b" " * (1024 * 1024 + 1))
    assert large.status_code == 413 and "larger than 1048576" in large.json()["error"]["message"]
    pieces = client.post("/v1/systemone", content=iter([b" " * 700_000] * 2))
    assert pieces.status_code == 413
    assert client.get("/v1/systemone").status_code == 405
    assert client.get("/v1/nothing").json() == {"error": {"message": "Not Found"}}
    assert client.get("/v1/nothing").status_code == 404


def test_the_token(scripted: ScriptedDecider, plain: Revision) -> None:
    with serving(scripted, plain, TOKEN) as client:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            for path in ("/v1/systemone", "/v1/revision"):
                method = "POST" if path.endswith("one") else "GET"
                reply = client.request(method, path, headers=header)
                assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/health").status_code == 200
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        assert ask(client).status_code == 200 and client.get("/v1/revision").status_code == 200


def test_a_fault_of_the_engine_is_told_and_the_next_is_answered(
    scripted: ScriptedDecider, plain: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    fail = [ModelError("the model gave no number"), ZeroDivisionError()]

    def policy(decision: Decision) -> str:
        if fail:
            raise fail.pop(0)
        return decision.options[0].id

    scripted.policy = policy
    with serving(scripted, plain) as client:
        reply = ask(client, state="a secret")
        assert reply.status_code == 500
        assert reply.json() == {"error": {"message": "the model gave no number"}}
        reply = ask(client, state="a secret")
        assert reply.status_code == 500 and "see the log" in reply.json()["error"]["message"]
        assert ask(client).status_code == 200
    assert "the model gave no number" in caplog.text and "ZeroDivisionError" in caplog.text
    assert "a secret" not in caplog.text


def test_what_waits_is_read_together_while_it_is_small(
    scripted: ScriptedDecider, make: Callable[..., Decision]
) -> None:
    gate = Gate(scripted)
    with working(gate, Limits(waiting=5, together=3)) as bench:
        jobs = [bench.submit([make()])]
        assert gate.begun.acquire(timeout=20)
        jobs += [bench.submit([make()] * count) for count in (2, 1, 4, 1, 1)]
        with pytest.raises(Busy):
            bench.submit([make()])
        jobs.pop(5).leave()
        jobs.append(bench.submit([make()] * 3))
        for _ in range(8):
            gate.let.release()
        assert [len(job.future.result(20)) for job in jobs] == [1, 2, 1, 4, 1, 3]
        assert gate.sizes == [1, 3, 4, 1, 3]


def test_too_much_is_sent_away(scripted: ScriptedDecider, plain: Revision) -> None:
    gate = Gate(scripted)
    with serving(gate, plain, limits=Limits(waiting=1)) as client, ThreadPoolExecutor(3) as pool:
        first = pool.submit(ask, client)
        assert gate.begun.acquire(timeout=20)
        two = [pool.submit(ask, client) for _ in range(2)]
        done, _ = wait(two, 20, FIRST_COMPLETED)
        reply = done.pop().result()
        assert reply.status_code == 503 and reply.headers["retry-after"] == "1"
        assert reply.json() == {"error": {"message": "busy; ask again"}}
        for _ in range(2):
            gate.let.release()
        assert first.result().status_code == 200
        assert sorted(one.result().status_code for one in two) == [200, 503]


def test_one_request_that_is_bad_does_not_spoil_its_neighbour(
    engine: Engine, make: Callable[..., Decision]
) -> None:
    with working(engine, Limits()) as bench:
        jobs = [bench.submit([make()]), bench.submit([make(state="x" * 9000)])]
        jobs += [bench.submit([make("a")]), bench.submit([make()])]
        assert [bool(job.future.exception(20)) for job in jobs] == [False, True, True, False]
    assert engine.abort is None
    with pytest.raises(Busy):
        bench.submit([make()])


def test_who_goes_away_is_not_worked_for(scripted: ScriptedDecider, plain: Revision) -> None:
    gate = Gate(scripted)
    with serving(gate, plain) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, client)
        assert gate.begun.acquire(timeout=20)
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/v1/systemone", json={"state": "s", "questions": {"q": NOUL}}, timeout=0.3)
        time.sleep(0.3)
        gate.let.release()
        assert first.result().status_code == 200
        gate.let.release()
        assert ask(client, NOUL, NOUL).status_code == 200
        assert gate.sizes == [1, 2]


def test_what_is_at_work_is_broken_off_when_nobody_waits_for_it(
    scripted: ScriptedDecider, plain: Revision
) -> None:
    slow = Slow(scripted)
    with serving(slow, plain) as client, ThreadPoolExecutor(2) as pool:
        body = {"state": "slow", "questions": {"q": NOUL}}
        one = pool.submit(httpx2.post, f"{client.base_url}/v1/systemone", json=body, timeout=0.5)
        assert slow.begun.acquire(timeout=20)
        started = time.monotonic()
        assert ask(client).status_code == 200
        assert time.monotonic() - started < 10 and slow.aborted == 1
        assert isinstance(one.exception(), httpx2.ReadTimeout)
    assert slow.abort is None


def test_what_one_of_two_waits_for_is_not_broken_off(
    scripted: ScriptedDecider, make: Callable[..., Decision]
) -> None:
    gate, slow = Gate(scripted), Slow(scripted)

    class Both:
        """Holds the first call back, so that two jobs are read together after it."""

        revision = "both"
        abort: Callable[[], bool] | None = None

        def decide(self, decisions: Sequence[Decision]) -> list[Answer]:
            slow.abort = self.abort
            return (gate if decisions[0].state == "some text" else slow).decide(decisions)

    with working(Both(), Limits()) as bench:
        first = bench.submit([make()])
        assert gate.begun.acquire(timeout=20)
        two = [bench.submit([make(state="slow")]) for _ in range(2)]
        gate.let.release()
        assert len(first.future.result(20)) == 1 and slow.begun.acquire(timeout=20)
        two[0].leave()
        time.sleep(0.1)
        assert slow.aborted == 0
        two[1].leave()
        assert isinstance(two[1].future.exception(20), Aborted) and slow.aborted == 1


def test_a_request_that_would_take_too_long_is_refused(
    engine: Engine, tiny: Model, plain: Revision
) -> None:
    cost = partial(work.tokens, tiny, plain, engine.limit)
    with serving(engine, plain, limits=Limits(tokens=3000), cost=cost) as client:
        reply = ask(client, *[NOUL] * 40, state="some text " * 40)
        assert reply.status_code == 413
        message = reply.json()["error"]["message"]
        taken = int(re.fullmatch(r"the questions take (\d+) tokens or more, .*", message)[1])
        assert 3000 < taken < 4000 and message.endswith("take 3000; ask fewer at once")
        assert ask(client, *[NOUL] * 3, state="some text " * 40).status_code == 200
        reply = ask(client, state={"a": {"b": 1}})  # its own fault is told as ever
        assert reply.status_code == 200
        asked = {**NOUL, "phase": "noul"}
        assert ask(client, asked, state={"a": 1}).json()["error"]["field"] == "state.a"


def test_tokens_are_counted_as_they_are_evaluated(
    tiny: Model, tiny_source: Source, plain: Revision, make: Callable[..., Decision]
) -> None:
    contents = msgspec.structs.replace(plain.contents, prompt_version="branches-state-v2")
    state_first = replace(plain, contents=contents)
    letters = untuned(tiny_source, "letters")
    few = [make(state="some text " * 20, question=f"Is it {i}?") for i in range(9)]
    # Three decodes, with the state in each.
    many = [replace(few[0], options=tuple(Option(f"o{i}") for i in range(150)))]
    for revision, decisions, around in (
        (plain, few, 0),
        (plain, many, 0),
        (state_first, few, 0),
        (letters, few, 1000),  # the template, once, and its end with each
    ):
        with Engine(tiny, revision) as engine:
            counted = work.tokens(tiny, revision, engine.limit, decisions, 1_000_000)
            evaluated = sum(answer.tokens for answer in engine.decide(decisions))
            # Beginnings that heads share are counted with each.
            assert -0.2 * counted <= evaluated - counted <= around
            assert 10 < work.tokens(tiny, revision, engine.limit, decisions, 10) <= counted
    assert work.tokens(tiny, plain, 4096, [make(state="x" * 9000)], 10) == 0  # the engine says so


def held(client: httpx2.Client, *pieces: bytes) -> float:
    """Seconds until the server closes a connection that gets these pieces, then nothing."""
    with socket.create_connection((client.base_url.host, client.base_url.port), 20) as connection:
        started = time.monotonic()
        connection.settimeout(0.1)
        left = list(pieces)
        while time.monotonic() - started < 20:
            try:
                if left:
                    connection.sendall(left.pop(0))
                if not connection.recv(65536):
                    break
            except TimeoutError:
                pass
            except ConnectionError:
                break
        return time.monotonic() - started


def test_a_connection_that_says_nothing_is_closed(
    scripted: ScriptedDecider, plain: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(connections, "_MARGIN", 0.0)
    whole = b"GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n"
    slow = [b"GET /v1/health HTTP/1.1\r\n", *[b"X: y\r\n"] * 30]
    body = [b"POST /v1/health HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n", *[b"x"] * 30]
    with serving(scripted, plain) as client:
        for pieces in ([], slow, [whole, *slow], body):
            assert 0.4 < held(client, *pieces) < 3, pieces[:1]
        # One that is between requests is kept.
        assert client.get("/v1/health").status_code == 200
        time.sleep(0.8)
        assert client.get("/v1/health").status_code == 200


def test_connections_are_bounded(
    scripted: ScriptedDecider, plain: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    with serving(scripted, plain) as client:
        assert client.get("/v1/health").status_code == 200
        place = client.base_url.host, client.base_url.port
        two = [socket.create_connection(place, 20) for _ in range(2)]
        assert held(client) < 3  # at once, not after the time of a head
        assert client.get("/v1/health").status_code == 200
        for connection in two:
            connection.close()


def test_a_server_that_never_serves_leaves_no_thread(
    scripted: ScriptedDecider, plain: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    with listen("127.0.0.1", 0) as bound:
        server = Server(scripted, about("tiny", plain, 4096), bound)
        assert threading.active_count() == before

        def fail(**_: object) -> None:
            raise OSError("no loop")

        monkeypatch.setattr(server, "run", fail)
        with pytest.raises(OSError, match="no loop"):
            server.serve_until_ended()
        assert threading.active_count() == before


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".org"])
def test_what_is_no_host(host: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ListenError, match="no name of a host"):
        listen(host, 0)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    assert main(["serve", "--host", host, "--token-file", str(token)]) == 69
    err = capfd.readouterr().err
    assert err == f"semif: {host}: that is no name of a host\n"


def test_the_end_waits_for_what_is_at_work_and_refuses_what_waits(
    scripted: ScriptedDecider, plain: Revision
) -> None:
    gate = Gate(scripted)
    with ThreadPoolExecutor(2) as pool, httpx2.Client(trust_env=False, timeout=20) as client:
        with serving(gate, plain) as inner:
            client.base_url = inner.base_url
            first = pool.submit(ask, client)
            assert gate.begun.acquire(timeout=20)
            second = pool.submit(ask, client)
            time.sleep(0.3)
            threading.Timer(0.5, gate.let.release).start()
        assert first.result().status_code == 200 and second.result().status_code == 503
        with pytest.raises(httpx2.ConnectError):
            ask(client)


# ---- the command


@contextmanager
def command(*arguments: str, env: dict[str, str] | None = None) -> Iterator[tuple[Any, str]]:
    """`semif serve` on a free port, and its url once it answers."""
    serve = [sys.executable, "-m", "semif", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr
    try:
        line = process.stderr.readline()
        assert " answers http://127.0.0.1:" in line, line + process.stderr.read()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_process_that_is_told_to_end(tiny_path: Path, number: int, code: int) -> None:
    arguments = ["--model", str(tiny_path), "--threads", "1", "--context", "10000"]
    with command(*arguments, "--tokens", "200") as (process, url):
        body = {"state": "a secret", "questions": {"q": NOUL}}
        assert httpx2.post(url, json=body, trust_env=False).status_code == 200
        body["state"] *= 20
        assert httpx2.post(url, json=body, trust_env=False).status_code == 413
        # What it was trained for, where that is less than what was asked for.
        said = httpx2.get(url.replace("systemone", "revision"), trust_env=False).json()
        assert said["context"] == 8192
        process.send_signal(number)
        assert process.wait(20) == code
        assert process.stderr.read() == ""


def test_a_port_that_is_taken(tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--model", str(tiny_path)]) == 69
    assert f"cannot listen on 127.0.0.1 port {port}: Address already" in capfd.readouterr().err


def test_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEMIF_TOKEN", raising=False)
    empty = tmp_path / "token"
    empty.write_text("\n")
    for arguments, line in (
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines ask; give --token-file or"),
        (["--host", "::"], "lets other machines ask"),
        (["--token-file", str(tmp_path / "none")], "cannot be read: No such file"),
        (["--token-file", str(empty)], "is empty or has characters no token has"),
    ):
        assert main(["serve", *arguments]) == 2
        err = capfd.readouterr().err
        assert line in err and err.startswith("semif: ") and err.count("\n") == 1
    for name, value in (("port", "70000"), ("threads", "0"), ("waiting", "x"), ("tokens", "0")):
        with pytest.raises(SystemExit) as caught:
            main(["serve", f"--{name}", value])
        assert caught.value.code == 2 and f"argument --{name}: " in capfd.readouterr().err
    monkeypatch.setenv("SEMIF_TOKEN", "no\ttoken")
    assert main(["serve"]) == 2 and "the token in SEMIF_TOKEN" in capfd.readouterr().err


# A few relations that need few requests and hold whatever the revision knows; all of them take
# minutes on two cores.
RELATIONS = "batch_order,duplicate_question,batch_solo,noul_as_choice"


@pytest.mark.model
def test_jevbench(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    jevbench = [sys.executable, "-m", "jevbench"]
    report = tmp_path / "report.json"
    with command("--token-file", str(token)) as (process, url):
        to = ["--url", url, "--model", "semif"]
        env = {"JEVBENCH_API_KEY": TOKEN}
        check = subprocess.run([*jevbench, "check", *to], env=env, capture_output=True, text=True)
        assert check.returncode == 0, check.stderr
        assert "4 noul, 2 choice, 1 score" in check.stdout
        evaluate = [*jevbench, "eval", *to, "--suite", "examples", "--relations", RELATIONS]
        evaluate += ["--no-cache", "--out", str(report)]
        result = subprocess.run(evaluate, env=env, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        process.terminate()
        assert process.wait(20) == 0 and process.stderr.read() == ""
    said = json.loads(report.read_text())
    assert said["result"]["errors"] == []
    relations = said["scores"]["relations"]
    # In any type a question has one prompt and one temperature.
    assert relations == dict.fromkeys(RELATIONS.split(","), 1.0)
