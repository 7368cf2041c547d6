"""The order of the queue, and the bound on waiting, with a clock that the test turns."""

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sia.errors import SiaError
from sia.loop import Loop
from sia.queue import Queue, drop, effective, latest, ordered, raise_urgency
from sia.session import Session
from sia.store import Run, Store

START = datetime(2026, 11, 30, tzinfo=UTC)


def run(n: int, urgency: float, hours: float = 0.0, **more: object) -> Run:
    arrived = START + timedelta(hours=hours)
    requeued = more.pop("requeued", arrived)
    return Run(f"r{n}", "typed", "x", urgency, arrived, requeued, **more)


def order(*runs: Run, rate: float = 0.1, hours: float = 0.0) -> list[str]:
    return [item.id for item in ordered(runs, rate, START + timedelta(hours=hours))]


def test_urgency_grows_with_waiting_up_to_one() -> None:
    low = run(1, 0.1)
    for hours, expected in ((0, 0.1), (1, 0.2), (4.5, 0.55), (9, 1.0), (99, 1.0), (-5, 0.1)):
        assert effective(low, 0.1, START + timedelta(hours=hours)) == pytest.approx(expected)
    assert latest(low, 0.1) == START + timedelta(hours=9)
    assert latest(run(1, 1.0), 0.1) == START


def test_the_more_urgent_goes_first_and_ties_go_by_arrival() -> None:
    found = order(run(1, 0.4), run(2, 0.7), run(3, 0.4, -0.01), run(4, 0.1))
    assert found == ["r2", "r3", "r1", "r4"]
    assert order(run(10, 0.4), run(9, 0.4), run(2, 0.4)) == ["r2", "r9", "r10"]


def test_differences_below_a_hundredth_are_ties() -> None:
    assert order(run(1, 0.409), run(2, 0.401, -1e-4)) == ["r2", "r1"]
    assert order(run(1, 0.411), run(2, 0.409, -1e-4)) == ["r1", "r2"]
    # 0.07 x 100 is a little more than 7 in binary, 0.57 x 100 a little less than 57.
    assert order(run(1, 0.0701), run(2, 0.07, -1e-4)) == ["r1", "r2"]
    assert order(run(1, 0.57), run(2, 0.565, -1e-4)) == ["r2", "r1"]


def test_among_equals_the_later_requeue_goes_first() -> None:
    early, late = (START + timedelta(minutes=m) for m in (5, 10))
    assert order(run(1, 0.4, requeued=early), run(2, 0.4, requeued=late)) == ["r2", "r1"]


def test_a_preempt_jumps_it() -> None:
    assert order(run(1, 1.0, -50), run(2, 0.1, preempts=True)) == ["r2", "r1"]


def test_urgency_grows_at_one_rate_so_a_lead_stays_until_one() -> None:
    """0.409 and 0.401 stand on one step or on two; whichever it is, it is so all the time."""
    runs = [run(1, 0.409), run(2, 0.401, -1e-4), run(3, 0.7), run(4, 0.2, -1.0)]
    orders = {tuple(order(*runs, hours=hours / 7)) for hours in range(20)}
    assert orders == {("r3", "r2", "r1", "r4")}
    assert order(*runs, hours=20) == ["r4", "r2", "r1", "r3"]  # all at 1.0: by arrival


# the index


@pytest.fixture(scope="module")
def place() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "state.db")
        yield store
        store.close()


@pytest.fixture
def store(place: Store) -> Store:
    clear(place)
    return place


def clear(store: Store) -> None:
    with store.transaction() as db:
        db.execute("DELETE FROM runs")


def ids(runs: list[Run]) -> list[str]:
    return [item.id for item in runs]


STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 100), st.integers(-90, 0), st.booleans()),
    st.tuples(st.just("pop"), st.integers(0, 2)),
    st.tuples(st.just("displace"), st.integers(0, 5)),
    st.tuples(st.just("raise"), st.integers(0, 5), st.integers(1, 100)),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 1, 6, 59, 600])),
)


