"""``sia run``: choose the front end and let the agent work."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

from semif.errors import SemifError
from sia import home as homes
from sia.agent import Agent, Options
from sia.cli.guard import CHANGED, TURN, mark, restarted
from sia.cli.plain import Lines, OneRequest, PlainOutput, forget
from sia.cli.reader import standard_input
from sia.cli.speak import Request
from sia.errors import INTERRUPTED, SOME_FAILED, SiaError, UsageError
from sia.events import Event, Notice, TurnEnded
from sia.home import Home
from sia.redact import redact
from sia.shell import Make
from sia.wire import Server

LOG_BYTES = 4_000_000


def run(options: argparse.Namespace, folder: Path, make: Make | None = None) -> int:
    """Open the home and work: interactive when both ends are terminals, else in plain text.

    make: builds the agent (one without a model in tests).
    """
    text = " ".join(options.text).strip()
    if options.text and not text:
        raise UsageError('the request is empty; say what to do: sia "how much memory is free"')
    if text and options.autonomy:
        raise UsageError("--autonomy is for an agent that stays: give it without a request")
    home = homes.open_home(folder)
    fd = standard_input()
    if text and homes.locked(home):
        return _ask_running(home, options, text, fd)
    interactive = not text and not options.listen and _terminal(sys.stdin) and _terminal(sys.stdout)
    with homes.lock(home):
        if interactive:
            return _interactive(home, options, make or Agent)
        if options.llm == "manual":
            raise UsageError("--llm manual needs a terminal for both input and output")
        return _plain(home, options, text, fd, make or Agent)


def _ask_running(home: Home, options: argparse.Namespace, text: str, fd: int | None) -> int:
    for name in ("yes", "model", "llm"):
        if getattr(options, name, None):
            raise UsageError(
                f"an agent runs in {home.folder} already and takes no --{name} from here; "
                "stop it first, or answer its questions there"
            )
    output = PlainOutput(sys.stdout, sys.stderr)
    return Request(home, text, output, fd if _terminal(sys.stdin) else None).work()


def _terminal(stream: object) -> bool:
    return stream is not None and stream.isatty()


def _options(options: argparse.Namespace) -> Options:
    return Options(options.yes, options.autonomy, model=getattr(options, "model", None))


def _interactive(home: Home, options: argparse.Namespace, make: Make) -> int:
    from sia.shell import run_shell

    autonomy = options.autonomy or home.config.concerns.autonomy
    chosen = replace(_options(options), interactive=True, autonomy=autonomy)
    manual = options.llm == "manual"
    return run_shell(home, chosen, manual=manual, prepare=_prepared, make=make)


@contextmanager
def _prepared(agent: Agent) -> Iterator[None]:
    """What every front end has around its agent: socket, log, and word of completed turns."""
    if not restarted(os.environ):
        forget(agent.store)
    agent.listen(_mark_turn)
    log = _log(agent.home)
    agent.listen(lambda event: log.info("%s", redact(str(event))))
    server = Server(agent, agent.home.socket)
    try:
        yield
    except (SiaError, SemifError) as error:
        log.error("%s", error)
        raise
    except Exception:
        log.exception("a fault of the program")
        raise
    finally:
        if agent.changed:
            mark(CHANGED)
        server.close()
        agent.close()
        for handler in log.handlers:
            handler.close()


def _log(home: Home) -> logging.Logger:
    """``.sia/log/sia.log``: events and faults, for whoever must find out what happened."""
    log = logging.Logger("sia")
    handler = RotatingFileHandler(home.log / "sia.log", maxBytes=LOG_BYTES, backupCount=3)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    log.addHandler(handler)
    (home.log / "sia.log").chmod(0o600)
    return log


def _mark_turn(event: Event) -> None:
    if isinstance(event, TurnEnded):
        mark(TURN)


def _plain(home: Home, options: argparse.Namespace, text: str, fd: int | None, make: Make) -> int:
    output = PlainOutput(sys.stdout, sys.stderr)
    chosen = _options(options)
    if options.listen and home.config.concerns.autonomy:
        chosen = replace(chosen, autonomy=True)
    agent = make(home, chosen, output)
    refused: list[str] = []

    def refuse(reason: str) -> None:
        refused.append(reason)
        output(Notice(reason, "error"))

    signal.signal(signal.SIGTERM, lambda *_: _stop(agent))
    reader: OneRequest | Lines | None = None
    with _prepared(agent):
        if text:
            reader = OneRequest(agent, text, output, fd if _terminal(sys.stdin) else None)
        elif fd is None and not options.listen:
            agent.close_input()
        elif not options.listen:
            if os.isatty(fd):
                output.note("sia: reading requests from the terminal, one a line; Ctrl-D ends")
            reader = Lines(agent, fd, "piped", output.note, refuse)
        try:
            if reader:
                reader.start()
            code = agent.run()
        finally:
            if reader:
                reader.stop()
        if reader and reader.error:
            raise reader.error
    return code or (SOME_FAILED if refused else 0)


def _stop(agent: Agent) -> None:
    """End in order, on a signal: the session and its background scripts go on at the next start.

    On a thread of its own, for what the signal cut into may hold a lock that this needs.
    """
    threading.Thread(target=agent.stop, args=(INTERRUPTED,), daemon=True).start()
