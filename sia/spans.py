"""From when to when, found in a sentence: "tomorrow from 3 to 4", "on friday at 10 for 90 minutes",
"from 3 August to 10 August"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sia import times, timewords
from sia.times import TimePhrase
from sia.timevocabulary import AMPM, Piece

_CLOCK = r"(?:2[0-4]|[01]?\d)(?:[:.][0-5]\d)?(?:\s?[ap]\.?m\b\.?|\s*(?:uhr|o['’]?clock)\b)?"
_RANGE = re.compile(
    rf"(?<![\w.,:])(?P<pre>(?:from|between|von|zwischen|at)\s+)?(?P<a>{_CLOCK})\s*"
    rf"(?P<to>-|–|to|until|till|and|bis|und)\s*(?P<b>{_CLOCK})(?![\w.:]|\s*(?:%|€))",
    re.IGNORECASE,
)
_UNTIL_DAY = re.compile(r"\s*(?:-|–|to|until|till|through|bis(?:\s+zum)?)?\s*$", re.IGNORECASE)
_TO = re.compile(r"(?:-|–|to|until|till|through|bis)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Span:
    """start, end: aware, in the person's zone; midnights where it is about whole days."""

    start: datetime
    end: datetime
    all_day: bool
    has_day: bool  # False: only a clock was named
    has_length: bool  # False: the end is a guess
    repeat: str  # a rule of sia.repeats, or empty
    phrase: TimePhrase  # whose ``rest`` is the text without all of it


def understand(text: str, now: datetime, timezone: str, usual: timedelta) -> Span | None:
    """The span named in ``text``. usual: how long one with a clock and no end is.

    Raises zoneinfo.ZoneInfoNotFoundError.
    """
    zone = ZoneInfo(timezone)
    text = text[: times.MOST_TEXT]
    clocks = clock_range(text)
    length = None if clocks else timewords.length(_without_repeats(text))
    seen = text
    if clocks:  # the end would be taken for the time, or for the end of a repeat
        first = f"at {clocks['a']}{_half(clocks)}"
        seen = _put(text, clocks.span(), first)
    elif length:
        seen = _put(text, length[0], "")
    phrase = times.understand(seen, now, timezone)
    if phrase is None:
        return None
    extra = [clocks.span()] if clocks else [length[0]] if length else []
    spans = _back(phrase.spans, clocks, len(text) - len(seen), extra)
    whole = replace(phrase, spans=spans)
    start, end = phrase.due, phrase.due + usual
    if clocks:
        end = _end(start, clocks["b"], zone)
    elif length:
        end = _plus(start, length[1], zone)
    elif not (phrase.has_time or phrase.part):
        return _days(text, whole, now, zone)
    return Span(start, end, False, phrase.has_day, bool(clocks or length), phrase.repeat, whole)


def clock_range(text: str) -> re.Match[str] | None:
    """The "from 3 to 4" in ``text``."""
    return next((match for match in _RANGE.finditer(text) if _is_range(match)), None)


def _is_range(match: re.Match[str]) -> bool:
    """3-4pm, from 3 to 4, 14:00-15:30; not "2 and 3", "10-12" apples, "at 3 to feed"."""
    a, b = match["a"], match["b"]
    clear = re.search(r"[:a-z]", a + b, re.IGNORECASE)
    led = (match["pre"] or "").strip().lower() in ("from", "between", "von", "zwischen")
    return bool(led or (clear and match["to"].lower() not in ("and", "und")))


def _half(clocks: re.Match[str]) -> str:
    """ "from 3 to 4pm" is about two afternoons, "from 11 to 1pm" about one."""
    late = re.search(AMPM, clocks["b"], re.IGNORECASE)
    if not late or re.search(r"[a-z]", clocks["a"], re.IGNORECASE):
        return ""
    first, second = (int(re.split(r"\D", clocks[name])[0]) for name in "ab")
    if first > 12:
        return ""
    same = late["half"].lower()
    return f" {same if first % 12 < second % 12 else 'a' if same == 'p' else 'p'}m"


def _end(start: datetime, text: str, zone: ZoneInfo) -> datetime:
    """The next time after the start that the clock shows ``text``."""
    hour, minute = (int(part) for part in [*re.findall(r"\d+", text), "0"][:2])
    half = re.search(AMPM, text, re.IGNORECASE)
    hours = [hour % 12 + 12 * (half["half"].lower() == "p")] if half else [hour]
    if not half and hour <= 12 and not text.startswith("0"):
        hours = [hour, hour + 12]
    moments = [
        times.wall(datetime.combine(start.date() + timedelta(day), time(h % 24, minute)), zone)
        for day in (0, 1)
        for h in hours
        if h <= 24
    ]
    return min(moment for moment in moments if times.is_after(moment, start))


def _plus(start: datetime, length: timedelta, zone: ZoneInfo) -> datetime:
    return (start.astimezone(UTC) + length).astimezone(zone)


def _days(text: str, phrase: TimePhrase, now: datetime, zone: ZoneInfo) -> Span:
    """Whole days: of the one named, or up to a second one ("from monday to wednesday")."""
    first = phrase.due.date()
    last, spans = first, list(phrase.spans)
    pieces = [piece for piece in timewords.scan(text, now.date(), False) if piece.day]
    for one, two in zip(pieces, pieces[1:], strict=False):
        if one.day == first and two.day and _joined(text, one, two):
            last = two.day
            while last < first:  # "from friday to monday", said on a monday
                last += timedelta(7)
            lead = re.search(r"(?:from|von|vom)\s+$", text[: one.start], re.IGNORECASE)
            spans = [(lead.start() if lead else one.start, two.end)]
            break
    start, end = (
        times.wall(datetime.combine(day, time()), zone) for day in (first, last + timedelta(1))
    )
    return Span(start, end, True, True, True, phrase.repeat, replace(phrase, spans=tuple(spans)))


def _joined(text: str, one: Piece, two: Piece) -> bool:
    between = text[one.end : two.start]
    if not _UNTIL_DAY.fullmatch(between):
        return False
    return bool(between.strip() or _TO.match(text, two.start))


def _without_repeats(text: str) -> str:
    """Blanked "every 2 weeks" and "in 20 minutes", which are no lengths; the places stay."""
    said = r"(?:every|each|alle|in|within|nach)\s+[\w.,]+(?:\s+[\w.]+)?"
    return re.sub(rf"(?<!\w){said}", lambda match: " " * len(match[0]), text, flags=re.IGNORECASE)


def _put(text: str, span: tuple[int, int], other: str) -> str:
    return f"{text[: span[0]]}{other}{text[span[1] :]}"


def _back(
    spans: tuple[tuple[int, int], ...],
    clocks: re.Match[str] | None,
    shorter: int,
    extra: list[tuple[int, int]],
) -> tuple[tuple[int, int], ...]:
    """Places in the changed text as places in the text itself, without overlaps."""
    if not extra:
        return spans
    start, end = extra[0]
    found = [extra[0]]
    for first, last in spans:
        a = first if first <= start else max(first + shorter, end)
        b = last if last <= start else max(last + shorter, end)
        found.append((min(a, b), max(a, b)))
    joined: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
