"""Compares two checkpoints in boxes of rows, on one or more threads, with the results in order.

What two boxes differ in: the sums of `quantcore.analysis.sums` over finite values, and what else a comparison
shows.
"""

import heapq
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from torch import Tensor

from quantcore.analysis import BoxSums, Sums, sums_of
from quantcore.checkpoints.comparison.error_map import Floats, as_plain, cells_of, of_plain
from quantcore.checkpoints.comparison.orders import AS_STORED, EXPLAINED, FAR, Orders
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import rows_of
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import results_in_order, rows_per_box
from quantcore.errors import QuantError
from quantcore.numerics import scratch

WORST = 5  # blocks kept per pair
Block = tuple[float, float, int, int]  # Σe², Σx², flat index of its first element, columns
CHUNK = 1 << 20  # elements per box


@dataclass
class PairSums(Sums):
    """Sums over x, the original, and y, over the elements that are finite in both.

    ``different``: how many of all elements differ in their bits; ``nonfinite``: NaN and infinities of x, NaN
    and infinities of y; ``blocks``: the runs of columns with the largest Σ(x-y)², the worst first.
    ``cells``: Σ(x-y)² of each cell of the `error_map`; None if unknown, as after `of_list`;
    a `PairRecord` stores them beside the sums.
    """

    different: int = 0
    nonfinite: tuple[int, ...] = (0, 0, 0, 0)
    blocks: list[Block] = field(default_factory=list)
    cells: Floats | None = field(default=None, compare=False, repr=False)

    def merge(self, later: Self) -> None:
        """Add the sums of the next box."""
        known = self.cells is not None or not self.count
        super().merge(later)
        if later.cells is not None and known:
            self.cells = later.cells if self.cells is None else self.cells + later.cells
        self.different += later.different
        self.nonfinite = tuple(a + b for a, b in zip(self.nonfinite, later.nonfinite, strict=True))
        self.blocks = _worst([*self.blocks, *later.blocks])

    def as_list(self) -> list[Any]:
        """Return plain data, from which `of_list` restores the same sums to the last bit."""
        errors = [self.ee, self.ae, self.worst, self.worst_at, self.different]
        plain = [self.count, self.xx, self.yy, self.xy, *errors]
        return [*plain, list(self.nonfinite), [list(block) for block in self.blocks]]

    @classmethod
    def of_list(cls, plain: list[Any]) -> Self:
        """Return what `as_list` wrote.

        Raises:
            TypeError, ValueError: it is not the data of such sums.
        """
        count, *sums, at, different, nonfinite, blocks = plain
        xx, yy, xy, ee, ae, worst = map(float, sums)
        a, b, c, d = map(int, nonfinite)
        listed = [(float(e), float(x), int(flat), int(n)) for e, x, flat, n in blocks]
        return cls(int(count), xx, yy, xy, ee, ae, worst, int(at), int(different), (a, b, c, d), listed)


@dataclass
class PairRecord:
    """What is known about one pair: sums by the row order that was undone, or why it can't be compared."""

    sums: dict[str, PairSums] = field(default_factory=dict)
    problem: str = ""

    def add(self, later: Mapping[str, PairSums]) -> None:
        """Add the sums of the next box."""
        for order, sums in later.items():
            self.sums.setdefault(order, PairSums()).merge(sums)

    @property
    def order(self) -> str:
        """The order with the smallest squared error; as stored if no other is better."""
        return min(self.sums, key=lambda order: (self.sums[order].ee, order != AS_STORED), default=AS_STORED)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        if self.problem:
            return {"problem": self.problem}
        cells = {order: sums.cells for order, sums in self.sums.items()}
        return {
            "sums": {order: sums.as_list() for order, sums in self.sums.items()},
            "cells": {order: as_plain(each) for order, each in cells.items() if each is not None},
        }

    @classmethod
    def of_dict(cls, plain: Mapping[str, Any]) -> "PairRecord":
        """Return what `as_dict` wrote; a record without cells is one of an earlier version."""
        sums = {str(order): PairSums.of_list(listed) for order, listed in plain.get("sums", {}).items()}
        for order, cells in plain.get("cells", {}).items():
            sums[order].cells = of_plain(cells)
        return cls(sums, str(plain.get("problem", "")))


def _worst(blocks: list[Block]) -> list[Block]:
    """Return the worst blocks; ties go to the first."""
    return heapq.nsmallest(WORST, blocks, key=lambda block: (-block[0], block[2]))


