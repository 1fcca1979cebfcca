"""A first estimate of the error of one weight from some of its rows, with a 95 % interval.

All rows are read once for Σx²,
their largest |x| and the ranges of blocks that extend over all of them, which are thus exact. The rows with
the largest of either are always measured, since a few of them can hold most of the error; of the others,
`DRAWN` are drawn, and their mean error gives that of all, with Student's t (Cochran, Sampling Techniques, 2.8
and 5A).
"""

import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from quantcore.analysis import errors_by_region, sqnr_of
from quantcore.checkpoints import CheckpointTensor, Layout, ready, rows_per_box
from quantcore.granularity import Blocks, split_axes
from quantcore.layerwise.measure import NOT_FINITE, Column, attempt, filled, measured, outlined, values_of
from quantcore.layerwise.table import WeightError, WeightRow
from quantcore.scheme import Scheme

DRAWN = 64  # units of a sample
_FEW = 4  # times as many units as are drawn: fewer are all measured
# the 97.5 % quantile of Student's t with 63 degrees of freedom is 2.00; skewed errors need a little more
_T = 2.1
_BOX = 1 << 20  # elements
_Floats = npt.NDArray[np.float64]


def estimated(tensor: CheckpointTensor, schemes: Sequence[Scheme]) -> WeightRow:
    """Return the row of one weight with estimates and their intervals; with few rows, as measured."""

    def estimate(own: WeightRow) -> WeightRow:
        found = _Sample(ready(tensor.layout), schemes)
        if found.units <= _FEW * DRAWN:
            exact = measured(tensor, schemes)
            certain = (replace(cell, sqnr_low=cell.sqnr_db, sqnr_high=cell.sqnr_db) for cell in exact.cells)
            return replace(exact, cells=tuple(certain))
        found.walk()
        if not math.isfinite(found.power):
            return replace(own, cells=(), reason=NOT_FINITE)
        found.draw(zlib.crc32(tensor.name.encode()))
        cells = tuple(found.cell(column, cell) for column, cell in zip(found.columns, own.cells, strict=True))
        return replace(own, power=found.power, cells=cells)

    return filled(outlined(tensor, schemes), estimate)


class _Sample:
    """A sample of units of ``unit`` rows, that many as stay together under every scheme."""

    def __init__(self, layout: Layout, schemes: Sequence[Scheme]) -> None:
        self._layout, self.shape = layout, layout.shape
        self.columns = [Column.of(scheme, layout) for scheme in schemes]
        for column in self.columns:
            column.divide(self.shape, "no interval can be given: the scheme needs all elements at once")
        self.unit = math.lcm(*(max(1, c.rows) for c in self.columns if not c.found.problem))
        self.units = -(-self.shape[0] // self.unit)
        self.power = 0.0

    def walk(self) -> None:
        """Read all rows once."""
        rows, width = self.shape[0], math.prod(self.shape[1:])
        powers, largest = np.empty(rows), np.empty(rows)
        step = rows_per_box(rows, width, 1, _BOX)
        for start in range(0, rows, step):
            box = slice(start, min(start + step, rows))
            x = values_of(self._layout, box)
            lines = x.reshape(len(x), -1)
            powers[box] = torch.linalg.vector_norm(lines, dim=1).double().square_().numpy()
            largest[box] = torch.maximum(lines.amax(1), -lines.amin(1)).numpy()
            for column in self.columns:
                if not column.rows and math.isfinite(powers[box].sum()):
                    attempt(column, column.add_ranges, x)
        self.power = float(powers.sum())
        first = np.arange(0, rows, self.unit)
        self._powers, self._largest = np.add.reduceat(powers, first), np.maximum.reduceat(largest, first)

    def draw(self, seed: int) -> None:
        """Choose the units and read them."""
        always = np.zeros(self.units, bool)
        for sizes in (self._powers, self._largest):
            always[np.argsort(sizes)[-DRAWN // 4 :]] = True
        always[-1] = True  # it may have fewer rows
        rest = np.flatnonzero(~always)
        drawn = np.random.default_rng(seed).choice(rest, DRAWN, replace=False)
        chosen = np.sort(np.concatenate([np.flatnonzero(always), drawn]))
        starts = [int(unit) * self.unit for unit in chosen]
        parts = [self._layout.values(slice(i, min(i + self.unit, self.shape[0]))) for i in starts]
        # the units together, and where each begins
        self._x, self._starts = torch.cat(parts), np.cumsum([0, *map(len, parts[:-1])])

        self._is_drawn, self._rest = ~always[chosen], len(rest)

    def cell(self, column: Column, own: WeightError) -> WeightError:
        """Return the estimate of one scheme."""
        start = time.perf_counter()
        errors = attempt(column, self._errors, column)
        if errors is None or own.problem:
            return replace(own, problem=own.problem or column.found.problem)
        if not np.isfinite(errors).all():
            return replace(own, problem="no interval can be given: an error is not finite")
        drawn = errors[self._is_drawn]
        sse = errors.sum() + (self._rest - DRAWN) * drawn.mean()
        spread = _T * self._rest * math.sqrt((1 - DRAWN / self._rest) / DRAWN) * drawn.std(ddof=1)
        least, most = max(errors.sum(), sse - spread), sse + spread
        seconds = (time.perf_counter() - start) * math.prod(self.shape) / self._x.numel()
        db, high, low = (sqnr_of(self.power, float(value)) for value in (sse, least, most))
        mse = float(sse) / math.prod(self.shape)
        own = replace(own, sse=float(sse), mse=mse, seconds=seconds)
        return replace(own, sqnr_db=db, sqnr_low=low, sqnr_high=high)

    def _errors(self, column: Column) -> _Floats:
        """Return the squared error of each unit that is measured."""
        x, params = self._x, column.params
        blocks = Blocks.of(column.scheme.granularity, tuple(x.shape))
        every = torch.empty(x.shape)
        viewed = blocks.view(every)
        for region, _, error, _ in errors_by_region(x, column.scheme, params=params):
            split_axes(viewed[region.elements], region.block).copy_(error)
        by_row = every.reshape(len(x), -1).double().square_().sum(1).numpy()
        found: _Floats = np.add.reduceat(by_row, self._starts)
        return found
