"""A home: the folder that holds one agent's configuration, state, contexts and notes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from secrets import token_hex

from sia import config as configuration
from sia import locks
from sia import secrets as secret_store
from sia.errors import ConfigError, Unavailable
from sia.skills.api import Folders, Person, Secret

USER_MD = """# About me

Facts about the person SIA works for, one a line. SIA reads this at the start of a session.
"""


@dataclass(frozen=True)
class Home:
    folder: Path
    config: configuration.Config

    @property
    def state(self) -> Path:
        return self.folder / ".sia"

    @property
    def contexts(self) -> Path:
        return self.folder / "contexts"

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks"

    @property
    def work(self) -> Path:
        """Where scripts run: the one folder, with tasks, that a sandboxed one may write."""
        return self.folder / "work"

    @property
    def database(self) -> Path:
        return self.state / "state.db"

    @property
    def decisions(self) -> Path:
        return self.state / "decisions.jsonl"

    @property
    def labels(self) -> Path:
        return self.state / "labels.jsonl"

    @property
    def feedback(self) -> Path:
        """What persons said of responses (``sia.feedback``)."""
        return self.state / "feedback.jsonl"

    @property
    def history(self) -> Path:
        """An index of the iterations (``sia.history``), made again from them when it is gone."""
        return self.state / "history.db"

    @property
    def suggestions(self) -> Path:
        return self.state / "suggestions.jsonl"

    @property
    def skipped(self) -> Path:
        """Decisions that a person looked at in ``sia review`` and had nothing to say about."""
        return self.state / "skipped.jsonl"

    @property
    def autonomy(self) -> Path:
        """What became of each concern."""
        return self.state / "autonomy.jsonl"

    @property
    def scripts(self) -> Path:
        return self.state / "scripts"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def revisions(self) -> Path:
        return self.state / "revisions"

    @property
    def dreams(self) -> Path:
        return self.state / "dreams"

    @property
    def socket(self) -> Path:
        return self.state / "socket"

    @property
    def event_socket(self) -> Path:
        """Where other programs send lines."""
        return self.state / "events"

    @property
    def spool(self) -> Path:
        """Where other programs drop files."""
        return self.folder / "spool"

    @property
    def spooled(self) -> Path:
        """Where they lie until they are kept."""
        return self.state / "spool"

    @property
    def zone(self) -> tzinfo:
        return timezone(self.config.person.timezone)

    @property
    def folders(self) -> Folders:
        return Folders(
            home=self.folder,
            tasks=self.tasks,
            notes=self._inside(self.config.notes.folder),
            files=self._inside(self.config.files.folder),
        )

    @property
    def person(self) -> Person:
        person = self.config.person
        return Person(person.name or login_name(), person.email, str(self.zone))

    @property
    def skill_roots(self) -> tuple[Path, ...]:
        """The checkout's skills, then the home's, which win by name."""
        return (checkout() / "skills", self.folder / "skills")

    def _inside(self, path: str) -> Path:
        return (self.folder / Path(path).expanduser()).resolve()

    def setting(self, key: str) -> object:
        """The value of a key such as ``email.host``; None where there is no such key."""
        section, _, name = key.partition(".")
        return configuration.section(self.config, section).get(name)

    def settings(self, category: str) -> dict:
        """The section of the configuration named like a category, paths made whole."""
        values = configuration.section(self.config, category)
        if "contacts" in values and not values["contacts"]:
            values["contacts"] = self.config.contacts.folder
        for name in ("contacts", "password_file", "folder", "socket"):
            if values.get(name):
                values[name] = str(self._inside(values[name]))
        return values

    def secrets(self, category: str) -> dict[str, Secret]:
        """The secrets of one category's section, by name."""
        return secret_store.read(self.folder, category, self.settings(category))

    def learn_secrets(self) -> None:
        """Make every secret of this home known to redaction."""
        for name in configuration.Config.__struct_fields__:
            self.secrets(name)


def checkout() -> Path:
    """The folder this code was checked out into."""
    return Path(__file__).resolve().parent.parent


def login_name() -> str:
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return ""
    return entry.pw_gecos.split(",")[0] or entry.pw_name


def timezone(name: str) -> tzinfo:
    """The named zone, or the machine's own."""
    from zoneinfo import ZoneInfo

    if name:
        return ZoneInfo(name)
    import tzlocal

    return tzlocal.get_localzone()


def open_home(folder: Path) -> Home:
    """Read the configuration of a home and make its folders.

    Raises ConfigError for a bad sia.toml and for a folder that cannot be written.
    """
    folder = folder.expanduser().resolve()
    home = Home(folder, configuration.load(folder / "sia.toml"))
    try:
        for path in (folder, home.contexts, home.tasks / "reminders", home.state, home.work):
            path.mkdir(parents=True, exist_ok=True)
        home.state.chmod(0o700)
        for path in (home.log, home.scripts, home.revisions, home.spool, home.spooled):
            path.mkdir(mode=0o700, exist_ok=True)
        user = folder / "user.md"
        if not user.exists():
            user.write_text(USER_MD, "utf-8")
        for name in ("tasks", "user.md"):  # `ls tasks` and `cat user.md` work where scripts run
            if not (home.work / name).is_symlink():
                (home.work / name).symlink_to(Path("..") / name)
    except OSError as error:
        raise ConfigError(
            f"the home {folder} cannot be written: {error.strerror}; choose another with --home"
        ) from None
    if not os.access(home.state, os.W_OK):
        raise ConfigError(f"the home {folder} cannot be written; choose another with --home")
    return home


@contextmanager
def lock(home: Home) -> Iterator[None]:
    """Hold the home: one loop at a time. Raises Unavailable naming the holder."""
    with open(home.state / "lock", "a+", encoding="ascii") as file:
        if not locks.take(file):
            file.seek(0)
            holder = file.read().strip() or "?"
            raise Unavailable(
                f"the home {home.folder} is in use by process {holder}; "
                'speak to it with: sia "text", or sia attach'
            ) from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def locked(home: Home) -> bool:
    """Whether a loop holds the home now."""
    return locks.held(home.state / "lock")


def new_session(now: datetime) -> str:
    """A session's name: its start in UTC and four hex digits."""
    return f"{now:%Y%m%dT%H%M%SZ}-{token_hex(2)}"