def pair_sums(x: Tensor, y: Tensor, start: int) -> PairSums:
    """Return the sums of a box.

    Args:
        x, y: float32 [lines, columns], contiguous.
        start: the flat index of their first element.
    """
    a, b = x.numpy(), y.numpy()
    different = int(np.count_nonzero(a.view(np.int32) != b.view(np.int32)))
    found = sums_of(x, y, start, rounded=False)
    # no difference of finite values overflows float64, and all others are not finite
    if np.isfinite(found.sums.ee):
        return PairSums(**vars(found.sums), different=different, blocks=_places(found, start, x.shape[1]))
    good = np.isfinite(a) & np.isfinite(b)
    finite = [scratch(f"finite {name}", x.shape) for name in "xy"]
    for out, side in zip(finite, (a, b), strict=True):
        np.copyto(out.numpy(), np.where(good, side, np.float32(0)))
    again = pair_sums(finite[0], finite[1], start)
    again.different, again.count = different, int(good.sum())
    again.nonfinite = tuple(int(of(side).sum()) for side in (a, b) for of in (np.isnan, np.isinf))
    return again


def _places(found: BoxSums, start: int, columns: int) -> list[Block]:
    """Return the worst blocks with their places."""
    flat, across, run = found.ee.reshape(-1), found.ee.shape[1], found.run
    some = np.arange(len(flat))
    if len(flat) > WORST:
        some = np.flatnonzero(flat >= np.partition(flat, -WORST)[-WORST])
    blocks = []
    for i in some[: 64 * WORST].tolist():  # if many are equal, the first ones are enough
        line, k = divmod(i, across)
        if flat[i] > 0:
            at = start + line * columns + k * run
            blocks.append((float(flat[i]), float(found.xx[line, k]), at, min(run, columns - k * run)))
    return _worst(blocks)


class PairComparison:
    """The comparison of one pair; what every box needs is read on construction.

    ``count``, ``width``: the rows that both sides can read, and elements per row; ``boxes``: their number;
    ``rows``: of each, which depends on shapes alone; ``problem``: why it can't be read.

    Args:
        likely: row orders that are tried whatever the error.
    """

    def __init__(
        self, pair: Pair, layouts: tuple[Layout, Layout], orders: Orders, likely: tuple[str, ...]
    ) -> None:
        self.pair, self.problem, self.boxes = pair, "", 1
        self.orders, self._likely = orders, likely
        self._lock = threading.Lock()
        self._first: tuple[tuple[str, ...], dict[str, PairSums]] | None = None
        try:
            self._sides = rows_of(layouts[0], pair.original), rows_of(layouts[1], pair.other)
            self.count = min(side.count for side in self._sides)
            self.width = math.prod(pair.shape) // self.count if self.count else 0
            multiple = orders.multiple if pair.shape[:1] == (self.count,) else 1
            self.rows = rows_per_box(self.count, self.width, multiple, CHUNK)
            self.boxes = max(1, -(-self.count // self.rows))
        except QuantError as error:
            self.problem = str(error)

    def run(self, box: int) -> tuple[Self, int, PairRecord]:
        """Compare a box; a pair that can't be read ends with it."""
        if not self.problem:
            try:
                return self, box, PairRecord(self.compare(box))
            except QuantError as error:
                self.problem = str(error)
        return self, box, PairRecord(problem=self.problem)

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

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return some rows of both, float32 [lines, columns]; valid until this thread reads again."""
        columns, found = self.pair.shape[-1] if len(self.pair.shape) > 1 else 0, []
        for place, side in zip(("original", "other"), self._sides, strict=True):
            times = side.count // self.count
            out = scratch(place, ((stop - start) * times, side.width))
            side.read(start * times, stop * times, out)
            found.append(out.view(-1, columns) if columns else out.view(1, -1))
        return found[0], found[1]

    def _sums(self, box: int, orders: tuple[str, ...]) -> dict[str, PairSums]:
        start = box * self.rows
        stop = min(start + self.rows, self.count)
        if stop <= start:
            return {order: PairSums() for order in orders}
        x, y = self.read(start, stop)
        found = {}
        stored = y if len(self.pair.shape) > 1 else y.view(-1)
        for name in orders:
            values = y
            if name != AS_STORED:
                undone = self.orders.by_name[name].undo(stored, slice(start, stop))
                values = undone.contiguous().view(y.shape)
            found[name] = pair_sums(x, values, start * self.width)
            if x.shape[1] and (len(self.pair.shape) > 1 or self.boxes == 1):
                line, lines = (n * self.width // x.shape[1] for n in (start, self.count))
                found[name].cells = cells_of(x, values, line, lines)
        return found


def in_order(
    tasks: Iterator[tuple[PairComparison, int]], threads: int
) -> Iterator[tuple[PairComparison, int, PairRecord]]:
    """Compare boxes, several at once, and yield their results in order; of a pair that fails, the first.

    Args:
        tasks: each pair with the number of a box.
    """
    failed = None
    for found in results_in_order((partial(work.run, box) for work, box in tasks), threads):
        work, _, record = found
        if work is not failed:
            failed = work if record.problem else failed
            yield found
