"""A whole agent on a scripted decider and generator, with real skills, scripts and workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from msgspec.structs import replace

from semif.jsonl import read as read_jsonl
from semif.revision import Adapters, Base, Contents, Revision
from semif.testing import ScriptedDecider
from semif.types import Decision
from sia import record
from sia.agent import Agent, Options
from sia.brain import Brain
from sia.config import ReloadConfig
from sia.entries import Entry, Iteration
from sia.events import Admitted, Asked, Ended, Event, Said
from sia.generator.testing import ScriptedGenerator
from sia.generator.types import TASKS
from sia.home import Home, open_home
from sia.store import Store

CATEGORY = "demo"
SECONDS = 20.0  # how long a test waits before it says what it saw


@dataclass(frozen=True)
class SkillHome(Home):
    """A home whose only skills are its own."""

    @property
    def skill_roots(self) -> tuple[Path, ...]:
        return (self.folder / "skills",)


def policy(decision: Decision) -> str | dict[str, float]:
    """What an input says of itself: its first word names a skill, marks stand for the rest.

    thanks: no request. now: interrupts. hot, cold: urgency. re: answers the question.
    """
    text = decision.state.get("input", "") if isinstance(decision.state, dict) else ""
    words = text.casefold().replace(",", " ").split() or [""]
    ids = [option.id for option in decision.options]
    match decision.phase:
        case "contains_request":
            told = text.startswith("the background script ")  # it ended
            return "no" if told or "thanks" in words else "yes"
        case "interrupt":
            return "interrupt" if words[0] == "now" else "defer"
        case "urgency":
            return {"hot": "high", "cold": "low", "now": "critical"}.get(words[0], "medium")
        case "answers":
            return "yes" if words[0] == "re" else "no"
        case "navigate_category":
            return CATEGORY if CATEGORY in ids and not _free(words) else "create_category"
        case "navigate_skill":
            found = [word for word in words if word in ids]
            return found[0] if found else "create_skill"
        case "cover":
            return "yes"
        case "triage":
            return "fire"
    return ids[0]


def mailing(decision: Decision) -> str | dict[str, float]:
    """Every request is a mail to be composed."""
    chosen = {"navigate_category": "email", "navigate_skill": "compose"}
    return chosen.get(decision.phase) or policy(decision)


def _free(words: list[str]) -> bool:
    return "free" in words


def brain(
    generator: ScriptedGenerator,
    decider: ScriptedDecider,
    thresholds: Mapping[str, float] | None = None,
) -> Brain:
    contents = Contents(
        parent=None,
        base=Base("0" * 64, "F16"),
        adapters=Adapters(),
        proven=(),
        readout="branches",
        prompt_version="branches-v1",
        temperatures={},
        thresholds={"answers": 0.5, **(thresholds or {})},
        none_bias={},
        data_sha256=None,
        metrics={},
    )
    revision = Revision("0123456789ab", contents)
    return Brain(revision, decider, decider, generator, lambda text: len(text) // 4)


class Rig:
    """An agent that runs on a thread; what it says is heard."""

    def __init__(
        self,
        folder: Path,
        replies: Iterable[Any] = (),
        yes: bool = False,
        decide: Callable[[Decision], Any] = policy,
        proven: frozenset[str] | None = None,
        create_category: str = "deny",
        thresholds: Mapping[str, float] | None = None,
        autonomy: bool = False,
    ) -> None:
        opened = open_home(folder)
        chosen = replace(opened.config.skills, create_category=create_category)
        still = ReloadConfig(code=False)  # whoever edits it while tests run restarts nothing
        config = replace(opened.config, skills=chosen, reload=still)
        self.home = SkillHome(opened.folder, config)
        known = TASKS - {"judge"} if proven is None else proven
        self.generator = ScriptedGenerator(replies, known)
        self.decider = ScriptedDecider(decide)
        self.events: list[Event] = []
        self.times: list[float] = []
        self.code: int | None = None
        self.error: BaseException | None = None
        self._heard = threading.Condition()
        loaded = brain(self.generator, self.decider, thresholds)
        self.agent = Agent(self.home, Options(yes, autonomy), self._hear, lambda *_: loaded)
        self._thread = threading.Thread(target=self._run, name="agent")

    def _hear(self, event: Event) -> None:
        with self._heard:
            self.events.append(event)
            self.times.append(time.monotonic())
            self._heard.notify_all()

    def _run(self) -> None:
        try:
            self.code = self.agent.run()
        except BaseException as error:
            self.error = error
        with self._heard:
            self._heard.notify_all()

    def start(self) -> Rig:
        self._thread.start()
        return self

    def say(self, *texts: str, source: str = "typed") -> str:
        """Submit inputs; the run id of the last."""
        return [self.agent.submit(text, source) for text in texts][-1]

    def end(self) -> int:
        """No more input; the exit code once all is done."""
        self.agent.close_input()
        return self.joined()

    def stop(self, code: int = 0) -> int:
        self.agent.stop(code)
        return self.joined()

    def joined(self) -> int:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), f"the agent does not end; it said {self.events}"
        self.agent.close()
        if self.error:
            raise self.error
        return self.code

    def kill(self) -> None:
        """Clean up after a test, whatever state it left."""
        if self._thread.is_alive():
            self.agent.stop(0)
            self._thread.join(SECONDS)
        self.agent.close()

    def all(self, *texts: str, source: str = "typed") -> int:
        """Start, work all of ``texts`` and end."""
        for text in texts:
            self.say(text, source=source)
        self.start()
        return self.end()

    def wait(self, kind: type, after: int = 0, **wanted: Any) -> Any:
        """The first event of ``kind`` with these fields, from event number ``after`` on."""
        end = time.monotonic() + SECONDS
        with self._heard:
            while True:
                for event in self.events[after:]:
                    if isinstance(event, kind) and all(
                        getattr(event, name) == value for name, value in wanted.items()
                    ):
                        return event
                left = end - time.monotonic()
                if left <= 0 or not self._heard.wait(left) or self.error:
                    said = f"{self.events}; {self.error!r}"
                    raise AssertionError(f"no {kind.__name__} {wanted} in {said}")

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for what no event tells."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < end, f"{what or condition}; it said {self.events}"
            time.sleep(0.01)

    def time_of(self, event: Event) -> float:
        return self.times[next(n for n, item in enumerate(self.events) if item is event)]

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Said)]

    @property
    def asked(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Asked)]

    @property
    def ended(self) -> list[tuple[str, str]]:
        return [(event.run, event.status) for event in self.events if isinstance(event, Ended)]

    @property
    def admitted(self) -> list[tuple[str, str]]:
        return [(event.text, event.action) for event in self.events if isinstance(event, Admitted)]

    # what lies on disk

    def iterations(self) -> list[Iteration]:
        return iterations(self.home)

    def entries(self) -> tuple[Entry, ...]:
        """Of the last iteration on disk."""
        return self.iterations()[-1].entries

    def rows(self) -> list[dict[str, Any]]:
        return list(read_jsonl(self.home.decisions).rows)

    def labels(self) -> list[dict[str, Any]]:
        return list(read_jsonl(self.home.labels).rows)

    def runs(self) -> dict[str, str]:
        """Status by run id, read from the database."""
        store = Store(self.home.database)
        try:
            statuses = ("waiting", "running", "asking", "done", "failed", "cancelled")
            return {run.id: run.status for run in store.runs(*statuses)}
        finally:
            store.close()


def iterations(home: Home) -> list[Iteration]:
    # By time: two sessions of one second have names in any order.
    paths = sorted(home.contexts.glob("*/*.xml"), key=lambda path: path.stat().st_mtime_ns)
    return [record.read(path) for path in paths]


def write_skill(folder: Path, name: str, code: str, actions: str = "act", more: str = "") -> None:
    """A skill of the one category, in the home at ``folder``."""
    place = folder / "skills" / CATEGORY / name
    place.mkdir(parents=True, exist_ok=True)
    (place.parent / "CATEGORY.md").write_text(f"---\nname: {CATEGORY}\ndescription: Things.\n---\n")
    (place / "skill.py").write_text(dedent(code))
    lines = ["---", f"name: {name}", f"description: Does {name}.", "metadata:"]
    lines += [f"  sia-actions: {actions}", *(f"  {line}" for line in more.splitlines())]
    (place / "SKILL.md").write_text("\n".join([*lines, "---", "Do it.", ""]))
