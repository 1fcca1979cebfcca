"""Compares two checkpoints in boxes of rows, on one or more threads, with the results in order."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from quantcore.checkpoints.comparison.orders import AS_STORED, EXPLAINED, FAR, Orders
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Both, rows_of
from quantcore.checkpoints.comparison.sums import PairSums, pair_sums
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import results_in_order, rows_per_box
from quantcore.errors import QuantError

CHUNK = 1 << 20  # elements per box


class Work:
    """The comparison of one pair; what every box needs is read on construction.

    Args:
        number: the index of the pair.
        likely: row orders that are tried whatever the error.
    """

    def __init__(
        self, number: int, pair: Pair, layouts: tuple[Layout, Layout], orders: Orders, likely: tuple[str, ...]
    ) -> None:
        self.number, self.pair, self.problem = number, pair, ""
        self.orders, self._likely = orders, likely
        self._lock = threading.Lock()
        self._first: tuple[tuple[str, ...], dict[str, PairSums]] | None = None
        try:
            x, y = (
                rows_of(layout, part)
                for layout, part in zip(layouts, (pair.original, pair.other), strict=True)
            )
            self.both = Both(x, y, pair.shape)
            self.rows = self._rows()
        except QuantError as error:
            self.problem = str(error)

    @property
    def boxes(self) -> int:
        """The number of boxes."""
        return 1 if self.problem or not self.both.count else -(-self.both.count // self.rows)

    def _rows(self) -> int:
        """Return the number of rows per box, which depends on shapes alone."""
        multiple = self.orders.multiple if self.pair.shape[:1] == (self.both.count,) else 1
        return rows_per_box(self.both.count, self.both.width, multiple, CHUNK)

    def run(self, box: int) -> "Box":
        """Compare a box; a pair that can't be read ends with it."""
        boxes = self.boxes
        if not self.problem:
            try:
                return Box(self.number, boxes, box == boxes - 1, self.compare(box))
            except QuantError as error:
                self.problem = str(error)
        return Box(self.number, boxes, True, problem=self.problem)

    def compare(self, box: int) -> dict[str, PairSums]:
        """Return the sums of a box for each row order that is tried.

        Raises:
            QuantError: the box can't be read.
        """
        with self._lock:  # the first box decides which orders are tried
            if self._first is None:
                self._first = self._decide()
        orders, first = self._first
        return first if box == 0 else self._sums(box, orders)

    def _decide(self) -> tuple[tuple[str, ...], dict[str, PairSums]]:
        found = self._sums(0, (AS_STORED, *self._likely))
        best = min(found.values(), key=lambda sums: sums.ee)
        if best.relative > FAR:
            others = self._sums(0, tuple(name for name in self.orders.by_name if name not in found))
            order = min(others, key=lambda name: others[name].ee, default=None)
            if order is not None and others[order].ee < EXPLAINED * best.ee:
                found[order] = others[order]
        return tuple(found), found

    def _sums(self, box: int, orders: tuple[str, ...]) -> dict[str, PairSums]:
        start = box * self.rows
        stop = min(start + self.rows, self.both.count)
        if stop <= start:
            return {order: PairSums() for order in orders}
        x, y = self.both.read(start, stop)
        found = {}
        stored = y if len(self.pair.shape) > 1 else y.view(-1)
        for name in orders:
            values = y
            if name != AS_STORED:
                undone = self.orders.by_name[name].undo(stored, slice(start, stop))
                values = undone.contiguous().view(y.shape)
            found[name] = pair_sums(x, values, start * self.both.width)
        return found


@dataclass(frozen=True)
class Box:
    """The sums of one of the ``boxes`` boxes of a pair, or why the pair can't be read."""

    pair: int
    boxes: int
    is_last: bool
    sums: Mapping[str, PairSums] = field(default_factory=dict)
    problem: str = ""


def in_order(tasks: Iterator[tuple[Work, int]], threads: int) -> Iterator[Box]:
    """Compare boxes, several at the same time, and yield their results in order; of a pair that fails, only the first failure.

    Args:
        tasks: each pair with the number of a box.
    """
    skipped = -1  # the last pair that failed
    for box in results_in_order((partial(work.run, number) for work, number in tasks), threads):
        if box.pair != skipped:
            skipped = box.pair if box.problem else skipped
            yield box
