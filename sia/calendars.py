"""Calendars on a CalDAV server: events in a span, every repeat on its own, and changes to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5
from zoneinfo import ZoneInfo

from sia import dav
from sia.dav import DavServer, Refused

_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Event:
    """One event, or one time of a repeating one. Times are aware and in the person's zone; of an
    all-day event they are midnights, the end not included."""

    calendar: str
    uid: str
    title: str
    start: datetime
    end: datetime
    all_day: bool = False
    recurrence: str = ""  # of a series: when this one would be by the rule (ISO)
    place: str = ""
    busy: bool = True

    def overlaps(self, start: datetime, end: datetime) -> bool:
        last = max(self.end, self.start + timedelta(minutes=1))
        return self.start.astimezone(UTC) < end.astimezone(UTC) and start < last.astimezone(UTC)


def uid(server: DavServer, key: str, moment: datetime) -> str:
    """The UID of what an effect creates: the same for the same key and moment, else another."""
    return str(uuid5(NAMESPACE_URL, f"{server.url} {server.user} {key} {moment.isoformat()}"))


@contextmanager
def opened(server: DavServer, zone: ZoneInfo, timeout: float = dav.SECONDS) -> Iterator[Calendars]:
    """The person's calendars on the server. Raises Refused."""
    with dav.opened(server, timeout) as client:
        home = client.principal().calendar_home_set
        calendars = {calendar.url.path.rstrip("/"): calendar for calendar in home.get_calendars()}
        found: dict[str, Any] = {}
        for path, (name, kinds) in _named(home).items():
            if path in calendars and (not kinds or "VEVENT" in kinds):
                found.setdefault(name or path.rpartition("/")[2], calendars[path])
        yield Calendars(server, dict(sorted(found.items())), zone)


def _named(home: Any) -> dict[str, tuple[str, list[str]]]:
    """(display name, kinds of objects) of all in the home by path, with one request."""
    from caldav.elements import cdav
    from caldav.elements.dav import DisplayName

    props = [DisplayName(), cdav.SupportedCalendarComponentSet()]
    response = home.get_properties(props, depth=1, parse_response_xml=False)
    found = {}
    for item in response.tree.iter("{DAV:}response"):
        href, name = item.findtext("{DAV:}href", ""), item.find(f".//{DisplayName.tag}")
        text = " ".join((name.text or "").split()) if name is not None else ""
        kinds = [each.get("name", "") for each in item.iter(cdav.Comp.tag)]
        found[urlsplit(href).path.rstrip("/")] = (text, kinds)
    return found


