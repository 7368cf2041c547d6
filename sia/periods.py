"""Spans of past days that stand in a sentence: yesterday, last week, the last 3 days, since May."""

from __future__ import annotations

import re
from datetime import date, timedelta

from sia.timevocabulary import MONTH, WEEKDAY, parsed
from sia.timewords import add_months

_UNIT = r"(?P<unit>minute|hour|day|week|month|year)"
_LAST = re.compile(
    rf"(?:(?:from|in|within|of|during|over|since)\s+)?(?:the\s+)?(?:last|past)\s+"
    rf"(?:(?P<n>\d+|two|three|four|five|six|few|couple\s+of)\s+)?{_UNIT}s?\b",
    re.IGNORECASE,
)
_THIS = re.compile(r"(?:(?:from|in|of)\s+)?this\s+(?P<unit>week|month|year)\b", re.IGNORECASE)
_DAY = re.compile(
    r"(?:(?P<since>since)|from|of)?\s*\b(?P<day>today|yesterday)(?:['’]s)?\b", re.IGNORECASE
)
_NAMED = re.compile(
    r"\b(?P<way>since|from|of|in|on)\s+(?:last\s+)?(?P<when>\d{4}-\d\d-\d\d|\d\d?(?:st|nd|rd|th|\.)?"
    rf"\s+{MONTH}(?:\s+\d{{4}})?|{MONTH}(?:\s+\d{{1,2}}\b)?(?:,?\s+\d{{4}})?|{WEEKDAY}|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_COUNTS = {"two": 2, "couple of": 2, "three": 3, "few": 3, "four": 4, "five": 5, "six": 6}


def past(text: str, today: date) -> tuple[date | None, date | None, str]:
    """(first day, the day after the last, the text without it); None: open, or nothing is said."""
    for pattern, days in (
        (_LAST, _last), (_THIS, _this), (_DAY, _day), (_NAMED, _named),
    ):  # fmt: skip
        match = pattern.search(text)
        try:
            span = days(match, today) if match else None
        except (OverflowError, ValueError):  # "the last 99999999 days": no calendar has that day
            span = None
        if match and span:
            return *span, f"{text[: match.start()]} {text[match.end() :]}"
    return None, None, text


_Span = tuple[date, date | None]


def _last(match: re.Match[str], today: date) -> _Span:
    """ "last week" is the calendar's, "the last week" and "the past week" are seven days."""
    unit = match["unit"].lower()
    counted = (
        match["n"]
        or unit not in ("week", "month", "year")
        or re.search(r"\bthe\b|\bpast\b", match[0], re.IGNORECASE)
    )
    word = " ".join((match["n"] or "1").lower().split())
    count = _COUNTS[word] if word in _COUNTS else int(word)
    if not counted:
        first = _calendar(unit, today)[0]
        return _calendar(unit, first - timedelta(1))[0], first
    if unit in ("month", "year"):
        return add_months(today, -count * (12 if unit == "year" else 1)), None
    return today - timedelta(count * {"week": 7, "day": 1}.get(unit, 0)), None


def _this(match: re.Match[str], today: date) -> _Span:
    return _calendar(match["unit"].lower(), today)[0], None


def _calendar(unit: str, day: date) -> _Span:
    """The first day of the week, month or year, and the first after it."""
    if unit == "week":
        first = day - timedelta(day.weekday())
        return first, first + timedelta(7)
    first = day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)
    return first, add_months(first, 1 if unit == "month" else 12)


def _day(match: re.Match[str], today: date) -> _Span:
    day = today - timedelta(match["day"].lower() == "yesterday")
    return day, None if match["since"] else day + timedelta(1)


def _named(match: re.Match[str], today: date) -> _Span | None:
    when = match["when"]
    if when.isdigit():
        first, after = _calendar("year", date(int(when), 1, 1))
    elif re.fullmatch(rf"{MONTH}(?:,?\s+\d{{4}})?", when, re.IGNORECASE):
        month = parsed(f"1 {when}", today, ("en", "de"), "past")
        if month is None:
            return None
        first, after = _calendar("month", month)
    else:
        text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", when)
        day = parsed(text, today, ("en", "de"), "past")
        if day is None:
            return None
        first, after = day, day + timedelta(1)
    return first, None if match["way"].lower() == "since" else after
