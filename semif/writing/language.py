"""Which of six languages a text is in, by script and by its commonest small words."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import msgspec

_WORD = re.compile(r"[^\W\d_]+")
_CJK = re.compile("[\u3400-\u9fff]")
_LEAST = 2  # small words, before one language is called another


@cache
def _small_words() -> dict[str, frozenset[str]]:
    data = files("semif").joinpath("writing", "small-words.json").read_bytes()
    lists: dict[str, str] = msgspec.json.decode(data, type=dict[str, str])
    return {code: frozenset(words.split()) for code, words in lists.items()}


@cache
def small_words() -> frozenset[str]:
    """The commonest small words of all languages."""
    return frozenset().union(*_small_words().values())


def language(text: str) -> str | None:
    """zh, en, de, fr, es or pt; None where too little tells."""
    words = [word.casefold() for word in _WORD.findall(text)]
    if len(_CJK.findall(text)) >= max(2, len("".join(words)) // 5):
        return "zh"
    counts = {code: sum(w in known for w in words) for code, known in _small_words().items()}
    ranked = sorted(counts, key=lambda code: -counts[code])
    first, second = ranked[:2]
    clear = counts[first] >= _LEAST and counts[first] > counts[second]
    return first if clear else None


def same_language(one: str, other: str) -> bool:
    """False only where both languages are clear and differ, or one is Chinese and one is not."""
    a, b = language(one), language(other)
    if "zh" in (a, b):
        return a == b or not (one and other)
    return a is None or b is None or a == b
