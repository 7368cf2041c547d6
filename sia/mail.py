"""Messages built and handed to a mail server (SMTP)."""

from __future__ import annotations

import ipaddress
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from hashlib import sha256
from typing import Any

MOST_REFERENCES = 20
NO_SUCH = frozenset({550, 551, 553})  # RFC 5321, 4.2.2: no such mailbox, elsewhere, not allowed
_ID = re.compile(r"<[!-;=?-~]{1,250}>")  # printable ASCII without < and >


class Refused(Exception):
    """Nothing was sent, and why: one line."""


class NoSuchRecipient(Refused):
    """The server knows none of those whom it should go to."""


class Unknown(Exception):
    """The connection ended while the message was under way: it may or may not have been sent."""


@dataclass(frozen=True)
class MailServer:
    """Where mail is handed over (SMTP) or read (IMAP)."""

    host: str
    port: int = 587
    tls: str = "starttls"  # none | starttls | tls
    user: str = ""  # empty: no login
    password: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def check(self) -> None:
        """Raises Refused where logging in would send the password readable over a network."""
        if self.user and self.tls == "none" and not _loopback(self.host):
            raise Refused(
                f"no TLS for {self.place}: the password would travel readable; use starttls or tls"
            )


def reachable(server: MailServer, seconds: float) -> bool:
    """Whether somebody listens there; nothing is said to them."""
    found: list[bool] = []

    def connect() -> None:
        with suppress(OSError), socket.create_connection((server.host, server.port), seconds):
            found.append(True)

    # On a thread: no time limit holds for what looks up the name.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(found)


@dataclass(frozen=True)
class Answering:
    """What a reply answers: the Message-ID, and those that it answered itself."""

    message_id: str = ""
    references: tuple[str, ...] = ()


def build(
    sender: tuple[str, str],
    recipients: Sequence[tuple[str, str]],
    subject: str,
    body: str,
    sent: datetime,
    key: str,
    answering: Answering = Answering(),
) -> EmailMessage:
    """A plain text message. sender, recipients: (name, address); sent: aware.

    key: makes the Message-ID. Raises ValueError for an address or subject that no header can
    hold; addresses beyond ASCII are not supported.
    """
    for _, address in (sender, *recipients):
        if not address.isascii():
            raise ValueError(f"{address}: an address may have plain letters only")
    message = EmailMessage(SMTP.clone(cte_type="7bit"))
    message["From"] = _address(*sender)
    message["To"] = [_address(name, address) for name, address in recipients]
    message["Subject"] = subject
    message["Date"] = sent
    message["Message-ID"] = message_id(key, sender[1], sent)
    if _ID.fullmatch(answering.message_id):
        message["In-Reply-To"] = answering.message_id
        before = [id for id in answering.references if _ID.fullmatch(id)]
        # The first names the thread; of a long one the middle may be left out (RFC 5322, 3.6.4).
        kept = before[:1] + before[1:][-MOST_REFERENCES:]
        message["References"] = " ".join([*kept, answering.message_id])
    message.set_content(body)
    return message


def _address(name: str, address: str) -> Any:
    from email.errors import MessageError
    from email.headerregistry import Address

    try:
        return Address(name, addr_spec=address)
    # The parser's own error is no ValueError, and an address may break it: "a@[1.2", "a@x..org".
    except (MessageError, AttributeError, IndexError):
        raise ValueError(f"{line(address)} is no e-mail address") from None


def message_id(key: str, sender: str, sent: datetime) -> str:
    """The same for the same key, sender and time, so that a copy can be looked for."""
    name = sha256("\0".join((key, sender, sent.isoformat())).encode()).hexdigest()[:32]
    return f"<{name}@{sender.rpartition('@')[2]}>"


def send(server: MailServer, message: EmailMessage, timeout: float = 20.0) -> str:
    """Returns when the server has accepted the message: "", or which recipients it refused.

    timeout: seconds for each answer. Raises Refused and Unknown.
    """
    sender = message["From"].addresses[0].addr_spec
    recipients = [address.addr_spec for address in message["To"].addresses]
    smtp = _connected(server, timeout)
    try:
        # Not send_message: that writes ">From" for a line that begins with "From".
        refused = smtp.sendmail(sender, recipients, message.as_bytes())
        return _who(refused) if refused else ""
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        kind = NoSuchRecipient if codes <= NO_SUCH else Refused
        raise kind(_who(error.recipients)) from None
    except smtplib.SMTPResponseException as error:
        raise Refused(f"the mail server refused the message: {_reply(error)}") from None
    except (OSError, smtplib.SMTPException):
        raise Unknown(f"the connection to {server.host} broke while sending") from None
    finally:
        with suppress(OSError, smtplib.SMTPException):
            smtp.quit()
        smtp.close()


def log_in(server: MailServer, timeout: float = 20.0) -> None:
    """Try the server and the password; nothing is sent. Raises Refused."""
    smtp = _connected(server, timeout)
    with suppress(OSError, smtplib.SMTPException):
        smtp.quit()
    smtp.close()


def trouble(error: OSError | UnicodeError, server: MailServer, timeout: float) -> str:
    """Why a server cannot be spoken to: its name, the connection, TLS, or silence. One line."""
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
        return f"no safe connection to {server.place}: {reason}"
    if isinstance(error, TimeoutError):
        return f"{server.place} did not answer within {timeout:g} s"
    if isinstance(error, socket.gaierror):
        return f"{server.place} cannot be reached: no such name is known ({error.strerror})"
    reason = getattr(error, "strerror", None) or line(str(error))
    return f"{server.place} cannot be reached: {reason}"


def _connected(server: MailServer, timeout: float) -> smtplib.SMTP:
    place = server.place
    server.check()
    if server.user and not (server.user + server.password).isascii():
        raise Refused("the password has letters beyond ASCII, which SMTP's login cannot carry")
    smtp: smtplib.SMTP | None = None
    try:
        trust = ssl.create_default_context()
        if server.tls == "tls":
            smtp = smtplib.SMTP_SSL(server.host, server.port, timeout=timeout, context=trust)
        else:
            smtp = smtplib.SMTP(server.host, server.port, timeout=timeout)
        if server.tls == "starttls":
            smtp.starttls(context=trust)
        if server.user:
            smtp.login(server.user, server.password)
        return smtp
    except smtplib.SMTPAuthenticationError as error:
        why = f"{place} refused user {server.user} and the password: {_reply(error)}"
    except smtplib.SMTPNotSupportedError as error:
        why = f"{place}: {line(str(error))} See email.tls and email.user."
    except smtplib.SMTPException as error:
        why = f"{place} is no mail server that works: {line(str(error))}"
        if "timed out" in why:  # smtplib makes its own error of a timeout after connecting
            why = f"{place} did not answer within {timeout:g} s"
    except (OSError, UnicodeError) as error:
        why = trouble(error, server, timeout)
    if smtp:
        smtp.close()
    raise Refused(why) from None


def _loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _reply(error: smtplib.SMTPResponseException) -> str:
    text = error.smtp_error
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return f"{error.smtp_code} {line(text)}"


def _who(refused: dict[str, tuple[int, bytes]]) -> str:
    replies = (
        f"{who} ({code} {line(text.decode(errors='replace'))})"
        for who, (code, text) in refused.items()
    )
    return f"the mail server refused {', '.join(replies)}"


def line(text: str) -> str:
    """What a server said, on one line without control characters, cut."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
