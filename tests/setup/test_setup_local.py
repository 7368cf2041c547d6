"""``sia setup web|notes|driving``: what is asked for is tried before it is kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sia import setup
from sia.setup import NotWorking

ROOTS = (Path(__file__).parents[2] / "skills",)


@pytest.fixture
def searxng() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.startswith("/search?") else 404)
            self.end_headers()
            row = {"title": "t", "url": "https://a.org/", "content": "c"}
            self.wfile.write(json.dumps({"results": [row]}).encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def tried(category: str, home: Path, **answers: str) -> list[str]:
    found = setup.load(ROOTS, category)
    assert [field.key for field in found.fields] == list(answers)
    return list(found.test(answers, home))


def test_web(searxng: str, tmp_path: Path) -> None:
    assert tried("web", tmp_path, search_url=searxng) == ["web search: 1 results for a test"]
    with pytest.raises(NotWorking, match="answered 404"):
        tried("web", tmp_path, search_url=f"{searxng}/elsewhere")
    with pytest.raises(NotWorking, match="refused"):
        tried("web", tmp_path, search_url="http://127.0.0.1:1")


def test_notes(tmp_path: Path) -> None:
    assert tried("notes", tmp_path, folder="new")[0].endswith("will be made with the first one")
    (tmp_path / "vault/deep").mkdir(parents=True)
    (tmp_path / "vault/deep/a.md").touch()
    assert tried("notes", tmp_path, folder="vault") == [f"notes: 1 in {tmp_path}/vault"]
    (tmp_path / "file").touch()
    for folder in ("file", "no/such"):
        with pytest.raises(NotWorking, match="is no folder"):
            tried("notes", tmp_path, folder=folder)


def test_driving(tmp_path: Path) -> None:
    with pytest.raises(NotWorking, match="no vehicle at"):
        tried("driving", tmp_path, socket="car")