@given(rate=st.sampled_from([0.03, 0.1, 0.77, 30.0]), steps=st.lists(STEPS, max_size=40))
def test_the_index_gives_the_order_of_sorting_all(
    place: Store, rate: float, steps: list[tuple]
) -> None:
    clear(place)
    now = START
    queue = Queue(place, rate, now)
    number = 0
    with place.transaction():
        for name, *values in steps:
            waiting = ordered(place.runs("waiting"), rate, now)
            chosen = (
                waiting[values[0]]
                if name not in ("push", "wait") and len(waiting) > values[0]
                else None
            )
            if name == "push":
                number += 1
                hundredths, minutes, first = values
                arrived = now + timedelta(minutes=minutes)
                item = Run(f"r{number}", "typed", "x", hundredths / 100, arrived, arrived)
                place.save_run(replace(item, preempts=first and number % 7 == 0))
            elif name == "wait":
                now += timedelta(minutes=values[0])
            elif chosen and name == "pop":
                place.save_run(replace(chosen, status="running"))
            elif chosen and name == "displace":
                place.save_run(replace(chosen, status="waiting", requeued=now, preempts=False))
            elif chosen and name == "drop":
                drop(place, chosen.id)
            elif chosen and values[1] / 100 > chosen.urgency:
                raise_urgency(place, chosen.id, values[1] / 100)
            wanted = ids(ordered(place.runs("waiting"), rate, now))
            assert ids(queue.first(99, now)) == wanted
            assert queue.depth() == len(wanted)
            assert (queue.head(now) or Run("", "", "", 0, now, now)).id == (wanted or [""])[0]
            if wanted:
                assert ids(queue.first(99, now, but=wanted[0])) == wanted[1:]
                assert queue.depth(but=wanted[0]) == len(wanted) - 1
    # Made anew, as at the next start, it is the same.
    assert ids(Queue(place, rate, now).first(99, now)) == ids(queue.first(99, now))


def test_what_is_rolled_back_was_never_queued(store: Store) -> None:
    queue = Queue(store, 0.1, START)
    store.save_run(run(1, 0.5))
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.save_run(run(2, 0.9))
        store.save_run(replace(run(1, 0.5), status="done"))
        assert ids(queue.first(9, START)) == ["r2"] and queue.depth() == 1
        _ = 1 / 0
    assert ids(queue.first(9, START)) == ["r1"] and queue.depth() == 1


def test_the_work_of_taking_the_head_does_not_grow_with_the_queue(store: Store) -> None:
    """Counted in instructions of the database, which no other load changes."""
    queue = Queue(store, 0.1, START)
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    def instructions(call: Callable[[], object]) -> int:
        counted[0] = 0
        with store.transaction() as db:
            db.set_progress_handler(count, 1)
            try:
                call()
            finally:
                db.set_progress_handler(None, 0)
        return counted[0]

    found = []
    for size in (300, 3000):  # all of the 97 hundredths are there with both
        with store.transaction():
            for n in range(size):
                store.save_run(run(n, n % 97 / 100, -(n % 13) / 10))
        new = run(size, 0.5)
        found.append(
            [
                instructions(lambda: queue.head(START)),
                instructions(queue.depth),
                instructions(lambda new=new: store.save_run(new)),
                instructions(lambda new=new: store.save_run(replace(new, status="done"))),
            ]
        )
    few, many = found
    assert all(after <= before + 10 for before, after in zip(few, many, strict=True)), found


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 1e5, 1e300])
def test_a_rate_of_any_size_has_an_order(store: Store, rate: float) -> None:
    queue = Queue(store, rate, START)
    for item in (run(1, 0.2), run(2, 0.9, 1e-6), run(3, 0.1, -1.0)):
        store.save_run(item)
    for hours in (0.01, 1.0, 1e5):
        now = START + timedelta(hours=hours)
        assert ids(queue.first(9, now)) == ids(ordered(store.runs("waiting"), rate, now))


