"""Quiet hours, by the wall clock."""

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sia.concerns.hours import midnight, opens
from sia.config import parse
from sia.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def at(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("quiet", "now", "opened"),
    [
        ("22:00-07:00", at(3, 21, 59), at(3, 21, 59)),
        ("22:00-07:00", at(3, 22), at(4, 7)),
        ("22:00-07:00", at(4, 6, 59), at(4, 7)),
        ("22:00-07:00", at(4, 7), at(4, 7)),
        ("12:00-14:00", at(4, 13), at(4, 14)),
        ("12:00-14:00", at(4, 14), at(4, 14)),
        ("", at(4, 3), at(4, 3)),
    ],
)
def test_when_something_may_be_begun(quiet, now, opened) -> None:
    assert opens(quiet, now) == opened


def test_the_night_of_the_change_is_an_hour_longer() -> None:
    before = at(24, 22, month=10)
    assert (opens("22:00-07:00", before).timestamp() - before.timestamp()) == 10 * 3600
    assert midnight(at(24, 22, month=10)) == at(25, 0, month=10)
    assert midnight(at(24, 0)) - at(24, 0) == timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('quiet = "22-7"', "concerns.quiet = '22-7': must be two times of day"),
        ('quiet = "07:00-07:00"', "must be two different times"),
        ("messages = 0", "concerns.messages = 0: must be a finite number above 0"),
        ("autonomi = true", "unknown key concerns.autonomi; did you mean autonomy?"),
    ],
)
def test_a_wrong_setting_is_refused(text, words) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        parse(f"[concerns]\n{text}\n", Path("sia.toml"))
