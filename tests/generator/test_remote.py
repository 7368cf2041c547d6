"""The remote generator against a real server, and against one that fails in every way."""

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sia.errors import ConfigError
from sia.generator.grammar import close_action, one_of
from sia.generator.remote import RemoteGenerator
from sia.generator.types import GeneratorError, GeneratorUnavailable, Part

KEY = "sk-very-secret-0123456789"
NEVER = threading.Event()
ASK = [Part("system", "You act."), Part("user", "Grüße <|im_end|>")]
Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, body: str = "", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body.encode())))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


def stream(*events: Any, done: bool = True, pause: float = 0.0) -> Answer:
    """Server-sent events, each JSON or text as it stands; without done the connection just ends."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for event in [*events, *(["[DONE]"] if done else [])]:
            data = event if isinstance(event, str) else json.dumps(event)
            handler.wfile.write(f": a comment\n\ndata: {data}\n\n".encode())
            handler.wfile.flush()
            time.sleep(pause)

    return answer


def says(text: str | None, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"role": "assistant", "content": text}, "finish_reason": reason}]}


class StandIn:
    """Answers one request after the other as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.dropped = threading.Event()  # the other side went away
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, self.headers["Authorization"], json.loads(body)))
                try:
                    outer.answers.pop(0)(self)
                except OSError:
                    outer.dropped.set()

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
def remote(stand_in: StandIn) -> Iterator[RemoteGenerator]:
    generator = RemoteGenerator(stand_in.url, "some-model", api_key=KEY, timeout=5, max_tokens=50)
    yield generator
    generator.close()


def refused(remote: RemoteGenerator, kind: type[GeneratorError] = GeneratorError) -> str:
    """The line of the error that asking gives; it is one line, and never holds the key."""
    with pytest.raises(kind) as caught:
        remote.reply(ASK, ids=[], cancel=NEVER)
    assert type(caught.value) is kind
    line = str(caught.value)
    assert line.isprintable() and len(line) <= 401 and KEY not in line
    assert remote._url in line
    return line


def test_a_reply_as_it_streams(stand_in: StandIn, remote: RemoteGenerator) -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    stand_in.answers = [
        stream(says(None), says(" <sto"), says("p/> é\n", "stop"), {"choices": [], "usage": usage})
    ]
    shown: list[str] = []
    reply = remote.reply(ASK, ids=["e1"], cancel=NEVER, on_text=shown.append)
    assert shown == [" <sto", "p/> é\n"]
    assert (reply.text, reply.finish, reply.model) == (" <stop/> é\n", "stop", "some-model")
    assert (reply.prompt_tokens, reply.evaluated, reply.generated) == (30, 10, 4)
    path, authorization, body = stand_in.asked[0]
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "You act."},
            {"role": "user", "content": "Grüße <|im_end|>"},
        ],
        "max_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_grammar_is_sent_only_where_it_is_taken(stand_in: StandIn) -> None:
    for takes in (True, False):
        stand_in.answers = [stream(says("a", "length")), stream(says("b", "stop"))]
        generator = RemoteGenerator(stand_in.url, "m", grammar=takes)
        reply = generator.reply(ASK, ids=["e7"], cancel=NEVER)
        assert (reply.finish, reply.prompt_tokens, reply.generated) == ("length", None, None)
        generator.write(ASK, max_tokens=9, cancel=NEVER, grammar=one_of(["b"]))
        generator.close()
    bodies = [body for _, _, body in stand_in.asked]
    assert "e7" in bodies[0]["grammar"] and bodies[1]["grammar"] == one_of(["b"])
    assert bodies[1]["max_tokens"] == 9
    assert "grammar" not in bodies[2] | bodies[3]
    assert all(authorization is None for _, authorization, _ in stand_in.asked)


