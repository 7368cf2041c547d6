"""A person plays the generator: what they are shown, and how their reply is told from an input."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence

from lxml import etree

from sia import actions
from sia.context import ContextError, parse_document, parse_entry
from sia.entries import Entry
from sia.errors import SiaError
from sia.generator.manual import ManualGenerator
from sia.generator.types import Part, Reply
from sia.scripts import Cancel
from sia.shell.text import Paint, shorten
from sia.shell.views import compact, render_rows

_EMPTY = {"delete": '<delete id="', "read_stdin": "<read_stdin/>", "stop": "<stop/>"}
TAGS = tuple(_EMPTY.get(name, f"<{name}>") for name in actions.NAMES)  # how a reply may begin


def closed(reply: str) -> bool:
    """Whether the root tag of a reply is closed. An empty last line ends any reply."""
    parser = etree.XMLPullParser(("start", "end"), recover=True, resolve_entities=False)
    parser.feed(reply.encode("utf-8", "replace"))
    depth = 0
    for event, _ in parser.read_events():
        depth += 1 if event == "start" else -1
        if depth == 0:
            return True
    if reply.endswith("\n"):
        return True
    try:
        parser.close()
    except etree.XMLSyntaxError:
        return False
    # After a fault the parser closes nothing any more; the fault itself is the reply's affair.
    root = re.match(r"\s*<([\w:.-]+)", reply)
    return bool(root and parser.feed_error_log and reply.rstrip().endswith(f"</{root[1]}>"))


class Slot:
    """Where one thread waits for a person's words and another puts them.

    ``changed()`` is called on the waiting thread when the wait begins and ends.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._wake = threading.Condition()
        self._stopped = False
        self._text: str | None = None
        self._cancel = threading.Event()
        self.waiting = False

    def wait(self, cancel: threading.Event | None = None) -> str | None:
        """The words; None as soon as ``cancel`` is set, and after ``stop``."""
        cancel = cancel or threading.Event()
        waker = cancel if isinstance(cancel, Cancel) else None
        if waker:
            waker.add(self._notify)
        try:
            with self._wake:
                self._text, self.waiting, self._cancel = None, not self._stopped, cancel
                self._changed()
                while self._text is None and not (cancel.is_set() or self._stopped):
                    self._wake.wait()
                text, self.waiting = self._text, False
        finally:
            if waker:
                waker.remove(self._notify)
        self._changed()
        return text

    def give(self, text: str, before: Callable[[], None] = lambda: None) -> bool:
        """Put the words, after ``before()``; False when nobody waits for them any more."""
        with self._wake:
            if not self.waiting or self._text is not None or self._cancel.is_set():
                return False
            before()
            self._text = text
            self._wake.notify_all()
        return True

    def stop(self) -> None:
        """Nobody will say anything any more."""
        with self._wake:
            self._stopped, self.waiting = True, False
            self._wake.notify_all()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()


class Played(ManualGenerator):
    """Free text is typed inside any tag, since a line without one is an input."""

    def _free(self, parts: Sequence[Part], cancel: threading.Event) -> Reply:
        reply = super()._free(parts, cancel)
        try:
            root = parse_document(reply.text.encode("utf-8", "replace"))
        except ContextError:
            return reply
        text = "".join(root.itertext())
        return Reply(text, reply.finish, None, None, None, reply.ms, reply.model)


class Tail:
    """The entries of a prompt that were not shown before, in a few lines each."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint
        self._seen: dict[str, Entry] = {}

    def show(self, parts: Sequence[Part], width: int) -> list[str]:
        text = parts[-1].text
        try:
            root = parse_document(f"<context>{text}</context>".encode("utf-8", "replace"))
            if not len(root):
                raise ContextError("it has no entries")
            entries = [parse_entry(element) for element in root if element.tag != "now"]
        except SiaError:  # not a context: a text to be written
            instruction = parts[0].text if len(parts) > 1 else ""
            rows = [("task", instruction), ("text", text)]
            answer = "answer with <text>your words</text>"
        else:
            fresh = [entry for entry in entries if self._seen.get(entry.id) != entry]
            self._seen = {entry.id: entry for entry in entries}
            rows = [row for entry in fresh for row in compact(entry)]
            answer = "answer with one action, such as <write_stdout>…</write_stdout>; < lists them"
        lines = render_rows(rows, width, self._paint)
        return [*lines, "  " + self._paint("dim", shorten(answer, width - 2))]
