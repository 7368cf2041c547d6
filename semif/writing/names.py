"""Names in a text: by their capital letters, their titles, and where a message addresses someone.

They are looked for only where nouns are small (not in German) and letters have cases; elsewhere
only beside a title, and at the beginning of a message.
"""

from __future__ import annotations

import re
from functools import cache

from semif.writing.language import small_words
from semif.writing.words import CJK, WORD, date_at, dates, folded, forms, lists

_OWN = frozenset("i i'm i'll i've i'd ok".split())
_ABBREVIATED = re.compile(r"(?:^|\s)(?:mr|mrs|ms|dr|dra|prof|st|sr|sra|srta)\.$", re.I)
_TITLED_LATIN = re.compile(
    r"\b(?:Herrn?|Frau|Familie|Dr\.?|Prof\.?) (?:(?:Dr|Prof)\.? )*([^\W\d_][\w'’-]+)"
)
_GREETING_ENDS = re.compile("[你您]们?好|早上好|下午好|晚上好|大家好")
_HEAD = re.compile(r"[,!:;?，！：；？。\n]")
_MOST_WORDS, _MOST_SIGNS = 3, 4  # of whoever a message speaks to without a greeting


def names(text: str, german: bool = False) -> list[str]:
    """Words with a capital letter that do not begin a sentence; of German only the titled."""
    titled = ["".join(match.groups()) for match in _titled_chinese().finditer(text)]
    if german:
        return [match[1] for match in _TITLED_LATIN.finditer(text)] + titled
    found = []
    for match in WORD.finditer(text):
        before = text[max(0, match.start() - 16) : match.start()].rstrip(" \"'“„«(¿¡\n")
        begins = not before or before[-1] in ".:;…!?。！？|" and not _ABBREVIATED.search(before)
        if match[0][0].isupper() and not begins and match[0].casefold() not in _OWN:
            found.append(match[0])
    return found + titled


def addressed(text: str) -> list[str]:
    """Whom a message speaks to at its beginning, without greeting and title.

    "Hi Ada, ...", "Ada, ...", "Happy birthday, Ada!", "Guten Tag Herr Braun", 李娜你好.
    """
    text = text.strip()
    greeting = _GREETING_ENDS.search(text[:12])
    head = text[: greeting.start()] if greeting else _HEAD.split(text, maxsplit=1)[0]
    if re.search(f"[{CJK}]", head):
        return _chinese(head, bool(greeting))
    segments = _HEAD.split(text, maxsplit=2)
    for place, segment in enumerate(segments[:2]):
        words = [match[0] for match in WORD.finditer(segment)]
        greeted = 0
        while greeted < len(words) and words[greeted].casefold() in lists().greetings:
            greeted += 1
        rest = words[greeted:]
        if not rest and len(words) < 4:
            continue  # "Happy birthday, Ada": the name comes behind it
        called = _capitals(rest)
        if place or not greeted:  # without a greeting, it is all a name or none
            alone = place + 1 < len(segments) and segment.strip() == " ".join(rest)
            called = called if alone and len(called) == len(rest) <= _MOST_WORDS else []
        return [word for word in called if not _polite(word)]
    return []


def unknown(said: str, source: str, german: bool, message: bool) -> list[str]:
    """The names of a text that its source lacks, as written; both without links."""
    known = _known(folded(source))
    low = folded(said)
    dated = {
        match[0]
        for match in WORD.finditer(low)
        if date_at(low, match.start(), match[0], None, short=False)
    }
    found = []
    for name in (addressed(said) if message else []) + names(said, german):
        word = folded(name)
        if word in dated or word in lists().units or name in found:
            continue
        if re.search(f"[{CJK}]", name):
            # 表哥建国 may be called 建国表哥.
            halves = ((name[:i], name[i:]) for i in range(2, len(name) - 1))
            there = name in source or any(a in source and b in source for a, b in halves)
        else:
            plain = re.sub(r"['.-]", "", word)
            there = plain in known or _polite(name) or any(form in known for form in forms(word))
        if not there:
            found.append(name)
    return found


def _known(source: str) -> frozenset[str]:
    """The words of a folded source, declined or not, and two or three neighbours as one."""
    whole = [form for match in WORD.finditer(source) for form in forms(match[0])]
    plain = [re.sub(r"['.-]", "", form) for form in whole]
    pieces = re.findall(r"[^\W\d_]+", source)
    joined = ["".join(pieces[i : i + n]) for n in (1, 2, 3) for i in range(len(pieces) - n + 1)]
    return frozenset((*whole, *plain, *joined))


def _capitals(words: list[str]) -> list[str]:
    """The leading words that are names or titles."""
    called = []
    for word in words:
        if word.casefold() in _OWN or not (word[0].isupper() or _polite(word)):
            break
        called.append(word)
    return called


def _polite(word: str) -> bool:
    """Whether a word is a form of address, or too small to be a name."""
    word = word.casefold()
    return word in lists().titles or word in small_words() or word in lists().greetings


def _chinese(head: str, greeted: bool) -> list[str]:
    """Of a Chinese head what is neither greeting nor title, where it can be a name."""
    name = head.strip()
    for word in sorted(lists().chinese_greetings, key=len, reverse=True):
        name = name.replace(word, "")
    for title in lists().chinese_titles:
        name = name.removesuffix(title)
    name = name.strip(" 的")
    if len(name) == 1 and head.strip().endswith(
        lists().chinese_titles
    ):  # 王经理: `names` holds it with its title
        return []
    if not name or re.search(r"[\d\s]", name) or dates(name, "zh", True):
        return []
    return [name] if greeted or len(name) <= _MOST_SIGNS else []


@cache
def _titled_chinese() -> re.Pattern[str]:
    titles = "|".join(
        title if len(title) > 1 else f"{title}(?!共|计|数|额)" for title in lists().chinese_titles
    )
    return re.compile(f"([^\\W\\dA-Za-z你我他她您的和与])({titles})")
