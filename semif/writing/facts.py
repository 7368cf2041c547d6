"""What a text may not lose or invent: numbers, links, addresses, dates, names, quotations.

Cheap rules, no model: they can only say that a text is wrong, never that it is right. Names are
words with a capital letter inside a sentence, so they are looked for only where nouns are small
(not in German) and letters have cases (of Chinese, only what stands before a title).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import msgspec

from semif.writing.language import language, same_language
from semif.writing.tasks import Task, Value, load

_LATIN = r"[^\W\u3400-\u9fff]"
_LINK = re.compile(
    r"(?:https?://|www\.)[^\s<>\"'\u3000-\uffef]+"
    rf"|(?:{_LATIN}|[.+-])+@(?:{_LATIN}|-)+(?:\.[a-z0-9-]+)+"
    rf"|(?<![\w/])(?:~|\.{{1,2}})?/(?:{_LATIN}|[.-])+(?:/(?:{_LATIN}|[.-])+)*"
    rf"|\b(?:{_LATIN}|-)+(?:[.-](?:{_LATIN}|-)+)*\.[a-z][a-z0-9]{{1,4}}\b"
)
_NUMBER = re.compile(r"\d+(?:[.,:/'’\u202f-]\d+)*")
_QUOTED = re.compile(r"[\"“„«「『]([^\"“”„«»「」『』]{2,80})[\"”“»」』]")
_AFTER = ".,;:!?)"
_WORDLIKE = re.compile(r"\w+")
_WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*")
_TITLED = re.compile(
    "([^\\W\\dA-Za-z你我他她您的和与])"
    "(先生|女士|小姐|老师|经理|医生|教授|师傅|阿姨|总(?!共|计|数|额))"
)
_GREETED = re.compile(
    r"^(?i:hi|hello|hey|dear|good morning|hallo|liebe[rs]?|moin|servus|guten tag|bonjour|salut|"
    r"chère?|hola|querid[oa]|estimad[oa]|olá|oi|car[oa]|prezad[oa])"
    r"[ ,]+([A-ZÀ-ÖØ-Þ][^\s,.!:]*)(?=[,!.:]| [A-ZÀ-ÖØ-Þ])"
)
_OWN = frozenset("i i'm i'll i've i'd ok".split())
# A form of address is no name; who is so called still must be known.
_POLITE = frozenset(
    "mr mrs ms dr doctor prof professor herr frau herrn doktor tag monsieur madame mme docteur "
    "señor señora sr sra doctora senhor senhora doutor doutora dona dom usted ustedes".split()
)
_ABBREVIATED = re.compile(r"(?:^|\s)(?:mr|mrs|ms|dr|dra|prof|st|sr|sra|srta)\.$", re.I)


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words that mean a day or a month, shorthand for some by word, numbers by language."""

    dates: tuple[str, ...]
    shorthand: dict[str, str]
    numbers: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Broken:
    """Facts that a text lost and facts that it invented, as written; both empty: nothing found."""

    lost: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.invented)

    def __str__(self) -> str:
        parts = [f"loses {', '.join(self.lost)}"] if self.lost else []
        parts += [f"invents {', '.join(self.invented)}"] if self.invented else []
        return " and ".join(parts) or "keeps to the facts"


def broken(name: str, given: Mapping[str, str], value: Value) -> Broken:
    """What is wrong with the text of a task. Lost is what its `keep` fields demand."""
    task = load().task(name)
    source = Source(" \n ".join(given.values()))
    said = spoken(task, value)
    lost = [
        fact for field in task.keep for fact in demanded(given[field]) if not _stands(fact, said)
    ]
    return Broken(tuple(dict.fromkeys(lost)), tuple(source.missing(said, names="title" not in task.keys)))


def fault(name: str, given: Mapping[str, str], value: Value | None, whole: bool = True) -> str:
    """Why a text must not be used, "" where nothing is found: the check that every live text meets.

    It costs no model. A text that fails it is replaced by what code does, or the person is asked.
    """
    if value is None:
        return "is not well formed"
    if not whole:
        return "came to no end"
    task = load().task(name)
    source = "\n".join(given.values())
    if not task.keys and not same_language(source, spoken(task, value)):
        return "is in another language"
    found = broken(name, given, value)
    return str(found) if found else ""


def spoken(task: Task, value: Value) -> str:
    """The words of a value that are read: itself, or its texts (an id is none)."""
    if isinstance(value, str):
        return value
    return " ".join(
        str(value[key])
        for key in task.keys
        if isinstance(value[key], str) and key not in ("id", "cause")
    )


def demanded(text: str) -> list[str]:
    """Numbers, links, addresses and quotations of a text: what its retelling must keep."""
    links = [link.rstrip(_AFTER) for link in _LINK.findall(text)]
    rest = _WORDLIKE.sub(_unless_shorthand, _LINK.sub(" ", text))
    # "failed: 1 (a.txt)" may be told as "a.txt failed", "errors: 0" as "no errors".
    numbers = [number for number in _NUMBER.findall(rest) if number not in ("0", "1")]
    return links + numbers + [quoted.strip() for quoted in _QUOTED.findall(rest)]


