"""Visitors with large tensors on a server with little memory for them: they speak Streamlit's protocol."""

import threading
import time
from collections.abc import Iterator

import pytest
from app_page import MAIN
from streamlit.testing.v1 import AppTest

from benchmarks.session import Session, server
from pages.serving.work.admission import Kind, Turn
from pages.shared import turn

LARGE = "3072x3072"  # 38 MB, which need more than half of the 44 MB for large work: one at a time
VISITORS = 4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with server({"QUANTSCOPE_WORK_GB": "0.05"}) as (found, _):
        with Session(found, shape="8x8") as visitor:
            visitor.ask()
            visitor.answer()
        yield found


class Large:
    """A visitor in a thread with a large tensor of her own."""

    def __init__(self, port: int, seed: int) -> None:
        self.seconds = 0.0
        self.session = Session(port, dist="normal", shape=LARGE, seed=seed)
        self.session.ask()
        self.thread = threading.Thread(target=self._wait)
        self.thread.start()

    def _wait(self) -> None:
        self.seconds = self.session.answer()

    @property
    def told(self) -> list[int]:
        """How many were before, each time that this was said."""
        words = [text.split() for text in self.session.texts]
        return [int(w[0]) for w in words if w[1:3] == ["large", "tensor"] or w[1:3] == ["large", "tensors"]]


def test_large_tensors_are_answered_in_turn_and_the_visitor_is_told_how_many_are_before(port: int) -> None:
    visitors = [Large(port, seed) for seed in range(VISITORS)]
    waits = []
    with Session(port, shape="8x8") as small:
        while any(visitor.thread.is_alive() for visitor in visitors):
            small.ask()
            waits.append(small.answer())
    told = [visitor.told for visitor in visitors]
    # the first is told nothing, and whoever waits is told ever fewer
    assert sum(map(bool, told)) in range(2, VISITORS), told
    assert max(map(max, filter(None, told))) in range(2, VISITORS), told
    assert all(t == sorted(t, reverse=True) for t in told)
    assert max(waits) < 1.0
    for visitor in visitors:
        assert any("SQNR" in text for text in visitor.session.texts)
        visitor.session.close()


def test_a_visitor_who_waits_may_turn_to_a_small_tensor(port: int) -> None:
    visitors = [Large(port, seed) for seed in range(10, 10 + VISITORS)]
    waiting = max(visitors, key=lambda visitor: visitor.session.query)
    time.sleep(0.05)
    start = time.monotonic()
    waiting.session.query = "shape=4x4"
    waiting.session.ask()
    waiting.thread.join(30)
    assert time.monotonic() - start < 1.0
    for visitor in visitors:
        visitor.thread.join(60)
        visitor.session.close()


def test_a_page_continues_by_itself_when_its_turn_comes() -> None:
    other = Turn(turn.GATE, lambda before, kind: None)
    other.need(turn.GATE.largest())
    at = AppTest.from_file(str(MAIN), default_timeout=60)
    at.query_params["shape"] = "2048x2048"
    at.query_params["dist"] = "uniform"
    lengths: list[int] = []

    def leave() -> None:
        deadline = time.monotonic() + 30
        while not turn.GATE.queue_length and time.monotonic() < deadline:
            time.sleep(0.01)
        lengths.append(turn.GATE.queue_length)
        time.sleep(0.6)  # longer than a wait that is not worth a word
        other.close()

    thread = threading.Thread(target=leave)
    thread.start()
    at.run()
    thread.join()
    assert lengths == [1]
    assert not at.exception
    assert not at.info  # the word is taken away
    assert any("SQNR" in element.proto.body for element in at.get("html"))
    assert turn.GATE.bytes_in_work == 0


@pytest.mark.parametrize(
    ("before", "kind", "words"),
    [
        (1, Kind.LARGE, "1 large tensor before yours."),
        (2, Kind.LARGE, "2 large tensors before yours."),
        (1, Kind.LONG, "1 long computation before yours."),
        (1200, Kind.LONG, "1,200 long computations before yours."),
    ],
)
def test_the_word_to_who_waits(before: int, kind: Kind, words: str) -> None:
    assert turn.sentence(before, kind).startswith(words)
