"""web/fetch, web/search and web/feed against a real server on loopback."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sia import feeds, web
from sia.skills.api import Folders
from sia.skills.manifest import parse_skill
from sia.skills.testing import FakeCtx, run_actions, run_interrupted

Start = Callable[..., FakeCtx]
Answer = tuple[int, dict[str, str], bytes]
ARTICLE = (
    "<!doctype html><html><head><title>All about tea</title></head><body>"
    "<nav><a href='/'>Home</a> <a href='/x'>Imprint</a></nav><article><h1>Tea</h1>"
    f"<p>{'Black tea is steeped for three minutes. ' * 8}</p><p>{'Green tea for two. ' * 12}</p>"
    "</article></body></html>"
)


@dataclass
class Site:
    """A server: by path (without its query) what it answers, and what it was asked."""

    port: int
    pages: dict[str, Answer | Callable[[dict[str, str]], Answer]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(
        self, path: str, body: bytes | str, kind: str = "text/html; charset=utf-8", **more: str
    ) -> str:
        data = body.encode() if isinstance(body, str) else body
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        self.pages[path] = (200, {"Content-Type": kind, **headers}, data)
        return self.url + path


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = {name.lower(): value for name, value in self.headers.items()}
            made.asked.append((self.path, sent))
            page = made.pages.get(self.path.partition("?")[0], (404, {}, b""))
            status, headers, body = page(sent) if callable(page) else page
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                pass  # it had enough

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Site(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def named(monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> None:
    """Names that lead to addresses."""
    real = socket.getaddrinfo

    def asked(host: str, *args: Any, **given: Any) -> Any:
        return real(names.get(host, host), *args, **given)

    monkeypatch.setattr(socket, "getaddrinfo", asked)


def failed(make: Start, folder: Path, request: str, **given: Any) -> str:
    outcome = run_actions(folder, make(request, **given))
    assert outcome.kind == "failed", outcome
    return outcome.message


# addresses


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("read https://a.org/x_(y)).", ["https://a.org/x_(y)"]),
        ("what does www.b.de/news say?", ["https://www.b.de/news"]),
        ("(see http://a.org/b?c=d&e=f#g)", ["http://a.org/b?c=d&e=f#g"]),
        ("get localhost:8080/a and 192.168.1.1", ["http://localhost:8080/a", "http://192.168.1.1"]),
        ("mail bob@c.org about 3.5 and e.g. this", []),
        ("https://münchen.de/", ["https://münchen.de/"]),
        ("", []),
    ],
)
def test_addresses(text: str, found: list[str]) -> None:
    assert web.addresses(text) == found


@pytest.mark.parametrize(
    ("place", "public"),
    [
        ("8.8.8.8", True), ("127.0.0.1", False), ("10.1.2.3", False), ("169.254.169.254", False),
        ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False), ("::1", False),
        ("fe80::1%eth0", False), ("fd00::1", False), ("::ffff:127.0.0.1", False),
        ("2002:7f00:1::", False), ("64:ff9b::10.0.0.1", False), ("2606:4700::1111", True),
    ],
)  # fmt: skip
def test_what_is_public(place: str, public: bool) -> None:
    assert web._public(place) is public


# fetch


def test_fetch(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/tea", ARTICLE)
    ctx = make(f"what does {url} say?")
    assert run_actions(skills / "web/fetch", ctx).kind == "done"
    [text] = ctx.said
    assert text.startswith("Tea\nBlack tea") and "steeped for three minutes" in text
    assert "Imprint" not in text
    assert site.asked[0][0] == "/tea"
    assert site.asked[0][1]["host"] == f"127.0.0.1:{site.port}"
    assert "cookie" not in site.asked[0][1]


def test_fetch_a_long_text_is_cut_and_says_so(make: Start, skills: Path, site: Site) -> None:
    ctx = make(f"get {site.put('/long.txt', 'word ' * 2000, 'text/plain')}")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("word …\n(The first 2,000 of 9,999 characters.)")


def test_fetch_sums_up_where_the_generator_is_proven(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/tea", ARTICLE)
    ctx = make(f"summarise {url}", proven={"summarise": lambda fields: f"Tea. {len(fields)}"})
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said == ["Tea. 1"]
    ctx = make(f"summarise {url}")
    run_actions(skills / "web/fetch", ctx)
    assert "three minutes" in ctx.said[0]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("<p>Grüße</p>".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        ("<p>Grüße</p>".encode("cp1252"), "text/html; charset=latin1"),
        ("<meta charset='windows-1252'><p>Grüße</p>".encode("cp1252"), "text/html"),
        ("<p>Grüße</p>".encode(), "text/html; charset=no-such"),
        ("<p>Grüße</p>".encode("utf-16"), "text/html"),
        (b"\xef\xbb\xbf" + "Grüße".encode(), "text/plain; charset=latin1"),
    ],
)
def test_fetch_charsets(make: Start, skills: Path, site: Site, data: bytes, kind: str) -> None:
    ctx = make(f"read {site.put('/a', data, kind)}")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("\n\nGrüße")


def test_fetch_shows_no_control_characters(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/a", "a\x1b[2Jb\u202ec\x07 d\r\ne", "text/plain")
    ctx = make(f"read {url}")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("\n\na[2Jbc d\ne")


def test_fetch_follows_redirects_within_a_site(make: Start, skills: Path, site: Site) -> None:
    site.put("/b", "<p>here</p>")
    site.pages["/a"] = (302, {"Location": "/b"}, b"")
    ctx = make(f"read {site.url}/a")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("here")


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/a", "more than 5 redirects"),
        ("http://127.0.0.2:{port}/secret", "127.0.0.2 leads into this network"),
        ("http://[::ffff:127.0.0.1]:{port}/secret", "leads into this network"),
        ("http://2130706433:{port}/secret", "leads into this network"),
        ("http://localhost:{port}/secret", "localhost leads into this network"),
        ("http://rebound.example:{port}/secret", "rebound.example leads into this network"),
        ("file:///etc/passwd", "only http and https"),
        ("http://user:pw@127.0.0.1:{port}/secret", "with a login in it"),
        ("http://127.0.0.1:99999/", "is no web address"),
    ],
)
def test_fetch_refuses_where_a_redirect_leads(
    make: Start, skills: Path, site: Site, monkeypatch: pytest.MonkeyPatch, location: str, why: str
) -> None:
    named(monkeypatch, {"rebound.example": "127.0.0.1"})
    site.put("/secret", "<p>the router's password</p>")
    site.pages["/a"] = (301, {"Location": location.format(port=site.port)}, b"")
    assert why in failed(make, skills / "web/fetch", f"read {site.url}/a")
    assert "/secret" not in [path for path, _ in site.asked]


def test_fetch_a_name_of_this_network_only_where_it_is_typed(
    make: Start, skills: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, {"router.lan": "127.0.0.1", "evil.example": "127.0.0.1"})
    site.put("/", "<p>status ok</p>")
    ctx = make(f"read http://router.lan:{site.port}/")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("status ok")
    assert site.asked[0][1]["host"] == f"router.lan:{site.port}"
    # Typed, but a name of the wide world that leads here.
    message = failed(make, skills / "web/fetch", f"read http://evil.example:{site.port}/")
    assert message == "evil.example leads into this network (127.0.0.1), so it is not fetched."


def test_fetch_bounds_what_is_held(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/huge", b"x" * (web.BYTES + 1), "text/plain")
    assert failed(make, skills / "web/fetch", f"read {url}").endswith("is larger than 4 MB.")
    packed = gzip.compress(bytes(50_000_000))
    url = site.put("/bomb", packed, "text/plain", Content_Encoding="gzip")
    assert failed(make, skills / "web/fetch", f"read {url}").endswith("is larger than 4 MB.")
    url = site.put("/gz", gzip.compress(b"hello"), "text/plain", Content_Encoding="gzip")
    ctx = make(f"read {url}")
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("hello")
    url = site.put("/br", b"??", "text/plain", Content_Encoding="br")
    assert "packed as br" in failed(make, skills / "web/fetch", f"read {url}")
    url = site.put("/no", b"no gzip", "text/plain", Content_Encoding="gzip")
    assert "does not unpack" in failed(make, skills / "web/fetch", f"read {url}")


def test_fetch_bounds_the_time(site: Site) -> None:
    site.put("/slow", "<p>a</p>")
    with pytest.raises(web.WebError, match="took too long"):
        web.fetch(f"{site.url}/slow", typed=[site.url], seconds=-1)
    listener = socket.create_server(("127.0.0.1", 0))  # takes, and never answers
    with listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(web.WebError, match="no answer in time"):
            web.fetch(url, typed=[url], seconds=0.2)


def test_fetch_says_what_is_wrong(make: Start, skills: Path, site: Site) -> None:
    fetch = skills / "web/fetch"
    assert failed(make, fetch, f"read {site.url}/none").endswith("answered 404 (Not Found).")
    url = site.put("/a.pdf", b"%PDF", "application/pdf")
    assert failed(make, fetch, f"read {url}").endswith("is no text but application/pdf.")
    url = site.put("/empty", "<html><!-- nothing --></html>")
    assert "no text that can be read" in failed(make, fetch, f"read {url}")
    assert "is not found" in failed(make, fetch, "read http://no-such.invalid/")
    assert failed(make, fetch, "read the page", answers=["dunno"]) == "That is no web address."
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "refused" in failed(make, fetch, f"read http://127.0.0.1:{port}/")


def test_fetch_chooses_among_several(make: Start, skills: Path, site: Site) -> None:
    site.put("/a", "<p>one</p>")
    site.put("/b", "<p>two</p>")
    words = f"I saw {site.url}/a but read {site.url}/b"
    ctx = make(words, choices=["p2"])
    run_actions(skills / "web/fetch", ctx)
    assert ctx.said[0].endswith("two")
    ctx = make(words, choices=["none"])
    assert run_actions(skills / "web/fetch", ctx).kind == "finished"


# search


def results(*rows: Any) -> bytes:
    return json.dumps({"query": "x", "results": list(rows)}).encode()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ("search the web for black tea", "black tea"),
        ("google how long to boil an egg", "how long to boil an egg"),
        ("please look up the height of K2 online", "the height of K2"),
        ("do a web search for c++ & rust?", "c++ & rust?"),
        ("find me cheap flights on the internet", "cheap flights"),
        ("suche im Netz nach Tee", "Tee"),
        ("black tea", "black tea"),
    ],
)
def test_search(make: Start, skills: Path, site: Site, request_: str, words: str) -> None:
    from urllib.parse import parse_qs, urlsplit

    hit = {"title": "Tea", "url": "https://tea.org/", "content": "All\nabout \x1b[1mtea."}
    site.put("/sub/search", results(hit), "application/json")
    ctx = make(request_, settings={"search_url": f"{site.url}/sub/"})
    assert run_actions(skills / "web/search", ctx).kind == "done"
    assert parse_qs(urlsplit(site.asked[0][0]).query) == {"q": [words], "format": ["json"]}
    assert ctx.said == ["- Tea: https://tea.org/\n  All about [1mtea."]


def test_search_shows_five_and_leaves_out_what_is_no_page(
    make: Start, skills: Path, site: Site
) -> None:
    rows = [{"title": "bad", "url": "javascript:alert(1)"}]
    rows += [{"title": f"t{n}", "url": f"https://a.org/{n}", "content": None} for n in range(9)]
    site.put("/search", results(*rows), "application/json")
    ctx = make("search for tea", settings={"search_url": site.url})
    run_actions(skills / "web/search", ctx)
    assert ctx.said == ["\n".join(f"- t{n}: https://a.org/{n}" for n in range(5))]
    site.put("/search", results(), "application/json")
    ctx = make("search for tea", settings={"search_url": site.url})
    run_actions(skills / "web/search", ctx)
    assert ctx.said == ["Nothing was found for: tea"]


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"results": 3}', b'{"results": [7]}', b'{"results": [{}]}', b"[" * 9999],
)
def test_search_where_the_server_gives_no_json(
    make: Start, skills: Path, site: Site, body: bytes
) -> None:
    site.put("/search", body)
    given = {"settings": {"search_url": site.url}}
    message = failed(make, skills / "web/search", "search for tea", **given)
    assert "gave no JSON: is it SearXNG, with json in search.formats" in message
    site.pages["/search"] = (403, {}, b"")  # json is not among its formats
    message = failed(make, skills / "web/search", "search for tea", **given)
    assert message.endswith("answered 403 (Forbidden).")


def test_search_needs_a_server(skills: Path) -> None:
    assert parse_skill(skills / "web/search").requires == ("config:web.search_url",)


# feed


def rss(*items: str, title: str = "The &lt;b&gt;Kettle&lt;/b&gt;") -> str:
    rows = "".join(
        f"<item><title>{item}</title><guid>{item}</guid><link>https://k.org/{n}</link></item>"
        for n, item in enumerate(items)
    )
    channel = f"<channel><title>{title}</title>{rows}</channel>"
    return f"<?xml version='1.0'?><rss version='2.0'>{channel}</rss>"


ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atoms</title><id>urn:a</id>
<entry><id>urn:1</id><title type="html">Salt &amp;amp; &lt;i&gt;pepper&lt;/i&gt;</title>
<link href="https://a.org/1"/></entry></feed>"""


