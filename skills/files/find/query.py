"""What a request says about the files that are looked for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from zoneinfo import ZoneInfo

from sia import periods, places, times

_BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_SIZE = re.compile(
    r"(?P<way>bigger|larger|greater|over|above|more|at\s+least|smaller|under|below|less|at\s+most|größer"
    r"|kleiner)(?:\s+(?:than|als))?\s+(?P<n>\d+(?:[.,]\d+)?)\s*(?P<unit>[kmgt]?b)\b",
    re.IGNORECASE,
)
_KIND_WORDS = {
    **dict.fromkeys(("photo", "picture", "image", "foto", "bild", "bilder"), "Pictures"),
    **dict.fromkeys(("video", "movie", "film", "clip"), "Videos"),
    **dict.fromkeys(("song", "music", "audio", "track", "musik"), "Music"),
    **dict.fromkeys(("spreadsheet", "table", "excel", "tabelle"), "Tables"),
    **dict.fromkeys(("presentation", "slide", "powerpoint"), "Slides"),
    **dict.fromkeys(("archive", "archiv"), "Archives"),
    **dict.fromkeys(("document", "dokument", "doc"), "Documents"),
}
_ALSO = (  # words that people name files with in place of each other
    frozenset({"invoice", "rechnung", "bill"}),
    frozenset({"receipt", "quittung", "beleg"}),
    frozenset({"contract", "vertrag"}),
    frozenset({"letter", "brief"}),
    frozenset({"cv", "resume", "lebenslauf"}),
)
_COMMON = frozenset(
    "a about all an and any are big biggest called can containing could did directory do download "
    "downloaded file files find folder for from get give have huge i in is it large largest latest "
    "list locate look looking made me my named need new newest of on one ones or our please put "
    "recent recently saved search see show some that the them there this to titled was were what "
    "when where which with you your das datei dateien der die finde ist mein meine mir sind suche "
    "wo zeig".split()
)


_ORDINARY = ("key", "numbers", "pages", "raw", "run", "jar")  # endings that are words as well


@dataclass(frozen=True)
class Query:
    words: tuple[frozenset[str], ...]  # each with what may stand for it; all should be in the name
    endings: frozenset[str]  # without the dot; empty: any
    since: datetime | None
    until: datetime | None  # before this
    least: float  # bytes
    most: float
    biggest: bool  # first, instead of the newest
    root: Path
    anything: bool  # says enough to look for

    def fits(self, name: str, modified: float, size: int) -> bool:
        """All but the words."""
        ending = name.rpartition(".")[2].lower() if "." in name else ""
        return (
            (not self.endings or ending in self.endings)
            and self.least <= size <= self.most
            and (self.since is None or modified >= self.since.timestamp())
            and (self.until is None or modified < self.until.timestamp())
        )

    def hits(self, path: str) -> int:
        """How many of the words are in the path."""
        text = unicodedata.normalize("NFC", path).casefold()
        return sum(any(word in text for word in words) for words in self.words)


def parse(text: str, now: datetime, zone: ZoneInfo, files: Path) -> Query:
    """Raises OSError where the folder ``files`` cannot be read."""
    text = text[: places.MOST_TEXT]
    place = places.named_folder(text, files)
    text = _without(text, place.span) if place else text
    least, most = 0.0, float("inf")
    for size in _SIZE.finditer(text):
        amount = float(size["n"].replace(",", ".")) * _BYTES[size["unit"].lower()]
        below = re.match(r"small|under|below|less|at\s+most|klein", size["way"], re.IGNORECASE)
        least, most = (least, amount) if below else (amount, most)
    text = _SIZE.sub(" ", text)
    first, after, text = periods.past(text, now.date())
    since, until = (
        times.wall(datetime.combine(day, time()), zone) if day else None for day in (first, after)
    )
    quoted = re.findall(r"[\"“„]([^\"“”„]+)[\"”“]", text)
    plain = re.findall(r"\.?\w[\w-]*", re.sub(r"[\"“„][^\"“”„]+[\"”“]", " ", text).casefold())
    endings, kinds, words = _sorted(plain)
    words += [frozenset({unicodedata.normalize("NFC", part).casefold()}) for part in quoted]
    biggest = bool(re.search(r"\b(?:biggest|largest)\b", text, re.IGNORECASE))
    recent = bool(re.search(r"\b(?:newest|latest|recent)", text, re.IGNORECASE))
    said = words or endings or since or until or least or most < float("inf") or biggest or recent
    root = place.folder if place else files
    anything = bool(said or place)
    found = frozenset(endings)
    return Query(tuple(words), found, since, until, least, most, biggest, root, anything)


def _sorted(plain: Sequence[str]) -> tuple[set[str], set[str], list[frozenset[str]]]:
    """(endings, kinds, words): "pdf" and "photos" are kinds, the rest is looked for in names."""
    known = {ending: kind for kind, all in places.KINDS.items() for ending in all.split()}
    endings: set[str] = set()
    kinds: set[str] = set()
    words: list[frozenset[str]] = []
    for word in plain:
        one = word.removesuffix("s") if len(word) > 3 else word
        ending = one.lstrip(".")
        kind = _KIND_WORDS.get(word) or _KIND_WORDS.get(one)
        if kind:
            kinds.add(kind)
        elif ending in known and (word.startswith(".") or ending not in _ORDINARY):
            endings |= {"jpg", "jpeg"} if ending in ("jpg", "jpeg") else {ending}
        elif word.startswith("."):
            endings.add(ending)
        elif word not in _COMMON and one not in _COMMON:
            words.append(next((group for group in _ALSO if one in group), frozenset({one})))
    if not endings:
        endings = {ending for ending, kind in known.items() if kind in kinds}
    return endings, kinds, words


def _without(text: str, span: tuple[int, int]) -> str:
    return f"{text[: span[0]]} {text[span[1] :]}"
