"""An agent without models, to be run in a terminal: ``python double.py HOME [SCENE]``.

It answers every typed line by the scene's rules, through the real store and the real events.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

from semif.log import DecisionLog
from semif.testing import ScriptedDecider
from semif.types import Decision, Option
from sia.dream.nights import Nights
from sia.errors import ConfigError
from sia.events import Admitted, Asked, Ended, Event, Notice, Ready, Routed, Said, TurnEnded
from sia.generator.types import Part
from sia.home import Home, open_home
from sia.questions import Questions
from sia.scripts import Cancel
from sia.skills.tree import TreeHolder
from sia.store import Run, Store
from sia.turn import Again

ESCAPES = "plain \x1b[31mred\x1b[0m \x1b]0;owned\x07 \x9b2J end"


class DoubleAgent:
    """The surface of an agent that the shell uses."""

    def __init__(self, home: Home, options: object, emit: Callable[[Event], None]) -> None:
        self.home, self.options, self.emit = home, options, emit
        self.store = Store(home.database)
        self.holder = TreeHolder(home.skill_roots)
        self.nights = Nights(home, emit, lambda: datetime.now(UTC))
        self.brain = None
        self.loop = SimpleNamespace(current=None, cancel=Cancel())
        self._lines: Queue[tuple[str, str] | int] = Queue()
        self._n = 0

    def submit(self, text: str, source: str) -> str:
        item = self.store.add_input(source, text, datetime.now(UTC))
        self.store.drop_input(item.id)
        self._lines.put((item.run, text))
        return item.run

    def stop(self, code: int) -> None:
        self._lines.put(code)

    def run(self) -> int:
        self.brain = SimpleNamespace(
            decide=SimpleNamespace(revision="3f2a91c04d11"), count=lambda text: len(text) // 4
        )
        self.emit(Ready("3f2a91c04d11"))
        for asking in self.store.runs("asking"):
            question = asking.open_question
            self.emit(Asked(asking.id, question["text"], tuple(question["options"])))
        while not isinstance(item := self._lines.get(), int):
            self.answer(*item)
            self._n += 1
            self.store.set_meta("session", "20261130T140000Z-7f3a")
            self.store.set_meta("session_n", str(self._n))
            self.emit(TurnEnded(self._n))
        self.store.close()
        return item

    def answer(self, run: str, text: str) -> None:
        asking = self.store.runs("asking")
        if asking:
            self.store.save_run(replace(asking[-1], status="done", question=""))
            self.emit(Admitted(asking[-1].id, "answer", text))
            self.emit(Said(asking[-1].id, f"You said {text}."))
            self.emit(Ended(asking[-1].id, "done"))
            return
        word = text.split()[0].strip(",")
        scene = getattr(self, f"_do_{word}", None)
        if scene is None:
            self.emit(Admitted(run, "run", text, 0.4))
            self.emit(Said(run, f"heard: {text}"))
            self.emit(Ended(run, "done"))
        else:
            scene(run, text)

    def _do_thanks(self, run: str, text: str) -> None:
        self.emit(Admitted(run, "ignore", text, 0.1))

    def again(self, wanted: Again) -> str:
        run = self.submit(f"again {wanted.skill}", "typed")
        self.emit(Routed(run, wanted.skill, 1.0))
        return run

    def _do_again(self, run: str, text: str) -> None:
        self.emit(Said(run, f"again by {text.split()[1]}"))

    def _decided(self, run: str, text: str, skill: str, **phases: dict[str, float]) -> None:
        """Rows of decisions, and the run that they led to."""
        now = datetime.now(UTC)
        self.store.save_run(Run(run, "typed", text, 0.4, now, now, status="done", skill=skill))
        questions = Questions.load()
        for phase, probs in phases.items():
            options = tuple(Option(name, f"About {name}.") for name in probs)
            question = questions.phases[phase]["question"]
            decision = Decision(f"{run}{phase}", phase, {"input": text}, question, options)
            answers = ScriptedDecider(lambda _, probs=probs: dict(probs)).decide([decision])
            DecisionLog(self.home.decisions).append(answers, run)

    def _do_remind(self, run: str, text: str) -> None:
        self._decided(
            run,
            text,
            "reminders/set",
            navigate_category={"reminders": 0.97, "notes": 0.02, "create_category": 0.01},
            navigate_skill={"set": 0.93, "list": 0.05, "create_skill": 0.02},
        )
        self.emit(Admitted(run, "run", text, 0.4))
        self.emit(Routed(run, "reminders/set", 0.931))
        self.emit(
            Said(run, "I will remind you tomorrow, Tuesday 1 December, at 09:00: feed the cat.")
        )
        self.emit(Ended(run, "done", "verified"))

    def _do_ask(self, run: str, text: str) -> None:
        options = ["yes", "no"] if "yes" in text else ["Anna Berg, girlfriend", "Anna Karenina"]
        now = datetime.now(UTC)
        question = {"action": "a", "ordinal": 0, "method": "ask", "text": "Which Anna?"}
        asked = Run(run, "typed", text, 0.4, now, now, status="asking", skill="email/compose")
        self.store.save_run(replace(asked, question=json.dumps({**question, "options": options})))
        self.emit(Admitted(run, "run", text, 0.4))
        self.emit(Routed(run, "email/compose", 0.88))
        self.emit(Asked(run, "Which Anna do you mean?", tuple(options)))

    def _do_fail(self, run: str, text: str) -> None:
        self.emit(Routed(run, "email/compose", 0.88))
        self.emit(Said(run, "The mail server does not answer: connection refused."))
        text = "The mail server does not answer: connection refused."
        self.emit(Ended(run, "failed", text))

    def _do_burst(self, run: str, text: str) -> None:
        """``burst N``: N messages from a thread of its own, in order."""
        count = int(text.split()[1])

        def burst() -> None:
            for number in range(count):
                self.emit(Said(run, f"line {number:05d} of the burst"))
            self.emit(Notice("burst over"))

        threading.Thread(target=burst, daemon=True).start()

    def _do_escapes(self, run: str, text: str) -> None:
        self.emit(Said(run, ESCAPES))
        self.emit(Notice(ESCAPES, "warning"))

    def _do_repeated(self, run: str, text: str) -> None:
        self.emit(Said(run, "Reminder: feed the cat", again=True))

    def _do_restart(self, run: str, text: str) -> None:
        threading.Timer(1.0, self._lines.put, [75]).start()

    def _do_error(self, run: str, text: str) -> None:
        raise ConfigError("sia.toml: unknown key emial; did you mean email?")

    def _do_bug(self, run: str, text: str) -> None:
        raise ZeroDivisionError("a fault of the program")

    def _do_print(self, run: str, text: str) -> None:
        print("printed by a library", file=sys.stderr)

    def _do_script(self, run: str, text: str) -> None:
        allowed = self.options.approve("rm -rf build")
        self.emit(Said(run, f"allowed: {allowed}"))

    def _do_repeat(self, run: str, text: str) -> None:
        """Asks three times for one that repeats, and twice for one that runs once."""
        xml = '<repeat id="e1"><![CDATA[df /]]><stdout/><stderr/></repeat>'
        self.store.save_entries([("e1", 1, xml)], [])
        asked = ["df /"] * 3 + ["ls"] * 2
        self.emit(Said(run, f"allowed: {[self.options.approve(command) for command in asked]}"))

    def _do_preempted(self, run: str, text: str) -> None:
        """Something goes first while the person is asked about a script."""
        threading.Timer(1.0, self.loop.cancel.set).start()
        self._do_script(run, text)
        self.loop.cancel.clear()

    def _do_play(self, run: str, text: str) -> None:
        parts = [
            Part("system", "instructions"),
            Part(
                "user",
                f'<input id="e1" source="typed" run="{run}"><![CDATA[{text}]]></input>\n'
                '<single_shot id="e2" status="done" exit_code="0"><![CDATA[ls]]>'
                "<stdout><![CDATA[a\nb\n]]></stdout><stderr/></single_shot>\n"
                '<now time="2026-11-30T15:00:00+01:00"><queue depth="0"/></now>\n',
            ),
        ]
        self.loop.cancel.clear()
        if "late" in text:  # cancelled without the waiting thread's knowing yet
            threading.Timer(1.0, threading.Event.set, [self.loop.cancel]).start()
            threading.Timer(6.0, self.loop.cancel.set).start()
        reply = self.options.manual.reply(parts, ids=["e1"], cancel=self.loop.cancel)
        self.emit(Said(run, f"reply {reply.finish}: {reply.text!r}"))


if __name__ == "__main__":
    from sia.agent import Options
    from sia.shell import run_shell

    home = open_home(Path(sys.argv[1]))
    sys.exit(
        run_shell(
            home,
            Options(interactive=True),
            manual="--manual" in sys.argv,
            prepare=lambda agent: nullcontext(),
            make=DoubleAgent,
        )
    )
