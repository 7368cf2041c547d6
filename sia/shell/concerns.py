"""``/concerns`` and ``/quiet``; and concerns as text for a terminal of a given width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sia.concerns import report, words
from sia.errors import UsageError
from sia.shell.text import Paint, clean, pad, plain, shorten, wrap
from sia.shell.views import paragraph

if TYPE_CHECKING:
    from sia.agent import Agent

OFF = "autonomy is off, so nothing fires: start with --autonomy, or set concerns.autonomy = true"


def render(
    data: Sequence[dict[str, Any]], autonomy: bool, width: int = 80, paint: Paint = plain
) -> str:
    lines = [] if autonomy else [paragraph(OFF, width, paint, "dim")]
    for row in data:
        head = f"{row['activation']:.2f}  {row['text']}"
        lines.append(f"  {paint('accent', pad(row['id'], 6))}{shorten(clean(head), width - 10)}")
        for line in wrap(clean(f"{row['every']} · {row['state']}"), max(20, width - 16)):
            lines.append(" " * 14 + paint("dim", line))
    if not data:
        lines.append("  no concerns; /concerns add TEXT --do INSTRUCTION --every day")
    return "\n".join(lines)


def render_one(data: dict[str, Any], width: int = 80, paint: Paint = plain) -> str:
    """One concern whole, with what became of it."""
    lines = [render([data], True, width, paint)]
    for name, text in (("do", data["instruction"]), ("note", data["note"])):
        if text:
            lines.append(paragraph(f"{name}: {text}", width))
    lines += [paragraph(f"said: {text}", width, paint, "dim") for text in data["said"]]
    for row in data["history"]:
        parts = (row.get(name, "") for name in ("run", "why", "text", "outcome", "by"))
        told = " · ".join(filter(None, [*map(str, parts), *row.get("changed", ())]))
        lines.append(paragraph(f"{row['time']}  {row['event']}  {told}", width))
    return "\n".join(lines)


@dataclass(frozen=True)
class ConcernCommands:
    agent: Agent
    paint: Paint
    width: Callable[[], int]

    def concerns(self, given: Sequence[str]) -> str:
        options, now = words.parsed(" ".join(given)), self.agent.now()
        concerns = self.agent.concerns
        match options.action:
            case "list":
                rows = report.listed(concerns, now, options.all)
                return render(rows, self.agent.options.autonomy, self.width(), self.paint)
            case "why":
                one = report.explained(concerns, options.id, now)
                return render_one(one, self.width(), self.paint)
        return paragraph(words.change(concerns, options, now), self.width())

    def quiet(self, given: Sequence[str]) -> str:
        now, concerns = self.agent.now(), self.agent.concerns
        match given:
            case []:
                text = _quiet(concerns.quiet(), self.agent.home.config.concerns.quiet, now)
            case ["off"]:
                concerns.keep_quiet(None)
                text = "nothing keeps me quiet now but the hours of concerns.quiet"
            case [hours]:
                until = now + timedelta(hours=_hours(hours))
                concerns.keep_quiet(until)
                text = f"I begin nothing unasked until {until.day} {until:%b %H:%M}"
            case _:
                raise UsageError("/quiet takes nothing, a number of hours, or off")
        return paragraph(text, self.width())


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= 24 * 365:
        raise UsageError(f"/quiet {text}: name a number of hours above 0, at most a year, or off")
    return hours


def _quiet(until: datetime | None, hours: str, now: datetime) -> str:
    usual = f"quiet hours are {hours}" if hours else "there are no quiet hours"
    if until and until > now:
        here = until.astimezone(now.tzinfo)
        return f"quiet until {here.day} {here:%b %H:%M}; {usual}"
    return usual
