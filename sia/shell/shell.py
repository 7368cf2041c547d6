"""The shell: the agent on a thread of its own, the person at the prompt, events in between."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semif.errors import SemifError
from sia import report
from sia.context import parse_document, parse_entry
from sia.errors import DONE, INTERRUPTED, SiaError
from sia.events import Asked, Ended, Event, Notice
from sia.generator.types import Part
from sia.home import Home
from sia.redact import redact
from sia.scheduler import match_option
from sia.shell import Make, Prepare
from sia.shell.commands import Commands, ShellCompleter, is_command
from sia.shell.feed import Feed, Item, Stray
from sia.shell.manual import TAGS, Played, Slot, Tail, closed
from sia.shell.menu import Menu, summary
from sia.shell.standing import Standing, look
from sia.shell.terminal import Entered, Fragments, open_screen
from sia.shell.text import clean, paint_for
from sia.shell.transcript import ASK, EXAMPLE, PROMPT, Transcript
from sia.store import Store
from sia.turn import Again

if TYPE_CHECKING:
    from sia.agent import Options

TWICE = 2.0  # seconds within which a second Ctrl-C quits
TYPED_LINE = "typed_line"  # in the store: what was being typed when the program ended
YES_NO = ("yes", "no")


class Shell:
    """One shell at one terminal. Everything but ``_work``, ``_approve`` and ``_show_prompt``
    happens on the main thread."""

    _loop: asyncio.AbstractEventLoop  # while it runs

    def __init__(self, home: Home, options: Options, make: Make, manual: bool) -> None:
        self._paint = paint_for(os.environ)
        self._feed = Feed(self._take)
        self._reply, self._approval = Slot(self._touch), Slot(self._touch)
        self._tail = Tail(self._paint)
        options = replace(options, approve=self._approve)
        if manual or home.config.generator.kind == "manual":
            options = replace(options, manual=Played(self._reply.wait, self._show_prompt))
        self._agent = make(home, options, self._feed.put)
        # A connection of our own: the agent closes its one while the screen still stands.
        self._store = Store(home.database)
        completer = ShellCompleter(
            skills=lambda: [skill.id for skill in self._agent.holder.tree.skills],
            options=lambda: self._menu.options or self._standing.options,
            tags=lambda: TAGS if self._standing.wanted else (),
        )
        line = self._store.meta(TYPED_LINE)
        self._screen = open_screen(self, home.state / "history", completer, line)
        self._transcript = Transcript(self._paint, self._screen.width, self._request_of)
        self._menu = Menu(
            home,
            self._store,
            lambda: self._agent.holder.tree,
            self._again,
            self._paint,
            self._screen.width,
        )
        self._commands = Commands(
            home, self._store, self._agent, self._menu, self._paint, self._screen.width
        )
        self._standing = Standing()
        self._thread = threading.Thread(target=self._work, name="agent", daemon=True)
        self._code = DONE
        self._error: BaseException | None = None
        self._ending = self._quit = self._abandoned = self._typed = False
        self._hinted = False  # how a decision is corrected was told
        self._interrupted_at = float("-inf")
        self._allowed: set[str] = set()  # commands that repeat

    # life

    def run(self, prepare: Prepare) -> int:
        """Work until the agent ends; the exit code."""
        stray = Stray(self._feed)
        with prepare(self._agent), redirect_stdout(stray), redirect_stderr(stray):
            asyncio.run(self._live())
        line = self._screen.line()
        if line.strip():
            self._store.set_meta(TYPED_LINE, line)
        self._store.close()
        if isinstance(self._error, SiaError | SemifError):
            self._write(self._paint("error", clean(f"sia: {self._error}")) + "\n")
            return self._error.exit_code
        if self._error is not None:
            raise self._error
        if self._abandoned:
            return INTERRUPTED
        return DONE if self._quit else self._code

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._crashed)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end, INTERRUPTED)
        self._welcome()
        await self._screen.run(self._begin)
        if not self._abandoned and self._thread.ident:
            await asyncio.to_thread(self._thread.join)
        self._feed.flush()

    def _welcome(self) -> None:
        session = self._store.meta("session")
        if not session:
            self._write(self._transcript.greeting())
        elif self._store.meta("ended") != "1":
            n = self._store.meta("session_n", "0")
            self._write(self._transcript.note(f"the session goes on at iteration {n}"))

    def _begin(self) -> None:
        """The prompt stands: now the agent may take the machine's time."""
        if self._screen.line():
            self._store.drop_meta(TYPED_LINE)
        self._feed.start(self._loop)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._code = self._agent.run()
        except BaseException as error:  # told, or raised again, by the main thread
            self._error = error
        self._loop.call_soon_threadsafe(self._over)

    def _over(self) -> None:
        self._feed.flush()
        self._screen.close()

    def _crashed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault in what the loop runs: end in order, then let it be seen."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno == errno.EIO:
            self.gone()
            return
        self._error = self._error or error or RuntimeError(context["message"])
        self._end(INTERRUPTED)
        self._screen.close()

    def _end(self, code: int) -> None:
        """Have the agent end; the screen follows."""
        self._ending = True
        self._reply.stop()
        self._approval.stop()
        self._agent.stop(code)
        self._touch()

    def _leave(self) -> None:
        """The person wants to go: what runs is cut off, what waits is kept."""
        if self._ending:
            self._abandoned = True
            self._screen.close()
            return
        self._quit = True
        for script in report.background(self._store):
            self._say(self._transcript.note(f"ended: {script['command']}"))
        kept = self._store.waiting_count() + len(self._store.inputs())
        if kept:
            self._say(self._transcript.note(f"{kept} waiting, for the next start"))
        self._end(DONE)

    # the screen

    def _take(self, items: Sequence[Item]) -> None:
        """Show what came in."""
        blocks = [item() if callable(item) else self._event(item) for item in items]
        text = "".join(blocks)
        if text:
            self._write(text)
        self._look()

    def _event(self, event: Event) -> str:
        """The block of an event, and below a request that is over the decisions that mattered."""
        self._menu.hear(event)
        block = self._transcript.event(event)
        if isinstance(event, Ended) and event.status != "cancelled":
            made = self._menu.decisions(event.run)
            line = summary(made, self._screen.width(), self._paint, not self._hinted)
            if line:
                self._hinted = True
                block += self._transcript.decided(event.run, line)
        return block

    def _write(self, text: str) -> None:
        try:
            self._screen.write(text)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.gone()

    def _say(self, text: str) -> None:
        """Show ``text`` now, behind what came before it."""
        self._feed.flush()
        self._write(text)

    def _touch(self) -> None:
        """Look anew soon; on any thread."""
        self._feed.put(lambda: "")

    def _look(self) -> None:
        standing = look(
            self._agent,
            self._store,
            ending=self._ending,
            wanted=self._reply.waiting,
            approving=self._approval.waiting,
        )
        if standing != self._standing:
            self._standing = standing
            self._screen.refresh()

    def _request_of(self, run: str) -> str:
        found = self._store.run(run)
        return found.text if found else ""

    def prompt(self) -> str:
        asked = self._menu.prompt
        return f"{ASK}{asked} {PROMPT}" if asked else self._standing.prompt()

    def placeholder(self) -> str:
        return "" if self._typed or self._standing.question else EXAMPLE

    def toolbar(self, width: int) -> Fragments:
        return self._standing.toolbar(width)

    # the keyboard

    def entered(self, text: str) -> Entered:
        words = text.strip()
        if not words:
            self._leave_menu()
            return "taken"
        if words.startswith("<") and self._reply.waiting:
            return self._replied(text, words)
        self._echo(words)
        if is_command(words):
            self._command(words)
        elif not self._chosen(words) and not self._approved(words):
            self._submit(words)
        return "taken"

    def _echo(self, words: str) -> None:
        self._typed = True
        echo = self._transcript.typed(self.prompt(), words)
        if not self._screen.echoes:
            self._say(echo)

    def _replied(self, text: str, words: str) -> Entered:
        if not closed(text):
            return "open"
        if self._reply.give(words, lambda: self._echo(words)):
            return "taken"
        self._say(self._transcript.note("not taken: something else goes first"))
        return "stays"

    def _command(self, words: str) -> None:
        shown = self._commands.run(words)
        if shown is None:
            self._leave()
        else:
            self._write(self._transcript.ready(shown))

    def _chosen(self, words: str) -> bool:
        """Whether the words answered the question of a correction."""
        shown = self._menu.answer(words)
        if shown:
            self._write(self._transcript.ready(shown))
        return shown is not None

    def _leave_menu(self) -> bool:
        if not self._menu.options:
            return False
        self._say(self._transcript.ready(self._menu.leave()))
        return True

    def _again(self, wanted: Again) -> None:
        try:
            self._agent.again(wanted)
        except sqlite3.ProgrammingError:  # the agent has just closed its store
            self._say(self._transcript.note("not run again: the agent has ended"))

    def _approved(self, words: str) -> bool:
        option = match_option(words, YES_NO) if self._approval.waiting else None
        return option is not None and self._approval.give(option)

    def _submit(self, words: str) -> None:
        try:
            run = self._agent.submit(words, "typed")
        except sqlite3.ProgrammingError:  # the agent has just closed its store
            self._store.set_meta(TYPED_LINE, words)
            return
        self._transcript.sent(run, words)
        self._touch()

    def interrupted(self, empty: bool) -> None:
        now = time.monotonic()
        if empty and self._leave_menu():
            return
        if empty and now - self._interrupted_at < TWICE:
            self._leave()
            return
        if empty:
            self._interrupted_at = now
            self._say(self._transcript.note("Ctrl-C again quits"))

    def closed(self) -> None:
        self._leave()

    def gone(self) -> None:
        """The terminal went away: end in order, and write to nobody."""
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        self._end(INTERRUPTED)
        self._screen.close()

    # on the agent's thread

    def _approve(self, command: str) -> bool:
        """Ask the person whether a script may run; one that repeats, only before its first run."""
        cancel = self._agent.loop.cancel
        if command in self._allowed:
            return True
        if cancel.is_set():
            return False
        self._feed.put(Asked("", f"Run this script?\n{command}", YES_NO))
        answer = self._approval.wait(cancel)
        if answer is None and not self._ending:
            self._feed.put(Notice("the script was not run: something else goes first"))
        elif answer == "yes" and self._repeats(command):
            self._allowed.add(command)
        return answer == "yes"

    def _repeats(self, command: str) -> bool:
        """Whether this command is run before each turn."""
        entries = (
            parse_entry(parse_document(xml.encode()))
            for _, xml in self._store.entries()
            if xml.startswith("<repeat")
        )
        shown = redact(command)
        return any(entry.command.text == shown for entry in entries)

    def _show_prompt(self, parts: Sequence[Part]) -> None:
        kept = tuple(parts)
        self._feed.put(
            lambda: self._transcript.ready(
                "\n".join(self._tail.show(kept, self._screen.width()))
            )
        )