class Calendars:
    """``problems``: objects on the server that could not be read, a line each."""

    def __init__(self, server: DavServer, found: dict[str, Any], zone: ZoneInfo) -> None:
        self._server, self._found, self._zone = server, found, zone
        self.problems: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self._found)

    def between(self, start: datetime, end: datetime) -> list[Event]:
        """What lies in or touches the span, by start; cancelled events are left out."""
        events = [
            event
            for name, calendar in self._found.items()
            for item in calendar.search(
                # A day more: to the server whole days and floating times are in UTC.
                start=start - timedelta(days=1),
                end=end + timedelta(days=1),
                event=True,
                expand=False,
                post_filter=False,
            )
            for event in self._expanded(name, item, start, end)
        ]
        return sorted(events, key=lambda event: (event.start.astimezone(UTC), event.title))

    def has(self, calendar: str, uid: str) -> bool:
        return self._find(calendar, uid) is not None

    def event(self, like: Event) -> Event | None:
        """The event (this one time of it) as it is on the server now."""
        item = self._find(like.calendar, like.uid)
        if item is None:
            return None
        if not like.recurrence:
            start = self._moment(_master(item.icalendar_instance)["DTSTART"].dt)
            found = self._expanded(like.calendar, item, start, start + timedelta(minutes=1))
            return next(iter(found), None)
        for part in item.icalendar_instance.walk("VEVENT"):
            if part.get("RECURRENCE-ID") and _iso(part["RECURRENCE-ID"].dt) == like.recurrence:
                return self._event(like.calendar, part, like.recurrence)
        return like

    def add(
        self,
        calendar: str,
        uid: str,
        title: str,
        start: datetime | date,
        end: datetime | date,
        rule: str = "",
    ) -> None:
        """Create an event; one of that UID that is there already stays as it is.

        start, end: aware, or days where it is all day (the end not included). rule: an RRULE.
        Raises Refused and Unknown.
        """
        import icalendar
        from caldav.lib.error import ConsistencyError

        event = icalendar.Event()
        event.add("uid", uid)
        event.add("dtstamp", datetime.now(UTC))
        event.add("summary", title)
        event.add("dtstart", start)
        event.add("dtend", end)
        if rule:
            event.add("rrule", _rrule(rule, start, self._zone))
        whole = icalendar.Calendar()
        whole.add("prodid", "-//SIA//")
        whole.add("version", "2.0")
        whole.add_component(event)
        whole.add_missing_timezones()
        with dav.writing(self._server):
            try:
                self._found[calendar].add_event(whole.to_ical().decode(), no_overwrite=True)
            except ConsistencyError:
                return

    def move(self, event: Event, start: datetime, end: datetime, whole: bool = False) -> None:
        """Let an event, or one time of a series, begin and end at other times.

        whole: the whole series; only to another hour, since its rule may name days. Raises Refused
        and Unknown.
        """
        item = self._find(event.calendar, event.uid)
        if item is None:
            raise Refused(f"{event.title} is not in {event.calendar} any more")
        instance = item.icalendar_instance
        part = _master(instance)
        if event.recurrence and not whole:
            part = _override(instance, event.recurrence)
            self._set(part, start, end, event.all_day)
        elif event.recurrence:
            if event.all_day or start.date() != event.start.date():
                raise Refused(
                    "a whole series can only be moved to another hour; move one time of it, or "
                    "change the series in your calendar program"
                )
            _shift(instance, start.replace(tzinfo=None) - event.start.replace(tzinfo=None))
        else:
            self._set(part, start, end, event.all_day)
        for changed in instance.walk("VEVENT"):
            if changed is part or whole:
                sequence = int(changed.pop("SEQUENCE", 0)) + 1
                changed.add("SEQUENCE", sequence)
                changed.pop("DTSTAMP", None)
                changed.add("DTSTAMP", datetime.now(UTC))
        instance.add_missing_timezones()
        item.icalendar_instance = instance
        with dav.writing(self._server):
            item.save(only_this_recurrence=False, increase_seqno=False)

    def _find(self, calendar: str, uid: str) -> Any:
        from caldav.lib.error import NotFoundError

        if calendar not in self._found:
            raise Refused(f"there is no calendar {calendar} any more")
        try:
            with dav.refusing(self._server):
                return self._found[calendar].get_event_by_uid(uid)
        except Refused as problem:
            if isinstance(problem.__context__, NotFoundError):
                return None
            raise

    def _expanded(self, name: str, item: Any, start: datetime, end: datetime) -> list[Event]:
        import recurring_ical_events

        try:
            instance = item.icalendar_instance
            series = any(
                part.get("RRULE") or part.get("RDATE") or part.get("RECURRENCE-ID")
                for part in instance.walk("VEVENT")
            )
            # A day more: to the library a day without an end is a moment at its midnight.
            parts = recurring_ical_events.of(instance).between(start - timedelta(days=1), end)
            events = []
            for part in parts:
                recurrence = part.get("RECURRENCE-ID") if series else None
                event = self._event(name, part, _iso(recurrence.dt) if recurrence else "")
                cancelled = str(part.get("STATUS", "")).upper() == "CANCELLED"
                if not cancelled and event.overlaps(start, end):
                    events.append(event)
            return events
        # What other programs wrote: bad rules, missing starts, unknown zones.
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            reason = " ".join(str(error).split())[:120]
            self.problems.append(f"{name}: {item.url.path.split('/')[-1]} cannot be read: {reason}")
            return []

    def _event(self, name: str, part: Any, recurrence: str) -> Event:
        first = part["DTSTART"].dt
        all_day = not isinstance(first, datetime)
        last = _end(part)
        see_through = str(part.get("TRANSP", "")).upper()
        # Birthdays and holidays seldom say that they are no appointment.
        busy = see_through == "OPAQUE" if all_day else see_through != "TRANSPARENT"
        return Event(
            calendar=name,
            uid=str(part["UID"]),
            title=" ".join(str(part.get("SUMMARY", "")).split()) or "(no title)",
            start=self._moment(first),
            end=self._moment(last),
            all_day=all_day,
            recurrence=recurrence,
            place=" ".join(str(part.get("LOCATION", "")).split()),
            busy=busy,
        )

    def _moment(self, value: date) -> datetime:
        """In the person's zone; a day is its midnight, a floating time one of their clock."""
        if not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if value.tzinfo is None:
            value = value.replace(tzinfo=self._zone).astimezone(UTC)
        return value.astimezone(self._zone)

    def _set(self, part: Any, start: datetime, end: datetime, all_day: bool) -> None:
        """New times in the form of the old ones: a day, a floating time, UTC or a zone."""
        old = part["DTSTART"].dt
        for name, moment in (("DTSTART", start), ("DTEND", end)):
            value: date = moment
            if all_day and moment.time() == time():
                value = moment.date()
            elif isinstance(old, datetime):
                zone = old.tzinfo
                value = moment.astimezone(zone) if zone else moment.replace(tzinfo=None)
            part.pop(name, None)
            part.add(name, value)
        part.pop("DURATION", None)


