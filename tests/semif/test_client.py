"""Remote deciders against our server, against llama.cpp's, and against ones that fail."""

from __future__ import annotations

import io
import json
import logging
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from semif.cli.main import main
from semif.engine import Engine, load
from semif.errors import DecisionError, RemoteError
from semif.jsonl import append
from semif.llama import Model
from semif.log import row
from semif.revision import Contents, Revision
from semif.serving.client import LogprobsDecider, RemoteDecider
from semif.serving.fallback import FallbackDecider, Outage
from semif.serving.server import Cost, Limits, Server, about, address, listen
from semif.testing import ScriptedDecider, write_tiny_model
from semif.types import Answer, Decision, Option

TOKEN = "sk-very-secret-0123456789"
MakeDecision = Callable[..., Decision]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of models stays out of the person's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class StandIn:
    """Answers requests one after the other as told, (status, body), and keeps what it was asked;
    the last answer stays."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str | None, Any]] = []
        self.headers: dict[str, str] = {}
        self.says: dict[str, str] | None = None  # of itself
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                value = json.loads(body) if body else None
                outer.asked.append((self.path, self.headers["Authorization"], value))
                status, said = outer.answers[0]
                if len(outer.answers) > 1:
                    del outer.answers[0]
                said = said(value) if callable(said) else said
                text = said if isinstance(said, str) else json.dumps(said)
                self.send_response(status)
                for name, header in outer.headers.items():
                    self.send_header(name, header)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_GET(self) -> None:
                if self.path.endswith("/revision") and outer.says is None:
                    self.send_error(404)
                elif self.path.endswith("/revision"):
                    text = json.dumps(outer.says).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                else:
                    self.do_POST()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def absent() -> Iterator[str]:
    """The url of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


@contextmanager
def serving(
    engine: Engine, revision: Revision, token: str = "", port: int = 0, cost: Cost | None = None
) -> Iterator[str]:
    """Our server; its url, up to and with /v1. cost: with it a request may take 30 tokens."""
    ready = threading.Event()
    bound = listen("127.0.0.1", port)
    url = f"{address(bound)}/v1"
    said = about("tiny", revision, engine.limit)
    server = Server(engine, said, bound, token, Limits(tokens=30), ready.set, cost)
    thread = threading.Thread(target=server.serve_until_ended)
    thread.start()
    assert ready.wait(20)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def calibrated(plain: Revision) -> Revision:
    contents = replace_contents(plain, temperatures={"warm": 2.0}, thresholds={"test": 0.7})
    return replace(plain, id="0123456789ab", contents=contents)


def replace_contents(revision: Revision, **change: Any) -> Contents:
    return msgspec.structs.replace(revision.contents, **change)


@pytest.fixture(scope="module")
def engine(tiny: Model, calibrated: Revision) -> Iterator[Engine]:
    with Engine(tiny, calibrated) as engine:
        yield engine


def failed(decider: Any, decision: Decision) -> str:
    """The line of the error that asking gives; it is one line, and never holds the token."""
    with pytest.raises(RemoteError) as caught:
        decider.decide([decision])
    line = str(caught.value)
    assert line.isprintable() and len(line) <= 401 and TOKEN not in line
    assert caught.value.exit_code == 69
    return line


# ---- our own server


def test_a_server_of_ours_answers_as_an_engine_here(
    engine: Engine, calibrated: Revision, make: MakeDecision
) -> None:
    decisions = [
        make("a", "b", "c", state={"input": "schick Anna die Präsentation"}, phase="warm"),
        make("yes", "no", state="another text\nof two lines"),
        replace(
            make("a", "none", state={"input": "schick Anna die Präsentation"}),
            options=(Option("a"), Option("last", "Nothing.", none=True)),
        ),
    ]
    own = engine.decide(decisions)
    with serving(engine, calibrated, TOKEN) as url:
        with RemoteDecider(f"{url}/systemone", token=TOKEN) as decider:
            assert decider.revision.startswith("systemone@127.0.0.1:")
            answers = decider.decide(decisions)
            assert decider.revision == calibrated.id
            assert dict(decider.thresholds) == {"test": 0.7}
        with RemoteDecider(url, token="another") as refused:
            assert "answered 401; check the token" in failed(refused, decisions[0])
    for answer, same in zip(answers, own, strict=True):
        assert answer.decision == same.decision and answer.selected == same.selected
        assert answer.probs == pytest.approx(dict(same.probs), abs=1e-3)
        assert answer.logits == pytest.approx(dict(same.logits), abs=1e-3)
        assert answer.prompt_sha256 == same.prompt_sha256
        assert answer.prompt_version == same.prompt_version
        assert (answer.revision, answer.prompt_tokens) == (same.revision, same.prompt_tokens)
        assert answer.allowed_token_mass == pytest.approx(same.allowed_token_mass, abs=1e-3)
        assert answer.plan["remote"] == url and answer.plan["build"] == same.plan["build"]


