"""Visitors with large tensors on a server with little memory for them: they speak Streamlit's protocol."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from app_page import the_app
from grid import for_each
from loops import finish
from parts import some
from served import serve

from benchmarks.visitor import Visitor, visit
from pages.serving.work.admission import Gate, Turn, WorkKind
from pages.shared.computing import turn

LARGE = "2048x2048"  # 17 MB, which need more than half of the 39 MB for large work: one at a time
VISITORS = 3


@pytest.fixture
def small_gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The same memory in this process, for a page without a server."""
    monkeypatch.setattr(turn, "GATE", gate := Gate(45_000_000, 2, 45_000_000))
    return gate


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("served"), QUANTSCOPE_WORK_GB="0.045") as server:
        finish(visit(server.host, "", "shape=8x8"))
        yield server.host


def query(seed: int) -> str:
    """The link of a large tensor of one's own."""
    return f"dist=normal&shape={LARGE}&seed={seed}"


def before(visitor: Visitor) -> list[int]:
    """How many the visitor was told were before, each time that this was said."""
    words = [text.split() for text in visitor.texts]
    return [int(w[0]) for w in words if w[1:3] == ["large", "tensor"] or w[1:3] == ["large", "tensors"]]


@pytest.mark.slow  # by default, the queue is tested without a server, and a page that waits below
def test_large_tensors_are_answered_in_turn_and_the_visitor_is_told_how_many_are_before(host: str) -> None:
    async def all_at_once() -> tuple[list[Visitor], int]:
        number, turns = 0, set[int]()
        async with contextlib.AsyncExitStack() as stack:
            small = await stack.enter_async_context(Visitor(host, "", "shape=8x8"))
            visitors = [
                await stack.enter_async_context(Visitor(host, "", query(seed))) for seed in range(VISITORS)
            ]
            runs = [asyncio.create_task(visitor.run()) for visitor in visitors]
            while not all(run.done() for run in runs):
                # a different tensor each time, of which nothing is cached
                small.query, number = f"shape=8x8&seed={number}", number + 1
                done = sum(run.done() for run in runs)
                await small.run()
                assert not before(small)
                if done == sum(run.done() for run in runs):
                    turns.add(done)
        return visitors, len(turns)

    visitors, turns = finish(all_at_once())
    told = [before(visitor) for visitor in visitors]
    # the first is told nothing, and whoever waits is told ever fewer
    assert sum(map(bool, told)) in range(2, VISITORS), told
    assert max(map(max, filter(None, told))) in range(2, VISITORS), told
    assert all(t == sorted(t, reverse=True) for t in told)
    # a small one that waited for a large one would end after it, and none would begin and end in the turn of
    # a large one
    assert turns >= 2
    for visitor in visitors:
        assert any("SQNR" in text for text in visitor.texts)


@pytest.mark.slow  # four large tensors more
def test_a_visitor_who_waits_may_turn_to_a_small_tensor(host: str) -> None:
    async def turn_away() -> bool:
        async with contextlib.AsyncExitStack() as stack:
            visitors = [
                await stack.enter_async_context(Visitor(host, "", query(seed)))
                for seed in range(10, 10 + VISITORS)
            ]
            for visitor in visitors:
                await visitor.ask()
            await asyncio.sleep(0.05)
            waiting = visitors.pop()
            others = [asyncio.create_task(visitor.end()) for visitor in visitors]
            waiting.query = "shape=4x4"
            await waiting.run()
            while not any("(4, 4)" in text or "4×4" in text for text in waiting.texts):
                await waiting.end()  # the end of the run that was given up came first
            ahead = not all(other.done() for other in others)
            await asyncio.gather(*others)
            return ahead

    assert finish(turn_away())


@pytest.mark.parametrize("page", some(["", "ranges", "schemes", "libraries"]))
def test_a_tensor_that_does_not_fit_is_refused_in_words(small_gate: Gate, page: str) -> None:
    at = the_app(page)
    at.query_params["shape"] = "4096x14336"
    at.run()
    assert not at.exception
    (said,) = {element.value for element in at.error if "of memory" in element.value}
    assert "this server gives one visitor at most 45.0 MB" in said
    assert "choose a smaller tensor" in said
    assert not any("SQNR" in element.proto.body for element in at.get("html"))


def test_files_of_a_tensor_that_can_be_shown_may_need_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 5 * 64 * 64 * 4  # times the tensor's bytes; its maps need about 3, its files more
    monkeypatch.setattr(turn, "GATE", Gate(most, 2, most))
    at = the_app()
    at.query_params["shape"] = "64x64"
    at.query_params["tab"] = "Export"
    at.run()
    assert any("SQNR" in element.proto.body for element in at.get("html"))
    (said,) = (element.value for element in at.error)
    assert "this server gives one visitor at most" in said
    files = [button.proto for button in at.get("download_button")]
    assert any(file.label == ".safetensors" for file in files)
    assert all(file.disabled for file in files if file.label == ".safetensors")


def test_a_page_continues_by_itself_when_its_turn_comes(small_gate: Gate) -> None:
    other = Turn(small_gate, lambda before, kind: None)
    other.need(small_gate.largest())
    at = the_app()
    at.query_params["shape"] = "300x300"  # large for this gate
    at.query_params["dist"] = "uniform"
    lengths: list[int] = []

    def leave() -> None:
        deadline = time.monotonic() + 300
        while not small_gate.queue_length and time.monotonic() < deadline:
            time.sleep(0.01)
        lengths.append(small_gate.queue_length)
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
    assert small_gate.bytes_in_work == 0


@for_each(
    ("before", "kind", "words"),
    [
        (1, WorkKind.LARGE, "1 large tensor before yours."),
        (2, WorkKind.LARGE, "2 large tensors before yours."),
        (1, WorkKind.LONG, "1 long computation before yours."),
        (1200, WorkKind.LONG, "1,200 long computations before yours."),
    ],
)
def test_the_word_to_who_waits(before: int, kind: WorkKind, words: str) -> None:
    assert turn.sentence(before, kind).startswith(words)
