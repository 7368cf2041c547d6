"""The pieces of time that stand in an English or German sentence: days, parts, clocks, durations.

``scan`` finds them; ``sia.times`` joins them into one moment. A piece that is not introduced by a
word such as "at" or "on" counts only where a time would stand ("call mum friday", not "the friday
meeting"; "at 9 to feed", not "at 3 pictures").
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta

from sia.repeatwords import REPEATS, repeat
from sia.timevocabulary import (
    AMOUNTS,
    AMPM,
    ANY_WEEKDAY,
    AT,
    HOUR,
    HOURS,
    MONTH,
    NUMBER,
    ON,
    PART,
    PARTS,
    SHORT,
    UNIT,
    WEEKDAY,
    WEEKDAYS,
    Clock,
    Piece,
    Scan,
    amounts,
    either,
    number,
    parsed,
)

_PLACED = re.compile(
    r"\s*(?:$|[,.;!?)])|\s+(?:to|on|in|at|that|about|and|for|with|please|sharp|every|each|next|this"
    rf"|tomorrow|today|tonight|heute|am|um|an|zu|bitte|daran|dass|jeden|{WEEKDAY}|{MONTH}"
    rf"|{either(PARTS)}"
    rf"|\d\d?\.?\s+{MONTH}|\d\d?(?::\d\d|\s?[ap]\.?m\b))(?!\w)",
    re.IGNORECASE,
)
_CALLED = re.compile(r"(?:\bme|mich|\bup|alarm|timer|reminder|wecker)\s+(?:for\s+|at\s+)?$", re.I)

_UNTIL = re.compile(r"(?:until|till|bis)\b", re.IGNORECASE)


def _placed(match: re.Match[str], scan: Scan) -> bool:
    """Whether a time would stand here."""
    before = scan.text[: match.start()]
    return bool(
        _PLACED.match(scan.text, match.end())
        or _CALLED.search(before)
        or any(piece.end == len(before.rstrip(" ,")) for piece in scan.pieces)
    )


def _span(match: re.Match[str], scan: Scan) -> Piece | None:
    """in 20 minutes, half an hour from now; for an alarm also: for 10 minutes, 10 minutes."""
    sure = match["pre"] or match["post"] or match[0].strip() == scan.text.strip(" .!?")
    if not sure and not scan.alarm:
        return None
    return Piece(match.start(), match.end(), amounts=amounts(match[0]))


def _ordinary(match: re.Match[str], scan: Scan) -> Piece:
    """today, tonight, tomorrow, the day after tomorrow; heute, morgen, übermorgen."""
    word = match["word"].lower()
    offset = 2 if "after" in word or word == "übermorgen" else 1
    if word.endswith("today") or word.startswith(("tonight", "heute", "this")):
        offset = 0
    part = "night" if word == "tonight" else word[4:].strip() if word.startswith("this") else ""
    return Piece(match.start(), match.end(), day=scan.today + timedelta(offset), part=part)


def _weekday(match: re.Match[str], scan: Scan) -> Piece | None:
    """On a Monday "monday" is in seven days; "next friday" is the friday of the next week."""
    name, pre = match["name"].lower(), (match["pre"] or "").lower()
    following = re.search(r"\bnext\b|nächste", match[0], re.IGNORECASE)
    if not pre and (name in SHORT or not (following or _placed(match, scan))):
        return None
    ahead = (WEEKDAYS[name] - scan.today.weekday() - 1) % 7 + 1
    if following:
        ahead = 7 - scan.today.weekday() + WEEKDAYS[name]
    return Piece(match.start(), match.end(), day=scan.today + timedelta(ahead))


def _calendar(match: re.Match[str], scan: Scan) -> Piece | None:
    """A written date: the next such date where no year is given, the day before the month."""
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|,", " ", match["date"], flags=re.IGNORECASE)
    if re.fullmatch(r"\d+[./]\d+", text) and not match["pre"]:
        return None  # 24.12 may be a price
    day = _numeric(text, scan.today) or parsed(text, scan.today, ("en", "de"))
    if day is None or not (match["pre"] or match["date"][:4].isdigit() or _placed(match, scan)):
        return None
    return Piece(match.start(), match.end(), day=day)


def _numeric(text: str, today: date) -> date | None:
    """24.12., 24.12.2026, 24/12: dateparser takes "1.12." for a clock."""
    numbers = [int(number) for number in re.split(r"[./]", text.strip(" .")) if number.isdigit()]
    if len(numbers) < 2 or not re.fullmatch(r"[\d./ ]+", text):
        return None
    year = (numbers[2] % 100 + 2000) if len(numbers) > 2 else today.year
    try:
        day = date(year, numbers[1], numbers[0])
        return day.replace(year=year + 1) if len(numbers) < 3 and day < today else day
    except ValueError:
        return None


def _monthday(match: re.Match[str], scan: Scan) -> Piece | None:
    """on the 15th: of this month, or of the next one that has it."""
    wanted, first = int(match["n"]), scan.today.replace(day=1)
    if not 1 <= wanted <= 31 or not (match["pre"] or _placed(match, scan)):
        return None
    if wanted < scan.today.day:
        first = add_months(first, 1)
    while wanted > calendar.monthrange(first.year, first.month)[1]:
        first = add_months(first, 1)
    return Piece(match.start(), match.end(), day=first.replace(day=wanted))


def add_months(day: date, months: int) -> date:
    """The same day ``months`` later, or the last of that month where it is shorter."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _period(match: re.Match[str], scan: Scan) -> Piece | None:
    """next week (its Monday), the weekend (Saturday), next month or year (the same day), ends."""
    what, today, last = match["what"].lower(), scan.today, bool(match["last"])
    following = bool(re.search(r"next|nächste", match[0], re.IGNORECASE))
    led = re.match(r"(?:the\b|des\b|der\b|week|woche)", match[0], re.IGNORECASE) is None
    if not (following or last or ("end" in what and led)):
        return None
    if what.startswith("w"):
        offset = 5 if "end" in what else 4 if last else 0
        day = today - timedelta(today.weekday()) + timedelta(7 * following + offset)
    elif what.startswith("m"):
        day = add_months(today, following)
        day = day.replace(day=calendar.monthrange(day.year, day.month)[1]) if last else day
    else:
        day = date(today.year + following, 12, 31) if last else add_months(today, 12)
    return Piece(match.start(), match.end(), day=day)


