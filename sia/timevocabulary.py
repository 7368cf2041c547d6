"""Words of time, English and German, and the piece of a time that a rule makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, time


@dataclass(frozen=True)
class Clock:
    hour: int  # 0..24; 24 is the midnight that ends the day
    minute: int
    sure: bool  # False: may be twelve hours later as well


@dataclass(frozen=True)
class Piece:
    """What one piece says, at text[start:end]; what it does not say is empty."""

    start: int
    end: int
    day: date | None = None
    part: str = ""  # morning | afternoon | evening | night
    clock: Clock | None = None
    amounts: tuple[tuple[str, float], ...] = ()  # (unit, how many) from now
    rule: str = ""  # it comes again: an RRULE of RFC 5545, without what the first time says

    @property
    def says(self) -> frozenset[str]:
        names = ("day", "part", "clock", "amounts")
        return frozenset(name for name in names if getattr(self, name))


@dataclass
class Scan:
    """The text, the person's date, and the pieces found so far."""

    text: str
    today: date
    alarm: bool
    pieces: list[Piece] = field(default_factory=list)


EN = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DE = ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag")
SHORT = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEKDAYS = {
    **{name: number for names in (EN, DE, SHORT) for number, name in enumerate(names)},
    **{"tues": 1, "weds": 2, "thur": 3, "thurs": 3, "sonnabend": 5},
}
HOURS = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "eins": 1, "zwei": 2, "drei": 3},
    **{"vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10},
    **{"elf": 11, "zwölf": 12},
}
NUMBERS = {
    **HOURS,
    **{"a": 1, "an": 1, "fifteen": 15, "twenty": 20, "twenty-five": 25, "thirty": 30, "forty": 40},
    **{"forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90, "a couple of": 2, "half an": 0.5},
    **{"half a": 0.5, "a half": 0.5, "a quarter of an": 0.25, "quarter of an": 0.25},
    **{"three quarters of an": 0.75, "ein": 1, "eine": 1, "einem": 1, "einer": 1, "einen": 1},
    **{"fünfzehn": 15, "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50},
    **{"einer halben": 0.5, "eine halbe": 0.5, "anderthalb": 1.5, "eineinhalb": 1.5},
}
UNITS = {
    r"s|secs?|seconds?|sekunden?": "second",
    r"m|mins?|minutes?|minuten?": "minute",
    r"h|hrs?|hours?|stunden?|std": "hour",
    r"days?|tage?n?": "day",
    r"weeks?|wochen?": "week",
    r"fortnights?": "fortnight",
    r"months?|monate?n?": "month",
    r"years?|jahre?n?": "year",
}
PARTS = {
    **{name: name for name in ("morning", "afternoon", "evening", "night")},
    **{"morgen": "morning", "früh": "morning", "vormittag": "morning", "nachmittag": "afternoon"},
    **{"abend": "evening", "nacht": "night"},
}


def either(words: Iterable[str]) -> str:
    return "|".join(sorted((re.escape(word) for word in words), key=len, reverse=True))


NUMBER = rf"(?:\d+(?:[.,]\d+)?|(?:{either(NUMBERS)})(?=[\s-]))"
UNIT = rf"(?:{'|'.join(UNITS)})"
AND_HALF = r"\s+and\s+a\s+(?:half|quarter)"
AMOUNT = re.compile(
    rf"(?P<n>{NUMBER})(?P<h>{AND_HALF})?[\s-]*(?P<u>{UNIT})\b(?P<t>{AND_HALF})?"
    rf"|(?P<v>(?:einer?\s+)?viertelstunde)\b",
    re.IGNORECASE,
)
ONE = (
    rf"(?:{NUMBER}(?:{AND_HALF})?[\s-]*{UNIT}\b(?:{AND_HALF})?"
    r"|(?:einer?\s+)?viertelstunde\b)"
)
AMOUNTS = rf"{ONE}(?:\s*(?:,|and\b|und\b)?\s*{ONE})?"
WEEKDAY = rf"(?:{either((*EN, *DE, 'sonnabend'))})"
MONTH = (
    r"(?:jan(?:uary|uar)?|jänner|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni"
    r"|july?|juli|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
HOUR = rf"(?:2[0-4]|[01]?\d|(?:{either(HOURS)})\b)"
AMPM = r"(?:\s?(?P<half>[ap])\.?m\b\.?)"
AT = r"(?:at|by|until|till|around|before|from|um|gegen|ab|bis|@)"
ON = r"(?:on|by|until|till|from|before|am|ab|bis|zum)"
ANY_WEEKDAY = rf"(?:{either(WEEKDAYS)})"
PART = rf"(?:{either(PARTS)})"


def number(text: str) -> float:
    words = re.sub(r"\s+", " ", text.lower())
    return NUMBERS[words] if words in NUMBERS else float(words.replace(",", "."))


def amounts(text: str) -> tuple[tuple[str, float], ...]:
    total: dict[str, float] = {}
    for match in AMOUNT.finditer(text):
        if match["v"]:
            unit, count = "minute", 15.0
        else:
            unit = next(u for words, u in UNITS.items() if re.fullmatch(words, match["u"], re.I))
            half = match["h"] or match["t"] or ""
            count = number(match["n"]) + (0.5 if "half" in half else 0.25 if half else 0)
        total[unit] = total.get(unit, 0) + count
    return tuple(total.items())


def parsed(text: str, today: date, languages: Iterable[str], prefer: str = "future") -> date | None:
    """The day that ``text`` as a whole names in one of the languages (dateparser), if any.

    prefer: "future" or "past", where it leaves open which year or week.
    """
    from dateparser.date import DateDataParser

    settings = {
        "RELATIVE_BASE": datetime.combine(today, time()),
        "PREFER_DATES_FROM": prefer,
        "DATE_ORDER": "DMY",
    }
    data = DateDataParser(languages=list(languages), settings=settings).get_date_data(text)
    if data.date_obj is None or data.period not in ("day", "week"):
        return None
    day = data.date_obj.date()
    if (day.month, day.day) == (today.month, today.day) and not re.search(r"\d{4}", text):
        return today  # on 3 March, "3 March" is today and not in a year
    return day
