"""The cache of results: its size in bytes is bounded, and every result is computed once."""

import threading
import time

import numpy as np
import pytest
import torch

import quantcore as qc
from pages.serving.work.byte_cache import VALUES, ByteCache, storages

KB = 1024


def array(kilobytes: int) -> np.ndarray:
    return np.zeros(kilobytes * KB, np.uint8)


def known(cache: ByteCache, tensor: str, what: str) -> bool:
    """Whether a result is cached; asking counts as a use."""
    made: list[int] = []
    cache.get(tensor, what, lambda: made.append(1) or array(0))
    return not made


def test_what_was_used_least_recently_makes_room() -> None:
    cache = ByteCache(lambda: 100 * KB)
    for name in "abc":
        cache.get(name, "r", lambda: array(30))
    cache.get("a", "r", lambda: array(30))
    cache.get("d", "r", lambda: array(30))
    assert cache.bytes < 100 * KB
    assert [known(cache, name, "r") for name in "acd"] == [True] * 3
    assert not known(cache, "b", "r")


def test_the_values_of_a_tensor_go_last() -> None:
    cache = ByteCache(lambda: 100 * KB)
    cache.get("a", VALUES, lambda: array(40))
    for i in range(5):
        cache.get("a", f"r{i}", lambda: array(25))
    assert known(cache, "a", VALUES)
    assert not known(cache, "a", "r0")


def test_a_limit_that_shrinks_makes_room_at_once() -> None:
    limit = [100 * KB]
    cache = ByteCache(lambda: limit[0])
    cache.get("a", "r", lambda: array(60))
    cache.get("b", "r", lambda: array(30))
    limit[0] = 40 * KB
    cache.make_room()
    assert not known(cache, "a", "r")
    assert known(cache, "b", "r")


def test_a_tensor_in_work_keeps_what_its_place_has_room_for_and_the_idle_go() -> None:
    in_work = {"a": 70 * KB}
    cache = ByteCache(lambda: 10 * KB, lambda: in_work)
    cache.get("a", VALUES, lambda: array(40))
    cache.get("b", "r", lambda: array(20))
    cache.get("a", "r", lambda: array(25))
    assert known(cache, "a", "r")
    assert known(cache, "a", VALUES)
    assert not known(cache, "b", "r")
    cache.get("a", "s", lambda: array(25))  # more than it was admitted with
    assert not known(cache, "a", "r")
    in_work.clear()
    cache.make_room()
    assert not known(cache, "a", VALUES)


def test_no_more_results_than_asked_for() -> None:
    cache = ByteCache(lambda: 10**9, entries=3)
    for i in range(5):
        cache.get(str(i), "r", lambda: array(1))
    assert cache.bytes < 4 * KB


def test_what_many_ask_for_at_once_is_computed_once() -> None:
    cache, made, found = ByteCache(lambda: 10**6), list[int](), list[object]()
    start = threading.Barrier(8)

    def make() -> object:
        made.append(1)
        time.sleep(0.2)
        return object()

    def visit() -> None:
        start.wait()
        found.append(cache.get("a", "r", make))

    threads = [threading.Thread(target=visit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert made == [1]
    assert len(set(map(id, found))) == 1


def test_an_error_is_not_kept_and_the_next_who_waits_computes() -> None:
    cache, began, errors = ByteCache(lambda: 10**6), threading.Event(), list[Exception]()

    def fails() -> object:
        began.set()
        time.sleep(0.2)
        raise qc.QuantError("no")

    def visit() -> None:
        try:
            cache.get("a", "r", fails)
        except qc.QuantError as error:
            errors.append(error)

    thread = threading.Thread(target=visit)
    thread.start()
    began.wait(60)
    assert cache.get("a", "r", lambda: 7) == 7
    thread.join(60)
    assert len(errors) == 1


def test_a_run_that_was_replaced_does_not_wait_for_another_s_result() -> None:
    cache, began, leave = ByteCache(lambda: 10**6), threading.Event(), threading.Event()

    def computes() -> bool:
        began.set()
        return leave.wait(60)

    thread = threading.Thread(target=cache.get, args=("a", "r", computes))
    thread.start()
    assert began.wait(60)

    def replaced() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        cache.get("a", "r", lambda: 7, check=replaced)
    leave.set()
    thread.join(60)


def test_who_waits_to_be_admitted_takes_what_another_computed() -> None:
    cache, asked = ByteCache(lambda: 10**6), list[int]()

    def admit(useless: object) -> bool:
        asked.append(1)
        cache.get("a", "r", lambda: 1)  # another visitor
        assert callable(useless)
        assert useless()
        return False

    assert cache.get("a", "r", lambda: 2, admit) == 1
    assert asked == [1]


def test_memory_that_results_share_is_counted_once() -> None:
    x = np.zeros((600, 512), np.float32)
    result = qc.apply(torch.from_numpy(x), qc.Scheme())  # a large tensor is shared
    found = storages(result)
    assert found[x.ctypes.data] == x.nbytes
    assert sum(found.values()) == pytest.approx(x.nbytes * 1.25, rel=0.02)
    assert storages(x[3:, 5:]).get(x.ctypes.data) == x.nbytes  # a view keeps the entire storage alive
    assert storages({"t": [torch.from_numpy(x)[1]]}).get(x.ctypes.data) == x.nbytes
    cache = ByteCache(lambda: 10**9)
    cache.get("a", VALUES, lambda: x)
    before = cache.bytes
    cache.get("a", "result", lambda: result)
    assert cache.bytes - before == pytest.approx(x.nbytes * 0.25, rel=0.1)