def _part(match: re.Match[str], scan: Scan) -> Piece | None:
    """in the morning; "evening" alone only right after a day."""
    before = len(scan.text[: match.start()].rstrip())
    if not match["pre"] and not any(piece.end == before and piece.day for piece in scan.pieces):
        return None
    return Piece(match.start(), match.end(), part=PARTS[match["part"].lower().removesuffix("s")])


def _hour(text: str) -> int:
    return HOURS.get(text.lower()) or int(text)


def _clock(match: re.Match[str], scan: Scan, placed: bool = False) -> Piece | None:
    """14:30, at 9.30, 7pm, 9 o'clock, 9 Uhr 30."""
    if not placed and not match["pre"] and not _placed(match, scan):
        return None
    given = match.groupdict()
    hour, minute, half = _hour(match["h"]), int(given.get("m") or 0), given.get("half") or ""
    if (hour == 24 and minute) or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    sure = bool(half) or hour > 12 or match["h"].startswith("0")
    return Piece(match.start(), match.end(), clock=Clock(hour, minute, sure))


def _bare(match: re.Match[str], scan: Scan) -> Piece | None:
    """at 9; for an alarm also: for 7; after a day, or as the whole text, also: 9."""
    pre, start = (match["pre"] or "").lower().strip(), match.start()
    if pre in ("for", "auf") and not scan.alarm:
        return None
    before = len(scan.text[:start].rstrip(" ,"))
    after_day = any(piece.end == before and piece.day for piece in scan.pieces)
    if not pre and not (after_day or match[0] == scan.text.strip(" .!?")):
        return None
    if not (_placed(match, scan) if pre else _PLACED.match(scan.text, match.end())):
        return None
    return _clock(match, scan, placed=True)


def _spoken(match: re.Match[str], scan: Scan) -> Piece | None:
    """half past nine, quarter to ten, at ten past eight, halb acht, viertel vor neun."""
    hour, way, half = _hour(match["h"]), match["way"].lower(), match["half"] or ""
    words = re.sub(r"\s*minute[ns]?$|^an?\s+", "", (match["amount"] or "").lower())
    fixed = {"half": 30, "quarter": 15, "viertel": 15, "": 30}
    minutes = fixed[words] if words in fixed else int(number(words))
    if not 1 <= hour <= 12 or not 0 < minutes < 60:
        return None
    if way in ("to", "vor", "halb"):
        hour, minutes = (hour - 1) or 12, 60 - minutes
    hour = hour % 12 + (12 if half.lower() == "p" else 0) if half else hour
    return Piece(match.start(), match.end(), clock=Clock(hour, minutes, bool(half)))


