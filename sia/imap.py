"""Mail read over IMAP: searched on the server, fetched in bounded pieces, unread until marked."""

from __future__ import annotations

import imaplib
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email import message_from_bytes
from email.message import EmailMessage
from re import search as find

from imap_tools import (
    AND,
    OR,
    BaseMailBox,
    H,
    ImapToolsError,
    MailBox,
    MailboxFolderSelectError,
    MailboxLoginError,
    MailBoxStartTls,
    MailBoxUnencrypted,
    UnexpectedCommandStatusError,
)

from sia import mailtext
from sia.mail import MailServer, Refused, line, trouble

TIMEOUT = 20.0  # seconds for each answer
HEADER_BYTES, MESSAGE_BYTES = 32 * 1024, 256 * 1024  # of one message
MOST = 16  # messages that are looked at


@dataclass(frozen=True)
class Envelope:
    """What stands on a message. ``arrived``: at the server, whatever its sender dated it."""

    uid: str
    sender: tuple[str, str]  # (name, address); the address may be empty
    subject: str
    arrived: datetime
    seen: bool
    size: int  # bytes
    message_id: str = ""
    references: tuple[str, ...] = ()
    reply_to: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str], ...] = ()  # of To and Cc

    @property
    def who(self) -> str:
        return self.sender[0] or self.sender[1] or "unknown sender"


@dataclass(frozen=True)
class Wanted:
    """Which messages are looked for; all that is given must hold."""

    senders: tuple[str, ...] = ()  # any of these in From: addresses, names
    words: tuple[str, ...] = ()  # each somewhere in the message
    since: date | None = None
    until: date | None = None  # before this day
    unread: bool = False

    def criteria(self) -> str:
        """As an IMAP search."""
        # Only the person's own words stand here, but a line break would begin another command.
        parts = [str(AND(text=mailtext.one_line(word, 200))) for word in self.words]
        if self.senders:
            senders = [str(AND(from_=mailtext.one_line(sender, 200))) for sender in self.senders]
            parts.append(str(OR(*senders)) if len(senders) > 1 else senders[0])
        if self.since:
            parts.append(str(AND(date_gte=self.since)))
        if self.until:
            parts.append(str(AND(date_lt=self.until)))
        if self.unread:
            parts.append(str(AND(seen=False)))
        return str(AND(*parts)) if parts else "ALL"


@contextmanager
def opened(
    server: MailServer, folder: str = "INBOX", change: bool = False, timeout: float = TIMEOUT
) -> Iterator[BaseMailBox]:
    """The folder, selected; change: flags may be set in it. Raises Refused, also in its body."""
    server.check()
    box: BaseMailBox | None = None
    try:
        box = _connected(server, timeout)
        _log_in(box, server)
        select(box, server, folder, change)
        yield box
    except UnexpectedCommandStatusError as error:
        raise Refused(f"{server.place} refused: {_reply(error)}") from None
    except (imaplib.IMAP4.error, ImapToolsError) as error:
        why = line(str(error))
        raise Refused(f"{server.place} is no mailbox that works: {why}") from None
    except (OSError, UnicodeError) as error:
        raise Refused(trouble(error, server, timeout)) from None
    finally:
        if box:
            with suppress(OSError, imaplib.IMAP4.error, ImapToolsError):
                box.logout()


class _StartTls(MailBoxStartTls):
    """Closes its connection where TLS fails, which imap_tools leaves open."""

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        client = imaplib.IMAP4(self._host, self._port, timeout=self._timeout)
        try:
            client.starttls(self._ssl_context)
        except BaseException:
            with suppress(OSError):  # a broken handshake closed its socket already
                client.shutdown()
            raise
        return client


def _connected(server: MailServer, timeout: float) -> BaseMailBox:
    trust = ssl.create_default_context()
    if server.tls == "tls":
        return MailBox(server.host, server.port, timeout=timeout, ssl_context=trust)
    if server.tls == "starttls":
        if server.port == 993:
            raise Refused(f"{server.place}: port 993 speaks TLS from the start: use tls")
        return _StartTls(server.host, server.port, timeout=timeout, ssl_context=trust)
    return MailBoxUnencrypted(server.host, server.port, timeout=timeout)


def _log_in(box: BaseMailBox, server: MailServer) -> None:
    ascii = (server.user + server.password).isascii()
    try:
        (box.login if ascii else box.login_utf8)(server.user, server.password, initial_folder=None)
    except (MailboxLoginError, imaplib.IMAP4.error) as error:
        if isinstance(error, imaplib.IMAP4.abort):  # the connection broke
            raise
        reply = _reply(error) if isinstance(error, MailboxLoginError) else line(str(error))
        raise Refused(
            f"{server.place} refused user {server.user} and the password: {reply}"
        ) from None


def select(box: BaseMailBox, server: MailServer, folder: str, change: bool = False) -> None:
    """Open another folder of the mailbox. Raises Refused."""
    try:
        box.folder.set(folder, readonly=not change)
    except MailboxFolderSelectError as error:
        raise Refused(f"{server.place} has no folder {folder}: {_reply(error)}") from None


