"""Times as people write them, found in a sentence and computed in code; times in words for people.

English and German are understood inside a sentence (``sia.timewords``); a short phrase without
digits may be in more languages ("demain", "vendredi"). dateparser reads the written dates; left
alone with a sentence it drops the hour of "tomorrow at 9", puts "the 15th" into the past and finds
days in "may" and "sat".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sia import repeats
from sia.repeatwords import monthday
from sia.timevocabulary import Clock, Piece, parsed
from sia.timewords import add_months, before, limited, scan

MOST_TEXT = 4000  # characters that are looked at
_SLOTS = {  # hours of a part of a day; of today the first that is still to come
    "": (9, 12, 15, 18, 21),
    "morning": (9, 11),
    "afternoon": (15, 17),
    "evening": (18, 20, 21),
    "night": (20, 22, 23),
}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_DAYS = {"day": 1, "week": 7, "fortnight": 14}
_MONTHS = {"month": 1, "year": 12}
_OTHER_LANGUAGES = ("fr", "es", "it", "nl", "pt", "pl", "sv", "da", "cs")
_JOINED = re.compile(r"[\s,]*(?:(?:the|at|on|in|of|den|dem|and)\s+)?", re.IGNORECASE)


@dataclass(frozen=True)
class TimePhrase:
    """A time found in a text. ``due`` is aware, in the person's zone; it may lie in the past."""

    due: datetime
    spans: tuple[tuple[int, int], ...]  # where in the text, in characters
    has_time: bool  # False: a day or a part of it was given, the hour is a default
    moved: bool = False  # summer time skips the hour given; due is as much later
    repeat: str = ""  # "every ...": the rule (``sia.repeats``) whose first time due is
    elapsed: bool = False  # "in 10 minutes": by a stopwatch, however the clock is set
    has_day: bool = True  # False: a clock alone was given, of today or tomorrow
    part: str = ""  # of the day: morning | afternoon | evening | night

    def rest(self, text: str) -> str:
        """``text`` without the phrase, spaces and commas tidied."""
        for start, end in sorted(self.spans, reverse=True):
            text = f"{text[:start]} {text[end:]}"
        return re.sub(r"\s+([,.;!?])", r"\1", " ".join(text.split())).strip(" ,;")


def understand(text: str, now: datetime, timezone: str) -> TimePhrase | None:
    """The time named in ``text``, as the person at ``now`` (aware) in ``timezone`` means it.

    The hour is the person's wall clock. One that summer time skips is taken with the offset before
    it (02:30 rings at 03:30), one that comes twice the first time. An hour without am or pm is the
    next one by day ("at 5" is 17:00), and in the morning where the text is about waking up.
    Raises zoneinfo.ZoneInfoNotFoundError.
    """
    zone = ZoneInfo(timezone)
    here, text = now.astimezone(zone), text[:MOST_TEXT]
    alarm = re.search(r"\b(?:(wake|weck)|(alarm)|timer|countdown|reminder)", text, re.IGNORECASE)
    rings = "" if alarm is None else "wake" if alarm[1] else "alarm" if alarm[2] else "timer"
    pieces = scan(text, here.date(), bool(rings))
    limits = limited(text, pieces)
    groups = _groups(text, [piece for piece in pieces if piece.start not in limits])
    if not groups:
        return _other_language(text, here, zone)
    chosen = _chosen(groups)
    spans = [(group[0].start, group[-1].end) for group in chosen]
    earlier = before(text)
    try:
        said = _join(chosen)
        if said.rule:
            spans += [(start, end) for start, end, _ in limits.values()]
            until = next((until for _, _, until in limits.values()), None)
            return _repeated(said, until, tuple(spans), here, zone, rings)
        due, has_time, moved = _resolve(said, here, zone, rings)
        if earlier and not any(a < earlier[0][1] and earlier[0][0] < b for a, b in spans):
            due = _later(due, earlier[1], zone, -1)
            spans.append(earlier[0])
    except (OverflowError, ValueError):  # "in 99999999 years": no calendar has that day
        return None
    elapsed = bool(said.amounts) and all(unit in _SECONDS for unit, _ in said.amounts)
    has_day = bool(said.day or said.amounts)
    return TimePhrase(due, tuple(spans), has_time, moved, "", elapsed, has_day, said.part)