def _named(match: re.Match[str], scan: Scan) -> Piece:
    """noon, midnight."""
    hour = 24 if match["word"].lower() in ("midnight", "mitternacht") else 12
    return Piece(match.start(), match.end(), clock=Clock(hour, 0, True))


Make = Callable[[re.Match[str], Scan], Piece | None]
_THIS = r"(?:this|next|coming|diese[nrms]?|nächste[nrms]?|kommende[nrms]?)"
_DATE = (
    r"\d{4}-\d\d?-\d\d?"
    rf"|\d\d?(?:st|nd|rd|th|\.)?\s*(?:of\s+)?{MONTH}(?:,?\s+\d{{4}})?"
    rf"|{MONTH}\s+\d\d?(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?"
    r"|\d\d?\.\d\d?\.(?:\d{4}|\d\d)?|\d\d?\.\d\d?|\d\d?/\d\d?(?:/\d{4}|/\d\d)?"
)
_NOUNS = r"(?!\s+(?:floor|time|try|attempt|street|page|row|place|level|birthday|anniversary)\b)"
_NOT = rf"(?![:.,]?\d|\s*(?:%|°|€|\$|(?:{UNIT}|percent|degrees|euros?|dollars)\b))"
# In this order: what an earlier rule took is not looked at again.
_RULES: tuple[tuple[str, Make], ...] = (
    (
        r"(?:(?P<pre>in|within|after|nach)\s+|(?:for|auf|für|of)\s+)?"
        rf"{AMOUNTS}(?P<post>\s+from\s+now|\s+later)?(?:['’]?\s+time\b)?(?!\s+(?:before|vor)\b)",
        _span,
    ),
    *((pattern, repeat) for pattern in REPEATS),
    (r"(?P<pre>(?:am|in\s+der|(?<=heute))\s+)(?P<part>morgen)\b", _part),
    (
        r"(?P<word>(?:later\s+)?today|tonight|tomorrow|tmrw|(?:the\s+)?day\s+after\s+tomorrow"
        r"|heute|übermorgen|(?<!guten\s)morgen|this\s+(?:morning|afternoon|evening))\b(?!['’]s)",
        _ordinary,
    ),
    (
        rf"(?:(?P<pre>{ON}|for|due)\s+)?(?:(?:the|den|dem)\s+)?(?:{ANY_WEEKDAY},?\s+"
        rf"(?:(?:the|den|dem)\s+)?)?(?P<date>{_DATE})(?![\w/])",
        _calendar,
    ),
    (rf"(?P<pre>(?:on\s+)?next\s+week,?\s+(?:on\s+)?)(?P<name>{ANY_WEEKDAY})\b", _weekday),
    (
        rf"(?P<pre>(?:{ON}\s+)?(?:{_THIS}\s+)?)(?P<name>{ANY_WEEKDAY})"
        rf"(?:\s+next\s+week\b|\b|(?={PART}))(?!['’]s)",
        _weekday,
    ),
    (
        rf"(?:(?P<pre>{ON}\s+(?:the\s+)?)(?P<n>\d\d?)(?:(?:st|nd|rd|th)\b|\.(?=\s)){_NOUNS})",
        _monthday,
    ),
    (rf"(?P<pre>)the\s+(?P<n>\d\d?)(?:st|nd|rd|th)\b{_NOUNS}", _monthday),
    (
        rf"(?:(?:{ON}|at|for|in)\s+)?(?:(?P<last>(?:the\s+)?end\s+of|ende)\s+)?"
        rf"(?:(?:the|des|der)\s+)?(?:{_THIS}\s+)?"
        r"(?P<what>week(?:end)?|month|year|woche(?:nende)?|monate?s?|jahr(?:es)?)\b(?!['’]s)",
        _period,
    ),
    (rf"(?P<pre>{AT}\s+)?(?P<h>{HOUR}):(?P<m>[0-5]\d)(?:{AMPM}|\s*uhr\b)?(?![\d:])", _clock),
    (rf"(?P<pre>{AT}\s+)(?P<h>{HOUR})\.(?P<m>[0-5]\d)(?:{AMPM}|\s*uhr\b)?{_NOT}", _clock),
    (rf"(?P<pre>{AT}\s+)?(?P<h>{HOUR})(?:\.(?P<m>[0-5]\d))?{AMPM}", _clock),
    (rf"(?P<pre>{AT}\s+)?(?P<h>{HOUR})\s*(?:o['’]?clock|uhr(?:\s+(?P<m>[0-5]\d))?)\b", _clock),
    (
        rf"(?P<pre>{AT}\s+)?(?P<amount>half|(?:a\s+)?quarter)\s+(?P<way>past|to)\s+"
        rf"(?P<h>{HOUR}){_NOT}{AMPM}?",
        _spoken,
    ),
    (
        rf"(?P<pre>{AT}\s+)(?P<amount>{NUMBER}(?:\s+minutes?)?)\s+(?P<way>past|to)\s+"
        rf"(?P<h>{HOUR}){_NOT}{AMPM}?",
        _spoken,
    ),
    (
        rf"(?:{AT}\s+)?(?P<amount>viertel|{NUMBER}\s+minuten|(?<=um\s){NUMBER})\s+"
        rf"(?P<way>vor|nach)\s+(?P<h>{HOUR})(?P<half>){_NOT}",
        _spoken,
    ),
    (rf"(?:{AT}\s+)?(?P<amount>)(?P<way>halb)\s+(?P<h>{HOUR})(?P<half>){_NOT}", _spoken),
    (rf"(?:{AT}\s+)?(?P<word>noon|midday|midnight|mittags?|mitternacht)\b", _named),
    (rf"(?P<pre>(?:in\s+the|at|am|in\s+der)\s+)?(?P<part>{PART})s?\b(?!['’]s)", _part),
    (rf"(?P<pre>(?:{AT}|for|auf)\s+)?(?P<h>{HOUR}){_NOT}(?!\w)", _bare),
)


