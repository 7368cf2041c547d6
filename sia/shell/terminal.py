"""The screen and the keyboard: one prompt for the whole life of the shell, and text above it.

The prompt is never left between two lines, so the terminal stays in raw mode from start to end:
nothing typed is echoed into the output or edited away by the terminal while text is written.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples as Fragments
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.styles import Style

from sia.shell.text import paint_for

MENU_ROWS = 8
STEP, PATIENCE = 0.02, 15  # seconds between looks for the cursor's place, and how many
CHUNK = 65_536
STYLE = Style.from_dict(
    {
        "prompt": "ansicyan",
        "placeholder": "dim",
        "bottom-toolbar": "noreverse",
        "dim": "dim",
        "warning": "ansiyellow",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit",
    }
)


Entered = Literal["taken", "open", "stays"]


class Hands(Protocol):
    """What the keyboard does and the prompt shows; called on the thread that runs the screen."""

    def entered(self, text: str) -> Entered:
        """A line was entered: it was taken, is to be continued on a new line, or stays as it is."""

    def interrupted(self, empty: bool) -> None:
        """Ctrl-C; the line is cleared already, ``empty`` when there was none."""

    def closed(self) -> None:
        """Ctrl-D on an empty line."""

    def gone(self) -> None:
        """The terminal went away; also called more than once."""

    def prompt(self) -> str: ...

    def placeholder(self) -> str: ...

    def toolbar(self, width: int) -> Fragments: ...


class Screen(Protocol):
    """A terminal in use. ``echoes``: an entered line stays on the screen by itself."""

    echoes: bool

    async def run(self, ready: Callable[[], None]) -> None:
        """Read until ``close``; ``ready`` is called when the prompt stands."""

    def write(self, text: str) -> None:
        """Show whole lines above the prompt."""

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def line(self) -> str:
        """What is being typed."""

    def width(self) -> int: ...


def open_screen(hands: Hands, history: Path, completer: Completer, line: str) -> Screen:
    """The screen for this terminal. ``line``: stands in the prompt from the start."""
    if paint_for(os.environ)("dim", "x") == "x":
        return DumbScreen(hands)
    return PromptScreen(hands, history, completer, line)


class PromptScreen:
    """A terminal with cursor movement."""

    echoes = False

    def __init__(self, hands: Hands, history: Path, completer: Completer, line: str) -> None:
        self._hands, self._start = hands, line
        self._output = create_output(sys.stdout)
        self._held = ""
        self._patience = 0
        self._on_ready: Callable[[], None] | None = None
        self._session: PromptSession[str] = PromptSession(
            message=lambda: [("class:prompt", hands.prompt())],
            placeholder=lambda: [("class:placeholder", hands.placeholder())],
            bottom_toolbar=lambda: hands.toolbar(self.width()),
            prompt_continuation=lambda width, number, wraps: " " * width,
            completer=completer,
            history=_history(history),
            key_bindings=self._keys(),
            style=STYLE,
            include_default_pygments_style=False,
            enable_suspend=True,
            erase_when_done=True,
            reserve_space_for_menu=0,
            output=self._output,
        )
        app = self._session.app
        app.renderer.cpr_not_supported_callback = app.invalidate
        app.terminal_size_polling_interval = None  # the window's signal tells
        app.before_render += self._before_render
        app.after_render += self._after_render

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            self._enter(event)

        @keys.add("escape", "enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=typing)
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            empty = not event.app.current_buffer.text
            event.app.current_buffer.reset()
            self._hands.interrupted(empty)

        @keys.add("c-d", filter=typing)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            else:
                self._hands.closed()

        return keys

    def _enter(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        # What is no UTF-8 arrives as lone surrogates, which no file could keep.
        text = buffer.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        entered = self._hands.entered(text)
        if entered == "open":
            buffer.insert_text("\n")
        elif entered == "taken":
            buffer.document = Document(text)
            try:
                buffer.reset(append_to_history=bool(text.strip()))
            except OSError as error:
                buffer.reset()
                self.write(f"  the history cannot be written: {error.strerror}\n")

    def _before_render(self, app: Application[str]) -> None:
        typed = self._session.default_buffer
        menu = typed.complete_state is not None or typed.text.startswith("/")
        self._session.reserve_space_for_menu = MENU_ROWS if menu else 0
        renderer = app.renderer
        if renderer.cpr_support is CPR_Support.NOT_SUPPORTED and not renderer.height_is_known:
            # A terminal that does not tell where the cursor is: take it to be on the last row,
            # so that the toolbar stands right below the line.
            self._place(1)

    def _after_render(self, app: Application[str]) -> None:
        ready, self._on_ready = self._on_ready, None
        if ready:
            asyncio.get_running_loop().call_soon(ready)

    def _place(self, below: int) -> None:
        """Tell the renderer how many rows there are from the prompt to the bottom."""
        renderer = self._session.app.renderer
        support = renderer.cpr_support
        renderer.report_absolute_cursor_row(self._output.get_size().rows - below + 1)
        if support is CPR_Support.NOT_SUPPORTED:
            renderer.cpr_support = support

    async def run(self, ready: Callable[[], None]) -> None:
        self._on_ready = ready
        try:
            await self._session.prompt_async(default=self._start, set_exception_handler=False)
        except EOFError:
            self._hands.gone()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._hands.gone()

    def write(self, text: str) -> None:
        waits = bool(self._held)
        self._held += text
        if not waits:
            self._patience = PATIENCE
            self._release()

    def _release(self) -> None:
        """Show what is held. Held it is while the terminal has yet to tell where the cursor is:
        text would make its answer wrong, and the screen would jump."""
        app = self._session.app
        renderer = app.renderer
        waits = app.is_running and renderer.waiting_for_cpr and not renderer.height_is_known
        if waits and self._patience:
            self._patience -= 1
            asyncio.get_running_loop().call_later(STEP, self._release)
            return
        text, self._held = self._held, ""
        if text:
            self._show(text)

    def _show(self, text: str) -> None:
        app, output = self._session.app, self._output
        if not app.is_running:
            output.write_raw(text)
            output.flush()
            return
        renderer = app.renderer
        below = 0
        if renderer.height_is_known:
            below = output.get_size().rows - renderer.rows_above_layout
        renderer.erase()
        output.write_raw(text)
        output.flush()
        if below:
            # Known without asking the terminal, so that the toolbar does not flicker.
            self._place(max(1, below - text.count("\n")))
        else:
            renderer.request_absolute_cursor_position()
        app.invalidate()

    def refresh(self) -> None:
        self._session.app.invalidate()

    def close(self) -> None:
        self._patience = 0
        self._release()
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(result="")

    def line(self) -> str:
        return self._session.default_buffer.text

    def width(self) -> int:
        return self._output.get_size().columns


def _history(path: Path) -> FileHistory:
    """The lines typed before, for their person's eyes only."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    return FileHistory(path)


