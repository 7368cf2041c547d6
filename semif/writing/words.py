"""Words that are facts: days and months, numbers, units, and those that open a message."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import msgspec

WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*")
CJK = "\u3400-\u9fff"
_PARTS = re.compile(r"['’.-]")
# "Freitagabend" is "Freitag", "freitags" too.
_GERMAN_DAY = re.compile(
    r"(?:(mon|diens|donners|frei|sams|sonn)(tag)|(mittwoch|sonnabend))"
    r"(?=s$|e$|früh$|(?:vor|nach)?mittag|morgen|abend|nacht)"
)
# What a short day ("sat", "fr", "so") stands beside, where it is one and no other word.
_DAY_BEFORE = re.compile(
    r"(?:\d ?(?:[ap]\.?m\.?|h|uhr)?|\b(?:on|this|next|until|till|by|every|last|since|am|bis|ab|seit"
    r"|jeden|nächsten|kommenden|le|el|no|até|hasta)),? $"
)
_DAY_AFTER = re.compile(r"\.?,? ?\d|\.?,? (?:morning|afternoon|evening|night|früh|abend|noche)\b")
# A short month, or one that is a word besides ("may"), stands beside a number or "since".
_MONTH_BEFORE = re.compile(
    r"(?:\d(?:st|nd|rd|th|[.)])?(?: de| of)?|\b(?:since|in|until|till|last|next|early|mid|late"
    r"|(?:end|start|beginning) of|seit|im|depuis|en|desde|em)) $"
)
_MONTH_AFTER = re.compile(r"\.?,? ?\d")


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of `words.json`; strings hold words parted by blanks.

    `dates`, by language: a word and the shorter ones that mean it, which after `*` or `+` count
    only beside what a day or month stands beside. `elsewhere`: number words that are other words
    in another language. `idioms`: Chinese words with a numeral that count nothing.
    """

    dates: dict[str, dict[str, str]]
    shorthand: str
    numbers: dict[str, dict[str, int]]
    elsewhere: str
    idioms: str
    units: dict[str, str]
    greetings: str
    titles: str
    chinese_titles: str
    chinese_greetings: str


@dataclass(frozen=True)
class Spelling:
    """One way to write a day or month: what it means, where it is so written, and beside what."""

    means: str
    language: str
    short: bool
    beside: str  # "", "*" a day, "+" a month


class Lists:
    """The lists as sets and maps."""

    def __init__(self, words: Words) -> None:
        self.shorthand = frozenset(words.shorthand.split())
        self.greetings = frozenset(words.greetings.split())
        self.titles = frozenset(words.titles.split())
        self.chinese_titles = tuple(words.chinese_titles.split())
        self.chinese_greetings = frozenset(words.chinese_greetings.split())
        self.idioms = tuple(words.idioms.split())
        self._words = words

    @cached_property
    def dates(self) -> dict[str, tuple[Spelling, ...]]:
        """By word, without what it is to stand beside."""
        found: dict[str, tuple[Spelling, ...]] = {}
        for language, meanings in self._words.dates.items():
            for full, shorter in meanings.items():
                for place, word in enumerate((full, *shorter.split())):
                    plain = word.rstrip("*+")
                    one = Spelling(full.rstrip("*+"), language, place > 0, word[len(plain) :])
                    found[plain] = (*found.get(plain, ()), one)
        return found

    @cached_property
    def chinese_dates(self) -> tuple[tuple[str, str], ...]:
        """(word, what it means), the longest first."""
        found = [
            (word, spelling.means)
            for word, spellings in self.dates.items()
            for spelling in spellings
            if spelling.language == "zh"
        ]
        return tuple(sorted(found, key=lambda pair: -len(pair[0])))

    @cached_property
    def units(self) -> dict[str, frozenset[str]]:
        """What a unit may mean: "h" is an hour, or a time of day."""
        found: dict[str, frozenset[str]] = {}
        for means, spellings in self._words.units.items():
            for spelling in spellings.split():
                plain = spelling.replace(".", "")
                found[plain] = found.get(plain, frozenset()) | {means}
        return found

    @cached_property
    def _any_numbers(self) -> dict[str, int]:
        elsewhere = self._words.elsewhere.split()
        tables = self._words.numbers.values()
        return {
            word: value
            for table in tables
            for word, value in table.items()
            if word not in elsewhere
        }

    def numbers(self, language: str | None) -> dict[str, int]:
        """Number words of a language; of all where none is clear."""
        if language is None:
            return self._any_numbers
        return self._words.numbers.get(language, {})