def wall(moment: datetime, zone: ZoneInfo) -> datetime:
    """The naive wall-clock ``moment`` as an aware one: skipped hours later, doubled ones first."""
    aware = moment.replace(tzinfo=zone, fold=0)
    return aware.astimezone(UTC).astimezone(zone)


def is_after(due: datetime, now: datetime) -> bool:
    """Whether ``due`` is still to come. Python compares two times of one zone by the wall clock."""
    return due.astimezone(UTC) > now.astimezone(UTC)


def words(due: datetime, now: datetime) -> str:
    """``due`` for people: "tomorrow, Tuesday 1 December, at 09:00"; both aware, in one zone."""
    seconds = round((due.astimezone(UTC) - now.astimezone(UTC)).total_seconds())
    if 0 < seconds < 120:
        return f"in {seconds} second{'s' * (seconds != 1)}"
    day = day_words(due.date(), now.date())
    return f"{day}{',' * day.startswith('tomorrow')} at {due:%H:%M}"


def day_words(day: date, today: date) -> str:
    """ "today", "tomorrow, Tuesday 1 December", "on Friday 4 December"; another year is named."""
    if day == today:
        return "today"
    year = f" {day.year}" if day.year != today.year else ""
    named = f"{day:%A} {day.day} {day:%B}{year}"
    return f"tomorrow, {named}" if day == today + timedelta(1) else f"on {named}"