def search(box: BaseMailBox, wanted: Wanted, most: int = MOST) -> tuple[list[Envelope], int]:
    """The newest that fit, newest first, and how many fit. The server searches."""
    criteria = wanted.criteria()
    uids = box.uids(criteria, "US-ASCII" if criteria.isascii() else "UTF-8")
    return envelopes(box, uids[-most:]), len(uids)


def envelopes(box: BaseMailBox, uids: Sequence[str]) -> list[Envelope]:
    """What stands on these messages, newest first; one that is gone is left out."""
    found = [
        _envelope(about, data)
        for about, data in _fetched(box, ",".join(uids), f"BODY.PEEK[HEADER]<0.{HEADER_BYTES}>")
    ]
    return sorted(found, key=lambda envelope: int(envelope.uid), reverse=True)


def message(box: BaseMailBox, uid: str) -> bytes | None:
    """The message, its first 256 KiB; None where it is gone. It does not count as read."""
    found = [data for _, data in _fetched(box, uid, f"BODY.PEEK[]<0.{MESSAGE_BYTES}>")]
    return found[0] if found else None


def sent_folder(box: BaseMailBox, chosen: str = "") -> str:
    """``chosen``, else the folder that the server marks as \\Sent; "" where it marks none."""
    if chosen:
        return chosen
    folders = box.folder.list()
    marked = [info.name for info in folders if "\\sent" in map(str.lower, info.flags)]
    return marked[0] if marked else ""


def sent(server: MailServer, message_id: str, chosen: str = "") -> bool | None:
    """True when the Sent folder holds the message; None: that is not known, for a copy may be
    missing of what was sent. chosen: the folder, where the server does not mark it."""
    try:
        with opened(server) as box:
            folder = sent_folder(box, chosen)
            return True if folder and _copied(box, server, folder, message_id) else None
    except Refused:
        return None


def keep_copy(server: MailServer, message: EmailMessage, chosen: str = "") -> None:
    """Put what was sent into the Sent folder, unless the server did already. Raises Refused."""
    with opened(server) as box:
        folder = sent_folder(box, chosen)
        if not folder:
            raise Refused(f"{server.place} marks no folder for sent mail: set email.sent")
        if not _copied(box, server, folder, str(message["Message-ID"])):
            box.append(message.as_bytes(), folder, datetime.now(UTC), ["\\Seen"])


def flag(server: MailServer, uid: str, name: str) -> None:
    """Mark a message of the inbox, as ``\\Seen`` or ``\\Answered``. Raises Refused."""
    with opened(server, change=True) as box:
        box.client.uid("STORE", uid, "+FLAGS.SILENT", f"({name})")


def _copied(box: BaseMailBox, server: MailServer, folder: str, message_id: str) -> bool:
    select(box, server, folder)
    return bool(box.uids(AND(header=H("Message-ID", message_id))))


def _fetched(box: BaseMailBox, uids: str, part: str) -> Iterator[tuple[str, bytes]]:
    """(what the server says about it, the bytes) of each message."""
    if not uids:
        return
    status, data = box.client.uid("FETCH", uids, f"(UID FLAGS INTERNALDATE RFC822.SIZE {part})")
    if status != "OK":
        raise imaplib.IMAP4.error(f"fetch: {data}")
    for place, item in enumerate(data):
        if isinstance(item, tuple):
            # Some servers say the flags after the literal.
            after = data[place + 1] if place + 1 < len(data) else b""
            about = item[0] + (b" " + after if isinstance(after, bytes) else b"")
            yield about.decode("ascii", "replace"), item[1]


def _envelope(about: str, data: bytes) -> Envelope:
    head = message_from_bytes(data)
    uid, size = find(r"\bUID (\d+)", about), find(r"RFC822\.SIZE (\d+)", about)
    senders = mailtext.addresses(head, "From")
    name = senders[0] if senders else (mailtext.header(head, "From", 100), "")
    ids = mailtext.header(head, "References", 20_000).split()
    return Envelope(
        uid=uid[1] if uid else "",
        sender=name,
        subject=mailtext.header(head, "Subject") or "(no subject)",
        arrived=_arrived(about),
        seen="\\Seen" in about,
        size=int(size[1]) if size else len(data),
        message_id=mailtext.header(head, "Message-ID", 300),
        references=tuple(ids or mailtext.header(head, "In-Reply-To", 300).split()),
        reply_to=tuple(mailtext.addresses(head, "Reply-To")),
        others=tuple(mailtext.addresses(head, "To") + mailtext.addresses(head, "Cc")),
    )


def _arrived(about: str) -> datetime:
    local = imaplib.Internaldate2tuple(about.encode())
    return datetime.fromtimestamp(time.mktime(local) if local else 0, UTC)


def _reply(error: UnexpectedCommandStatusError) -> str:
    data = error.command_result[1]
    said = data[0] if isinstance(data, (list, tuple)) and data else data
    return line(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))