def test_a_decision_that_the_server_refuses_is_named(
    engine: Engine, calibrated: Revision, make: MakeDecision
) -> None:
    good = make()
    with serving(engine, calibrated) as url, RemoteDecider(url) as decider:
        for bad, field, words in (
            (make(state="x" * 9000), "state", "is too long: the prompt needs"),
            (make(state={"input": 3}), "state.input", "must be a string"),
        ):
            with pytest.raises(DecisionError) as caught:
                decider.decide([good, replace(bad, id="d9")])
            error = caught.value
            assert (error.row, error.field) == ("d9", field) and words in error.message
            assert str(error).count(field) == 1
        with pytest.raises(DecisionError, match="d1: options: 1 of them"):
            decider.decide([make("a")])


def test_another_revision_at_the_same_place(
    engine: Engine, calibrated: Revision, make: MakeDecision
) -> None:
    with serving(engine, calibrated) as url:
        decider = RemoteDecider(url)
        decider.decide([make()])
    other = replace(
        calibrated, id="ba9876543210", contents=replace_contents(calibrated, thresholds={"b": 0.2})
    )
    with serving(engine, other, port=int(url.split(":")[2].split("/")[0])):
        (answer,) = decider.decide([make()])
        assert answer.revision == decider.revision == other.id
        assert dict(decider.thresholds) == {"b": 0.2}
    decider.close()


def test_one_threads_failure_leaves_the_others_thresholds(
    engine: Engine, calibrated: Revision, make: MakeDecision
) -> None:
    told: list[str] = []
    local = ScriptedDecider(lambda decision: "b", "near")
    with serving(engine, calibrated) as url:
        shared = RemoteDecider(url, thresholds={"answers": 0.5})
        outage = Outage(0.0)
        one, other = (
            FallbackDecider(shared, local, {"test": 0.1}, told.append, outage) for _ in range(2)
        )
        for decider in (one, other):
            assert decider.decide([make()])[0].revision == calibrated.id
    assert one.decide([make()])[0].revision == "near"
    assert dict(one.thresholds) == {"test": 0.1} and one.revision == "near"
    # The other's last answer was the server's, and so are its thresholds.
    assert dict(other.thresholds) == {"test": 0.7} and other.revision == calibrated.id
    changed = replace_contents(calibrated, thresholds={"test": 0.2})
    newer = replace(calibrated, id="ba9876543210", contents=changed)
    with serving(engine, newer, port=int(url.split(":")[2].split("/")[0])):
        (answer,) = other.decide([make()])  # it may be another server, and is asked what it is
        assert answer.revision == other.revision == newer.id
        assert dict(other.thresholds) == {"test": 0.2}
    shared.close()


def test_too_much_at_once_is_asked_in_parts(
    engine: Engine, calibrated: Revision, make: MakeDecision
) -> None:
    def cost(decisions: Any, most: int) -> int:
        return 10 * len(decisions) if decisions[0].state == "some text" else 1000

    with serving(engine, calibrated, cost=cost) as url, RemoteDecider(url) as decider:
        decisions = [make("a", "b", question=f"Is it {i}?") for i in range(10)]
        answers = decider.decide(decisions)
        assert [answer.decision for answer in answers] == decisions
        assert {answer.revision for answer in answers} == {calibrated.id}
        with pytest.raises(DecisionError, match="d1: row: is too much for the server: the questi"):
            decider.decide([make(state="large")])


# ---- any System One server


