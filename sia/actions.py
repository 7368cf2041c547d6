"""The core actions: exactly one a reply, as XML, parsed with the place of every fault."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lxml import etree

from sia.context import ContextError, parse_document, put_block
from sia.entries import ILLEGAL, MODES, Mode

REPLY_LIMIT = 1_000_000  # bytes


class ActionError(Exception):
    """The model's fault: a reply that is not one core action. ``line``, ``column`` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line, self.column = line, column


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class RunScript:
    mode: Mode
    command: str


@dataclass(frozen=True)
class Delete:
    id: str


@dataclass(frozen=True)
class TakeInput:
    """``<read_stdin/>``: take the oldest unread input."""


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Stop:
    """``<stop/>``: end with exit code 75, restart and reload."""


Action = Think | RunScript | Delete | TakeInput | Say | Stop

_BLOCKS = ("reasoning", *MODES, "write_stdout")
_EMPTY = ("delete", "read_stdin", "stop")
NAMES = (*_BLOCKS, *_EMPTY)
_HINT = "answer with one action, e.g. <write_stdout><![CDATA[text]]></write_stdout>"


def _column(reply: str, line: int, mark: str) -> int:
    lines = reply.splitlines()
    found = lines[line - 1].find(mark) if 0 < line <= len(lines) else -1
    return max(found, 0) + 1


def _explain(reply: str, error: ContextError) -> ActionError:
    message = str(error).split(" (line ")[0]
    lower = message.lower()
    if not reply.strip():
        message = f"the reply is empty; {_HINT}"
    elif "start tag expected" in lower or "document is empty" in lower:
        message = f"the reply does not begin with an action; {_HINT}"
    elif "extra content" in lower:
        message = "something stands after the first action; one reply holds exactly one action"
    elif "entityref" in lower or "starttag: invalid element" in lower or "strparse" in lower:
        message += "; a bare & or < belongs into <![CDATA[...]]> or is written &amp; or &lt;"
    elif "premature end" in lower or "mismatch" in lower or "cdata section not finished" in lower:
        message += "; close the action's tag"
    return ActionError(message, max(error.line, 1), max(error.column, 1))


def parse(reply: str, ids: Collection[str] | None = None) -> Action:
    """The one core action of a reply; ``ids``: what ``<delete>`` may name (None: not checked)."""
    try:
        root = parse_document(reply.encode("utf-8", "surrogatepass"), REPLY_LIMIT)
    except ContextError as error:
        raise _explain(reply, error) from None
    line = root.sourceline or 1
    column = _column(reply, line, f"<{root.tag}")
    if root.tag not in NAMES:
        raise ActionError(
            f"unknown action <{root.tag}>; the actions are {', '.join(NAMES)}", line, column
        )
    if len(root):
        child = root[0]
        at = child.sourceline or line
        raise ActionError(
            f"<{root.tag}> holds an element <{child.tag}>; write its text as <![CDATA[...]]>",
            at,
            _column(reply, at, f"<{child.tag}"),
        )
    _check_attributes(root, line, column)
    return _action(root, line, column, ids)


def _check_attributes(root: etree._Element, line: int, column: int) -> None:
    allowed = {"id"} if root.tag == "delete" else set()
    unknown = set(root.attrib) - allowed
    if unknown:
        raise ActionError(f"<{root.tag}> takes no {sorted(unknown)[0]}=", line, column)


def _action(
    root: etree._Element, line: int, column: int, ids: Collection[str] | None
) -> Action:
    text = root.text or ""
    if root.tag in _BLOCKS:
        if not text.strip():
            raise ActionError(f"<{root.tag}> is empty; put the text inside it", line, column)
        if root.tag == "reasoning":
            return Think(text)
        return Say(text) if root.tag == "write_stdout" else RunScript(root.tag, text)
    if text.strip():
        raise ActionError(f"<{root.tag}/> takes no text", line, column)
    if root.tag == "delete":
        id = root.get("id", "")
        if not id:
            example = '<delete id="e12"/>'
            raise ActionError(f"<delete/> needs the id of an entry: {example}", line, column)
        if ids is not None and id not in ids:
            raise ActionError(f"there is no entry {id} in the context", line, column)
        return Delete(id)
    return TakeInput() if root.tag == "read_stdin" else Stop()


def to_xml(action: Action) -> str:
    """The action as a reply would write it."""
    match action:
        case Think(text):
            element = etree.Element("reasoning")
        case Say(text):
            element = etree.Element("write_stdout")
        case RunScript(mode, text):
            element = etree.Element(mode)
        case Delete(id):
            element, text = etree.Element("delete", id=id), ""
        case TakeInput():
            element, text = etree.Element("read_stdin"), ""
        case Stop():
            element, text = etree.Element("stop"), ""
    if "&" in text or "<" in text:
        put_block(element, text)
    elif text:
        element.text = ILLEGAL.sub("�", text)
    return etree.tostring(element, encoding="unicode")
