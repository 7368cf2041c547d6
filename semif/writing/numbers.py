"""Numbers as they are written in a text: whole, with sign and unit, to hold two texts together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from semif.writing.words import CJK, WORD, lists

_NUMBER = re.compile(
    r"(?P<minus>(?<![^\s(\[\"'“„:=,;|])-|(?:\b(?:minus|moins|menos)|零下|负) ?)?"
    r"(?P<digits>\d+(?:[.,:/'-]\d+|h\d\d(?!\d))*)"
)
# "-1.9 %" may be told as "down 1.9 %"; "cut down 3 trees" is still 3.
_DOWN = re.compile(r"\b(?:down|below|fell|fallen|dropped|lost)(?: by| of)? $")
_GROUPED = re.compile(r"\d{1,3}(?:([.,'])\d{3}(?:\1\d{3})*)(?:[.,]\d+)?")
_TIME = re.compile(r"(\d{1,2})[:h](\d\d)")
_UNIT = re.compile(rf"[ -]?(%|°[cf]?|[$€£¥]|[ap]\.? ?m\b\.?|o'clock\b|(?:(?![{CJK}])[^\W\d_])+)")
_CHINESE_UNIT = re.compile(rf" ?([{CJK}]{{1,2}})")
_CURRENCY = re.compile(r"([$€£¥]) ?-?$")
_CHINESE = dict(zip("零一二两三四五六七八九", (0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
_CHINESE_TENS = {"十": 10, "百": 100, "千": 1000}
_NUMERALS = re.compile("[零一二两三四五六七八九十百千]+")


@dataclass(frozen=True)
class Number:
    """A number: as written (folded), what means the same, and what its unit may mean."""

    text: str
    forms: frozenset[str]
    units: frozenset[str] = frozenset()
    parts: tuple[Number, ...] = ()  # of a range, a fraction or a score: 10-12, 3/4

    def same(self, other: Number) -> bool:
        """Whether both are one number, of one unit where both have one."""
        if not self.forms & other.forms:
            return False
        return not self.units or not other.units or bool(self.units & other.units)

    def among(self, others: Iterable[Number]) -> bool:
        """Whether it stands among numbers: itself or, of a range, both its ends."""
        found = [part for other in others for part in (other, *other.parts)]
        if any(self.same(other) for other in found):
            return True
        return bool(self.parts) and all(
            any(part.same(other) for other in found) for part in self.parts
        )


def numbers(text: str) -> list[Number]:
    """Those that a folded text has in digits."""
    found = []
    for match in _NUMBER.finditer(text):
        sign, digits = "-" if match["minus"] else "", match["digits"]
        units = _units(text, match.start(), match.end())
        ends = re.split(r"[-/]", digits)
        parts: tuple[Number, ...] = ()
        if len(ends) == 2:
            signs = (sign, "")
            parts = tuple(
                Number(sign + end, _forms(sign, end), units)
                for sign, end in zip(signs, ends, strict=True)
            )
        forms = _forms(sign, digits)
        if not sign and _DOWN.search(text[max(0, match.start() - 12) : match.start()]):
            forms |= _forms("-", digits)
        found.append(Number(sign + digits, forms, units, parts))
    return found


def worded(text: str, language: str | None) -> list[Number]:
    """Those that a folded text has in words ("three", "twenty-five", 三十); "one" is an article."""
    table, found = lists().numbers(language), []
    for match in WORD.finditer(text):
        values = [table.get(part) for part in match[0].split("-")]
        if None in values:
            continue
        numbered = [value for value in values if value is not None]
        if len(numbered) == 2 and numbered[0] >= 20 and numbered[1] < 10:
            numbered = [sum(numbered)]
        units = _units(text, match.start(), match.end())
        found += [Number(match[0], frozenset((str(value),)), units) for value in numbered]
    plain = text
    for word in (*lists().idioms, *(word for word, _ in lists().chinese_dates)):
        plain = plain.replace(word, " " * len(word))
    for match in _NUMERALS.finditer(plain):
        value = _chinese(match[0])
        if value is not None and value > 1:
            units = _units(text, match.start(), match.end())
            found.append(Number(match[0], frozenset((str(value),)), units))
    return found


def _forms(sign: str, digits: str) -> frozenset[str]:
    """1,340 is 1340; 07h05 is 7:05."""
    found = {digits}
    if grouped := _GROUPED.fullmatch(digits):
        found.add(digits.replace(grouped[1], "", digits.count(grouped[1])))
    if time := _TIME.fullmatch(digits):
        found.add(f"{int(time[1])}:{time[2]}")
    return frozenset(sign + form for form in found)


def _units(text: str, begin: int, end: int) -> frozenset[str]:
    known = lists().units
    if currency := _CURRENCY.search(text[max(0, begin - 3) : begin]):
        return known[currency[1]]
    if match := _UNIT.match(text, end):
        return known.get(re.sub("[ .]", "", match[1]), frozenset())
    if match := _CHINESE_UNIT.match(text, end):
        return known.get(match[1]) or known.get(match[1][:1], frozenset())
    return frozenset()


def _chinese(numeral: str) -> int | None:
    """The value of 三, 十二, 三百二十; None where digits merely follow one another (三四天)."""
    total, digit = 0, None
    for sign in numeral:
        if sign in _CHINESE_TENS:
            total += (1 if digit is None else digit) * _CHINESE_TENS[sign]
            digit = None
        elif sign == "零":
            continue
        elif digit is not None:
            return None
        else:
            digit = _CHINESE[sign]
    return total + (digit or 0)
