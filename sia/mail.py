"""Messages built and handed to a mail server (SMTP)."""

from __future__ import annotations

import ipaddress
import os
import smtplib
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from hashlib import sha256
from pathlib import Path


class Refused(Exception):
    """Nothing was sent, and why: one line."""


class Unknown(Exception):
    """The connection ended while the message was under way: it may or may not have been sent."""


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int = 587
    tls: str = "starttls"  # none | starttls | tls
    user: str = ""  # empty: no login
    password_env: str = ""  # the variable that holds the password
    password_file: Path | None = None  # or a file of its owner's alone

    def password(self) -> str:
        """Raises Refused with what to do."""
        if self.password_env:
            value = os.environ.get(self.password_env, "")
            if not value:
                raise Refused(f"the variable {self.password_env} with the mail password is not set")
            return value
        if self.password_file is None:
            raise Refused("set email.password_file or email.password_env: email.user is set")
        try:
            mode = self.password_file.stat().st_mode
            if mode & 0o077:
                raise Refused(f"others may read {self.password_file}: chmod 600 it")
            return self.password_file.read_text("utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise Refused(f"the password file {self.password_file}: {reason}") from None


def build(
    sender: tuple[str, str],
    recipients: Sequence[tuple[str, str]],
    subject: str,
    body: str,
    sent: datetime,
    key: str,
) -> EmailMessage:
    """A plain text message. sender, recipients: (name, address); sent: aware.

    key: makes the Message-ID, the same for the same key, sender and time, so that a copy can be
    looked for. Raises ValueError for an address or subject that no header can hold; addresses
    beyond ASCII are not supported.
    """
    from email.headerregistry import Address

    for _, address in (sender, *recipients):
        if not address.isascii():
            raise ValueError(f"{address}: an address may have plain letters only")
    message = EmailMessage(SMTP.clone(cte_type="7bit"))
    message["From"] = Address(sender[0], addr_spec=sender[1])
    message["To"] = [Address(name, addr_spec=address) for name, address in recipients]
    message["Subject"] = subject
    message["Date"] = sent
    name = sha256("\0".join((key, sender[1], sent.isoformat())).encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{name}@{sender[1].rpartition('@')[2]}>"
    message.set_content(body)
    return message


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
        raise Refused(_who(error.recipients)) from None
    except smtplib.SMTPResponseException as error:
        raise Refused(f"the mail server refused the message: {_reply(error)}") from None
    except (OSError, smtplib.SMTPException):
        raise Unknown(f"the connection to {server.host} broke while sending") from None
    finally:
        with suppress(OSError, smtplib.SMTPException):
            smtp.quit()
        smtp.close()


def _connected(server: MailServer, timeout: float) -> smtplib.SMTP:
    place = f"{server.host}:{server.port}"
    password = server.password() if server.user else ""
    if password and server.tls == "none" and not _loopback(server.host):
        raise Refused("email.tls is none: the password would travel readable; use starttls or tls")
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
            smtp.login(server.user, password)
        return smtp
    except smtplib.SMTPAuthenticationError as error:
        why = f"{place} refused user {server.user} and the password: {_reply(error)}"
    except smtplib.SMTPNotSupportedError as error:
        why = f"{place}: {_line(str(error))} See email.tls and email.user."
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
        why = f"no safe connection to {place}: {reason}"
    except smtplib.SMTPException as error:
        why = f"{place} is no mail server that works: {_line(str(error))}"
        if "timed out" in why:  # smtplib makes its own error of a timeout after connecting
            why = f"{place} did not answer within {timeout:g} s"
    except TimeoutError:
        why = f"{place} did not answer within {timeout:g} s"
    except (OSError, UnicodeError) as error:
        why = f"{place} cannot be reached: {getattr(error, 'strerror', None) or _line(str(error))}"
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
    return f"{error.smtp_code} {_line(text)}"


def _who(refused: dict[str, tuple[int, bytes]]) -> str:
    replies = (
        f"{who} ({code} {_line(text.decode(errors='replace'))})"
        for who, (code, text) in refused.items()
    )
    return f"the mail server refused {', '.join(replies)}"


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