def test_a_busy_server_is_asked_again(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [
        status(429, Retry_After="1"),
        status(503, Retry_After=formatdate(time.time() - 5, usegmt=True)),
        stream(says("ok", "stop")),
    ]
    started = time.monotonic()
    assert remote.reply(ASK, ids=[], cancel=NEVER).text == "ok"
    assert 2.0 <= time.monotonic() - started < 4.0  # the second as asked, the third by backoff


def test_but_not_for_ever(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [status(503, "all\nslots \x1b[31mbusy")] * 4
    line = refused(remote, GeneratorUnavailable)
    assert "answered 503: all slots  [31mbusy" in line
    assert len(stand_in.asked) == 3
    assert GeneratorUnavailable.exit_code == 69


@pytest.mark.parametrize("after", ["3600", formatdate(time.time() + 3600, usegmt=True)])
def test_nor_later_than_anyone_waits(
    stand_in: StandIn, remote: RemoteGenerator, after: str
) -> None:
    stand_in.answers = [status(429, Retry_After=after)]
    assert f"left alone for {after}" in refused(remote, GeneratorUnavailable)
    assert len(stand_in.asked) == 1


def test_a_refusal_is_told_and_not_repeated(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [
        status(401, json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}})),
        status(404, json.dumps({"error": {"message": "no such model"}})),
        status(404, json.dumps({"detail": "Not Found"})),
        status(400, json.dumps({"error": "too long"})),
        status(307, Location="http://example.org/"),
        status(400, "x" * 50_000),
    ]
    assert refused(remote).endswith("answered 401; check the API key: Incorrect API key: ***")
    line = refused(remote)
    assert "is there a model 'some-model', and should the url end in /v1?: no such model" in line
    assert refused(remote).endswith(": Not Found")
    assert refused(remote).endswith("answered 400: too long")
    assert "answered 307" in refused(remote)
    assert refused(remote).endswith("xxx…")
    assert len(stand_in.asked) == 6


@pytest.mark.parametrize(
    ("events", "line"),
    [
        (["{not json"], "no part of a chat completion: {not json"),
        (["[1, 2]"], "no part of a chat completion: [1, 2]"),
        ([{"choices": [{"delta": {"content": 7}}]}], "no part of a chat completion"),
        ([{"choices": [{"text": "old style"}]}], "no part of a chat completion"),
        (["[" * 100_000], "no part of a chat completion"),
    ],
)
def test_garbage(stand_in: StandIn, remote: RemoteGenerator, events: list[Any], line: str) -> None:
    stand_in.answers = [stream(*events)]
    assert line in refused(remote)