class DumbScreen:
    """A terminal without cursor movement: it edits and echoes lines itself."""

    echoes = True

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._in, self._out = sys.stdin.fileno(), sys.stdout
        self._rest = b""
        self._lines: list[str] = []  # of an input that goes on
        self._done: asyncio.Event | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        loop.add_reader(self._in, self._read)
        loop.add_signal_handler(signal.SIGINT, self._hands.interrupted, True)
        self.write("")
        ready()
        try:
            await self._done.wait()
        finally:
            loop.remove_reader(self._in)
            loop.remove_signal_handler(signal.SIGINT)

    def _read(self) -> None:
        try:
            data = os.read(self._in, CHUNK)
        except OSError:
            self._hands.gone()
            return
        if not data:
            self._hands.closed()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._lines.append(line.decode("utf-8", "replace"))
            if self._hands.entered("\n".join(self._lines)) != "open":
                self._lines = []  # what was not taken stays to be seen where it was typed
        self.write("")

    def write(self, text: str) -> None:
        prompt = self._hands.prompt() if self._done and not self._done.is_set() else ""
        self._out.write(f"\n{text}{prompt}" if prompt and text else text + prompt)
        self._out.flush()

    def refresh(self) -> None:
        """The prompt comes with the next text."""

    def close(self) -> None:
        if self._done:
            self._done.set()

    def line(self) -> str:
        return self._rest.decode("utf-8", "replace")

    def width(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except OSError:
            return 80
