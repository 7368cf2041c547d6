"""A real IMAP server: found, fetched in bounds, copied into Sent, and what failed said clearly."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia import imap, mail
from sia.imap import Wanted
from sia.mail import MailServer, Refused

EVERY = Wanted()
Start = Callable[..., Any]
NOW = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.fixture
def server(mailbox: Any, dovecots: ModuleType) -> MailServer:
    return MailServer("127.0.0.1", mailbox.port, "none", mailbox.user, dovecots.PASSWORD)


def subjects(server: MailServer, wanted: Wanted = EVERY) -> list[str]:
    with imap.opened(server) as box:
        return [one.subject for one in imap.search(box, wanted)[0]]


def test_an_empty_mailbox(server: MailServer) -> None:
    with imap.opened(server) as box:
        assert imap.search(box, Wanted()) == ([], 0)
        assert imap.envelopes(box, []) == [] and imap.message(box, "7") is None


def test_what_is_looked_for_is_found(server: MailServer, mailbox: Any, letter: Start) -> None:
    mailbox.deliver(letter("Come at 8", subject="Dinner"))
    mailbox.deliver(
        letter("Der Vertrag ist für dich", "Lena <lena@example.org>", "=?utf-8?q?Gr=C3=BC=C3=9Fe?=")
    )
    mailbox.deliver(letter("Sale", "Shop <shop@example.org>", 'The "best" (offer)'), seen=True)
    assert subjects(server) == ['The "best" (offer)', "Grüße", "Dinner"]
    assert subjects(server, Wanted(senders=("lena@example.org", "Lena Kurz"))) == ["Grüße"]
    assert subjects(server, Wanted(senders=("nobody",))) == []
    assert subjects(server, Wanted(words=("Grüße",))) == ["Grüße"]
    assert subjects(server, Wanted(words=("für", "vertrag"))) == ["Grüße"]
    assert subjects(server, Wanted(words=("dinner", "vertrag"))) == []
    assert subjects(server, Wanted(words=('"best" (offer)',))) == ['The "best" (offer)']
    assert subjects(server, Wanted(unread=True)) == ["Grüße", "Dinner"]
    today = date.today()
    assert (
        len(subjects(server, Wanted(since=today - timedelta(1), until=today + timedelta(2)))) == 3
    )
    assert subjects(server, Wanted(until=today - timedelta(1))) == []
    assert subjects(server, Wanted(words=('" OR ALL "',))) == []
    assert subjects(server, Wanted(words=("a\r\nA1 LOGOUT",), senders=("b\nA2 LOGOUT",))) == []


def test_looking_marks_nothing(server: MailServer, mailbox: Any, letter: Start) -> None:
    mailbox.deliver(letter("Come at 8"))
    with imap.opened(server) as box:
        [one] = imap.search(box, Wanted())[0]
        assert b"Come at 8" in (imap.message(box, one.uid) or b"")
        assert (one.sender, one.seen) == (("Anna Berg", "anna@example.org"), False)
        assert not imap.envelopes(box, [one.uid])[0].seen
    imap.flag(server, one.uid, "\\Seen")
    with imap.opened(server) as box:
        assert imap.envelopes(box, [one.uid])[0].seen


def test_five_thousand_messages_are_searched_on_the_server(
    server: MailServer, mailbox: Any, letter: Start
) -> None:
    for n in range(5000):
        mailbox.deliver(letter(f"body {n}", subject=f"Report {n}"))
    with imap.opened(server) as box:
        before = _received(box)
        begun = time.monotonic()
        found, count = imap.search(box, Wanted(), 16)
        assert (count, len(found), found[0].subject) == (5000, 16, "Report 4999")
        one, count = imap.search(box, Wanted(words=("Report 1234",)))
        assert (count, one[0].subject) == (1, "Report 1234")
        # 16 headers and lists of numbers, not 5,000 messages.
        assert _received(box) - before < 100_000
        assert time.monotonic() - begun < 60


def _received(box: Any) -> int:
    """Bytes that came in over the connection since this was first asked."""
    client = box.client
    if not hasattr(client, "counted"):
        client.counted = 0
        read, readline = client.read, client.readline

        def counting(get: Callable[..., bytes]) -> Callable[..., bytes]:
            def counted(*given: Any) -> bytes:
                data = get(*given)
                client.counted += len(data)
                return data

            return counted

        client.read, client.readline = counting(read), counting(readline)
    return client.counted


def test_a_huge_message_is_read_in_bounds(server: MailServer, mailbox: Any, letter: Start) -> None:
    mailbox.deliver(letter("begin\n" + "x" * 70 + "\n" * 30_000_000))
    mailbox.deliver(letter("small", X_Long="y" * 900, subject="s" * 5000))
    mailbox.deliver(b"X-Fill: " + b"z\n " * 500_000 + b"\nSubject: late\n\nbody\n")
    with imap.opened(server) as box:
        late, small, huge = imap.search(box, Wanted())[0]
        assert huge.size > 30_000_000
        assert len(imap.message(box, huge.uid) or b"") <= imap.MESSAGE_BYTES
        assert len(small.subject) == 200 and late.subject == "(no subject)"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"no header at all",
        b"\xff\xfe\x00\x01\n\n\x80",
        b"From: \xff\xfe <a@b.c>\nSubject: \xff\n\n\xff\n",
        b"From: <>\nTo: ,,,\nMessage-ID: none\nReferences: <a> <b\nDate: never\n\nbody\n",
        b"From: a@b.c, d@e.f\nFrom: g@h.i\nSubject:\nSubject: two\n\n\n",
        b"From: =?utf-8?q?a=00b=1b[2J?= <a@b.c>\nSubject: =?x?z?y?= =?utf-8?b?/w==?=\n\n",
    ],
)
def test_any_message_has_an_envelope(server: MailServer, mailbox: Any, raw: bytes) -> None:
    mailbox.deliver(raw)
    with imap.opened(server) as box:
        found, count = imap.search(box, Wanted())
        assert count == 1
        for one in found:
            assert one.subject.isprintable() and one.who.isprintable() and one.who
            assert imap.message(box, one.uid) is not None


def message(id: str = "r1-send-1") -> Any:
    sent = NOW
    robin, anna = ("Robin Falk", "robin@example.org"), ("Anna Berg", "anna@example.org")
    return mail.build(robin, [anna], "Käse", "Grüße\n", sent, id)


def test_a_copy_lies_in_sent_once(server: MailServer, mailbox: Any) -> None:
    first = message()
    id = mail.message_id("r1-send-1", "robin@example.org", NOW)
    assert imap.sent(server, id) is None
    imap.keep_copy(server, first)
    imap.keep_copy(server, first)  # the server, or a try that was cut off, did it before
    [kept] = mailbox.kept()
    assert id.encode() in kept and "Gr=C3=BC=C3=9Fe" in kept.decode() or "R3" in kept.decode()
    assert [file.name.rpartition(",")[2] for file in mailbox.files("Gesendet")] == ["S"]
    assert imap.sent(server, id) is True
    # A hit proves, absence does not: another program may have moved it.
    assert imap.sent(server, mail.message_id("r2-send-1", "robin@example.org", NOW)) is None
    assert imap.sent(server, id, "no such folder") is None
    assert imap.sent(MailServer("127.0.0.1", 1, "none", "x", "y"), id) is None


def test_where_no_folder_is_marked_the_chosen_one_is_taken(dovecots: ModuleType) -> None:
    started = dovecots.start(marked=False)
    try:
        box = started.mailbox()
        server = MailServer("127.0.0.1", box.port, "none", box.user, dovecots.PASSWORD)
        with pytest.raises(Refused, match="marks no folder for sent mail: set email.sent"):
            imap.keep_copy(server, message())
        imap.keep_copy(server, message(), "Gesendet")
        assert len(box.kept()) == 1
        with pytest.raises(Refused, match=r"has no folder Gibt es nicht"):
            imap.keep_copy(server, message(), "Gibt es nicht")
    finally:
        dovecots.stop(started)


def test_what_failed_is_said(server: MailServer, talker: Start, dovecots: ModuleType) -> None:
    def why(*given: Any, folder: str = "INBOX", **more: Any) -> str:
        with pytest.raises(Refused) as error, imap.opened(MailServer(*given), folder, **more):
            pass
        assert dovecots.PASSWORD not in str(error.value)
        return str(error.value)

    host, port, user, right = server.host, server.port, server.user, dovecots.PASSWORD
    wrong = why(host, port, "none", user, "wrong-one")
    assert "refused user robin" in wrong and "wrong-one" not in wrong
    assert "has no folder Keller: " in why(host, port, "none", user, right, folder="Keller")
    assert "127.0.0.1:1 cannot be reached: Connection refused" in why(host, 1, "none", user, right)
    assert "no such name is known" in why("imap.invalid", 993, "tls", user, right)
    assert "would travel readable" in why("imap.example.org", 143, "none", user, right)
    assert "no safe connection to " in why(host, port, "tls", user, right)
    assert "use tls" in why("imap.example.org", 993, "starttls", user, right)
    assert "did not answer within 0.3 s" in why(host, talker(), "none", "a", "b", timeout=0.3)
    talk = talker(b"HTTP/1.1 400 Bad\r\n")
    assert "is no mailbox that works" in why(host, talk, "none", "a", "b")
    cut = talker(b"* OK hi\r\n")
    assert why(host, cut, "none", "a", "b", timeout=2.0)


def test_tls(dovecots: ModuleType, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = dovecots.start(certificate)
    try:
        box = started.mailbox()
        for tls, port in (("tls", box.tls_port), ("starttls", box.port)):
            server = MailServer("127.0.0.1", port, tls, box.user, dovecots.PASSWORD)
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
            with pytest.raises(Refused, match="no safe connection .*self-signed certificate"):
                subjects(server)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
            assert subjects(server) == []
    finally:
        dovecots.stop(started)


def test_letters_beyond_ascii_in_a_password(server: MailServer) -> None:
    with pytest.raises(Refused, match="refused user"):
        subjects(MailServer(server.host, server.port, "none", server.user, "käse"))
