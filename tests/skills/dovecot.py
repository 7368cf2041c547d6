"""A real IMAP server for tests: Debian's dovecot, as an ordinary process on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SECONDS = 20.0
PASSWORD = "imap-Pa55/w.rd+"  # of every user
# An ordinary user's path lacks the folder that the program is in.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"

CONFIG = """
base_dir = {run}
state_dir = {run}
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
{certificate}
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_failure_delay = 0
default_internal_user = {internal}
default_login_user = {internal}
default_internal_group = {group}
first_valid_uid = 1
mail_location = maildir:{mail}/%u
passdb {{
  driver = static
  args = password={{PLAIN}}{password}
}}
userdb {{
  driver = static
  args = uid={owner} gid={owner_group} home={mail}/%u allow_all_users=yes
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox "Gesendet" {{
    auto = create
    {special}
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""


@dataclass
class Mailbox:
    """The mailbox of one user, empty at first."""

    folder: Path
    user: str
    port: int
    tls_port: int
    delivered: int = 0

    @property
    def settings(self) -> dict[str, object]:
        """The keys of ``[email]`` that name it."""
        return {
            "imap_host": "127.0.0.1",
            "imap_port": self.port,
            "imap_tls": "none",
            "user": self.user,
        }

    def deliver(self, raw: bytes, seen: bool = False) -> None:
        """As another program would: a file, moved into place."""
        self.delivered += 1
        for part in ("", "cur", "new", "tmp"):
            _own(self.folder / part, directory=True)
        path = self.folder / "tmp" / f"{int(time.time())}.{self.delivered:06d}.test"
        path.write_bytes(raw)
        _own(path)
        place = self.folder / f"cur/{path.name}:2,S" if seen else self.folder / "new" / path.name
        path.rename(place)

    def files(self, folder: str = "") -> list[Path]:
        """The messages in a folder, "" for the inbox."""
        place = self.folder / f".{folder}" if folder else self.folder
        return sorted([*place.glob("cur/*"), *place.glob("new/*")])

    def kept(self, folder: str = "Gesendet") -> list[bytes]:
        return [file.read_bytes() for file in self.files(folder)]


@dataclass
class Dovecot:
    folder: Path
    port: int
    tls_port: int
    process: subprocess.Popen[bytes] = field(repr=False)
    users: int = 0

    def mailbox(self) -> Mailbox:
        """Of a user of its own."""
        self.users += 1
        user = f"robin{self.users}"
        return Mailbox(self.folder / "mail" / user, user, self.port, self.tls_port)


def _owner() -> pwd.struct_passwd:
    """Whose the mail is: ours, but dovecot never works for root."""
    return pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())


def _own(path: Path, directory: bool = False) -> None:
    if directory:
        path.mkdir(parents=True, exist_ok=True)
    if os.getuid() == 0:
        os.chown(path, _owner().pw_uid, _owner().pw_gid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(certificate: Path | None = None, marked: bool = True) -> Dovecot:
    """Skips the test where dovecot is missing. marked: the server says which folder is Sent."""
    program = shutil.which("dovecot", path=PATH)
    if not program:
        pytest.skip("wants the Debian package dovecot-imapd")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if not version.stdout.startswith("2.3"):
        pytest.skip(f"knows how to configure dovecot 2.3, this is {version.stdout.strip()}")
    # Not below pytest's folder: the mail's owner could not reach it there.
    folder = Path(tempfile.mkdtemp(prefix="sia-dovecot-"))
    folder.chmod(0o755)
    _own(folder / "mail", directory=True)
    owner, port, tls_port = _owner(), _free_port(), _free_port()
    internal = "dovenull" if os.getuid() == 0 else owner.pw_name
    keys = (
        f"ssl_cert = <{certificate}/cert.pem\nssl_key = <{certificate}/key.pem"
        if certificate
        else ""
    )
    config = folder / "dovecot.conf"
    config.write_text(
        CONFIG.format(
            folder=folder, run=folder / "run", mail=folder / "mail", port=port, tls_port=tls_port,
            ssl="yes" if certificate else "no", certificate=keys, internal=internal,
            group=_group(internal), owner=owner.pw_uid, owner_group=owner.pw_gid,
            password=PASSWORD, special="special_use = \\Sent" if marked else "",
        )
    )  # fmt: skip
    process = subprocess.Popen([program, "-F", "-c", str(config)])
    server = Dovecot(folder, port, tls_port, process)
    end = time.monotonic() + SECONDS
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return server
        if process.poll() is not None or time.monotonic() > end:
            log = folder / "log"
            said = log.read_text() if log.exists() else f"it ended with {process.poll()}"
            stop(server)
            pytest.fail(f"dovecot does not start: {said}")
        time.sleep(0.05)


def _group(user: str) -> str:
    import grp

    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def stop(server: Dovecot) -> None:
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
    shutil.rmtree(server.folder, ignore_errors=True)
