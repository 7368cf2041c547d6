"""Messages built and sent to real servers: what arrives, what is refused, what stays unknown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sia import mail

SENT = datetime(2026, 11, 30, 15, 0, tzinfo=ZoneInfo("Europe/Berlin"))
Start = Callable[..., Any]


def build(**given: Any) -> EmailMessage:
    values = {
        "sender": ("Robin Falk", "robin@example.org"),
        "recipients": [("Anna Berg", "anna@example.org")],
        "subject": "Late",
        "body": "I will be late.",
        "sent": SENT,
        "key": "r1-send-1",
    }
    return mail.build(**{**values, **given})


def server(port: int, **given: Any) -> mail.MailServer:
    return mail.MailServer("127.0.0.1", port, **{"tls": "none", **given})


def test_arrives_as_written(mail_server: Start) -> None:
    inbox = mail_server()
    body = "Grüße 🐈 " + "lang " * 400 + "\n.\nFrom here\n"
    assert mail.send(server(inbox.port), build(subject="Käse & „Brot“ " * 9, body=body)) == ""
    [message] = inbox.messages
    assert message.get_content().replace("\r\n", "\n") == body
    assert message["Subject"] == ("Käse & „Brot“ " * 9)
    assert message["From"] == "Robin Falk <robin@example.org>"
    assert message["To"] == "Anna Berg <anna@example.org>"
    assert message["Date"].datetime == SENT
    assert inbox.recipients == [["anna@example.org"]]


def test_the_id_follows_from_key_sender_and_time() -> None:
    one, again = build()["Message-ID"], build()["Message-ID"]
    assert one == again and one.endswith("@example.org>")
    assert one != build(key="r2-send-1")["Message-ID"]
    assert one != build(sent=SENT.replace(year=2027))["Message-ID"]


@pytest.mark.parametrize(
    "given",
    [
        {"subject": "Hi\nBcc: all@evil.example"},
        {"subject": "Hi\r\n\r\nbody"},
        {"recipients": [("Anna\r\nBcc: all@evil.example", "anna@example.org")]},
        {"recipients": [("Anna", "anna@example.org\nBcc: all@evil.example")]},
        {"recipients": [("Anna", "no address")]},
        {"recipients": [("Jürgen", "jürgen@example.org")]},
        {"recipients": [("Jürgen", "j@bücher.example")]},
        {"sender": ("Robin\n", "robin@example.org")},
    ],
)
def test_no_header_can_be_slipped_in(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        build(**given).as_bytes()


def test_a_name_with_signs_stays_a_name(mail_server: Start) -> None:
    inbox = mail_server()
    name = 'Berg, "Anna" <all@evil.example>'
    mail.send(server(inbox.port), build(recipients=[(name, "anna@example.org")]))
    assert inbox.recipients == [["anna@example.org"]]
    [address] = inbox.messages[0]["To"].addresses
    assert (address.display_name, address.addr_spec) == (name, "anna@example.org")


def test_login(mail_server: Start) -> None:
    inbox = mail_server(login=True)
    wrong, right = (server(inbox.port, user="robin", password=p) for p in ("wr0ng!", "s3cret"))
    for attempt in (mail.log_in, lambda server: mail.send(server, build())):
        with pytest.raises(mail.Refused, match="refused user robin and the password: 535") as error:
            attempt(wrong)
        assert "wr0ng!" not in str(error.value)
    mail.log_in(right)
    assert not inbox.messages
    mail.send(right, build())
    assert len(inbox.messages) == 1
    assert "s3cret" not in repr(right)
    with pytest.raises(mail.Refused, match="beyond ASCII"):
        mail.log_in(server(inbox.port, user="robin", password="käse"))


def test_a_password_never_travels_readable() -> None:
    far = mail.MailServer("mail.example.org", 25, "none", "robin", "s3cret")
    with pytest.raises(mail.Refused, match="would travel readable"):
        mail.send(far, build())


def test_a_reply_names_what_it_answers() -> None:
    thread = tuple(f"<{n}@example.org>" for n in range(40))
    message = build(answering=mail.Answering("<last@example.org>", thread))
    assert message["In-Reply-To"] == "<last@example.org>"
    references = message["References"].split()
    assert references[0] == "<0@example.org>" and references[-2:] == [
        thread[-1],
        "<last@example.org>",
    ]
    assert len(references) == 22
    hostile = mail.Answering("<a@b>\r\nBcc: all@evil.example", ("<ok@b>",))
    assert build(answering=hostile)["In-Reply-To"] is None
    forged = build(answering=mail.Answering("<a@b>", ("<x@y>\nBcc: all@evil.example", "<ok@b>")))
    assert forged["References"] == "<ok@b> <a@b>"


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_tls(
    mail_server: Start, certificate: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    inbox = mail_server(**{mode: certificate})
    with pytest.raises(mail.Refused, match="no safe connection .*self-signed certificate"):
        mail.send(server(inbox.port, tls=mode), build())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    mail.send(server(inbox.port, tls=mode), build())
    assert len(inbox.messages) == 1


def test_refusals_are_one_clear_line(mail_server: Start) -> None:
    inbox = mail_server(refuse=("anna@example.org",))
    with pytest.raises(mail.Refused, match=r"^the mail server refused anna@example.org \(550 no"):
        mail.send(server(inbox.port), build())
    both = [("", "anna@example.org"), ("", "bo@example.org")]
    assert "refused anna@example.org" in mail.send(server(inbox.port), build(recipients=both))
    assert inbox.recipients == [["bo@example.org"]]
    full = mail_server(reject="552 mailbox full")
    with pytest.raises(mail.Refused, match="refused the message: 552 mailbox full"):
        mail.send(server(full.port), build())
    with pytest.raises(mail.Refused, match="STARTTLS extension not supported"):
        mail.send(server(full.port, tls="starttls"), build())
    with pytest.raises(mail.Refused, match="AUTH extension not supported"):
        mail.send(server(full.port, user="robin", password="s3cret"), build())


def test_no_server(talker: Start) -> None:
    with pytest.raises(mail.Refused, match=r"127.0.0.1:1 cannot be reached: Connection refused"):
        mail.send(server(1), build())
    with pytest.raises(mail.Refused, match="cannot be reached"):
        mail.send(mail.MailServer("no..such host", 25, "none"), build())
    with pytest.raises(mail.Refused, match="cannot be reached: no such name is known"):
        mail.send(mail.MailServer("mail.invalid", 25, "none"), build())
    with pytest.raises(mail.Refused, match=r"did not answer within 0.3 s"):
        mail.send(server(talker()), build(), timeout=0.3)
    with pytest.raises(mail.Refused, match="is no mail server that works"):
        mail.send(server(talker(b"HTTP/1.1 400 Bad\r\n")), build())
    with pytest.raises(mail.Refused, match="no safe connection"):
        mail.send(server(talker(b"220 plain\r\n"), tls="tls"), build())


GREETING = (b"220 hi\r\n", b"250 hi\r\n", b"250 ok\r\n", b"250 ok\r\n")


def test_cut_off_after_the_message_is_unknown(talker: Start) -> None:
    with pytest.raises(mail.Unknown, match="broke while sending"):
        mail.send(server(talker(*GREETING, b"354 go on\r\n")), build())


def test_cut_off_after_it_was_accepted_is_sent(talker: Start) -> None:
    port = talker(*GREETING, b"354 go on\r\n", b"250 queued\r\n")
    assert mail.send(server(port), build()) == ""


@pytest.mark.parametrize("address", ["a..b@x.org", "a@x..org", "a@b@c.org", "a@[1.2", "@x.org"])
def test_an_address_that_is_none_is_said(address: str) -> None:
    """Each breaks the library in another way; a stranger may name it in Reply-To."""
    with pytest.raises(ValueError, match=r"."):
        build(recipients=[("", address)])
