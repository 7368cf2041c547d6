"""Messages of strangers as plain text: whatever they hold, the text is harmless and bounded."""

from __future__ import annotations

import time
from email.message import EmailMessage

import pytest

from sia import mailtext
from sia.mailtext import Content, content


def multipart(*parts: tuple[str, str]) -> bytes:
    message = EmailMessage()
    message.set_content(parts[0][1], subtype=parts[0][0])
    for kind, text in parts[1:]:
        message.add_alternative(text, subtype=kind)
    return message.as_bytes()


def test_plain_text_wins_over_html() -> None:
    assert content(multipart(("plain", "Hello"), ("html", "<p>Hi"))).text == "Hello"
    assert content(multipart(("plain", " \n"), ("html", "<p>Hi"))).text == "Hi"


def test_html_is_read_as_text() -> None:
    html = (
        "<html><head><title>T</title><style>p {color: red}</style><script>alert(1)</script></head>"
        "<body><h1>Offer</h1><p>Only <b>today</b> &amp; &euro;5</p><ul><li>one<li>two</ul>"
        "<img src='http://tracker.example/x.gif'></body></html>"
    )
    text = content(multipart(("html", html))).text
    assert "Only today & €5" in text and text.splitlines()[0].startswith(("T", "Offer"))
    assert "one" in text and "two" in text
    assert not any(word in text for word in ("alert", "color", "tracker", "<"))


@pytest.mark.parametrize(
    "html",
    ["", " ", "<!-- -->", "<", "<?xml version='1.0' encoding='utf-8'?><p>Hi", "<p>\0a", "a" * 9**5,
     "<div>" * 20_000 + "deep", "<p title='" + "x" * 100_000, "<![CDATA[" * 500],
)  # fmt: skip
def test_no_html_is_too_bad(html: str) -> None:
    begun = time.monotonic()
    text = content(b"Content-Type: text/html; charset=utf-8\n\n" + html.encode()).text
    assert "\0" not in text and time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        ("text/plain; charset=utf-8", "Grüße".encode("latin-1"), "Gr\ufffd\ufffde"),
        ("text/plain; charset=latin-1", "Grüße".encode("latin-1"), "Grüße"),
        ("text/plain; charset=no-such", "Grüße".encode(), "Grüße"),
        ('text/plain; charset="a\0b"', b"hi", "hi"),
        ("text/plain; charset=base64", b"hi", "hi"),
        ("text/plain; charset=utf-16", b"abc", "abc"),
        ("text/plain; charset*=utf-8''%ff%fe", b"hi", "hi"),
        ("text/plain", b"\xff\xfe\x00", "\ufffd\ufffd"),
        ("multipart/mixed", b"no boundary", "no boundary"),
        ("", b"bare", "bare"),
    ],
)
def test_any_charset(head: str, body: bytes, text: str) -> None:
    raw = f"Content-Type: {head}\n\n".encode() + body if head else b"\n" + body
    found = content(raw)
    assert found.text == text or (head.startswith("multipart") and found.attached)


def test_what_moves_the_cursor_or_cannot_be_seen_is_left_out() -> None:
    text = content(
        "\n\x1b[2J\x1b]0;owned\x07Pay \u202eknil\u202c\u200b now\r\n\r\n\r\n\r\nend\t!".encode()
    ).text
    assert text == "[2J]0;ownedPay knil now\n\nend !"


def test_nested_and_endless_parts_end() -> None:
    deep = b"Content-Type: text/plain\n\nbottom\n"
    for n in range(3000):
        edge = f"b{n}".encode()
        deep = b"Content-Type: multipart/mixed; boundary=" + edge + b"\n\n--" + edge + b"\n" + deep
    begun = time.monotonic()
    assert content(deep).attached == ("parts nested too deep to be read",)
    assert time.monotonic() - begun < 10
    some = EmailMessage()
    some.set_content("first")
    some.add_alternative("<p>second", subtype="html")
    outer = EmailMessage()
    outer.make_mixed()
    outer.attach(some)
    assert content(outer.as_bytes()).text == "first"
    many = EmailMessage()
    many.set_content("first")
    for n in range(500):
        many.add_attachment(b"x", maintype="application", subtype="pdf", filename=f"{n}.pdf")
    assert len(content(many.as_bytes()).attached) < mailtext.MOST_PARTS


def test_attachments_are_named_and_not_read() -> None:
    message = EmailMessage()
    message.set_content("See the plan.")
    message.add_attachment("secret text", filename="../../plan\x1b.txt")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Grüße.pdf")
    inner = EmailMessage()
    inner["Subject"] = "Fwd"
    inner.set_content("forwarded text")
    message.add_attachment(inner)
    assert content(message.as_bytes()) == Content(
        "See the plan.", ("../../plan.txt", "Grüße.pdf", "message/rfc822")
    )


def test_half_a_message_is_read_as_far_as_it_goes() -> None:
    message = EmailMessage()
    message.set_content("words " * 1000, cte="base64")
    assert content(message.as_bytes()[:2000]).text.startswith("words words")


def test_own_words_leave_out_what_is_quoted() -> None:
    text = "I agree.\n\nOn Mon, 30 Nov 2026 at 14:02, Robin wrote:\n> shall we?\n> at 8\n"
    assert mailtext.own_words(text) == "I agree."


@pytest.mark.parametrize(
    ("raw", "subject", "senders"),
    [
        (b"Subject: =?utf-8?b?!!!?=\nFrom: a@b.c\n\n", "", [("", "a@b.c")]),
        (b"Subject: =?no-such?q?Hi?=\nFrom: =?utf-8?q?Gr=C3=BCn?= <g@b.c>\n\n", "Hi",
         [("Grün", "g@b.c")]),
        (b"Subject: raw \xc3\xbc\nFrom: \xff <x@b.c>\n\n", "raw ü", [("\ufffd", "x@b.c")]),
        (b"Subject: a\n\tb\n\x1b[31m\nFrom: Anna\n\n", "a b", []),
        (b"From: \"Bank <bank@real.example>\" <thief@evil.example>\n\n", "",
         [("Bank <bank@real.example>", "thief@evil.example")]),
        (b"Subject: =?utf-8?q?Hi=0D=0ABcc=3A_all=40evil=2Eexample?=\n\n",
         "Hi Bcc: all@evil.example", []),
    ],
)  # fmt: skip
def test_headers(raw: bytes, subject: str, senders: list[tuple[str, str]]) -> None:
    from email import message_from_bytes

    message = message_from_bytes(raw)
    assert mailtext.header(message, "Subject") == subject
    assert mailtext.addresses(message, "From") == senders


def test_headers_are_bounded() -> None:
    from email import message_from_bytes

    message = message_from_bytes(
        b"Subject: " + b"x" * 50_000 + b"\nTo: " + b"a@b.c," * 5000 + b"\n\n"
    )
    assert len(mailtext.header(message, "Subject")) == 200
    assert len(mailtext.addresses(message, "To")) <= 50