@cache
def lists() -> Lists:
    """Those of this program."""
    data = files("semif").joinpath("writing", "words.json").read_bytes()
    return Lists(msgspec.json.decode(data, type=Words))


def folded(text: str) -> str:
    """A text with one way to write a letter, a dash, an apostrophe; without case and joiners."""
    # A wide comma parts numbers, which as a plain one it would join; a narrow blank joins them.
    text = re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", "'", text.replace("，", "， "))
    text = unicodedata.normalize("NFKC", text).casefold()
    return text.translate(_SAME)


_SAME = str.maketrans({"’": "'", "–": "-", "\u2011": "-", "−": "-", "\u200c": "", "\u200d": ""})


def forms(word: str) -> list[str]:
    """A word as it may be declined: without a possessive."""
    found = [word]
    for tail in ("'s", "s'", "'"):
        if word.endswith(tail):
            found.append(word.removesuffix(tail) + ("s" if tail == "s'" else ""))
    if word.endswith("s") and len(word) > 2:
        found.append(word[:-1])
    return found


def dates(text: str, language: str | None, short: bool) -> list[str]:
    """What the days and months of a folded text mean; `short`: those that are cut short as well.

    A short word counts in its own language only, or where the text's is not clear.
    """
    found = []
    for match in WORD.finditer(text):
        word, begin = match[0], match.start()
        if whole := date_at(text, begin, word, language, short):
            found.append(whole)
            continue
        for part in _PARTS.split(word):
            if part != word and (one := date_at(text, begin, part, language, short)):
                found.append(one)
            begin += len(part) + 1
    if short:  # shorthand with digits is no word of letters
        digits = re.finditer(r"\b\d[a-z]+\b", text)
        found += [one for m in digits if (one := date_at(text, m.start(), m[0], language, True))]
    rest = text
    for word, means in lists().chinese_dates:
        if word in rest:
            found.append(means)
            rest = rest.replace(word, " ")
    return list(dict.fromkeys(found))


def date_at(text: str, begin: int, word: str, language: str | None, short: bool) -> str:
    """What a word at a place of a folded text means, "" where it is no date there."""
    if word == "morgen" and text[:begin].endswith("guten "):
        return ""
    # "Mondays"; but French "mais" is no German month.
    for form in (word, *(form for form in forms(word)[1:] if len(form) > 4)):
        for spelling in lists().dates.get(form, ()):
            # In Portuguese "quarta" is as good as "quarta-feira".
            whole = not spelling.short or (spelling.language == language == "pt")
            if not whole and (not short or language not in (spelling.language, None)):
                continue
            # What may be a month ("may") is enough where another text only writes it out.
            free = short and not spelling.short
            if free or _beside(text, begin, begin + len(word), spelling.beside):
                return spelling.means
    day = _GERMAN_DAY.match(word)
    return (day[3] or day[1] + day[2]) if day and language in ("de", None) else ""


def _beside(text: str, begin: int, end: int, what: str) -> bool:
    before, after = text[max(0, begin - 16) : begin], text[end : end + 16]
    if what == "*":
        return bool(_DAY_BEFORE.search(before) or _DAY_AFTER.match(after))
    if what == "+":
        return bool(_MONTH_BEFORE.search(before) or _MONTH_AFTER.match(after))
    return True
