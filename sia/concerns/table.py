"""The concerns of a home: kept in ``state.db``, with every change as a row in ``autonomy.jsonl``.

The moment at which each is next a candidate is kept beside it, so that neither finding it nor a
clock that ticks depends on how many there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from semif.jsonl import append, iter_rows
from semif.log import timestamp
from sia.concerns import dynamics
from sia.concerns.likeness import LEAST, cosine, words
from sia.concerns.values import EPOCH, MICROSECOND, Concern, Status
from sia.errors import UsageError
from sia.redact import redact
from sia.sources import SOURCES
from sia.store import Store

_FIELDS = tuple(field.name for field in fields(Concern))
_TIMES = ("grown", "fired", "bumped", "held", "until")
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM concerns"
_INSERT = (
    f"INSERT OR REPLACE INTO concerns ({', '.join(_FIELDS)}, due) "
    f"VALUES ({', '.join('?' * (len(_FIELDS) + 1))})"
)
QUIET = "concerns_quiet"  # in the store


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_json(concern: Concern) -> dict[str, Any]:
    """Times as RFC 3339 in UTC, "" for none; what was said as a list."""
    data = asdict(concern)
    for name in _TIMES:
        moment = data[name]
        data[name] = moment.astimezone(UTC).isoformat() if moment else ""
    return data | {"said": list(concern.said)}


def from_json(data: dict[str, Any]) -> Concern:
    """Raises KeyError, TypeError or ValueError for what is no concern."""
    given = {name: data[name] for name in _FIELDS}
    for name in _TIMES:
        given[name] = datetime.fromisoformat(given[name]) if given[name] else None
    return Concern(**{**given, "said": tuple(given["said"])})


class Concerns:
    """``journal``: ``.sia/autonomy.jsonl``. ``changed``: called when the next moment may be another
    one. ``clock``: the present moment, aware."""

    def __init__(
        self,
        store: Store,
        journal: Path,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.store, self.journal, self.clock = store, journal, clock
        self._changed = changed
        self.last_heard: datetime | None = None  # when a person last said something

    # looking

    def _read(self, rest: str, **values: Any) -> list[Concern]:
        return [_row(row) for row in self.store.read(f"{_SELECT} {rest}", values)]

    def all(self, over: bool = False) -> list[Concern]:
        """The open ones, or also those that are over; by number."""
        found = self._read("" if over else "WHERE status = 'open'")
        return sorted(found, key=lambda concern: int(concern.id[1:]))

    def get(self, id: str) -> Concern:
        """Raises UsageError."""
        for concern in self._read("WHERE id = :id", id=id):
            return concern
        raise UsageError(f"there is no concern {id}; `sia concerns` lists them")

    def of(self, run: str) -> Concern | None:
        """The one whose fire ``run`` is and is not over, or that speaks by its own id."""
        found = self._read("WHERE (fire = :run AND fire != '') OR id = :run", run=run)
        return found[0] if found else None

    def firing(self) -> list[Concern]:
        return self._read("WHERE fire != ''")

    def due(self, now: datetime) -> list[Concern]:
        """The candidates, the most pressing first; among equals the one that is ready longest."""

        def pressing(item: Concern) -> tuple:
            return -dynamics.activation(item, now), dynamics.crossing(item), int(item.id[1:])

        return sorted(self._read("WHERE due <= :now", now=_micros(now)), key=pressing)

    def next(self) -> datetime | None:
        """When the next one is a candidate."""
        ((due,),) = self.store.read("SELECT min(due) FROM concerns WHERE due IS NOT NULL", {})
        return None if due is None else EPOCH + due * MICROSECOND

    # changing

    def save(self, concern: Concern, event: str, **details: Any) -> Concern:
        """Keep it, and note what happened, in one commit that joins the caller's."""
        moment = dynamics.candidate(concern)
        data = to_json(concern)
        data["said"] = json.dumps(data["said"])
        values = [data[name] for name in _FIELDS] + [moment and _micros(moment)]
        row = {"time": timestamp(self.clock()), "event": event, "id": concern.id, **details}
        row["activation"] = dynamics.activation(concern, self.clock()) / dynamics.FULL
        with self.store.transaction() as db:
            db.execute(_INSERT, values)
            append(self.journal, [_redacted({**row, "concern": to_json(concern)})])
        self._changed()
        return concern

    def add(self, concern: Concern, event: str = "added", **details: Any) -> Concern:
        """Keep a new one under an id of its own. Raises UsageError for what cannot be one."""
        concern.check()
        with self.store.transaction():
            concern = replace(concern, id=self.store.next_id("c"))
            return self.save(concern, event, **details)

    def edit(self, id: str, **changes: Any) -> Concern:
        """What has built up stays, whatever rhythm it goes on with. Raises UsageError."""
        with self.store.transaction():
            concern = self._open(id)
            concern = replace(dynamics.moved(concern, self.clock(), 0), **changes).check()
            if "instruction" in changes:  # what its last fire was worked by says nothing now
                concern = replace(concern, skill="")
            return self.save(concern, "edited", changed=sorted(changes))

    def end(self, id: str, status: Status) -> Concern:
        """Drop it, or discharge an obligation. Raises UsageError."""
        with self.store.transaction():
            concern = self._open(id)
            if status == "done" and concern.kind != "obligation":
                raise UsageError(f"{id} is no obligation that could be discharged; drop it")
            event = "discharged" if status == "done" else "dropped"
            return self.save(replace(concern, status=status), event)

    def _open(self, id: str) -> Concern:
        concern = self.get(id)
        if concern.status != "open":
            raise UsageError(f"{id} is over already: {concern.status}")
        return concern

    def heard(self, text: str, source: str) -> None:
        """What a person said touches what it is about; what the agent itself says touches none."""
        if not SOURCES[source].answers:
            return
        now = self.last_heard = self.clock()
        said = words(text)
        if not said:
            return
        for id, about in self.store.read("SELECT id, text FROM concerns WHERE status = 'open'", {}):
            if cosine(said, words(about)) >= LEAST:
                with self.store.transaction():
                    self.save(dynamics.bumped(self.get(id), now), "bumped", by=text)

    def quiet(self) -> datetime | None:
        """Until when a person wants nothing begun unasked, if they said so."""
        until = self.store.meta(QUIET)
        return datetime.fromisoformat(until) if until else None

    def keep_quiet(self, until: datetime | None) -> None:
        self.store.set_meta(QUIET, until.astimezone(UTC).isoformat() if until else "")
        self._changed()

    def history(self, id: str, limit: int = 20) -> list[dict[str, Any]]:
        """What happened to a concern, the latest last."""
        rows = iter_rows(self.journal, lambda problem: None)
        return [row for row in rows if row.get("id") == id][-limit:]

    def restore(self) -> int:
        """Take the open concerns that only the journal knows (a lost state.db); how many."""
        known = {id for (id,) in self.store.read("SELECT id FROM concerns", {})}
        found: dict[str, Concern] = {}
        for row in iter_rows(self.journal, lambda problem: None):
            try:
                concern = from_json(row["concern"])
            except (KeyError, TypeError, ValueError):
                continue
            if concern.id not in known and concern.id[1:].isdigit():
                found[concern.id] = concern
        with self.store.transaction():
            for concern in found.values():
                last = max(int(self.store.meta("last_c", "0")), int(concern.id[1:]))
                self.store.set_meta("last_c", str(last))
                if concern.status == "open":
                    self.save(replace(concern, fire=""), "restored")
        return sum(concern.status == "open" for concern in found.values())


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def _row(row: tuple) -> Concern:
    data = dict(zip(_FIELDS, row, strict=True))
    return from_json({**data, "said": json.loads(data["said"])})


def _redacted(value: Any) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return {name: _redacted(item) for name, item in value.items()}
        case list():
            return [_redacted(item) for item in value]
    return value