def _groups(text: str, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces that stand together and do not contradict each other."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        if groups:
            last = groups[-1]
            between = text[last[-1].end : piece.start]
            taken = frozenset().union(*(other.says for other in last))
            if _JOINED.fullmatch(between) and not taken & piece.says:
                last.append(piece)
                continue
        groups.append([piece])
    return groups


def _chosen(groups: list[list[Piece]]) -> list[list[Piece]]:
    """The first group that names a day and an hour; else the first, with what it lacks."""

    def says(group: list[Piece]) -> frozenset[str]:
        return frozenset().union(*(piece.says for piece in group))

    whole = [g for g in groups if says(g) & {"clock", "amounts"} and says(g) & {"day", "amounts"}]
    if whole:
        return [whole[0]]
    first = groups[0]
    lacking = {"clock", "part"} if "day" in says(first) else {"day"}
    other = next((group for group in groups[1:] if says(group) <= lacking), None)
    return [first, other] if other else [first]


def _join(groups: list[list[Piece]]) -> Piece:
    """One piece that says what all say."""
    pieces = [piece for group in groups for piece in group]
    return Piece(
        pieces[0].start,
        pieces[-1].end,
        day=next((piece.day for piece in pieces if piece.day), None),
        part=next((piece.part for piece in pieces if piece.part), ""),
        clock=next((piece.clock for piece in pieces if piece.clock), None),
        amounts=next((piece.amounts for piece in pieces if piece.amounts), ()),
        rule=next((piece.rule for piece in pieces if piece.rule), ""),
    )


def _resolve(said: Piece, now: datetime, zone: ZoneInfo, rings: str) -> tuple[datetime, bool, bool]:
    """(due, has_time, moved)"""
    day = said.day
    if said.amounts:
        later = _later(now, said.amounts, zone)
        if any(unit in _SECONDS for unit, _ in said.amounts):
            return later, True, False
        day = later.date()
    clock_time = _wall_time(said, day, now, zone, rings)
    due = wall(clock_time, zone)
    return due, said.clock is not None, due.replace(tzinfo=None) != clock_time


def _repeated(
    said: Piece,
    until: date | int | None,
    spans: tuple[tuple[int, int], ...],
    now: datetime,
    zone: ZoneInfo,
    rings: str,
) -> TimePhrase | None:
    """The first time of a rule. until: its last day, or how often it comes."""
    elapsed = bool(said.amounts) and all(unit in _SECONDS for unit, _ in said.amounts)
    rule = said.rule
    if rule.startswith("FREQ=MONTHLY") and said.amounts and not said.day:
        rule += (
            f";{monthday(now.day)}"  # on 30 November "quarterly" means the 30th, not 28 February
        )
    if elapsed:
        moment = _later(now, said.amounts, zone).replace(microsecond=0)
    else:
        day = said.day or (_later(now, said.amounts, zone).date() if said.amounts else now.date())
        moment = _wall_time(said, day, now, zone, rings)
        # Counted from the first time that is still to come, so that "3 times" are three.
        every = rule if said.amounts else re.sub(r"INTERVAL=\d+;", "", rule)
        first = repeats.first_after(repeats.series(moment, every), zone, now)
        if first is None:
            return None
        while wall(moment, zone).astimezone(UTC) < first.astimezone(UTC):
            moment += timedelta(1)
    text = repeats.series(moment, f"{rule}{_limit(until, zone, elapsed)}")
    due = repeats.first_after(text, zone, now)
    if due is None:
        return None
    moved = not elapsed and due.replace(tzinfo=None) != moment
    has_time = elapsed or said.clock is not None
    return TimePhrase(due, spans, has_time, moved, text, part=said.part)


def _limit(until: date | int | None, zone: ZoneInfo, elapsed: bool) -> str:
    if until is None:
        return ""
    if isinstance(until, int):
        return f";COUNT={until}"
    end = datetime.combine(until, time(23, 59, 59))
    zulu = f"{wall(end, zone).astimezone(UTC):%Y%m%dT%H%M%S}Z"
    return f";UNTIL={zulu if elapsed else f'{end:%Y%m%dT%H%M%S}'}"


def _later(
    moment: datetime, amounts: Sequence[tuple[str, float]], zone: ZoneInfo, sign: int = 1
) -> datetime:
    """Days and more by the wall clock, hours and less by elapsed time."""
    here = moment.astimezone(zone).replace(tzinfo=None)
    elapsed = timedelta()
    for unit, count in amounts:
        if unit in _SECONDS:
            elapsed += timedelta(seconds=count * _SECONDS[unit])
        elif unit in _DAYS:
            here += sign * timedelta(round(count * _DAYS[unit]))
        else:
            day = add_months(here.date(), sign * round(count * _MONTHS[unit]))
            here = datetime.combine(day, here.time())
    same = here == moment.astimezone(zone).replace(tzinfo=None)
    start = moment if same else wall(here, zone)  # the second of two 02:30s stays the second
    return (start.astimezone(UTC) + sign * elapsed).astimezone(zone)


def _wall_time(
    said: Piece, day: date | None, now: datetime, zone: ZoneInfo, rings: str
) -> datetime:
    """The naive wall-clock time that is meant; of today the next one, if one is left."""
    if said.clock is None:
        hours = _SLOTS[said.part]
        times = [(hour, 0) for hour in hours]
    else:
        times = [(hour, said.clock.minute) for hour in _hours(said.clock, said.part, rings)]
    today = now.date()
    if day in (None, today) and not said.rule:
        for hour, minute in times:
            moment = _at(today, hour, minute)
            if is_after(wall(moment, zone), now):
                return moment
    if day == today and not said.rule:
        return _at(today, *times[-1])
    return _at(day or today + timedelta(1), *times[0])


def _at(day: date, hour: int, minute: int) -> datetime:
    return datetime.combine(day + timedelta(hour // 24), time(hour % 24, minute))


def _hours(clock: Clock, part: str, rings: str) -> list[int]:
    """The hours of a day that the clock may mean, counted on over midnight (26 is 2 at night)."""
    hour = clock.hour
    if part == "night" and hour < 6:
        return [hour + 24]
    if clock.sure:
        return [hour]
    if part == "morning":
        return [hour % 12]
    if part:
        return [hour if hour == 12 and part == "afternoon" else hour + 12]
    if rings == "wake" or hour == 12:
        return [hour]
    return [hour, hour + 12] if hour >= 7 or rings == "alarm" else [hour + 12]


def _other_language(text: str, now: datetime, zone: ZoneInfo) -> TimePhrase | None:
    whole = text.strip(" .!?")
    if re.search(r"\d", whole) or len(whole) < 5 or len(whole.split()) > 4:
        return None
    day = parsed(whole, now.date(), _OTHER_LANGUAGES)
    if day is None:
        return None
    due = wall(_wall_time(Piece(0, 0), day, now, zone, ""), zone)
    return TimePhrase(due, ((0, len(text)),), has_time=False)
