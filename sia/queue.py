"""The queue: urgency that grows with waiting, so that nothing waits for ever.

effective = min(1, urgency + rate x hours since first arrival), compared in steps of 0.01; then the
earlier arrival; then the later requeue. The wait is bounded by (1 - urgency) / rate hours plus the
work then ahead: from there on only earlier arrivals at 1.0 go first. Only a preempt jumps it.

The steps come with a tick of the clock, the same for all that wait, every 0.01 / rate hours. So
among requests of the same hundredth of urgency the order is that of their arrival, for good, and
the next one is the first of one of the 101 hundredths: nothing is sorted, and nothing is moved as
time goes by. Ticks are whole numbers, so that the order and the bound are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sia.errors import SiaError
from sia.store import OPEN, Run, Store

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FULL = 100  # hundredths of urgency 1.0
MICROSECOND = timedelta(microseconds=1)
STEPPED_BACK = timedelta(minutes=1)  # a clock may be corrected by less without harm


def effective(run: Run, rate: float, now: datetime) -> float:
    """Urgency of ``run`` at ``now``, 0..1; ``rate`` in urgency per hour."""
    hours = max(0.0, (now - run.arrived).total_seconds() / 3600)
    return min(1.0, run.urgency + rate * hours)


def hundredths(urgency: float) -> int:
    """Rounded up, for no run may come late: 0..100."""
    return min(FULL, math.ceil(urgency * FULL - 1e-9))


def tick(moment: datetime, rate: float) -> int:
    """The number of the tick that ``moment`` lies in or, on the dot, ends: all that wait gain 0.01
    of urgency with each."""
    hourly = min(max(1, round(rate * 10**8)), 10**14)  # so that it fits into SQLite's integer
    return -(-((moment - EPOCH) // MICROSECOND) * hourly // (10**6 * 3_600_000_000))


def level(run: Run, rate: float, now: datetime) -> int:
    """Urgency as the queue compares it, in hundredths."""
    return min(FULL, hundredths(run.urgency) + tick(now, rate) - tick(run.arrived, rate))


def key(run: Run, rate: float, now: datetime) -> tuple:
    """Sort key: the smallest runs next."""
    requeued = -run.requeued.timestamp()
    return (not run.preempts, -level(run, rate, now), run.arrived, requeued, int(run.id[1:]))


def ordered(runs: Iterable[Run], rate: float, now: datetime) -> list[Run]:
    """The order by sorting all: for who looks. The loop asks ``Queue``."""
    return sorted(runs, key=lambda run: key(run, rate, now))


def latest(run: Run, rate: float) -> datetime:
    """When ``run`` reaches 1.0: from then on only what arrived before it goes first."""
    return run.arrived + timedelta(hours=(1.0 - min(run.urgency, 1.0)) / rate)


COLUMNS = "run, preempts, hundredths, tick, arrived, requeued, number"
ENTRY = """SELECT id, preempts, queue_hundredths(urgency), queue_tick(arrived), arrived, requeued,
  CAST(substr(id, 2) AS INTEGER) FROM main.runs WHERE status = 'waiting'"""
ARRIVAL = "arrived, requeued DESC, number"
ORDER = f"preempts DESC, min({FULL}, hundredths - tick + :tick) DESC, {ARRIVAL}"
# The first n of all are among the first n of those n classes whose first goes before the others'.
NEXT = f"""SELECT run
  FROM (SELECT preempts AS p, hundredths AS h FROM temp.heads ORDER BY {ORDER} LIMIT :n)
  JOIN temp.queue ON run IN (SELECT run FROM temp.queue
    WHERE preempts = p AND hundredths = h ORDER BY {ARRIVAL} LIMIT :n)
  ORDER BY {ORDER} LIMIT :n"""


class Queue:
    """The waiting runs of ``store`` in the order of ``key``, the next one in logarithmic time.

    An index over the table of runs, made anew at each start and then kept by the database itself:
    triggers on temporary tables follow whatever is saved or rolled back, and cost no sync. A class
    is what shares a hundredth of urgency; the table ``heads`` holds the first of each.
    rate: urgency per hour.
    """

    def __init__(self, store: Store, rate: float, now: datetime) -> None:
        self._store, self.rate, self._now = store, rate, now
        with store.transaction() as db:
            self._mend_arrivals(now)
            db.create_function("queue_hundredths", 1, hundredths)
            db.create_function(
                "queue_tick", 1, lambda arrived: tick(datetime.fromisoformat(arrived), rate)
            )
            for statement in _statements():
                db.execute(statement)

    def _mend_arrivals(self, now: datetime) -> None:
        """A clock that was set back must not make a request wait for the time it came at."""
        for run in self._store.runs_after(now):
            self._store.save_run(replace(run, arrived=now))

    def first(self, number: int, now: datetime, but: str = "") -> list[Run]:
        """The next ``number`` runs, without the run ``but``."""
        if now < self._now - STEPPED_BACK:
            self._mend_arrivals(now)
            self._now = now
        self._now = max(self._now, now)
        values = {"tick": tick(now, self.rate), "n": number + bool(but)}
        ids = [row[0] for row in self._store.read(NEXT, values) if row[0] != but]
        found = [self._store.run(id) for id in ids[:number]]
        return [run for run in found if run]

    def head(self, now: datetime) -> Run | None:
        """What runs next."""
        return next(iter(self.first(1, now)), None)

    def depth(self, but: str = "") -> int:
        """How many wait, without the run ``but``."""
        held = "SELECT n - EXISTS (SELECT 1 FROM temp.queue WHERE run = :but) FROM temp.depth"
        return self._store.read(held, {"but": but})[0][0]


def _statements() -> Iterable[str]:
    """What makes the index of the runs that wait now, and keeps it."""
    types = "INTEGER NOT NULL, hundredths INTEGER NOT NULL, tick INTEGER NOT NULL"
    columns = f"""run TEXT NOT NULL UNIQUE, preempts {types}, arrived TEXT NOT NULL,
      requeued TEXT NOT NULL, number INTEGER NOT NULL"""
    for name in ("queue", "heads", "depth"):  # its triggers go with a table
        yield f"DROP TABLE IF EXISTS temp.{name}"
    yield f"""CREATE TEMP TABLE queue ({columns},
      PRIMARY KEY (preempts, hundredths, {ARRIVAL})) WITHOUT ROWID"""
    yield f"CREATE TEMP TABLE heads ({columns}, PRIMARY KEY (preempts, hundredths)) WITHOUT ROWID"
    yield "CREATE TEMP TABLE depth (n INTEGER NOT NULL)"
    yield f"INSERT INTO queue {ENTRY}"
    yield f"""INSERT INTO heads SELECT {COLUMNS} FROM (SELECT *, row_number() OVER (
      PARTITION BY preempts, hundredths ORDER BY {ARRIVAL}) AS place FROM queue) WHERE place = 1"""
    yield "INSERT INTO depth SELECT count(*) FROM queue"
    for event, row, change in (("INSERT", "NEW", 1), ("DELETE", "OLD", -1)):
        of_class = f"WHERE preempts = {row}.preempts AND hundredths = {row}.hundredths"
        yield f"""CREATE TEMP TRIGGER queue_{event} AFTER {event} ON queue BEGIN
          UPDATE depth SET n = n + {change};
          DELETE FROM heads {of_class};
          INSERT INTO heads SELECT {COLUMNS} FROM queue {of_class}
            ORDER BY {ARRIVAL} LIMIT 1; END"""
    for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        yield f"DROP TRIGGER IF EXISTS temp.runs_{event}"
        yield f"""CREATE TEMP TRIGGER runs_{event} AFTER {event} ON main.runs BEGIN
          DELETE FROM queue WHERE run = {row}.id;
          INSERT INTO queue {ENTRY} AND id = {row}.id; END"""


# what waits because something else declined it

DECLINED = "declined"  # the action that this is kept under


def decline(store: Store, run: str, busy: str) -> None:
    """Keep that ``run`` was declined for the request ``busy``; in the caller's transaction."""
    store.save_result(run, DECLINED, 0, DECLINED, busy)