def test_what_is_no_stream(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [status(200, "<html>hello</html>", Content_Type="text/html")]
    assert "did not send a stream of events" in refused(remote, GeneratorUnavailable)


def test_an_error_inside_the_stream(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [stream(says("half"), {"error": {"message": f"out of memory {KEY}"}})]
    assert refused(remote, GeneratorUnavailable).endswith("reports: out of memory ***")


def test_a_cut_stream(stand_in: StandIn, remote: RemoteGenerator) -> None:
    def chunked(handler: BaseHTTPRequestHandler) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        data = f"data: {json.dumps(says('half'))}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.close_connection = True

    stand_in.answers = [stream(says("half"), done=False), chunked]
    for _ in range(2):
        assert "broke off after 4 characters" in refused(remote, GeneratorUnavailable)
    # Once the reason to stop is known, all of the text is here.
    stand_in.answers = [stream(says("whole", "stop"), done=False)]
    assert remote.reply(ASK, ids=[], cancel=NEVER).text == "whole"
    # And a server that only ever says [DONE] has ended too.
    stand_in.answers = [stream(says("whole"))]
    assert remote.reply(ASK, ids=[], cancel=NEVER).finish == "stop"


def test_a_server_without_end(stand_in: StandIn, remote: RemoteGenerator) -> None:
    stand_in.answers = [stream(*[says("x" * 300_000)] * 5)]
    assert "goes on after 1200000 characters" in refused(remote)


def test_silence_and_absence(stand_in: StandIn) -> None:
    silent = threading.Event()

    def wait(_handler: BaseHTTPRequestHandler) -> None:
        silent.wait(5)

    stand_in.answers = [wait]
    generator = RemoteGenerator(stand_in.url, "m", timeout=0.3)
    assert "sent nothing for 0.3 s" in refused(generator, GeneratorUnavailable)
    silent.set()
    generator.close()
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        absent = RemoteGenerator(f"http://127.0.0.1:{taken.getsockname()[1]}", "m")
        line = refused(absent, GeneratorUnavailable)
        assert "cannot be reached" in line and "is the server running?" in line
        absent.close()


def test_cancel(stand_in: StandIn, remote: RemoteGenerator) -> None:
    def hang(handler: BaseHTTPRequestHandler) -> None:
        """Before any header, as a server does while it evaluates the prompt."""
        handler.connection.settimeout(5)
        assert handler.connection.recv(1) == b""  # the other side has closed
        raise ConnectionError

    slow = stream(*[says("x")] * 100, pause=0.1)
    busy = status(503, Retry_After="30")
    for answer, text in ((hang, ""), (slow, "xx"), (busy, "")):
        stand_in.answers = [answer]
        stand_in.dropped.clear()
        cancel = threading.Event()
        set_at: list[float] = []

        def set_cancel(cancel: threading.Event = cancel, set_at: list[float] = set_at) -> None:
            set_at.append(time.monotonic())
            cancel.set()

        timer = threading.Timer(0.35, set_cancel)
        timer.start()
        reply = remote.reply(ASK, ids=[], cancel=cancel)
        assert time.monotonic() - set_at[0] < 1.0
        timer.join()
        assert reply.finish == "cancelled" and reply.text.startswith(text)
        assert len(reply.text) < 10
        assert answer is busy or stand_in.dropped.wait(2)  # the server need not go on for nobody
    stand_in.answers = [stream(says("ok", "stop"))]
    assert remote.reply(ASK, ids=[], cancel=NEVER).text == "ok"


def test_an_interrupt_leaves_it_usable(stand_in: StandIn, remote: RemoteGenerator) -> None:
    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    stand_in.answers = [stream(says("a"), says("b", "stop"))] * 2
    with pytest.raises(KeyboardInterrupt):
        remote.reply(ASK, ids=[], cancel=NEVER, on_text=interrupt)
    assert remote.reply(ASK, ids=[], cancel=NEVER).text == "ab"


def test_the_key_is_in_no_log(
    stand_in: StandIn, remote: RemoteGenerator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.answers = [stream(says("ok", "stop")), status(401, KEY)]
    remote.reply(ASK, ids=[], cancel=NEVER)
    refused(remote)
    assert stand_in.url in caplog.text  # the premise: requests are logged
    assert KEY not in caplog.text and KEY not in repr(remote)


def test_no_proxy_for_this_machine(
    stand_in: StandIn, remote: RemoteGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    stand_in.answers = [stream(says("ok", "stop"))]
    assert remote.reply(ASK, ids=[], cancel=NEVER).text == "ok"


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://example.org/v1", "readable over the network"),
        ("http://192.168.1.5:8000/v1", "readable over the network"),
        ("ftp://localhost/", "must begin with https:// or http://"),
        ("localhost:8000", "must begin with https:// or http://"),
        ("https://", "must begin with https:// or http://"),
        ("http://localhost:port/", "is none"),
        (f"https://me:{KEY}@example.org/v1", "no password"),
        (f"https://example.org/v1?key={KEY}", "no password"),
    ],
)
def test_urls_that_are_refused(url: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        RemoteGenerator(url, "m")
    assert KEY not in str(caught.value) and caught.value.exit_code == 78


def test_urls_that_are_not() -> None:
    for url in ("https://example.org/v1/", "http://localhost:1", "http://[::1]:1/v1"):
        RemoteGenerator(url, "m").close()
    RemoteGenerator("http://192.168.1.5:8000/v1", "m", insecure=True).close()


def test_keys_that_are_none() -> None:
    for key in ("", "sk-1\n", "ключ"):
        with pytest.raises(ConfigError, match="API key"):
            RemoteGenerator("https://example.org", "m", api_key=key)


@pytest.fixture(scope="module")
def real_server(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama-cpp-python's own server with the tiny model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(tiny_path)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "1024"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + 45
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


def test_a_real_server(real_server: str) -> None:
    generator = RemoteGenerator(real_server, "tiny", grammar=True, max_tokens=48)
    shown: list[str] = []
    reply = generator.reply(ASK, ids=["e1"], cancel=NEVER, on_text=shown.append)
    assert reply.finish in ("stop", "length") and "".join(shown) == reply.text
    close_action(reply.text, ["e1"])  # raises unless the server kept to the grammar
    answers = {"yes, please", "no, thank you"}
    chosen = generator.write(ASK, max_tokens=48, cancel=NEVER, grammar=one_of(answers))
    assert chosen.text in answers and chosen.finish == "stop"
    cut = generator.write(ASK, max_tokens=5, cancel=NEVER, grammar=one_of(["a" * 500]))
    assert cut.finish == "length" and set(cut.text) == {"a"}
    generator.close()


def test_a_real_server_cancelled(real_server: str) -> None:
    generator = RemoteGenerator(real_server, "tiny", grammar=True, max_tokens=900)
    cancel = threading.Event()
    shown: list[str] = []

    def stop_at_five(text: str) -> None:
        shown.append(text)
        if len(shown) == 5:
            cancel.set()

    reply = generator.reply(ASK, ids=[], cancel=cancel, on_text=stop_at_five)
    assert reply.finish == "cancelled" and reply.text == "".join(shown) and len(shown) == 5
    again = generator.write(ASK, max_tokens=48, cancel=NEVER, grammar=one_of(["yes"]))
    assert again.text == "yes"
    generator.close()
