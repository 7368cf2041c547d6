"""Repeats as people say them ("every other friday", "alle zwei Wochen"), as rules of RFC 5545."""

from __future__ import annotations

import re
from dataclasses import replace

from sia.timevocabulary import (
    AMOUNTS,
    AND_HALF,
    ANY_WEEKDAY,
    DE,
    EN,
    MONTH,
    PART,
    PARTS,
    UNIT,
    WEEKDAY,
    WEEKDAYS,
    Piece,
    Scan,
    amounts,
    either,
    parsed,
)

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
WORKDAYS = ",".join(DAYS[:5])
_UNITS = {
    **{"second": "SECONDLY", "minute": "MINUTELY", "hour": "HOURLY", "day": "DAILY"},
    **{"week": "WEEKLY", "fortnight": "WEEKLY", "month": "MONTHLY", "year": "YEARLY"},
}
_SECONDS = {"hour": 3600, "minute": 60, "second": 1}
_ORDINALS = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "last": -1},
    **{"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "1.": 1, "2.": 2, "3.": 3, "4.": 4},
    **{"ersten": 1, "zweiten": 2, "dritten": 3, "vierten": 4, "letzten": -1},
    **{"erster": 1, "zweiter": 2, "dritter": 3, "vierter": 4, "letzter": -1},
}
_ADVERBS = {
    **{"daily": "1 day", "täglich": "1 day", "hourly": "1 hour", "stündlich": "1 hour"},
    **{"weekly": "1 week", "wöchentlich": "1 week", "fortnightly": "2 weeks"},
    **{"biweekly": "2 weeks", "zweiwöchentlich": "2 weeks", "monthly": "1 month"},
    **{"monatlich": "1 month", "quarterly": "3 months", "vierteljährlich": "3 months"},
    **{"yearly": "1 year", "annually": "1 year", "jährlich": "1 year"},
}
_ORDINAL = rf"(?P<ordinal>{either(_ORDINALS)})"
_AND = r"\s*(?:,\s*(?:and\s+|und\s+)?|\s(?:and|und|&)\s+)(?:every\s+|each\s+|jeden\s+|on\s+)?"
_LIST = rf"{ANY_WEEKDAY}(?:{_AND}{ANY_WEEKDAY}\b)*"
_PLURALS = rf"(?:{either((*EN, *DE))})s(?:{_AND}(?:{either((*EN, *DE))})s\b)*"
_EVERY = r"(?:every|each|jede[nrsm]?)\s+(?:single\s+)?"
_NOT_MINE = r"(?<!my\s)(?<!the\s)(?<!our\s)(?<!a\s)"
_OF_MONTH = r"(?P<month>\s+(?:(?:of|in)\s+(?:the|each|every)|im|des|jedes)\s+(?:month|monate?s?)\b)"
_EVERY_MONTH = r"\s+(?:of|in)?\s*(?:every|each|jede[sn]|im)\s+(?:month|monate?s?)\b"

# Tried in this order by ``sia.timewords.scan``; ``repeat`` reads the groups that a pattern has.
REPEATS = (
    rf"(?:on\s+)?{_EVERY}{_ORDINAL}\s+(?P<last>day|tag){_OF_MONTH}",
    rf"(?:on\s+)?{_EVERY}{_ORDINAL}\s+(?P<days>{_LIST})\b{_OF_MONTH}?",
    rf"(?:(?:on\s+)?the|am|an jedem)\s+{_ORDINAL}\s+(?P<last>day|tag){_EVERY_MONTH}",
    rf"(?:(?:on\s+)?the|am|an jedem)\s+{_ORDINAL}\s+(?P<days>{_LIST}){_EVERY_MONTH}",
    rf"(?:on\s+the\s+|the\s+|am\s+)(?P<date>\d\d?)(?:st|nd|rd|th|\.){_EVERY_MONTH}",
    rf"(?:on\s+)?{_EVERY}(?P<date>\d\d?)(?:st|nd|rd|th|\.)(?!\s*{MONTH})(?![\w/]){_OF_MONTH}?",
    rf"(?:on\s+)?{_EVERY}(?P<yearly>\d\d?(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{MONTH}"
    rf"|{MONTH}\s+\d\d?(?:st|nd|rd|th)?\b)",
    rf"(?:on\s+)?(?:{_EVERY}(?:other|second|zweite[nrs]?)|alternate)\s+"
    rf"(?:(?P<days>{_LIST})|(?P<other>day|week|month|year|tag|woche|monat|jahr))\b",
    rf"(?:on\s+)?{_EVERY}(?P<what>weekday|werktag|weekend|wochenende)\b",
    rf"(?:on\s+)?{_EVERY}(?P<days>{_LIST})\b",
    rf"{_EVERY}(?P<what>day|tag|{PART})\b",
    rf"(?:every|each|jede[nrs]?|alle)\s+(?P<amounts>{AMOUNTS})\b",
    rf"{_EVERY}(?P<unit>{UNIT}\b(?:{AND_HALF})?)",
    r"(?:on\s+)?(?P<what>weekdays|werktags)\b",
    rf"(?:on\s+)?(?P<days>{_PLURALS})\b",
    rf"{_NOT_MINE}(?P<what>nightly)\b",
    rf"{_NOT_MINE}(?P<adverb>{either(_ADVERBS)})\b",
)


