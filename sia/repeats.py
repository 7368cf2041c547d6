"""Repeat rules of reminders: RFC 5545 text, the times it gives by a wall clock, and its words.

A rule is kept as two lines, ``DTSTART:20261201T023000`` (the wall clock, also where summer time
skips it) and ``RRULE:FREQ=DAILY``. Rules of hours and less
count elapsed time, from a DTSTART in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from sia.repeatwords import DAYS, WORKDAYS, monthday

_ELAPSED = {"SECONDLY": 1, "MINUTELY": 60, "HOURLY": 3600}
_MOST = 1000  # times that are counted
_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PLACES = {1: "first", 2: "second", 3: "third", 4: "fourth", -1: "last"}
_UNITS = {
    **{"SECONDLY": "second", "MINUTELY": "minute", "HOURLY": "hour", "DAILY": "day"},
    **{"WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"},
}


def series(start: datetime, rule: str) -> str:
    """The text of ``rule`` from ``start``: naive, the wall clock; aware for hours and less.

    A monthly or yearly rule without days is completed from the start, so that one of the 31st
    comes on the last day of a shorter month. Raises ValueError for what is no rule.
    """
    parts = _parts(rule)
    if parts["FREQ"] in ("MONTHLY", "YEARLY") and not any(name.startswith("BY") for name in parts):
        month = f";BYMONTH={start.month}" if parts["FREQ"] == "YEARLY" else ""
        rule += f"{month};{monthday(start.day)}"
    zulu = "Z" if start.tzinfo else ""
    moment = start.astimezone(UTC) if start.tzinfo else start
    text = f"DTSTART:{moment:%Y%m%dT%H%M%S}{zulu}\nRRULE:{rule}"
    _rule(text)
    return text


def check(text: str) -> str:
    """``text`` if it is such a rule; raises ValueError where not."""
    known = re.fullmatch(r"DTSTART:\d{8}T\d{6}(Z?)\nRRULE:FREQ=(\w+)[\w;=,+-]*", text)
    if not known or bool(known[1]) != (known[2] in _ELAPSED) or "INTERVAL=0" in text:
        raise ValueError(f"not a repeat rule: {text!r}")
    _rule(text)
    return text


def first_after(text: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first time after ``after`` (aware), in ``zone``; None where the rule is over."""
    return next(_times(text, zone, after), None)


def count(text: str, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    """How many times lie after ``after`` and not after ``until``; at most 1,000."""
    found = takewhile(lambda due: due <= until.astimezone(UTC), _moments(text, zone, after))
    return sum(1 for _, _ in zip(found, range(_MOST), strict=False))


def words(text: str) -> str:
    """ "every Monday and Thursday at 09:00", "every 20 minutes"."""
    start, rule = _halves(text)
    parts = _parts(rule)
    freq, interval = parts["FREQ"], int(parts.get("INTERVAL", "1"))
    unit = _UNITS[freq]
    said = f"every {unit}" if interval == 1 else f"every {interval} {unit}s"
    days = parts.get("BYDAY", "")
    if days == WORKDAYS and interval == 1:
        said = "every weekday"
    elif days:
        named = _listed([_day(day) for day in days.split(",")])
        other = {1: "every ", 2: "every other "}.get(interval, f"{said} on ")
        said = f"every {named} of the month" if freq == "MONTHLY" else f"{other}{named}"
    elif freq == "WEEKLY":
        said = f"{said} on {_NAMES[start.weekday()]}"
    elif freq == "MONTHLY":
        day = parts["BYMONTHDAY"].rpartition(",")[2]
        said += " on the last day" if day == "-1" else f" on day {day}"
    elif freq == "YEARLY":
        said += f" on {start.day} {start:%B}"
    if freq not in _ELAPSED:
        said += f" at {start:%H:%M}"
    if "UNTIL" in parts:
        end = datetime.strptime(parts["UNTIL"][:8], "%Y%m%d")
        said += f" until {end.day} {end:%B %Y}"
    return said + (f", {parts['COUNT']} times" if "COUNT" in parts else "")


def _day(text: str) -> str:
    place, name = int(text[:-2] or 0), _NAMES[DAYS.index(text[-2:])]
    return f"{_PLACES.get(place, f'{place}th')} {name}" if place else name


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _times(text: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    return (due.astimezone(zone) for due in _moments(text, zone, after))


def _moments(text: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The times after ``after``, in UTC. One that summer time skips has the offset before it (02:30
    becomes 03:30); of one that comes twice only the first counts."""
    start, rule = _halves(text)
    parts, after = _parts(rule), after.astimezone(UTC)
    if size := _ELAPSED.get(parts["FREQ"]):
        yield from _elapsed(
            start, timedelta(seconds=size * int(parts.get("INTERVAL", "1"))), parts, after
        )
        return
    here = after.astimezone(zone).replace(tzinfo=None)
    for naive in _rule(text).xafter(here - timedelta(days=1), inc=True):
        due = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if due > after:
            yield due


def _elapsed(
    start: datetime, step: timedelta, parts: dict[str, str], after: datetime
) -> Iterator[datetime]:
    """Computed, not stepped: a rule of minutes may be years old."""
    start = start.replace(tzinfo=UTC)
    number = max(0, (after - start) // step + 1)
    end = (
        datetime.strptime(parts["UNTIL"][:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        if "UNTIL" in parts
        else None
    )
    while True:
        due = start + number * step
        if (end and due > end) or number >= int(parts.get("COUNT", number + 1)):
            return
        yield due
        number += 1


def _halves(text: str) -> tuple[datetime, str]:
    first, _, second = text.partition("\n")
    moment = first.removeprefix("DTSTART:").removesuffix("Z")
    return datetime.strptime(moment, "%Y%m%dT%H%M%S"), second.removeprefix("RRULE:")


def _parts(rule: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in rule.split(";"))


def _rule(text: str):  # type: ignore[no-untyped-def]  # dateutil has no types
    from dateutil.rrule import rrulestr

    return rrulestr(text)
