"""What e-mail needs: who writes, the server that sends, the mailbox, and the password of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sia import imap, mail
from sia.mail import MailServer, Refused
from sia.setup import Answers, Field, NotWorking

MODES = ("tls", "starttls", "none")
_SMTP_PORTS = {"tls": 465, "starttls": 587, "none": 25}
_IMAP_PORTS = {"tls": 993, "starttls": 143, "none": 143}


def _at(answers: Answers, name: str) -> str:
    domain = str(answers["sender"]).rpartition("@")[2]
    return f"{name}.{domain}" if domain else ""


def _reads(answers: Answers) -> bool:
    return bool(answers["imap_host"])


FIELDS = (
    Field("sender", "Your e-mail address", default=lambda answers: answers["person.email"]),
    Field("host", "Server that sends (SMTP)", default=lambda answers: _at(answers, "smtp")),
    Field("tls", "Its encryption", default="starttls", options=MODES),
    Field("port", "Its port", default=lambda answers: _SMTP_PORTS[answers["tls"]]),
    Field(
        "imap_host",
        "Server to read from (IMAP), empty: only send",
        default=lambda answers: _at(answers, "imap"),
        optional=True,
    ),
    Field("imap_tls", "Its encryption", default="tls", options=MODES, when=_reads),
    Field(
        "imap_port",
        "Its port",
        default=lambda answers: _IMAP_PORTS[answers["imap_tls"]],
        when=_reads,
    ),
    Field(
        "sent",
        "Folder for sent mail, empty: the one the server marks",
        optional=True,
        when=_reads,
    ),
    Field(
        "user",
        "User name at both, empty: no login to send",
        default=lambda answers: answers["sender"],
        optional=True,
    ),
    Field(
        "password",
        "Password (empty keeps the one stored)",
        secret=True,
        when=lambda answers: bool(answers["user"]),
    ),
)


def test(answers: Answers, home: Path) -> Iterator[str]:
    user = answers["user"]
    password = answers.get("password", "") if user else ""
    try:
        mail.log_in(MailServer(answers["host"], answers["port"], answers["tls"], user, password))
        yield f"sending: {answers['host']} takes mail"
        if not answers["imap_host"]:
            return
        server = MailServer(
            answers["imap_host"], answers["imap_port"], answers["imap_tls"], user, password
        )
        with imap.opened(server) as box:
            count = box.folder.status("INBOX", ["MESSAGES"])["MESSAGES"]
            yield f"reading: {count:,} in the inbox"
            folder = imap.sent_folder(box, answers["sent"])
            if not folder:
                raise NotWorking(f"{server.place} marks no folder for sent mail: name one")
            imap.select(box, server, folder)
            yield f"copies of what is sent: in {folder}"
    except Refused as error:
        raise NotWorking(str(error)) from None