def test_another_rate_holds_from_the_next_start_on(store: Store) -> None:
    store.save_run(run(1, 0.3, -1.0))
    store.save_run(run(2, 0.5))
    assert ids(Queue(store, 0.1, START).first(9, START)) == ["r2", "r1"]
    assert ids(Queue(store, 0.5, START).first(9, START)) == ["r1", "r2"]


def test_a_clock_that_was_set_back_lets_nothing_wait_for_it(store: Store) -> None:
    """A request that came "tomorrow" is as old as the correction, at once or at the next start."""
    queue = Queue(store, 0.1, START)
    store.save_run(run(1, 0.3, 5000.0))
    assert queue.head(START + timedelta(hours=5000)).id == "r1"
    back = START + timedelta(hours=1)
    assert queue.head(back).arrived == back
    store.save_run(run(2, 0.35, 3.0))
    assert queue.head(START + timedelta(hours=3)).id == "r1"
    store.save_run(replace(run(1, 0.3), arrived=START + timedelta(hours=5000)))
    assert Queue(store, 0.1, back).head(back).arrived <= back


# the bound on waiting, with a clock that the test turns


def served(
    store: Store, rate: float, low: Run, ahead: list[Run], stream: Callable[[int], tuple]
) -> list[tuple[datetime, datetime, Run]]:
    """(begin, end, run) of all that is worked until ``low`` begins. stream(n): urgency, minutes
    until the one after it comes, and minutes of its work."""
    clear(store)
    queue, now, number = Queue(store, rate, START), START, len(ahead) + 1
    coming = START + timedelta(seconds=1)
    done: list[tuple[datetime, datetime, Run]] = []
    with store.transaction():
        for item in (*ahead, low):
            store.save_run(item)
        while (head := queue.head(now)).id != low.id:
            work = timedelta(minutes=stream(int(head.id[1:]))[2])
            store.save_run(replace(head, status="done"))
            done.append((now, now + work, head))
            now += work
            while coming <= now:
                number += 1
                urgency, gap, _ = stream(number)
                store.save_run(Run(f"r{number}", "typed", "x", urgency, coming, coming))
                coming += timedelta(minutes=gap)
    return done


@given(
    urgency=st.integers(0, 100).map(lambda n: n / 100),
    rate=st.sampled_from([0.05, 0.1, 0.5, 2.0]),
    ahead=st.lists(st.floats(0, 1), max_size=5),
    stream=st.lists(
        st.tuples(st.floats(0, 1), st.floats(5, 60), st.floats(5, 120)), min_size=1, max_size=7
    ),
)
def test_the_wait_is_bounded(
    place: Store, urgency: float, rate: float, ahead: list[float], stream: list[tuple]
) -> None:
    """Whatever comes, however urgent and however steadily: from (1 - urgency) / rate hours on only
    what came earlier goes first, and so the wait is that, the work then running, and theirs."""
    old = [run(n + 1, each, -0.1 * (len(ahead) - n)) for n, each in enumerate(ahead)]
    low = run(len(ahead) + 1, urgency)
    done = served(place, rate, low, old, lambda n: stream[n % len(stream)])
    bound = latest(low, rate)
    assert bound - START == pytest.approx(
        timedelta(hours=(1 - urgency) / rate), abs=timedelta(seconds=1)
    )
    after = [(begin, end, item) for begin, end, item in done if begin >= bound]
    assert {item.id for _, _, item in after} <= {item.id for item in old}
    begun = done[-1][1] if done else START
    running = [end - bound for begin, end, _ in done if begin < bound < end]
    own = sum((end - begin for begin, end, _ in after), timedelta())
    assert begun <= bound + sum(running, timedelta()) + own


