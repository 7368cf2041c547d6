"""The pieces of time that stand in an English or German sentence: days, parts, clocks, durations.

``scan`` finds them; ``sia.times`` joins them into one moment. A piece that is not introduced by a
word such as "at" or "on" counts only where a time would stand ("call mum friday", not "the friday
meeting"; "at 9 to feed", not "at 3 pictures").
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta


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
    step: str = ""  # day | weekday | week | once: comes again, and after what

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


_EN = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DE = ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag")
_SHORT = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAYS = {
    **{name: number for names in (_EN, _DE, _SHORT) for number, name in enumerate(names)},
    **{"tues": 1, "weds": 2, "thur": 3, "thurs": 3, "sonnabend": 5},
}
_HOURS = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "eins": 1, "zwei": 2, "drei": 3},
    **{"vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10},
    **{"elf": 11, "zwölf": 12},
}
_NUMBERS = {
    **_HOURS,
    **{"a": 1, "an": 1, "fifteen": 15, "twenty": 20, "twenty-five": 25, "thirty": 30, "forty": 40},
    **{"forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90, "a couple of": 2, "half an": 0.5},
    **{"half a": 0.5, "a half": 0.5, "a quarter of an": 0.25, "quarter of an": 0.25},
    **{"three quarters of an": 0.75, "ein": 1, "eine": 1, "einem": 1, "einer": 1, "einen": 1},
    **{"fünfzehn": 15, "zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50},
    **{"einer halben": 0.5, "eine halbe": 0.5, "anderthalb": 1.5, "eineinhalb": 1.5},
}
_UNITS = {
    r"s|secs?|seconds?|sekunden?": "second",
    r"m|mins?|minutes?|minuten?": "minute",
    r"h|hrs?|hours?|stunden?|std": "hour",
    r"days?|tage?n?": "day",
    r"weeks?|wochen?": "week",
    r"fortnights?": "fortnight",
    r"months?|monate?n?": "month",
    r"years?|jahre?n?": "year",
}
_PARTS = {
    **{name: name for name in ("morning", "afternoon", "evening", "night")},
    **{"morgen": "morning", "früh": "morning", "vormittag": "morning", "nachmittag": "afternoon"},
    **{"abend": "evening", "nacht": "night"},
}


def _either(words: Iterable[str]) -> str:
    return "|".join(sorted((re.escape(word) for word in words), key=len, reverse=True))


_NUMBER = rf"(?:\d+(?:[.,]\d+)?|(?:{_either(_NUMBERS)})(?=[\s-]))"
_UNIT = rf"(?:{'|'.join(_UNITS)})"
_AND_HALF = r"\s+and\s+a\s+(?:half|quarter)"
_AMOUNT = re.compile(
    rf"(?P<n>{_NUMBER})(?P<h>{_AND_HALF})?[\s-]*(?P<u>{_UNIT})\b(?P<t>{_AND_HALF})?"
    rf"|(?P<v>(?:einer?\s+)?viertelstunde)\b",
    re.IGNORECASE,
)
_ONE = (
    rf"(?:{_NUMBER}(?:{_AND_HALF})?[\s-]*{_UNIT}\b(?:{_AND_HALF})?"
    r"|(?:einer?\s+)?viertelstunde\b)"
)
_AMOUNTS = rf"{_ONE}(?:\s*(?:,|and\b|und\b)?\s*{_ONE})?"
WEEKDAY = rf"(?:{_either((*_EN, *_DE, 'sonnabend'))})"
MONTH = (
    r"(?:jan(?:uary|uar)?|jänner|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni"
    r"|july?|juli|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_HOUR = rf"(?:2[0-4]|[01]?\d|(?:{_either(_HOURS)})\b)"
_AMPM = r"(?:\s?(?P<half>[ap])\.?m\b\.?)"
_AT = r"(?:at|by|until|till|around|before|from|um|gegen|ab|bis|@)"
_ON = r"(?:on|by|until|till|from|before|am|ab|bis|zum)"
_PLACED = re.compile(
    r"\s*(?:$|[,.;!?)])|\s+(?:to|on|in|at|that|about|and|for|with|please|sharp|every|each|next|this"
    rf"|tomorrow|today|tonight|heute|am|um|an|zu|bitte|daran|dass|jeden|{WEEKDAY}|{MONTH}"
    rf"|{_either(_PARTS)}"
    rf"|\d\d?\.?\s+{MONTH}|\d\d?(?::\d\d|\s?[ap]\.?m\b))(?!\w)",
    re.IGNORECASE,
)
_CALLED = re.compile(r"(?:\bme|mich|\bup|alarm|timer|reminder|wecker)\s+(?:for\s+|at\s+)?$", re.I)


def _number(text: str) -> float:
    words = re.sub(r"\s+", " ", text.lower())
    return _NUMBERS[words] if words in _NUMBERS else float(words.replace(",", "."))


_ADVERBS = {
    **{"daily": "day", "täglich": "day", "nightly": "night", "hourly": "1 hour"},
    **{"stündlich": "1 hour", "weekly": "1 week", "wöchentlich": "1 week", "monthly": "1 month"},
    **{"monatlich": "1 month", "yearly": "1 year", "werktags": "weekday"},
}


def _amounts(text: str) -> tuple[tuple[str, float], ...]:
    total: dict[str, float] = {}
    for match in _AMOUNT.finditer(text):
        if match["v"]:
            unit, count = "minute", 15.0
        else:
            unit = next(u for words, u in _UNITS.items() if re.fullmatch(words, match["u"], re.I))
            half = match["h"] or match["t"] or ""
            count = _number(match["n"]) + (0.5 if "half" in half else 0.25 if half else 0)
        total[unit] = total.get(unit, 0) + count
    return tuple(total.items())


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
    return Piece(match.start(), match.end(), amounts=_amounts(match[0]))


def _every(match: re.Match[str], scan: Scan) -> Piece | None:
    """every day, each friday, every 20 minutes, on weekdays, daily: the first time, and a step."""
    what = re.sub(r"\s+", " ", match["what"].lower())
    what = _ADVERBS.get(what, what.removesuffix("s") if what.endswith("days") else what)
    start, end, today = match.start(), match.end(), scan.today
    if what in _WEEKDAYS:
        ahead = (_WEEKDAYS[what] - today.weekday()) % 7
        return Piece(start, end, day=today + timedelta(ahead), step="week")
    if what in _PARTS:
        return Piece(start, end, day=today, part=_PARTS[what], step="day")
    if what in ("day", "tag", "weekday", "werktag"):
        return Piece(start, end, day=today, step="day" if what in ("day", "tag") else "weekday")
    amounts = _amounts(what.replace("other", "2") if "other" in what else what)
    return Piece(start, end, amounts=amounts or _amounts(f"1 {what}"), step="once")


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
    if not pre and (name in _SHORT or not (following or _placed(match, scan))):
        return None
    ahead = (_WEEKDAYS[name] - scan.today.weekday() - 1) % 7 + 1
    if following:
        ahead = 7 - scan.today.weekday() + _WEEKDAYS[name]
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
    return Piece(match.start(), match.end(), part=_PARTS[match["part"].lower().removesuffix("s")])


def _hour(text: str) -> int:
    return _HOURS.get(text.lower()) or int(text)


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
    minutes = fixed[words] if words in fixed else int(_number(words))
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
_ANY_WEEKDAY = rf"(?:{_either(_WEEKDAYS)})"
_PART = rf"(?:{_either(_PARTS)})"
_THIS = r"(?:this|next|coming|diese[nrms]?|nächste[nrms]?|kommende[nrms]?)"
_DATE = (
    r"\d{4}-\d\d?-\d\d?"
    rf"|\d\d?(?:st|nd|rd|th|\.)?\s*(?:of\s+)?{MONTH}(?:,?\s+\d{{4}})?"
    rf"|{MONTH}\s+\d\d?(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?"
    r"|\d\d?\.\d\d?\.(?:\d{4}|\d\d)?|\d\d?\.\d\d?|\d\d?/\d\d?(?:/\d{4}|/\d\d)?"
)
_NOUNS = r"(?!\s+(?:floor|time|try|attempt|street|page|row|place|level|birthday|anniversary)\b)"
_NOT = rf"(?![:.,]?\d|\s*(?:%|°|€|\$|(?:{_UNIT}|percent|degrees|euros?|dollars)\b))"
# In this order: what an earlier rule took is not looked at again.
_RULES: tuple[tuple[str, Make], ...] = (
    (
        r"(?:(?P<pre>in|within|after|nach)\s+|(?:for|auf|für|of)\s+)?"
        rf"{_AMOUNTS}(?P<post>\s+from\s+now|\s+later)?(?:['’]?\s+time\b)?(?!\s+(?:before|vor)\b)",
        _span,
    ),
    (
        r"(?:every|each|jede[nrs]?)\s+(?P<what>other\s+(?:day|week)|weekday|werktag|day|tag"
        rf"|{_ANY_WEEKDAY}|{_PART}|{_AMOUNTS}|{_UNIT})\b",
        _every,
    ),
    (rf"(?:on\s+)?(?P<what>weekdays|werktags|{WEEKDAY}s)\b", _every),
    (rf"(?<!my\s)(?<!the\s)(?<!our\s)(?<!a\s)(?P<what>{_either(_ADVERBS)})\b", _every),
    (r"(?P<pre>(?:am|in\s+der|(?<=heute))\s+)(?P<part>morgen)\b", _part),
    (
        r"(?P<word>(?:later\s+)?today|tonight|tomorrow|tmrw|(?:the\s+)?day\s+after\s+tomorrow"
        r"|heute|übermorgen|(?<!guten\s)morgen|this\s+(?:morning|afternoon|evening))\b(?!['’]s)",
        _ordinary,
    ),
    (
        rf"(?:(?P<pre>{_ON}|for|due)\s+)?(?:(?:the|den|dem)\s+)?(?:{_ANY_WEEKDAY},?\s+"
        rf"(?:(?:the|den|dem)\s+)?)?(?P<date>{_DATE})(?![\w/])",
        _calendar,
    ),
    (rf"(?P<pre>(?:on\s+)?next\s+week,?\s+(?:on\s+)?)(?P<name>{_ANY_WEEKDAY})\b", _weekday),
    (
        rf"(?P<pre>(?:{_ON}\s+)?(?:{_THIS}\s+)?)(?P<name>{_ANY_WEEKDAY})"
        rf"(?:\s+next\s+week\b|\b|(?={_PART}))(?!['’]s)",
        _weekday,
    ),
    (
        rf"(?:(?P<pre>{_ON}\s+(?:the\s+)?)(?P<n>\d\d?)(?:(?:st|nd|rd|th)\b|\.(?=\s)){_NOUNS})",
        _monthday,
    ),
    (rf"(?P<pre>)the\s+(?P<n>\d\d?)(?:st|nd|rd|th)\b{_NOUNS}", _monthday),
    (
        rf"(?:(?:{_ON}|at|for|in)\s+)?(?:(?P<last>(?:the\s+)?end\s+of|ende)\s+)?"
        rf"(?:(?:the|des|der)\s+)?(?:{_THIS}\s+)?"
        r"(?P<what>week(?:end)?|month|year|woche(?:nende)?|monate?s?|jahr(?:es)?)\b(?!['’]s)",
        _period,
    ),
    (rf"(?P<pre>{_AT}\s+)?(?P<h>{_HOUR}):(?P<m>[0-5]\d)(?:{_AMPM}|\s*uhr\b)?(?![\d:])", _clock),
    (rf"(?P<pre>{_AT}\s+)(?P<h>{_HOUR})\.(?P<m>[0-5]\d)(?:{_AMPM}|\s*uhr\b)?{_NOT}", _clock),
    (rf"(?P<pre>{_AT}\s+)?(?P<h>{_HOUR})(?:\.(?P<m>[0-5]\d))?{_AMPM}", _clock),
    (rf"(?P<pre>{_AT}\s+)?(?P<h>{_HOUR})\s*(?:o['’]?clock|uhr(?:\s+(?P<m>[0-5]\d))?)\b", _clock),
    (
        rf"(?P<pre>{_AT}\s+)?(?P<amount>half|(?:a\s+)?quarter)\s+(?P<way>past|to)\s+"
        rf"(?P<h>{_HOUR}){_NOT}{_AMPM}?",
        _spoken,
    ),
    (
        rf"(?P<pre>{_AT}\s+)(?P<amount>{_NUMBER}(?:\s+minutes?)?)\s+(?P<way>past|to)\s+"
        rf"(?P<h>{_HOUR}){_NOT}{_AMPM}?",
        _spoken,
    ),
    (
        rf"(?:{_AT}\s+)?(?P<amount>viertel|{_NUMBER}\s+minuten|(?<=um\s){_NUMBER})\s+"
        rf"(?P<way>vor|nach)\s+(?P<h>{_HOUR})(?P<half>){_NOT}",
        _spoken,
    ),
    (rf"(?:{_AT}\s+)?(?P<amount>)(?P<way>halb)\s+(?P<h>{_HOUR})(?P<half>){_NOT}", _spoken),
    (rf"(?:{_AT}\s+)?(?P<word>noon|midday|midnight|mittags?|mitternacht)\b", _named),
    (rf"(?P<pre>(?:in\s+the|at|am|in\s+der)\s+)?(?P<part>{_PART})s?\b(?!['’]s)", _part),
    (rf"(?P<pre>(?:{_AT}|for|auf)\s+)?(?P<h>{_HOUR}){_NOT}(?!\w)", _bare),
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
    match = re.search(rf"(?<!\w){_AMOUNTS}(?=\s+(?:before|vor)\b)", text, re.IGNORECASE)
    return (match.span(), _amounts(match[0])) if match else None