def feed_says(make: Start, skills: Path, request: str, **given: Any) -> str:
    ctx = make(request, **given)
    run_id = f"r{id(ctx)}"
    ctx.run = run_id  # each a request of its own
    outcome = run_actions(skills / "web/feed", ctx)
    assert outcome.kind in ("done", "finished"), outcome
    return "\n".join(ctx.said)


def test_feed_says_what_is_new(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/rss", rss("Tea", "Cake"), "application/rss+xml")
    text = feed_says(make, skills, f"watch {url}")
    assert text == (
        "From now on I watch The Kettle: 2 entries:\n"
        "- Tea: https://k.org/0\n- Cake: https://k.org/1"
    )
    assert feed_says(make, skills, "what is new in my feeds?") == "The Kettle: nothing new."
    site.put("/rss", rss("Milk", "Tea", "Cake"), "application/rss+xml")
    said = feed_says(make, skills, "anything new from the kettle?")
    assert said == "The Kettle: 1 new:\n- Milk: https://k.org/0"
    assert feed_says(make, skills, "which feeds do I watch") == f"You watch:\n- The Kettle: {url}"
    assert feed_says(make, skills, "stop watching the kettle") == "I no longer watch The Kettle."
    assert feed_says(make, skills, "which feeds do I watch") == "You watch no feed yet."


def test_feed_that_is_only_read_is_not_watched(make: Start, skills: Path, site: Site) -> None:
    url = site.put("/atom", ATOM, "application/atom+xml")
    assert (
        feed_says(make, skills, f"read {url}")
        == "Atoms: 1 entry:\n- Salt & pepper: https://a.org/1"
    )
    assert feed_says(make, skills, f"read {url}") == "Atoms: nothing new."
    assert feed_says(make, skills, "list my feeds") == "You watch no feed yet."


def test_feed_asks_only_for_what_changed(make: Start, skills: Path, site: Site) -> None:
    def answer(sent: dict[str, str]) -> Answer:
        marks = {"ETag": '"v1"', "Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT"}
        if sent.get("if-none-match") == '"v1"':
            return 304, marks, b""
        return 200, {"Content-Type": "text/xml", **marks}, rss("Tea").encode()

    site.pages["/rss"] = answer
    feed_says(make, skills, f"follow {site.url}/rss")
    assert feed_says(make, skills, "check my feeds") == "The Kettle: nothing new."
    assert site.asked[1][1]["if-modified-since"] == "Mon, 30 Nov 2026 10:00:00 GMT"


def test_feed_of_a_page_that_names_one(make: Start, skills: Path, site: Site) -> None:
    site.put("/rss", rss("Tea"), "application/rss+xml")
    link = '<link rel="alternate" type="application/rss+xml" href="/rss">'
    url = site.put("/", f"<html><head>{link}</head><p>hi</p></html>", ETag='"page"')
    assert feed_says(make, skills, f"watch {url}").startswith("From now on I watch The Kettle")
    feed_says(make, skills, "check my feeds")
    assert "if-none-match" not in site.asked[-2][1]  # the page's mark says nothing of the feed
    site.put("/", "<html><p>no feed</p></html>")
    message = failed(make, skills / "web/feed", f"read {url}")
    assert message.endswith("is no feed and names none.")
    link = link.replace('"/rss"', '"http://127.0.0.2/rss"')
    site.put("/", f"<html>{link}</html>")
    assert "leads into this network" in failed(make, skills / "web/feed", f"read {url}")


def test_feed_interrupted_everywhere_tells_what_is_new_once(
    make: Start, skills: Path, site: Site, folders: Folders
) -> None:
    url = site.put("/rss", rss("Tea"), "application/rss+xml")
    ctx, outcome = run_interrupted(
        skills / "web/feed", lambda: make(f"watch {url}"), lose=["read feed"]
    )
    assert outcome.kind == "done"
    assert ctx.said == ["From now on I watch The Kettle: 1 entry:\n- Tea: https://k.org/0"]
    assert len(site.asked) == 1
    [file] = (folders.home / ".sia/feeds").glob("*.json")
    assert len(json.loads(file.read_text())["seen"]) == 1


def test_feed_bombs_and_rubbish(make: Start, skills: Path, site: Site) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    for entities in (f'<!ENTITY l0 "ha">{laughs}', '<!entity l11 SYSTEM "file:///etc/passwd">'):
        bomb = f'<?xml version="1.0"?><!DOCTYPE rss [{entities}]>{rss("a &l11;")}'
        message = failed(make, skills / "web/feed", f"read {site.put('/bomb', bomb, 'text/xml')}")
        assert message.endswith("declares entities, as no feed does that means well.")
    huge = site.put("/huge", b"<rss>" + b" " * feeds.BYTES, "text/xml")
    assert failed(make, skills / "web/feed", f"read {huge}").endswith("is larger than 2 MB.")
    many = site.put("/many", rss(*(f"n{n}" for n in range(3000))), "text/xml")
    said = feed_says(make, skills, f"read {many}")
    assert said.startswith("The Kettle: 500 entries, the newest 10:") and said.count("\n") == 10
    evil = (
        "<rss version='2.0'><channel><item><link>javascript:alert(1)</link></item></channel></rss>"
    )
    assert "javascript" not in feed_says(
        make, skills, f"read {site.put('/evil', evil, 'text/xml')}"
    )
    for data in (b"", b"\x00\xff" * 50, b"<rss", b"{}", b"<html></html>"):
        url = site.put("/x", data, "application/rss+xml")
        assert "is no feed and names none" in failed(make, skills / "web/feed", f"read {url}")


def test_feed_one_of_several_fails(make: Start, skills: Path, site: Site) -> None:
    for name in ("a", "b"):
        feed_says(make, skills, f"watch {site.put(f'/{name}', rss('x', title=name), 'text/xml')}")
    del site.pages["/a"]
    said = feed_says(make, skills, "check my feeds").split("\n")
    assert said[0].endswith("answered 404 (Not Found).") and said[1] == "b: nothing new."


def test_feed_kept_file_that_is_damaged_is_read_anew(
    make: Start, skills: Path, site: Site, folders: Folders
) -> None:
    url = site.put("/rss", rss("Tea"), "text/xml")
    feed_says(make, skills, f"watch {url}")
    [file] = (folders.home / ".sia/feeds").glob("*.json")
    file.write_text("{")
    assert feeds.watched(file.parent) == []
    assert "1 entry" in feed_says(make, skills, f"watch {url}")