def scan(text: str, today: date, alarm: bool) -> list[Piece]:
    """The pieces in ``text`` in their order; none overlaps another.

    alarm: the text is about an alarm or a timer, where "10 minutes" and "for 7" are times too.
    """
    found = Scan(text, today, alarm)
    for pattern, make in _RULES:
        # Compounds such as "Freitagabend": a part may stand right behind a day.
        edge = r"(?:(?<![\w.@/])|(?<=tag))"
        for match in re.finditer(edge + pattern, text, re.IGNORECASE):
            if any(p.start < match.end() and match.start() < p.end for p in found.pieces):
                continue
            piece = make(match, found)
            if piece:
                found.pieces.append(piece)
    return sorted(found.pieces, key=lambda piece: piece.start)


def before(text: str) -> tuple[tuple[int, int], tuple[tuple[str, float], ...]] | None:
    """(where, amounts) of the "10 minutes" in "10 minutes before ...", if it stands in ``text``."""
    match = re.search(rf"(?<!\w){AMOUNTS}(?=\s+(?:before|vor)\b)", text, re.IGNORECASE)
    return (match.span(), amounts(match[0])) if match else None


def limited(text: str, pieces: Iterable[Piece]) -> dict[int, tuple[int, int, date | int]]:
    """What ends a repeat: "until friday" or "5 times" as (start, end, last day or how often) by the
    start of its piece; empty where nothing repeats or nothing ends it."""
    pieces = list(pieces)
    if not any(piece.rule for piece in pieces):
        return {}
    for piece in pieces:
        said = re.search(r"(?:until|till|bis)\s+(?:\w+\s+)?$", text[: piece.start], re.IGNORECASE)
        if piece.day and not piece.rule and (said or _UNTIL.match(text, piece.start)):
            return {piece.start: (said.start() if said else piece.start, piece.end, piece.day)}
    match = re.search(rf"(?<!\w)(?:for\s+)?({NUMBER})\s+(?:times|mal)\b", text, re.IGNORECASE)
    often = int(number(match[1])) if match else 0
    return {match.start(): (*match.span(), often)} if match and 0 < often < 10_000 else {}


def length(text: str) -> tuple[tuple[int, int], timedelta] | None:
    """(where, how long) of the "for 90 minutes" or "by an hour" in ``text``; no months."""
    match = re.search(
        rf"(?<!\w)(?:(?:lasting|for|by|für|um)\s+)?({AMOUNTS})(?:\s+(?:long|lang))?(?!\w)",
        text,
        re.IGNORECASE,
    )
    if not match:
        return None
    try:
        return match.span(), timedelta(**{f"{unit}s": count for unit, count in amounts(match[1])})
    except (TypeError, OverflowError):
        return None