def answers(body: Any) -> dict[str, Any]:
    """Gives each first option 0.6 of it."""
    found = {}
    for key, question in body["questions"].items():
        ids = list(question["criteria"])
        probs = {id_: 0.4 / (len(ids) - 1) for id_ in ids} | {ids[0]: 0.6}
        found[key] = {"type": "choice", "probabilities": probs}
    return {"answers": found}


def test_a_server_of_another_kind(stand_in: StandIn, make: MakeDecision) -> None:
    stand_in.answers = [(200, answers)]
    decider = RemoteDecider(stand_in.url, "jev-1", token=TOKEN, thresholds={"answers": 0.5})
    one, two = make("a", "b"), replace(make("b", "a", state={"k": "v"}), phase="warm")
    first, second = decider.decide([one, two])
    assert first.probs == {"a": pytest.approx(0.6), "b": pytest.approx(0.4)}
    assert second.selected == "b" and second.decision == two
    assert first.logits["a"] == pytest.approx(math.log(0.6), abs=1e-5)
    assert (first.tokens, first.prompt_tokens, first.allowed_token_mass) == (0, 0, 1.0)
    assert first.plan["remote"] == stand_in.url and first.prompt_version == "systemone"
    assert first.revision == f"jev-1@127.0.0.1:{stand_in.server.server_port}"
    assert first.prompt_sha256 != second.prompt_sha256
    assert dict(decider.thresholds) == {"answers": 0.5}
    assert json.dumps(row(first, "r1", datetime.now(UTC)))
    path, authorization, body = stand_in.asked[0]
    assert (path, authorization) == ("/v1/systemone", f"Bearer {TOKEN}")
    assert body == {
        "model": "jev-1",
        "state": "some text",
        "questions": {
            "q0": {
                "type": "choice",
                "instructions": "Which?",
                "criteria": {o.id: o.description for o in one.options},
            }
        },
    }
    assert len(stand_in.asked) == 2  # one for each state
    decider.close()


def test_decisions_on_one_state_go_together(stand_in: StandIn, make: MakeDecision) -> None:
    stand_in.answers = [(200, lambda body: {**answers(body), "revision": "abc"})]
    decider = RemoteDecider(stand_in.url)
    found = decider.decide([make(), make(state="other"), make(), make(state="other"), make()])
    keys = [list(body["questions"]) for _, _, body in stand_in.asked]
    assert keys == [["q0", "q1", "q2"], ["q0", "q1"]]
    assert {answer.revision for answer in found} == {"abc"}
    stand_in.asked.clear()
    assert len(decider.decide([make()] * 300)) == 300
    assert [len(body["questions"]) for _, _, body in stand_in.asked] == [256, 44]
    decider.close()


@pytest.mark.parametrize(
    ("status", "body", "line"),
    [
        (400, {"error": {"message": "no such\nmodel"}}, "answered 400: no such model"),
        (401, f"{TOKEN} is wrong", "answered 401; check the token: *** is wrong"),
        (404, "", "answered 404; should the url end in /v1?"),
        (200, "<html>", "answered without an object of answers: <html>"),
        (200, {"answers": {}}, "answered what is no answer: gives no probabilities"),
        (
            200,
            {"answers": {"q0": {"probabilities": {"a": 1}}}},
            "no answer: gives None as the prob",
        ),
        (503, {"error": "loading"}, "answered 503: loading"),
        (200, {"answers": {"q0": {"probabilities": {"a": math.nan, "b": 1}}}}, "an object of answ"),
        (200, '{"answers": {"q0": {"probabilities": {"a": 1e999, "b": 1}}}}', "an object of answe"),
    ],
)
def test_what_a_server_must_not_say(
    stand_in: StandIn, make: MakeDecision, status: int, body: Any, line: str
) -> None:
    stand_in.answers = [(status, body)]
    decider = RemoteDecider(stand_in.url, token=TOKEN)
    assert line in failed(decider, make())
    assert len(stand_in.asked) == (3 if status == 503 else 1)
    decider.close()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, ""),
        ({"allowed_token_mass": "1e999"}, "answered without an object of answers"),
        ({"plan": '{"a": [NaN]}'}, "answered without an object of answers"),
        ({"logits": '{"a": -Infinity, "b": 0}'}, "answered without an object of answers"),
        ({"logits": '{"a": 1%s, "b": 0}' % ("0" * 400)}, "out of range"),
        ({"allowed_token_mass": "1.5"}, "Expected `float` <= 1"),
        ({"ms": "-1"}, "Expected `float` >= 0"),
        ({"tokens": "-1"}, "Expected `int` >= 0"),
        ({"tokens": "1.5"}, "Expected `int`"),
    ],
)
def test_numbers_that_no_log_could_hold(
    stand_in: StandIn, make: MakeDecision, tmp_path: Path, change: dict[str, str], line: str
) -> None:
    full = {
        "probabilities": '{"a": 0.6, "b": 0.4}',
        "logits": '{"a": 0.5, "b": 0}',
        "prompt_version": '"branches-v1"',
        "prompt_sha256": '"0"',
        "tokens": "7",
        "prompt_tokens": "7",
        "ms": "0.5",
        "allowed_token_mass": "0.9",
        "plan": "{}",
    }
    text = ",".join(f'"{name}":{value}' for name, value in (full | change).items())
    stand_in.says = {"engine": "semif", "revision": "0123456789ab"}
    stand_in.answers = [(200, f'{{"revision":"0123456789ab","answers":{{"q0":{{{text}}}}}}}')]
    with RemoteDecider(stand_in.url) as decider:
        if line:
            assert line in failed(decider, make())
        else:
            (answer,) = decider.decide([make()])
            append(tmp_path / "log", [row(answer, "r1", datetime.now(UTC))])
            assert answer.allowed_token_mass == 0.9 and answer.logits == {"a": 0.5, "b": 0.0}