def kept(reference: str, source: str, said: str) -> bool:
    """Whether a text has every fact that its reference took from the source."""
    german = language(f"{source}\n{reference}") == "de"
    facts = demanded(reference) + names(reference, german) + _dates(reference)
    return all(_stands(fact, said) for fact in facts if _stands(fact, source))


def names(text: str, german: bool = False) -> list[str]:
    """Words with a capital letter that do not begin a sentence; of German only the titled."""
    titled = ["".join(match.groups()) for match in _TITLED.finditer(text)]
    if german:
        return titled
    found = []
    for match in _WORD.finditer(_LINK.sub(lambda link: " " * len(link[0]), text)):
        before = text[: match.start()].rstrip(" \"'“„«(¿¡\n")
        begins = not before or before[-1] in ".:;…!?。！？|" and not _ABBREVIATED.search(before)
        if match[0][0].isupper() and not begins and match[0].casefold() not in _OWN:
            found.append(match[0])
    return found + titled


class Source:
    """The words of an input, to look for those of a text in."""

    def __init__(self, text: str) -> None:
        self._text = _folded(text)

    @cached_property
    def _words(self) -> frozenset[str]:
        whole = [word for match in _WORD.finditer(self._text) for word in _forms(match[0])]
        parts = [part for word in whole for part in re.split(r"['’.-]", word)]
        return frozenset((*whole, *parts))

    def missing(self, said: str, names: bool = True) -> list[str]:
        """What a text says that stands nowhere here; `names`: look at capital letters too."""
        folded = _folded(said)
        links = [link.rstrip(_AFTER) for link in _LINK.findall(folded)]
        rest = _LINK.sub(" ", folded)
        spoken_in = language(f"{self._text}\n{said}")
        found = [link for link in links if link not in self._text]
        found += [number for number in _NUMBER.findall(rest) if not _stands(number, self._text)]
        found += [word for word in _dates(rest) if not self._dated(word)]
        counted = _words().numbers.get(spoken_in or "", {})
        found += [
            word
            for word in _WORD.findall(rest)
            if word in counted
            and word not in self._words
            and not _stands(counted[word], self._text)
        ]
        if names:
            found += self._unknown_names(said, spoken_in == "de")
        return list(dict.fromkeys(found))

    def _dated(self, word: str) -> bool:
        if word in self._words or (not word.isascii() and word in self._text):
            return True
        # "fri" and "Friday", "mon." and "Monday": written out is not invented.
        if any(len(other) >= 3 and word.startswith(other) for other in self._words):
            return True
        short = _words().shorthand.get(word, "").split()
        return any(re.search(rf"\b{other}\b", self._text) for other in short)

    def _unknown_names(self, said: str, german: bool) -> list[str]:
        greeted = _GREETED.match(said.strip())
        joined = re.sub(r"[\s'.-]", "", self._text)
        found = []
        for name in names(said, german) + ([greeted[1]] if greeted else []):
            word = _folded(name)
            if word in _words().dates:
                continue
            if _TITLED.fullmatch(name):
                known = name in self._text
            else:
                known = any(form in self._words for form in _forms(word)) or word in _POLITE
                plain = re.sub(r"['.-]", "", word)
                known = known or (len(plain) > 3 and plain in joined)
            if not known:
                found.append(name)
        return found


def _folded(text: str) -> str:
    # A wide comma parts numbers, which as a plain one it would join.
    text = unicodedata.normalize("NFKC", text.replace("，", "， ")).casefold()
    return text.replace("’", "'").replace("–", "-").replace("\u2011", "-")


def _forms(word: str) -> list[str]:
    """A word as it may be declined: without a possessive."""
    forms = [word]
    for tail in ("'s", "s'", "'"):
        if word.endswith(tail):
            forms.append(word.removesuffix(tail) + ("s" if tail == "s'" else ""))
    if word.endswith("s") and len(word) > 3:
        forms.append(word[:-1])
    return forms


def _stands(fact: str, text: str) -> bool:
    """Whether a fact stands in a text, numbers by their digits (1,340 = 1340; 10-12 = 10 to 12)."""
    fact, text = _folded(fact), _folded(text)
    if not _NUMBER.fullmatch(fact):
        return fact in text
    if re.search(rf"(?<!\d){re.escape(fact)}(?!\d)", text):
        return True
    plain = re.sub(r"(?<=\d)[.,'\u202f ](?=\d{3}(?!\d))", "", text)
    bare = re.sub(r"[.,'\u202f](?=\d{3}(?!\d))", "", fact)
    if re.search(rf"(?<!\d){re.escape(bare)}(?!\d)", plain):
        return True
    parts = re.split(r"[-/]", fact)
    return len(parts) == 2 and all(_stands(part, text) for part in parts)


def _dates(text: str) -> list[str]:
    folded, known = _folded(text), _words().dates
    found = [match[0] for match in _WORD.finditer(folded) if match[0] in known]
    return found + [word for word in known if "\u4e00" <= word[0] and word in folded]


def _unless_shorthand(word: re.Match[str]) -> str:
    short = " ".join(_words().shorthand.values()).split()
    return "" if word[0].casefold() in short else word[0]


@cache
def _words() -> Words:
    data = files("semif").joinpath("writing", "words.json").read_bytes()
    return msgspec.json.decode(data, type=Words)
