"""The ``Ctx`` of an action, with every call handed to one function.

The worker process answers the calls over its socket, the double for tests in-process; what a call
means (ordinals, effects, what may be said) is written once, here. Standard library only, because a
worker imports this before it can start.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.machinery import SourceFileLoader
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from sia.skills.api import Failed, Folders, Person, Reminder, Secret, Unproven

YES, NO = "yes", "no"
_SURROGATES = re.compile("[\ud800-\udfff]")
_MODULES = count(1)

Send = Callable[[str, dict[str, Any]], Any]  # (method, args with "ordinal") -> JSON


class Suspended(BaseException):
    """Unwinds an action that waits for an answer; not an Exception, so that no skill eats it."""


@dataclass(frozen=True)
class Outcome:
    """How an action (or ``observe``, ``verify``) ended.

    kind: done | finished | failed | suspended | limit | cancelled | crashed. message: one line for
    people, empty when done. cause: see ``api.Failed``, empty unless failed, limit or crashed.
    state: ``ctx.state`` to keep (the one given in, unless done, finished or failed). value: what
    the function returned. seconds: wall clock.
    """

    kind: str
    message: str = ""
    cause: str = ""
    state: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Payload:
    """What an action is given; times are aware and in the person's zone (see ``api.Ctx``)."""

    request: str
    run: str
    now: datetime
    person: Person
    folders: Folders
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    answered: datetime | None = None  # None: as now
    present: datetime | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "request": self.request,
            "run": self.run,
            "now": rfc3339(self.now, "now"),
            "answered": rfc3339(self.answered or self.now, "answered"),
            "present": rfc3339(self.present or self.now, "present"),
            "person": asdict(self.person),
            "folders": {name: str(path) for name, path in asdict(self.folders).items()},
            "settings": dict(self.settings),
            "state": dict(self.state),
            "secrets": {name: asdict(secret) for name, secret in self.secrets.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Payload:
        person = Person(**data["person"])
        return cls(
            request=data["request"],
            run=data["run"],
            now=in_zone(data["now"], person.timezone),
            answered=in_zone(data["answered"], person.timezone),
            present=in_zone(data["present"], person.timezone),
            person=person,
            folders=Folders(**{name: Path(path) for name, path in data["folders"].items()}),
            settings=data["settings"],
            state=data["state"],
            secrets={name: Secret(**secret) for name, secret in data["secrets"].items()},
        )


def dumps(value: Any, what: str) -> str:
    """One line of strict JSON, ASCII only (so lone surrogates of file names survive).

    Raises TypeError naming ``what`` and the first key that is not JSON.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} must be JSON: {_culprit(value, what)}{error}") from None


def _culprit(value: Any, what: str) -> str:
    if isinstance(value, dict):
        for key, part in value.items():
            try:
                json.dumps({key: part}, allow_nan=False)
            except (TypeError, ValueError, RecursionError):
                return f"[{key!r}]: "
    return ""


def rfc3339(moment: datetime, what: str) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"{what} needs a time zone: {moment.isoformat()}")
    return moment.isoformat()


def in_zone(text: str, timezone: str) -> datetime:
    from zoneinfo import ZoneInfo

    return datetime.fromisoformat(text).astimezone(ZoneInfo(timezone))


def matching(answer: str, options: Sequence[str]) -> str | None:
    """The option that ``answer`` names: itself in any case, or the only one it begins."""
    said = answer.strip().casefold()
    for option in options:
        if option.casefold() == said:
            return option
    begun = [option for option in options if said and option.casefold().startswith(said)]
    return begun[0] if len(begun) == 1 else None


def opened(method: str, value: Any) -> Any:
    """What a call gives back, of what is kept of it; raises Unproven for a kept refusal."""
    if method == "say":
        return None  # its words are kept for whoever judges the run
    if method != "generate":
        return value
    if "unproven" in value:
        raise Unproven(value["unproven"])
    return value["written"]


class _CodeLoader(SourceFileLoader):
    """Compiles the text it is given, whatever the file or a cache of it holds by now."""

    def __init__(self, fullname: str, path: str, code: str) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._code, self.path, "exec", dont_inherit=True)


def load_module(folder: Path, code: str) -> ModuleType:
    """``code`` as the ``skill.py`` of the folder; it may import its neighbours relatively."""
    name = f"sia_skill_{next(_MODULES)}"
    path = str(folder / "skill.py")
    loader = _CodeLoader(name, path, code)
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=[str(folder)]
    )
    assert spec  # None only for an unknown kind of file without a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and relative imports look it up
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class CallCtx:
    """Implements ``api.Ctx``; see there for what each call means.

    send: gets each call as (method, args). ``args["ordinal"]`` counts the calls of this action
    from 1; ``effect`` makes up to three calls under one ordinal. Raises what ``send`` raises.
    """

    def __init__(self, payload: Payload, send: Send) -> None:
        self.request = payload.request
        self.run = payload.run
        self.now = payload.now
        self.answered = payload.answered or payload.now
        self.present = payload.present or payload.now
        self.state: dict[str, Any] = json.loads(dumps(dict(payload.state), "state"))
        self.person = payload.person
        self.folders = payload.folders
        self.settings = payload.settings
        self._secrets = payload.secrets
        self._send = send
        self._ordinal = 0
        self._effect = ""  # the effect being done

    def _call(self, method: str, **args: Any) -> Any:
        if self._effect:  # at the next entry the effect is not done, and ordinals would shift
            raise RuntimeError(f"ctx.{method} inside the effect {self._effect}: call it outside")
        self._ordinal += 1
        return self._send(method, {"ordinal": self._ordinal, **args})

    def secret(self, name: str) -> str:
        secret = self._secrets.get(name)
        if secret is None:
            raise Failed(f"No {name} is stored: run `sia setup` for it.", "environment")
        if not secret.value:
            problem = secret.problem
            raise Failed(f"{problem[:1].upper()}{problem[1:]}.", "environment")
        return secret.value

    def choose(
        self,
        question: str,
        options: Sequence[tuple[str, str]],
        state: Mapping[str, str] | None = None,
        none: bool = False,
    ) -> str:
        pairs = [[id, _shown(description)] for id, description in options]
        ids = [id for id, _ in pairs]
        if not all(isinstance(id, str) and id for id in ids) or len(set(ids)) != len(ids):
            raise ValueError(f"ctx.choose: ids must be texts, each one once: {ids}")
        if not pairs and not none:
            raise ValueError(f"ctx.choose: no options for {question!r}")
        seen = {"input": self.request} if state is None else dict(state)
        # One option is sent too: at the next entry there may be two, and the first choice holds.
        return self._call("choose", question=_shown(question), options=pairs, state=seen, none=none)

    def generate(self, task: str, fields: Mapping[str, str]) -> Any:
        shown = {name: _shown(text) for name, text in fields.items()}
        return self._call("generate", task=task, fields=shown)

    def say(self, text: str) -> None:
        self._call("say", text=_shown(text))

    def ask(self, question: str, options: Sequence[str] | None = None) -> str:
        offered = None if options is None else list(options)
        return self._call("ask", question=_shown(question), options=offered).strip()

    def confirm(self, question: str) -> bool:
        return self._call("confirm", question=_shown(question))

    def effect(
        self,
        name: str,
        do: Callable[[str], Any],
        check: Callable[[str], Any] | None = None,
    ) -> Any:
        begun = self._call("effect_begin", name=name)
        if begun["status"] == "confirmed":
            return begun["value"]
        call = {"ordinal": self._ordinal, "name": name}
        self._effect = name
        try:
            value, fault = self._settle(call, begun, do, check)
        finally:
            self._effect = ""
        self._send("effect_end", {**call, "value": value})
        if fault:
            raise fault
        return value

    def _settle(
        self,
        call: dict[str, Any],
        begun: Mapping[str, Any],
        do: Callable[[str], Any],
        check: Callable[[str], Any] | None,
    ) -> tuple[Any, TypeError | None]:
        """The effect's value, None where it happened before or must not be repeated."""
        if begun["status"] == "unknown":
            happened = check(begun["key"]) if check else None
            if happened:
                return (None if happened is True else happened), None
            if self._send("effect_unknown", {**call, "checked": happened}) != "do":
                return None, None
        value = do(begun["key"])
        try:
            return json.loads(dumps(value, f"the result of effect {call['name']}")), None
        except TypeError as error:  # it did happen: that is recorded before the complaint
            return None, error

    def remind(self, due: datetime, text: str, repeat: str = "", timer: bool = False) -> str:
        moment = rfc3339(due, "ctx.remind: due")
        return self._call("remind", due=moment, text=_shown(text), repeat=repeat, timer=timer)

    def reminders(self) -> list[Reminder]:
        return [reminder_of(row, self.person.timezone) for row in self._call("reminders")]

    def rung(self) -> list[Reminder]:
        return [reminder_of(row, self.person.timezone) for row in self._call("rung")]

    def cancel_reminder(self, id: str) -> bool:
        return self._call("cancel_reminder", id=id)

    def hand_over(self, request: str) -> str:
        if not request.strip():
            raise ValueError("ctx.hand_over: the request is empty")
        return self._call("hand_over", request=_shown(request))

    def skills(self) -> list[tuple[str, str]]:
        return [(id, description) for id, description in self._call("skills")]

    def interrupted(self) -> list[str]:
        return self._call("interrupted")

    def cancel_interrupted(self) -> list[str]:
        return self._call("cancel_interrupted")


def reminder_json(reminder: Reminder) -> dict[str, Any]:
    return {
        "id": reminder.id,
        "due": reminder.due.isoformat(),
        "text": reminder.text,
        "status": reminder.status,
        "repeat": reminder.repeat,
        "rang": reminder.rang.isoformat() if reminder.rang else "",
    }


def reminder_of(row: Mapping[str, Any], zone: str) -> Reminder:
    rang = in_zone(row["rang"], zone) if row["rang"] else None
    due = in_zone(row["due"], zone)
    return Reminder(row["id"], due, row["text"], row["status"], row["repeat"], rang)


def _shown(text: str) -> str:
    """Text for people and models: bytes of a file name that are no UTF-8 show as U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}: {text!r}")
    return _SURROGATES.sub("\ufffd", text)


def failure(error: BaseException, folder: Path) -> tuple[str, str]:
    """(message, cause) of an exception that left a skill: ``Failed`` as it is, else file:line."""
    if isinstance(error, Failed):
        return str(error), error.cause
    where, trace = "", error.__traceback__
    while trace:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.parent == folder or not where:
            where = f"{path.parent.parent.name}/{path.parent.name}/{path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == str(folder / "skill.py"):
        where = f"{folder.parent.name}/{folder.name}/skill.py:{error.lineno}"
    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{reason} ({where})", "unknown"