def busy(events: Sequence[Event]) -> list[tuple[datetime, datetime]]:
    """The spans that are taken, joined, by time."""
    spans: list[tuple[datetime, datetime]] = []
    for event in sorted((e for e in events if e.busy), key=lambda e: e.start.astimezone(UTC)):
        if spans and event.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], event.end))
        else:
            spans.append((event.start, event.end))
    return spans


def gaps(
    taken: Sequence[tuple[datetime, datetime]], start: datetime, end: datetime, length: timedelta
) -> list[tuple[datetime, datetime]]:
    """The free spans of at least ``length`` from start to end; taken: as ``busy`` gives them."""
    found, at = [], start
    for first, last in [*taken, (end, end)]:
        until = min(first, end)
        if until.astimezone(UTC) - at.astimezone(UTC) >= length:
            found.append((at, until))
        at = max(at, last)
    return found


def _end(part: Any) -> date:
    first = part["DTSTART"].dt
    if part.get("DTEND"):
        return part["DTEND"].dt
    if part.get("DURATION"):
        return first + part["DURATION"].dt
    return first if isinstance(first, datetime) else first + timedelta(1)


def _master(instance: Any) -> Any:
    parts = instance.walk("VEVENT")
    return next((part for part in parts if not part.get("RECURRENCE-ID")), parts[0])


def _rrule(rule: str, start: date, zone: ZoneInfo) -> Any:
    """Its UNTIL as RFC 5545 wants it: a day where the event is all day, else in UTC."""
    import icalendar

    found = icalendar.vRecur.from_ical(rule)
    if ends := found.get("UNTIL"):
        last = ends[0]
        if not isinstance(start, datetime):
            found["UNTIL"] = [last.date() if isinstance(last, datetime) else last]
        elif isinstance(last, datetime) and last.tzinfo is None:
            found["UNTIL"] = [last.replace(tzinfo=zone).astimezone(UTC)]
    return found


def _iso(value: date) -> str:
    """The same text for the same moment, whatever its zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.isoformat()


def _override(instance: Any, recurrence: str) -> Any:
    """The part of one time of a series, made of the series where it has none of its own yet."""
    for part in instance.walk("VEVENT"):
        if part.get("RECURRENCE-ID") and _iso(part["RECURRENCE-ID"].dt) == recurrence:
            return part
    master = _master(instance)
    part = master.copy()
    part.subcomponents = list(master.subcomponents)
    for name in ("RRULE", "RDATE", "EXDATE", "EXRULE"):
        part.pop(name, None)
    first = master["DTSTART"].dt
    moment: date = datetime.fromisoformat(recurrence)
    if not isinstance(first, datetime):
        moment = date.fromisoformat(recurrence)
    elif first.tzinfo:
        moment = datetime.fromisoformat(recurrence).astimezone(first.tzinfo)
    part.add("RECURRENCE-ID", moment)
    instance.add_component(part)
    return part


def _shift(instance: Any, by: timedelta) -> None:
    """All times of a series later by so much of the wall clock."""
    import icalendar

    for part in instance.walk("VEVENT"):
        for name in ("DTSTART", "DTEND", "RECURRENCE-ID"):
            if part.get(name):
                value = part.pop(name).dt + by
                part.add(name, value)
        if ends := part.get("RRULE", {}).get("UNTIL"):
            # Left where it is, it would cut off the last time. A day holds any hour of it.
            part["RRULE"]["UNTIL"] = [
                last + by if isinstance(last, datetime) else last for last in ends
            ]
        for name in ("EXDATE", "RDATE"):
            lists = part.pop(name, [])
            for dates in lists if isinstance(lists, list) else [lists]:
                part.add(name, icalendar.prop.vDDDLists([each.dt + by for each in dates.dts]))