def test_a_busy_server_is_asked_again(stand_in: StandIn, make: MakeDecision) -> None:
    stand_in.answers = [(503, ""), (429, ""), (200, answers)]
    decider = RemoteDecider(stand_in.url)
    assert decider.decide([make()])[0].selected == "a"
    stand_in.headers = {"Retry-After": "3600"}
    stand_in.answers = [(503, "")]
    started = time.monotonic()
    assert "answered 503" in failed(decider, make()) and time.monotonic() - started < 5
    assert len(stand_in.asked) == 4
    decider.close()


def test_silence_and_absence(stand_in: StandIn, absent: str, make: MakeDecision) -> None:
    over = threading.Event()
    stand_in.answers = [(200, lambda body: over.wait(5) and "")]
    decider = RemoteDecider(stand_in.url, timeout=0.3)
    assert "sent nothing for 0.3 s; raise the timeout" in failed(decider, make())
    assert len(stand_in.asked) == 1  # it may be at work, and is not asked twice
    over.set()
    decider.close()
    nobody = RemoteDecider(absent)
    line = failed(nobody, make())
    assert "cannot be reached" in line and "it may not be running" in line
    nobody.close()


def test_the_token_is_in_no_log(
    stand_in: StandIn, make: MakeDecision, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.answers = [(200, answers)]
    with RemoteDecider(stand_in.url, token=TOKEN) as decider:
        decider.decide([make(state="a secret")])
    assert stand_in.url in caplog.text  # the premise: requests are logged
    assert TOKEN not in caplog.text and "a secret" not in caplog.text


@pytest.mark.parametrize("kind", [RemoteDecider, LogprobsDecider])
@pytest.mark.parametrize(
    ("url", "token", "line"),
    [
        ("http://example.org/v1", None, "readable over the network"),
        ("localhost:8000", None, "must begin with https:// or http://"),
        ("http://localhost:port/", None, "is none"),
        ("https://a..b/v1", None, "is none: encoding with 'idna' codec failed"),
        (f"https://{'a' * 64}.org/v1", None, "is none: encoding with 'idna' codec failed"),
        ("http://local host/v1", None, "the decider's"),
        (f"https://me:{TOKEN}@example.org/v1", None, "no password"),
        ("https://example.org/v1", "no\ttoken", "token is empty or has characters"),
    ],
)
def test_urls_and_tokens_that_are_none(kind: Any, url: str, token: str | None, line: str) -> None:
    with pytest.raises(RemoteError, match=line) as caught:
        kind(url, "m", token=token)
    assert caught.value.exit_code == 78 and TOKEN not in str(caught.value)


# ---- OpenAI-compatible servers


def completion(**logprobs: float) -> dict[str, Any]:
    top = [{"token": token, "logprob": value} for token, value in logprobs.items()]
    return {"choices": [{"logprobs": {"content": [{"token": "?", "top_logprobs": top}]}}]}


def test_letters_are_read_from_the_top(stand_in: StandIn, make: MakeDecision) -> None:
    stand_in.answers = [(200, completion(B=-0.2, A=-2.0, the=-4.0, C=-7.5, is_=-9.0))]
    decider = LogprobsDecider(stand_in.url, "m", token=TOKEN)
    (answer,) = decider.decide([make("x", "y", "z")])
    assert answer.logits == {"x": -2.0, "y": -0.2, "z": -7.5} and answer.selected == "y"
    total = sum(math.exp(x) for x in answer.logits.values())
    assert answer.probs["x"] == pytest.approx(math.exp(-2.0) / total)
    assert answer.allowed_token_mass == pytest.approx(total)
    assert answer.prompt_version == "direct-options-v1" and answer.tokens == 0
    assert answer.revision == f"m@127.0.0.1:{stand_in.server.server_port}"
    assert answer.plan.keys() == {"remote", "request_ms"}
    path, authorization, body = stand_in.asked[0]
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {TOKEN}")
    assert [message["role"] for message in body.pop("messages")] == ["system", "user"]
    assert body == {
        "model": "m",
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 20,
    }
    decider.close()


def test_a_letter_that_is_not_on_top(stand_in: StandIn, make: MakeDecision) -> None:
    decider = LogprobsDecider(stand_in.url, "m")
    stand_in.answers = [(200, completion(A=-0.01, B=-5.0, the=-8.0))]
    (answer,) = decider.decide([make("x", "y", "z")])
    assert answer.plan["unseen"] == ["z"] and answer.logits["z"] == -8.0
    assert answer.allowed_token_mass == pytest.approx(math.exp(-0.01) + math.exp(-5.0))
    for said, words in (
        (completion(A=-0.5, the=-1.0, a=-2.0), "3 top_logprobs and not that of B (y), C (z)"),
        (completion(the=-0.5), "1 top_logprobs and not that of A (x), B (y), C (z)"),
        # As small as B may be, it may be as likely as A.
        (completion(the=0.0, A=-9999.0, C=-9999.0), "3 top_logprobs and not that of B (y)"),
    ):
        stand_in.answers = [(200, said)]
        with pytest.raises(DecisionError) as caught:
            decider.decide([make("x", "y", "z")])
        assert (caught.value.row, caught.value.field) == ("d1", "options")
        assert words in caught.value.message
    decider.close()


def test_what_one_decision_is_at_fault_for_is_no_outage(
    stand_in: StandIn, make: MakeDecision
) -> None:
    told: list[str] = []
    local = ScriptedDecider(lambda decision: "b", "near")
    far = LogprobsDecider(stand_in.url, "m")
    decider = FallbackDecider(far, local, {}, told.append)
    long = {"error": {"message": "too many", "code": "context_length_exceeded"}}
    for status, said, words in (
        (200, completion(A=-0.5, the=-1.0), "d1: options: the server gives 2 top_logprobs"),
        (400, long, "d1: state: is too long for the server: too many"),
        (413, {"error": "too many"}, "d1: state: is too long for the server: too many"),
    ):
        stand_in.answers = [(status, said), (200, completion(A=-0.2, B=-2.0))]
        assert decider.decide([make()])[0].revision == decider.revision == "near"
        assert len(told) == 1 and told[0].startswith(f"the decider {far.revision}: {words}")
        assert told.pop().endswith("; decided here")
        # The server is asked the next one, at once.
        assert decider.decide([make()])[0].revision == decider.revision == far.revision
    assert told == []
    decider.close()


def test_a_sure_letter_may_be_rounded(stand_in: StandIn, make: MakeDecision) -> None:
    stand_in.answers = [(200, completion(A=1e-6, B=-20.0))]
    with LogprobsDecider(stand_in.url, "m") as decider:
        (answer,) = decider.decide([make("x", "y")])
    assert answer.logits == {"x": 0.0, "y": -20.0} and answer.allowed_token_mass == 1.0


@pytest.mark.parametrize(
    ("status", "body", "line"),
    [
        (404, {"error": {"message": "no"}}, "answered 404; is there a model 'm', and should the"),
        (200, {"choices": []}, "answered what is no chat completion with logprobs"),
        (200, {"choices": [{"logprobs": None}]}, "gives no top_logprobs"),
        (200, {"choices": [{"logprobs": {"content": []}}]}, "no chat completion with logprobs"),
        (200, completion(A=-math.inf, B=-math.inf), "no chat completion with logprobs"),
        (200, completion(A=1000.0, B=-1.0), "Expected `float` <= 0.001"),
        (200, json.dumps(completion(A=-1.5)).replace("-1.5", "1e999"), "no chat completion with"),
        (200, completion(), "gives no top_logprobs"),
    ],
)
def test_what_is_no_completion(
    stand_in: StandIn, make: MakeDecision, status: int, body: Any, line: str
) -> None:
    stand_in.answers = [(status, body)]
    decider = LogprobsDecider(stand_in.url, "m")
    assert line in failed(decider, make("x", "y"))
    decider.close()


def test_more_options_than_letters(stand_in: StandIn, make: MakeDecision) -> None:
    decider = LogprobsDecider(stand_in.url, "m")
    with pytest.raises(DecisionError, match="17 are more than the readout letters takes"):
        decider.decide([make(*map(str, range(17)))])
    decider.close()


def test_several_at_once_keep_their_order(stand_in: StandIn, make: MakeDecision) -> None:
    def answer(body: Any) -> Any:
        second = '"letter": "B", "description": "What b' in body["messages"][1]["content"]
        return completion(A=-2.0, B=-0.2) if second else completion(A=-0.2, B=-2.0)

    stand_in.answers = [(200, answer)]
    decider = LogprobsDecider(stand_in.url, "m")
    found = decider.decide([make("a", "b"), make("b", "a")] * 5)
    assert [one.selected for one in found] == ["b"] * 10
    assert len(stand_in.asked) == 10 and decider.decide([]) == []
    decider.close()


@contextmanager
def llama_server(model: Path, log: Path) -> Iterator[str]:
    """llama-cpp-python's own server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "1024"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                httpx2.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False)
                break
            except httpx2.TransportError:
                assert process.poll() is None and time.monotonic() < until, log.read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def test_a_real_server_whose_model_knows_no_letters(
    tiny_path: Path, tmp_path: Path, make: MakeDecision
) -> None:
    with llama_server(tiny_path, tmp_path / "log") as url, LogprobsDecider(url, "m") as decider:
        with pytest.raises(DecisionError, match="top_logprobs and not that of A"):
            decider.decide([make("x", "y")])


def test_letters_of_a_real_server_are_those_of_the_engine(
    tmp_path: Path, make: MakeDecision
) -> None:
    # The random model of this seed, asked this, happens to put A and B first.
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, seed=86)
    decision = make("x", "y")
    model, revision = load(str(path), None, "letters")
    with Engine(model, revision) as engine:
        (own,) = engine.decide([decision])
    model.close()
    with llama_server(path, tmp_path / "log") as url, LogprobsDecider(url, "m") as decider:
        (answer,) = decider.decide([decision])
    assert answer.probs == pytest.approx(dict(own.probs), abs=0.01)
    assert answer.selected == own.selected and "unseen" not in answer.plan
    assert answer.allowed_token_mass == pytest.approx(own.allowed_token_mass, abs=0.01)


# ---- a local decider behind it


class Flaky(ScriptedDecider):
    """A server's decider that fails as told."""

    def __init__(self) -> None:
        super().__init__(lambda decision: "a", "far")
        self.thresholds = {"answers": 0.9}
        self.error: Exception | None = None

    def connect(self) -> None:
        if self.error:
            raise self.error

    def close(self) -> None:
        pass

    def decide(self, decisions: Any) -> list[Answer]:
        self.connect()
        return super().decide(decisions)


@pytest.fixture
def far() -> Flaky:
    return Flaky()


def test_the_local_one_stands_in_and_never_unsaid(far: Flaky, make: MakeDecision) -> None:
    told: list[str] = []
    now = [100.0]
    outage = Outage(30.0, lambda: now[0])
    local = ScriptedDecider(lambda decision: "b", "near")
    decider = FallbackDecider(far, local, {"answers": 0.4}, told.append, outage)
    other = FallbackDecider(far, local, {"answers": 0.4}, told.append, outage)

    def state() -> tuple[str, str, float]:
        (answer,) = decider.decide([make()])
        assert decider.revision == answer.revision
        return answer.selected, answer.revision, decider.thresholds["answers"]

    decider.connect()
    assert state() == ("a", "far", 0.9) and told == []
    far.error = RemoteError("decider http://x broke off")
    assert state() == ("b", "near", 0.4)
    assert told == [
        "decider http://x broke off; for now near decides here, the server is asked again "
        "after 30 s"
    ]
    far.error = None
    assert state() == ("b", "near", 0.4) and len(far.calls) == 1  # left alone for a while
    assert other.decide([make()])[0].selected == "b"  # which all of its kind know
    now[0] += 31
    far.error = RemoteError("still down")
    assert state() == ("b", "near", 0.4) and len(told) == 1  # no news
    now[0] += 31
    far.error = None
    assert state() == ("a", "far", 0.9)
    assert told[1:] == ["the decider far answers again"]


def test_a_server_that_is_down_from_the_start(far: Flaky, make: MakeDecision) -> None:
    told: list[str] = []
    far.error = RemoteError("decider http://x cannot be reached")
    local = ScriptedDecider(lambda decision: "b", "near")
    outage = Outage()
    for _ in range(2):
        decider = FallbackDecider(far, local, {"t": 0.1}, told.append, outage)
        decider.connect()
        assert decider.revision == "near" and dict(decider.thresholds) == {"t": 0.1}
    assert len(told) == 1


def test_what_only_the_server_cannot_decide(far: Flaky, make: MakeDecision) -> None:
    told: list[str] = []
    local = ScriptedDecider(lambda decision: "b", "near")
    decider = FallbackDecider(far, local, {}, told.append)
    far.error = DecisionError("d1", "options", "17 are more than 16")
    assert decider.decide([make()])[0].revision == "near"
    assert told == ["the decider far: d1: options: 17 are more than 16; decided here"]
    far.error = None
    assert decider.decide([make()])[0].revision == "far"  # it is not down
    told.clear()
    with pytest.raises(DecisionError, match="1 of them"):
        decider.decide([make("a")])
    assert told == []


# ---- the command


def lines(*ids: str, **change: Any) -> bytes:
    base = {"state": "s", "question": "Is it?", "options": [{"id": "yes"}, {"id": "no"}]}
    return b"".join(json.dumps({"id": id_, **base, **change}).encode() + b"\n" for id_ in ids)


def test_decide_asks_a_server(
    engine: Engine,
    calibrated: Revision,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    text = lines("one") + lines("two", state="x" * 9000) + lines("three")
    with serving(engine, calibrated, TOKEN) as url:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["decide", "--url", url, "--token-file", str(token)]) == 1
    out, err = capfd.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [found["id"] for found in rows] == ["one", "three"]
    assert {found["revision"] for found in rows} == {calibrated.id}
    assert rows[0]["plan"]["remote"] == url and "state: is too long" in err


def test_decide_in_the_other_dialect(
    stand_in: StandIn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in.answers = [(200, completion(A=-0.2, B=-2.0))]
    rows = tmp_path / "rows.jsonl"
    described = [{"id": "yes", "description": "Y"}, {"id": "no", "description": "N"}]
    rows.write_bytes(lines("one", options=described))
    url = ["--url", stand_in.url]
    assert main(["decide", str(rows), *url, "--dialect", "openai", "--model", "m"]) == 0
    assert json.loads(capfd.readouterr().out)["selected"] == "yes"


def test_decide_usage(absent: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(lines("one"))
    url = ["decide", str(rows), "--url", absent]
    for code, arguments, words in (
        (2, [*url, "--readout", "letters"], "the server's to choose"),
        (2, [*url, "--dialect", "openai"], "needs --model"),
        (2, [*url, "--timeout", "0"], "must be above 0"),
        (78, ["decide", str(rows), "--url", "http://example.org"], "readable over the network"),
        (69, url, "cannot be reached"),
    ):
        assert main(arguments) == code
        out, err = capfd.readouterr()
        assert out == "" and words in err and err.startswith("semif: ") and err.count("\n") == 1
