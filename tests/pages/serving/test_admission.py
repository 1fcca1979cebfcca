"""Heavy work is admitted by memory, in order of arrival; real threads wait in a real queue."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pages.serving.work.admission import Gate, Turn, WorkKind
from pages.shared.computing import cache
from pages.shared.computing import turn as admitted
from pages.shared.state.selection import PageTensor
from quantcore.errors import QuantError

MB = 1 << 20
BUDGET = 160 * MB  # 140 MB for large work, 10 for long, 10 for small (each up to 2.5 MB)
SOON = 60.0  # seconds within which a thread that may continue does, even on a busy machine


class Replaced(Exception):
    """Stands in for what Streamlit raises in a run that was replaced."""


class Visitor:
    """A thread that waits to be admitted, works until told to leave, and releases its bytes."""

    def __init__(self, gate: Gate, need: int, long: bool = False) -> None:
        self.told: list[int] = []
        self.admitted, self.leave = threading.Event(), threading.Event()
        self.replaced = self.useless = False
        self.error: BaseException | None = None
        self.turn = Turn(gate, self._tell)
        self._need, self._long = need, long
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _tell(self, before: int, kind: WorkKind) -> None:
        if self.replaced:
            raise Replaced
        self.told.append(before)

    def _run(self) -> None:
        try:
            if self.turn.need(self._need, "x", long=self._long, useless=lambda: self.useless):
                self.admitted.set()
                self.leave.wait(10 * SOON)
        except Replaced as error:
            self.error = error
        finally:
            self.turn.close()

    def end(self) -> None:
        self.leave.set()
        self.thread.join(SOON)
        assert not self.thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def in_queue(gate: Gate, needs: list[int]) -> Iterator[list[Visitor]]:
    """Visitors who arrive one after another."""
    visitors = []
    for need in needs:
        visitors.append(Visitor(gate, need))
        until(lambda: visitors[-1].admitted.is_set() or bool(visitors[-1].told))
    yield visitors
    for visitor in visitors:
        visitor.end()
    assert (gate.queue_length, gate.bytes_in_work) == (0, 0)


def test_as_many_as_fit_work_at_once_and_the_others_wait_in_the_order_of_arrival() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [60 * MB, 60 * MB, 60 * MB, 30 * MB]) as (a, b, c, d):
        assert a.admitted.is_set()
        assert b.admitted.is_set()
        assert gate.bytes_in_work == 120 * MB
        assert gate.queue_length == 2
        # the fourth does not fit either, and even if it did, it would not overtake the third
        a.end()
        until(c.admitted.is_set)
        assert not d.admitted.wait(0.3)
        assert set(c.told) - {0} == {2}
        until(lambda: c.told[-1] == 0)  # after the wait nobody is ahead
        assert set(d.told) <= {3, 2}
        b.end()
        until(d.admitted.is_set)


def test_what_would_fit_does_not_overtake_what_came_first() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [100 * MB, 100 * MB, 20 * MB]) as (a, b, c):
        assert not c.admitted.wait(0.3)
        a.end()
        until(b.admitted.is_set)
        until(c.admitted.is_set)


def test_small_work_never_waits_for_large() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [140 * MB, 140 * MB]):
        small = Visitor(gate, 2 * MB)
        until(small.admitted.is_set)
        assert small.told == []
        small.end()


def test_work_of_seconds_leaves_a_core_free() -> None:
    gate = Gate(BUDGET, cores=2)
    first, second = (Visitor(gate, 1, long=True) for _ in range(2))
    until(lambda: first.admitted.is_set() or second.admitted.is_set())
    time.sleep(0.3)
    assert first.admitted.is_set() != second.admitted.is_set()
    quick = Visitor(gate, 1)
    until(quick.admitted.is_set)
    for visitor in (first, second, quick):
        visitor.end()


def test_large_work_leaves_a_core_free() -> None:
    gate = Gate(BUDGET, cores=2)
    with in_queue(gate, [10 * MB, 10 * MB]) as (a, b):
        assert not b.admitted.wait(0.3)
        a.end()
        until(b.admitted.is_set)


def test_work_larger_than_the_budget_runs_alone_rather_than_never() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [10 * MB, 10_000 * MB, 10 * MB]) as (a, b, c):
        assert not b.admitted.wait(0.3)
        a.end()
        until(b.admitted.is_set)
        assert not c.admitted.wait(0.3)
        b.end()
        until(c.admitted.is_set)


def test_work_larger_than_one_run_may_need_is_refused() -> None:
    gate = Gate(BUDGET, cores=8, most=100 * MB)
    turn = Turn(gate, lambda before, kind: None)
    turn.need(100 * MB)
    with pytest.raises(
        QuantError, match=r"needs about 104\.9 MB of memory.*at most 104\.9 MB.*choose a smaller tensor"
    ):
        turn.need(100 * MB + 1)
    assert gate.too_much(100 * MB) == ""
    turn.close()
    assert gate.bytes_in_work == 0


def test_a_run_that_was_replaced_gives_its_place_in_the_queue_up_at_once() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [140 * MB, 140 * MB, 140 * MB]) as (a, b, c):
        b.replaced = True
        b.thread.join(SOON)
        assert isinstance(b.error, Replaced)
        until(lambda: c.told[-1] == 1)
        a.end()
        until(c.admitted.is_set)


def test_work_that_another_has_done_is_not_waited_for() -> None:
    gate = Gate(BUDGET, cores=8)
    with in_queue(gate, [140 * MB, 140 * MB]) as (_, b):
        b.useless = True
        b.thread.join(SOON)
        assert not b.thread.is_alive()
        assert b.turn.place is None


def test_an_exception_gives_the_bytes_back() -> None:
    gate = Gate(BUDGET, cores=8)
    turn = Turn(gate, lambda before, kind: None)

    def work() -> None:
        try:
            turn.need(50 * MB)
            raise MemoryError
        finally:
            turn.close()

    with pytest.raises(MemoryError):
        work()
    assert gate.bytes_in_work == 0


def test_a_run_that_needs_more_waits_for_it_before_all_who_came_later_and_two_never_for_each_other() -> None:
    gate = Gate(BUDGET, cores=8)
    turns = [Turn(gate, lambda before, kind: None) for _ in range(2)]
    for turn in turns:
        turn.need(60 * MB)
    order: list[int] = []

    def grow(which: int) -> None:
        turns[which].need(100 * MB)
        order.append(which)
        time.sleep(0.1)
        turns[which].close()

    later = Visitor(gate, 100 * MB)
    until(lambda: bool(later.told))
    threads = [threading.Thread(target=grow, args=(i,)) for i in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert sorted(order) == [0, 1]
    until(later.admitted.is_set)
    later.end()
    assert gate.bytes_in_work == 0


def test_who_needs_more_is_not_overtaken_while_the_smaller_place_is_given_back() -> None:
    gate = Gate(BUDGET, cores=2)
    told: list[int] = []
    turn = Turn(gate, lambda before, kind: told.append(before))
    turn.need(60 * MB)
    later = Visitor(gate, 100 * MB)
    until(lambda: bool(later.told))
    later.leave.set()
    gate.on_change.append(lambda: later.admitted.wait(0.3))  # as when memory is made free then
    turn.need(100 * MB)
    assert not told
    assert not later.admitted.is_set()
    gate.on_change.clear()
    turn.close()
    until(later.admitted.is_set)
    later.end()


def test_a_larger_place_will_do_for_less() -> None:
    gate = Gate(BUDGET, cores=8)
    turn = Turn(gate, lambda before, kind: None)
    turn.need(50 * MB)
    place = turn.place
    for need, long in ((10 * MB, False), (1, True), (50 * MB, False)):
        turn.need(need, long=long)
        assert turn.place is place
    turn.need(10_000 * MB)
    alone = turn.place
    turn.need(10_000 * MB)  # more than the lane has, so the place that it was given is enough
    assert turn.place is alone is not place
    turn.close()


def test_long_work_lets_others_go_first() -> None:
    gate = Gate(BUDGET, cores=1)
    turn = Turn(gate, lambda before, kind: None)
    turn.need(1, long=True)
    turn.let_others(0.0)
    assert turn.place is not None  # nobody was waiting
    other = Visitor(gate, 1, long=True)
    until(lambda: bool(other.told))
    assert not turn.overstays(60.0)
    assert turn.overstays(0.0)
    threading.Timer(0.3, other.leave.set).start()
    turn.let_others(0.0)
    assert other.admitted.is_set()
    assert not other.thread.is_alive() or other.leave.is_set()
    assert turn.place is not None
    turn.close()
    other.end()


def test_two_that_wait_for_each_other_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is computing a result and needs a larger place; the other has the only one and waits for that result."""
    monkeypatch.setattr(admitted, "GATE", gate := Gate(BUDGET, cores=1))
    elements = 4 * MB  # 16 MB: large work
    one, two = (PageTensor(f"{test}", "", (elements,), dict) for test in (object(), object()))
    begun, waits = threading.Event(), threading.Event()
    found: list[str] = []

    def outer() -> str:
        begun.set()
        until(lambda: gate.queue_length == 1)  # the other one is waiting for this place
        return cache.cached(one, "inner", lambda: "known", need=2.0)

    def compute() -> None:
        with admitted.current():
            found.append(cache.cached(one, "outer", outer, need=1.0))

    def other() -> None:
        with admitted.current() as own:
            own.need(1)  # it is the first to arrive, and so the first in the queue
            waits.set()
            begun.wait(SOON)
            cache.cached(two, "own", lambda: "known", need=1.0)
            found.append(cache.cached(one, "outer", outer, need=1.0))

    threads = [threading.Thread(target=target, daemon=True) for target in (other, compute)]
    threads[0].start()
    waits.wait(SOON)
    threads[1].start()
    for thread in threads:
        thread.join(2 * SOON)
    assert found == ["known", "known"]
    assert not gate.bytes_in_work


def test_what_is_in_work_is_known_by_tensor() -> None:
    gate = Gate(BUDGET, cores=8)
    turn = Turn(gate, lambda before, kind: None)
    changes: list[int] = []
    gate.on_change.append(lambda: changes.append(gate.bytes_in_work))
    turn.need(50 * MB, "x")
    turn.need(1, "y")
    assert gate.in_work() == {"x": 50 * MB, "y": 50 * MB}
    assert gate.idle_bytes() == 90 * MB
    turn.close()
    assert gate.in_work() == {}
    assert changes == [50 * MB, 0]