def repeat(match: re.Match[str], scan: Scan) -> Piece | None:
    """The piece of one of ``REPEATS``: its rule, and the day or the time it begins with."""
    given = {name: text.lower() for name, text in match.groupdict().items() if text}
    start, end, today = match.start(), match.end(), scan.today
    ordinal = _ORDINALS.get(given.get("ordinal", ""), 0)
    if "last" in given:
        return Piece(start, end, day=today, rule=f"FREQ=MONTHLY;BYMONTHDAY={ordinal}")
    if "days" in given:
        return Piece(start, end, day=today, rule=_weekdays(given, ordinal, match[0].lower()))
    if "date" in given:
        day = int(given["date"])
        rule = f"FREQ=MONTHLY;{monthday(day)}"
        return Piece(start, end, day=today, rule=rule) if 1 <= day <= 31 else None
    if "yearly" in given:
        text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b", " ", given["yearly"])
        first = parsed(text, today, ("en", "de"))
        return Piece(start, end, day=first, rule="FREQ=YEARLY") if first else None
    if "what" in given:
        return _named(given["what"], Piece(start, end, day=today))
    spoken = given.get("amounts") or _ADVERBS.get(given.get("adverb", "")) or ""
    spoken = spoken or f"{'2' if 'other' in given else '1'} {given.get('other') or given['unit']}"
    return _spaced(spoken, Piece(start, end, day=today))


def monthday(day: int) -> str:
    """The part of a rule for a day of each month: the month's last where it is shorter."""
    if day <= 28:
        return f"BYMONTHDAY={day}"
    return f"BYMONTHDAY={','.join(map(str, range(28, day + 1)))};BYSETPOS=-1"


def _weekdays(given: dict[str, str], ordinal: int, text: str) -> str:
    found = re.findall(rf"{WEEKDAY}|{ANY_WEEKDAY}", given["days"])
    days = [DAYS[number] for number in sorted({WEEKDAYS[name] for name in found})]
    # "every second monday" is every other one, but "every second monday of the month" is not.
    each = re.match(r"(?:on\s+)?(?:every|each|jede)", text)
    if ordinal and (ordinal != 2 or "month" in given or not each):
        return f"FREQ=MONTHLY;BYDAY={','.join(f'{ordinal:+d}{day}' for day in days)}"
    other = ordinal == 2 or re.search(r"\b(?:other|second|alternate|zweite)", text)
    return f"FREQ=WEEKLY;{'INTERVAL=2;' * bool(other)}BYDAY={','.join(days)}"


def _named(what: str, piece: Piece) -> Piece:
    """every weekday, weekend, day, morning"""
    rules = {"week": f"FREQ=WEEKLY;BYDAY={WORKDAYS}", "werk": f"FREQ=WEEKLY;BYDAY={WORKDAYS}"}
    rule = rules.get(what[:4], "FREQ=DAILY")
    if what in ("weekend", "wochenende"):
        rule = "FREQ=WEEKLY;BYDAY=SA"
    part = "night" if what == "nightly" else PARTS.get(what, "")
    return Piece(piece.start, piece.end, day=piece.day, part=part, rule=rule)


def _spaced(spoken: str, piece: Piece) -> Piece | None:
    """every 20 minutes, every 2 weeks: the first time is one step from now."""
    said = dict(amounts(spoken))
    if said.keys() <= _SECONDS.keys():
        total = round(sum(_SECONDS[unit] * count for unit, count in said.items()))
        unit = next((unit for unit, size in _SECONDS.items() if total % size == 0), "second")
        freq, count = _UNITS[unit], total // _SECONDS[unit]
    else:
        (unit, number), *more = said.items()
        freq, count = _UNITS[unit], int(number) * (2 if unit == "fortnight" else 1)
        if more or number % 1:
            return None
    if not 0 < count < 100_000:
        return None
    rule = f"FREQ={freq}" + (f";INTERVAL={count}" if count > 1 else "")
    if rule == "FREQ=DAILY":
        return replace(piece, rule=rule)
    return replace(piece, day=None, amounts=tuple(said.items()), rule=rule)
