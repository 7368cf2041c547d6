"""``sia run`` and ``sia attach``: choose the front end and let the agent work."""

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
from sia.cli.guard import TURN, mark
from sia.cli.plain import Lines, OneRequest, PlainOutput, shown, standard_input
from sia.errors import SOME_FAILED, SiaError, UsageError
from sia.events import Event, Notice, TurnEnded
from sia.home import Home
from sia.redact import redact
from sia.wire import Connection, Server

LOG_BYTES = 4_000_000


def run(options: argparse.Namespace, folder: Path) -> int:
    """Open the home and work: interactive when both ends are terminals, else in plain text."""
    text = " ".join(options.text).strip()
    if options.text and not text:
        raise UsageError('the request is empty; say what to do: sia "how much memory is free"')
    home = homes.open_home(folder)
    if text and homes.locked(home):
        return ask_running(home, text)
    fd = standard_input()
    interactive = not text and not options.listen and _terminal(sys.stdin) and _terminal(sys.stdout)
    with homes.lock(home):
        if interactive:
            return _interactive(home, options)
        if options.llm == "manual":
            raise UsageError("--llm manual needs a terminal for both input and output")
        return _plain(home, options, text, fd)


def _terminal(stream: object) -> bool:
    return stream is not None and stream.isatty()


def _options(options: argparse.Namespace) -> Options:
    return Options(yes=options.yes, model=getattr(options, "model", None))


def _interactive(home: Home, options: argparse.Namespace) -> int:
    from sia.shell import run_shell

    chosen = replace(_options(options), interactive=True)
    return run_shell(home, chosen, manual=options.llm == "manual", prepare=_prepared)


@contextmanager
def _prepared(agent: Agent) -> Iterator[None]:
    """What every front end has around its agent: socket, log, and word of completed turns."""
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


def _plain(home: Home, options: argparse.Namespace, text: str, fd: int | None) -> int:
    output = PlainOutput(sys.stdout, sys.stderr)
    agent = Agent(home, _options(options), output)
    refused: list[str] = []

    def refuse(reason: str) -> None:
        refused.append(reason)
        output(Notice(reason, "error"))

    signal.signal(signal.SIGTERM, lambda *_: agent.stop(0))
    lines = None
    with _prepared(agent):
        if text:
            OneRequest(agent, text, output, _terminal(sys.stdin)).start()
        elif fd is None and not options.listen:
            agent.close_input()
        elif not options.listen:
            if os.isatty(fd):
                output.note("sia: reading requests from the terminal, one a line; Ctrl-D ends")
            lines = Lines(agent, fd, "piped", refuse)
            lines.start()
        try:
            code = agent.run()
        finally:
            if lines:
                lines.stop()
    return code or (SOME_FAILED if refused else 0)


def ask_running(home: Home, text: str) -> int:
    """Hand one request to the agent that runs in this home, and print what it says to it."""
    connection = Connection(home.socket)
    connection.send(input=text)
    for event in connection.events():
        match event:
            case {"event": "Said", "text": said}:
                print(shown(said), flush=True)
            case {"event": "Asked", "text": question, "options": options}:
                print(shown(question), f"({'/'.join(options)})" if options else "", flush=True)
                if not _terminal(sys.stdin):
                    return 0  # whoever attaches or asks next can answer
                connection.send(input=input())
            case {"event": "Ended", "status": status}:
                return 0 if status == "done" else SOME_FAILED
            case {"event": "Admitted", "action": "ignore"}:
                print("sia: noted, nothing to do", file=sys.stderr)
                return 0
            case {"event": "Admitted", "action": "reject"}:
                return SOME_FAILED
    return SOME_FAILED


def attach(folder: Path) -> int:
    """Lines typed here go to the running agent; all it says is shown. Ends with Ctrl-D."""
    home = homes.open_home(folder)
    connection = Connection(home.socket)
    connection.send(attach=True)

    def listen() -> None:
        for event in connection.events():
            match event:
                case {"event": "Said", "text": text}:
                    print(shown(text), flush=True)
                case {"event": "Asked", "text": text, "options": options}:
                    print(shown(text), f"({'/'.join(options)})" if options else "", flush=True)
                case {"event": "Notice", "text": text}:
                    print(f"sia: {shown(text)}", file=sys.stderr, flush=True)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    for line in sys.stdin or ():
        if line.strip():
            connection.send(input=line.strip())
    connection.close()
    return 0