def declined_for(store: Store, run: str) -> str:
    """The request that ``run`` was declined for, "" where it was not."""
    stored = store.result(run, DECLINED, 0)
    return stored[2] if stored else ""


# what a run that is ended from outside has set going (see ``Halts``)

HALT = "halt_"


def to_halt(store: Store, run: Run) -> None:
    """Keep that it is to be halted; in the transaction that ends the run."""
    if "/" in run.skill:
        store.set_meta(f"{HALT}{run.id}", "")


def halting(store: Store) -> list[str]:
    """The runs that are yet to be halted."""
    keys = store.read("SELECT key FROM meta WHERE substr(key, 1, 5) = :halt", {"halt": HALT})
    return [key.removeprefix(HALT) for (key,) in keys]


def halted(store: Store, run: str) -> None:
    store.drop_meta(f"{HALT}{run}")


# what a person may change


def drop(store: Store, id: str, current: str = "") -> Run:
    """Cancel a request that waits, for its turn or for an answer; the run as it was.

    current: the run being worked now. Raises SiaError when there is nothing to drop.
    """
    with store.transaction():
        run = _open(store, id)
        if id == current:
            raise SiaError(f"{id} is being worked now; tell the agent to stop")
        cancel(store, run)
    return run


def cancel(store: Store, run: Run) -> None:
    """End a run for good, in the caller's transaction; what it set going is ended after it."""
    store.save_run(replace(run, status="cancelled", question="", preempts=False))
    to_halt(store, run)


def raise_urgency(store: Store, id: str, urgency: float, current: str = "") -> Run:
    """Let a request wait with a higher urgency, 0..1; the run as it is then. Raises SiaError."""
    if not 0.0 <= urgency <= 1.0:  # also what is no number
        raise SiaError(f"the urgency {urgency:g} is not between 0 and 1")
    with store.transaction():
        run = _open(store, id)
        if id == current:
            raise SiaError(f"{id} is being worked now")
        if run.status == "asking":
            raise SiaError(f"{id} waits for your answer, and goes on as soon as it has one")
        if urgency <= run.urgency:
            raise SiaError(f"{id} has the urgency {run.urgency:.2f} already; name a higher one")
        run = replace(run, urgency=urgency)
        store.save_run(run)
    return run


def dropped(run: Run) -> str:
    return f"dropped {run.id}: {run.text}"


def raised(run: Run) -> str:
    return f"{run.id} waits with the urgency {run.urgency:.2f} now: {run.text}"


def known(store: Store, id: str) -> Run:
    """Raises SiaError when there is no run of this id."""
    run = store.run(id)
    if run is None and any(item.run == id for item in store.inputs()):
        raise SiaError(f"{id} is not yet looked at; it waits once that is done")
    if run is None:
        raise SiaError(f"there is no request {id}; `sia queue` lists what waits")
    return run


def _open(store: Store, id: str) -> Run:
    run = known(store, id)
    if run.status not in OPEN:
        raise SiaError(f"{id} is over already: {run.status}")
    return run