def test_one_old_low_request_in_a_steady_stream_of_urgent_ones(store: Store) -> None:
    """Urgency 0.1 among 0.95s, one every ten minutes and each ten minutes of work: 9 hours."""
    low = run(1, 0.1)
    done = served(store, 0.1, low, [], lambda n: (0.95, 10, 10))
    assert done == []  # alone at first, it runs at once
    done = served(store, 0.1, run(2, 0.1), [run(1, 0.95, -0.1)], lambda n: (0.95, 10, 10))
    waited = done[-1][1] - START
    assert timedelta(hours=8) < waited <= timedelta(hours=9, minutes=10)
    assert len(done) == waited / timedelta(minutes=10)


class Work:
    """The steps of a loop: each run takes one turn of ten minutes, and another comes meanwhile."""

    def __init__(self, store: Store) -> None:
        self.store, self.now, self.number, self.done = store, START, 100, []
        self.loop: Any = None

    def context(self, *_: Any) -> None: ...
    def reads(self, run: Run) -> bool: ...
    def follow(self, turn: Any) -> None: ...

    def step(self, turn: Any, iteration: Any, cancel: threading.Event) -> None:
        self.done.append(turn.run.id)
        turn.run = replace(turn.run, status="done")
        self.now += timedelta(minutes=10)
        self.number += 1
        urgent = Run(f"r{self.number}", "typed", "x", 0.95, self.now, self.now)
        self.store.save_run(urgent)
        if turn.run.id == "r2":
            self.loop.stop(0)

    def record(self, turn: Any, *_: Any) -> list:
        self.store.save_run(turn.run)
        return []


def test_the_loop_takes_the_queues_head(store: Store) -> None:
    work = Work(store)
    store.save_run(run(1, 0.95, -0.1))
    store.save_run(run(2, 0.1))
    queue = Queue(store, 0.5, START)
    work.loop = Loop(
        store, Session("s"), work, work, lambda event: None, lambda: work.now, queue
    )  # fmt: skip
    assert work.loop.run() == 0
    # 0.9 of urgency at 0.5 an hour are 108 minutes: it is the first to be taken from then on.
    assert work.done == ["r1", *(f"r{n}" for n in range(101, 111)), "r2"]


# what a person may change


def test_dropped_it_is_cancelled_and_raised_it_goes_sooner(store: Store) -> None:
    queue = Queue(store, 0.1, START)
    for item in (run(1, 0.5), run(2, 0.4), replace(run(3, 0.2), status="asking", question="{}")):
        store.save_run(item)
    assert raise_urgency(store, "r2", 0.6) == store.run("r2") == run(2, 0.6)
    assert ids(queue.first(9, START)) == ["r2", "r1"]
    drop(store, "r2")
    drop(store, "r3")
    assert ids(queue.first(9, START)) == ["r1"]
    assert {store.run(id).status for id in ("r2", "r3")} == {"cancelled"}
    assert store.run("r3").question == ""


def test_what_cannot_be_changed_says_why(store: Store) -> None:
    store.save_run(run(1, 0.5))
    store.save_run(replace(run(2, 0.5), status="done"))
    store.save_run(replace(run(3, 0.5), status="asking"))
    before = store.runs("waiting", "done", "asking")
    for call, words in (
        (lambda: drop(store, "r9"), "there is no request r9; `sia queue` lists what waits"),
        (lambda: drop(store, ""), "there is no request ;"),
        (lambda: drop(store, "r2"), "r2 is over already: done"),
        (lambda: drop(store, "r1", "r1"), "r1 is being worked now; tell the agent to stop"),
        (lambda: raise_urgency(store, "r1", 0.5), "has the urgency 0.50 already; name a higher"),
        (lambda: raise_urgency(store, "r1", 1.5), "the urgency 1.5 is not between 0 and 1"),
        (lambda: raise_urgency(store, "r1", float("nan")), "the urgency nan is not between"),
        (lambda: raise_urgency(store, "r1", 0.9, "r1"), "r1 is being worked now"),
        (lambda: raise_urgency(store, "r3", 0.9), "r3 waits for your answer"),
    ):
        with pytest.raises(SiaError, match=words):
            call()
    assert store.runs("waiting", "done", "asking") == before
