"""The comparison itself: box after box of rows, with progress, stopped and continued at any step."""

import hashlib
import math
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.analysis import sqnr_of
from quantcore.checkpoints.comparison.orders import AS_STORED, FAR, HALVES, PAIRS, Heads, Orders
from quantcore.checkpoints.comparison.pairing import Opened, Pair, Pairing, is_gguf, pair_up
from quantcore.checkpoints.comparison.parts import Both, Part, rows_of
from quantcore.checkpoints.comparison.record import FORMAT, Record, TensorResult, WorstBlock, metrics
from quantcore.checkpoints.comparison.sums import Sums, relative, sums_of
from quantcore.checkpoints.rows import MOST_ELEMENTS, TooLong
from quantcore.errors import QuantError

CHUNK = 1 << 19  # elements of a box
_LARGEST_HEAD = 1 << 24  # elements of a head, whose rows stay in one box


@dataclass(frozen=True)
class Step:
    """A box of rows that has been compared: ``done`` of ``total`` bytes of both checkpoints, at the pair ``name``."""

    done: int
    total: int
    name: str
    state: "ComparisonState"


@dataclass
class ComparisonState:
    """How far a comparison has come; plain data by `as_dict`.

    ``identity``: of the pairs, see `Comparison.identity`; ``finished``: the pairs in their order; ``current``: the next
    one, of which ``boxes`` boxes are done.
    """

    identity: str
    finished: list[Record] = field(default_factory=list)
    current: Record = field(default_factory=Record)
    boxes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "format": FORMAT,
            "identity": self.identity,
            "finished": [record.as_dict() for record in self.finished],
            "current": self.current.as_dict(),
            "boxes": self.boxes,
        }

    @classmethod
    def of_dict(cls, plain: Mapping[str, Any]) -> "ComparisonState":
        """Return what `as_dict` wrote.

        Raises:
            QuantError: it is something else.
        """
        try:
            if plain["format"] != FORMAT:
                raise ValueError
            finished = [Record.of_dict(record) for record in plain["finished"]]
            return cls(
                str(plain["identity"]), finished, Record.of_dict(plain["current"]), int(plain["boxes"])
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise QuantError("This is not the record of a comparison; compare from the beginning.") from None


class Comparison:
    """Two checkpoints, paired by names and shapes; no data has been read.

    ``pairing``: which tensor belongs to which, and those without a partner; ``total``: bytes of all pairs.
    """

    def __init__(self, original: Opened, other: Opened) -> None:
        self.original, self.other = original, other
        self.pairing: Pairing = pair_up(original, other)
        self._heads = Heads.of(original.release, other.release)
        self._gguf = (is_gguf(original), is_gguf(other))

    @cached_property
    def identity(self) -> str:
        """Names the pairs and how they are stored, but not their values."""
        digest = hashlib.sha256()
        for pair in self.pairing.pairs:
            digest.update(repr((pair.original, pair.other, pair.shape, *self._storage(pair))).encode())
        return digest.hexdigest()[:32]

    @cached_property
    def total(self) -> int:
        """Bytes of all pairs, in both checkpoints."""
        return sum(map(self._bytes, self.pairing.pairs))

    def steps(self, state: ComparisonState | None = None, threads: int = 1) -> Generator[Step, None, None]:
        """Compare box after box; the first step comes at once, before anything has been read.

        Closing the iterator stops it. The result depends neither on stops nor on threads.

        Args:
            state: of a comparison that was stopped, which goes on; it is changed.
            threads: that read and compare at the same time; several are of use if torch has one each
                (``torch.set_num_threads(1)``).

        Raises:
            QuantError: the state is that of other checkpoints.
        """
        state = ComparisonState(self.identity) if state is None else state
        if state.identity != self.identity or len(state.finished) > len(self.pairing.pairs):
            raise QuantError(
                "This record belongs to a comparison of other checkpoints; compare from the beginning."
            )
        pairs = self.pairing.pairs
        done = sum(map(self._bytes, pairs[: len(state.finished)]))
        name = str(pairs[min(len(state.finished), len(pairs) - 1)]) if pairs else ""
        yield Step(done, self.total, name, state)
        for box in _in_order(self._boxes(state), threads):
            pair, size = pairs[box.pair], self._bytes(pairs[box.pair])
            if box.problem:
                state.current = Record(problem=box.problem)
            else:
                state.current.add(box.sums)
            state.boxes += 1
            if box.is_last or box.problem:
                state.finished.append(state.current)
                state.current, state.boxes, done = Record(), 0, done + size
                yield Step(done, self.total, str(pair), state)
            else:
                yield Step(done + int(size * state.boxes / box.of), self.total, str(pair), state)

    def results(self, state: ComparisonState) -> list[TensorResult]:
        """Return what is known of the pairs that are finished."""
        return [self._result(p, r) for p, r in zip(self.pairing.pairs, state.finished, strict=False)]

    def _boxes(self, state: ComparisonState) -> Iterator["_Task"]:
        """Yield what is to be done, in order; a pair that can't be opened is one box."""
        first = state.boxes
        for number in range(len(state.finished), len(self.pairing.pairs)):
            work = _Work(self, number)
            for box in range(first, max(1, work.boxes)):
                task = _Task(work, box)
                yield task
                if work.problem:
                    break
            first = 0

    def _bytes(self, pair: Pair) -> int:
        return int(sum(self._num_bytes(pair)))

    def _num_bytes(self, pair: Pair) -> tuple[float, float]:
        """Return the bytes of both parts: of a tensor's, in proportion to its elements."""
        elements, found = math.prod(pair.shape), []
        for tensor in self._tensors(pair):
            found.append(tensor.num_bytes * elements / max(1, math.prod(tensor.shape)))
        return found[0], found[1]

    def _tensors(self, pair: Pair) -> tuple[Any, Any]:
        return self.original.tensors[pair.original.name], self.other.tensors[pair.other.name]

    def _storage(self, pair: Pair) -> tuple[str, str]:
        x, y = self._tensors(pair)
        return x.storage, y.storage

    def orders_of(self, pair: Pair) -> tuple[Orders, tuple[str, ...]]:
        """Return the orders that rows of a pair may lie in, and those that names alone make likely."""
        heads = self._heads.of_weight(pair.other.name) or self._heads.of_weight(pair.original.name)
        if heads and math.prod(pair.shape) // heads > _LARGEST_HEAD:
            heads = 0
        whole = pair.original.is_whole and pair.other.is_whole
        layout = self.other.tensors[pair.other.name].layout if whole else None
        orders = Orders(pair.shape, heads, layout)
        likely = (PAIRS if self._gguf[1] else HALVES,) if self._gguf[0] != self._gguf[1] else ()
        return orders, likely if orders.has_heads else ()

    def _result(self, pair: Pair, record: Record) -> TensorResult:
        elements = math.prod(pair.shape)
        num_bytes = self._num_bytes(pair)
        bits = (8 * num_bytes[0] / max(1, elements), 8 * num_bytes[1] / max(1, elements))
        found: dict[str, Any] = {
            "name": str(pair.other), "original": str(pair.original), "shape": pair.shape,
            "storage": self._storage(pair), "elements": elements, "num_bytes": num_bytes, "bits_per_weight": bits,
            "note": pair.note, "problem": record.problem,
            "other_tensor": pair.other.name, "original_tensor": pair.original.name,
        }  # fmt: skip
        if record.problem or not record.sums:
            return TensorResult(**found)
        orders, _ = self.orders_of(pair)
        sums = record.sums[record.order]
        found |= metrics(sums, pair.shape)
        found["order"] = record.order
        found["orders"] = {order: sqnr_of(s.xx, s.ee) for order, s in record.sums.items()}
        place = partial(_in_other, pair, orders, record.order)
        if found["max_abs_error_index"] is not None:
            found["other_index"] = place(found["max_abs_error_index"])
        found["worst"] = tuple(_worst(pair, block, place) for block in sums.blocks)
        return TensorResult(**found)


def _in_other(pair: Pair, orders: Orders, order: str, index: tuple[int, ...]) -> tuple[int, ...]:
    """Return where the other's tensor has an element, whose rows may lie in another order."""
    at = (orders.source(order, index[0]), *index[1:]) if index else index
    return pair.other.whole_index(at)


def _worst(pair: Pair, block: Any, place: Any) -> WorstBlock:
    sse, power, flat, columns = block
    index = tuple(int(i) for i in np.unravel_index(flat, pair.shape)) if pair.shape else ()
    return WorstBlock(
        index, columns, sqnr_of(power, sse), sse / columns, pair.original.whole_index(index), place(index)
    )


class _Work:
    """One pair as it is compared."""

    def __init__(self, comparison: Comparison, number: int) -> None:
        self.number, self.pair, self.problem = number, comparison.pairing.pairs[number], ""
        self.orders, self._likely = comparison.orders_of(self.pair)
        self._lock = threading.Lock()
        self._first: tuple[tuple[str, ...], dict[str, Sums]] | None = None
        try:
            layouts = [tensor.layout for tensor in comparison._tensors(self.pair)]
            parts: tuple[Part, Part] = (self.pair.original, self.pair.other)
            x, y = (rows_of(layout, part) for layout, part in zip(layouts, parts, strict=True))
            self.both = Both(x, y, self.pair.shape)
            self.rows = self._rows()
        except QuantError as error:
            self.problem = str(error)

    @property
    def boxes(self) -> int:
        """How many there are."""
        return 1 if self.problem or not self.both.count else -(-self.both.count // self.rows)

    def _rows(self) -> int:
        """Return the rows of a box: by the shape alone."""
        multiple = self.orders.multiple if self.pair.shape[:1] == (self.both.count,) else 1
        most = self.both.width * min(multiple, self.both.count)
        if most > MOST_ELEMENTS:
            raise TooLong(f"its rows of {most:,} elements are longer than the limit of {MOST_ELEMENTS:,}.")
        return max(1, CHUNK // max(1, self.both.width * multiple)) * multiple

    def compare(self, box: int) -> dict[str, Sums]:
        """Return the sums of a box with each order that is of interest.

        Raises:
            QuantError: it can't be read.
        """
        with self._lock:  # the first box decides which orders are
            if self._first is None:
                self._first = self._decide()
        orders, first = self._first
        return first if box == 0 else self._sums(box, orders)

    def _decide(self) -> tuple[tuple[str, ...], dict[str, Sums]]:
        found = self._sums(0, (AS_STORED, *self._likely))
        best = min(found.values(), key=lambda sums: sums.ee)
        if relative(best) > FAR:
            others = self._sums(0, tuple(name for name in self.orders.names if name not in found))
            order = min(others, key=lambda name: others[name].ee, default=None)
            if order is not None and others[order].ee < best.ee / 2:
                found[order] = others[order]
        return tuple(found), found

    def _sums(self, box: int, orders: tuple[str, ...]) -> dict[str, Sums]:
        start = box * self.rows
        stop = min(start + self.rows, self.both.count)
        if stop <= start:
            return {order: Sums() for order in orders}
        x, y = self.both.read(start, stop)
        found = {}
        for order in orders:
            values = y if order == AS_STORED else self._undone(order, y, slice(start, stop))
            found[order] = sums_of(x, values, start * self.both.width)
        return found

    def _undone(self, order: str, y: Tensor, rows: slice) -> Tensor:
        values = y if len(self.pair.shape) > 1 else y.view(-1)
        return self.orders.undone(order, values, rows).contiguous().view(y.shape)


@dataclass(frozen=True)
class _Box:
    """What has been found in one box, or why its pair can't be read."""

    pair: int
    of: int
    is_last: bool
    sums: Mapping[str, Sums] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class _Task:
    """A box that is to be compared."""

    work: _Work
    box: int

    def run(self) -> _Box:
        """Compare it."""
        work, boxes = self.work, self.work.boxes
        if not work.problem:
            try:
                return _Box(work.number, boxes, self.box == boxes - 1, work.compare(self.box))
            except QuantError as error:
                work.problem = str(error)
        return _Box(work.number, boxes, True, problem=work.problem)


def _in_order(tasks: Iterator[_Task], threads: int) -> Iterator[_Box]:
    """Run tasks, some at the same time, and yield what they find in their order."""
    skipped = -1  # a pair that failed
    if threads <= 1:
        for task in tasks:
            yield task.run()
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="compare") as pool:
        waiting: deque[Future[_Box]] = deque()

        def next_of() -> Iterator[_Box]:
            nonlocal skipped
            box = waiting.popleft().result()
            if box.pair != skipped:
                skipped = box.pair if box.problem else skipped
                yield box

        try:
            for task in tasks:
                waiting.append(pool.submit(task.run))
                if len(waiting) > 2 * threads:
                    yield from next_of()
            while waiting:
                yield from next_of()
        finally:
            for future in waiting:
                future.cancel()
