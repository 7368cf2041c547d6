"""A text that is to go, in every way it may stand: plain, in JSON, in XML, in HTML, in an address.

What the program itself reads there is left whole: a file in which a word of its own is forgotten
has the same elements, keys and states afterwards.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any, overload
from urllib.parse import quote, quote_plus

from lxml import etree

from sia.context import ContextError, parse_document

MARKS = ("[forgotten]", "***", "…")
# What stands under these is the program's: it counts, names and tells states by it.
OURS = frozenset(
    "id run row status mode event kind source phase time action method session iteration by level "
    "revision parent candidate".split()
)
_FREE = ("note", "skill")  # attributes of a context that hold words
_ATTRIBUTE = {"\n": "&#10;", "\t": "&#9;", '"': "&quot;"}


class Words:
    """``mark`` stands where the text stood."""

    def __init__(self, text: str) -> None:
        forms = sorted(_forms(text), key=len, reverse=True)
        self.mark = next(mark for mark in MARKS if text not in mark)
        self._text = re.compile("|".join(map(re.escape, forms)))
        self._bytes = re.compile(b"|".join(re.escape(_encoded(form)) for form in forms))

    def holds(self, data: bytes | str) -> bool:
        pattern: re.Pattern[Any] = self._text if isinstance(data, str) else self._bytes
        return bool(pattern.search(data))

    @overload
    def cut(self, data: bytes) -> tuple[bytes, int]: ...
    @overload
    def cut(self, data: str) -> tuple[str, int]: ...
    def cut(self, data: bytes | str) -> tuple[bytes | str, int]:
        """(without the text, how often it stood there)."""
        if isinstance(data, str):
            return self._text.subn(lambda _: self.mark, data)
        return self._bytes.subn(lambda _: self.mark.encode(), data)

    def mask(self, data: bytes) -> tuple[bytes, int]:
        """The same with every byte in its place, for a file whose format counts them."""
        return self._bytes.subn(lambda found: b"*" * len(found[0]), data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _forms(text: str) -> set[str]:
    attribute = html.escape(text, quote=False)
    for character, written in _ATTRIBUTE.items():
        attribute = attribute.replace(character, written)
    forms = {text, html.escape(text), html.escape(text, quote=False), attribute}
    forms.add(html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"))
    forms.add(html.escape(text, quote=False).replace("\r", "&#13;"))
    forms |= {repr(text)[1:-1], repr(text + "'")[1:-2], repr(text + '"')[1:-2]}
    for _ in range(2):  # JSON stands within JSON
        forms |= {json.dumps(form, ensure_ascii=a)[1:-1] for form in forms for a in (True, False)}
    raw = _encoded(text)
    # Of half a line that was read, bytes are kept as characters.
    return forms | {quote(raw, safe=""), quote(raw), quote_plus(raw), raw.decode("latin-1")}


# JSON


def in_json(text: str, words: Words) -> tuple[str, int]:
    """A JSON document without the words; ValueError for one that is none."""
    before = json.loads(text)
    new, times = words.cut(text)
    if not times:
        return text, 0
    try:
        if _frame(json.loads(new)) == _frame(before):
            return new, times
    except ValueError:
        pass
    value, times = _in_value(before, words)
    if not times:
        return text, 0
    return json.dumps(value, ensure_ascii=False) + text[len(text.rstrip()) :], times


def _frame(value: Any, key: str = "") -> Any:
    """What the program reads: keys, numbers and what stands under keys of its own."""
    if isinstance(value, dict):
        return {name: _frame(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_frame(part) for part in value]
    return "" if isinstance(value, str) and key not in OURS else value


def _in_value(value: Any, words: Words, key: str = "") -> tuple[Any, int]:
    if isinstance(value, str) and key not in OURS:
        return words.cut(value)
    if isinstance(value, dict):
        parts = {name: _in_value(part, words, name) for name, part in value.items()}
        return {name: part for name, (part, _) in parts.items()}, sum(n for _, n in parts.values())
    if isinstance(value, list):
        found = [_in_value(part, words) for part in value]
        return [part for part, _ in found], sum(n for _, n in found)
    return value, 0


def says(row: dict[str, Any], words: Words) -> bool:
    """Whether a row has the words in what it says, options and their names too."""
    return any(
        words.holds(text) for key, value in row.items() if key not in OURS for text in _texts(value)
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


# XML


def in_xml(data: bytes, words: Words) -> tuple[bytes, int]:
    """An entry or an iteration without the words; ContextError for what is none."""
    root = parse_document(data)
    new, times = words.cut(data)
    if not times:
        return data, 0
    try:
        if _elements(parse_document(new)) == _elements(root):
            return new, times
    except ContextError:
        pass
    times = 0
    for element in root.iter():
        if element.text:
            text, found = words.cut(element.text)
            if found:
                element.text, times = text, times + found
        for name in _FREE:
            text, found = words.cut(element.get(name, ""))
            if found:
                element.set(name, text)
                times += found
    if not times:
        return data, 0
    tail = data[len(data.rstrip()) :]
    declared = data.lstrip().startswith(b"<?xml")
    return etree.tostring(root, encoding="utf-8", xml_declaration=declared) + tail, times


def _elements(root: etree._Element) -> list[tuple[Any, ...]]:
    return [
        (element.tag, *((k, v) for k, v in sorted(element.items()) if k not in _FREE))
        for element in root.iter()
    ]
