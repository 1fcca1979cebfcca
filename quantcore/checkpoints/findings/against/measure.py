"""How far a weight is from its original, gathered in one walk over its rows, in bounded memory."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis import Sums, sums_of
from quantcore.checkpoints.findings.against.grid import (
    CodeGrid,
    Elements,
    Nearest,
    Roundings,
    rounding_of,
    sums_by_run,
    width_of,
)
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.findings.walk import Box, Ordered
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.rows import ELEMENTS

RUNS = 64  # runs of columns that are kept
_EDGE = 0.4  # steps: errors of codes rounded to nearest lie from here to half a step as often as anywhere
_STRANGE, _MATTERS = 1.2, 0.05  # Σe² of a column over its Σx², and over the mean Σx² of columns
_AT_EDGE = 0.05  # and this share between `_EDGE` and half a step: a fifth would be if they were uniform
LEAKED = 2.0  # ratio of the mean squared errors of odd and even sub-blocks
ENOUGH = 512  # elements of each parity


@dataclass
class Measure:
    """The errors of one weight against its original, summed over boxes of rows.

    ``sums``: of x, the original, and e.
    ``rounded``: the squared error that rounding to nearest would leave with the steps of all codes.
    ``inner``: elements that are not clipped;
    ``edge``: how many of these have errors near half a step of their own codes.
    ``unequal``: elements of a plain weight that differ by more than rounding.
    ``bulk``: the mean squared error of the inner elements of a typical row, over that of rounding to nearest;
        nan if unknown.
    ``columns``: Σe² and Σx² of each column until `done`;
    ``strange_columns``, ``strange_rows``: how many no longer resemble the original's.
    ``runs``: the runs of columns with the largest mean squared error in steps, as (mean, row, first column),
        where ``order`` puts columns of a group side by side.
    ``peak``: the original's max |x|.
    """

    layout: Layout
    source: Ordered
    sums: Sums = field(default_factory=Sums)
    rounded: float = 0.0
    inner: int = 0
    edge: int = 0
    unequal: int = 0
    rows: list[npt.NDArray[np.float64]] = field(default_factory=list)
    bulk: float = math.nan
    columns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 1)))
    runs: list[tuple[float, int, int]] = field(default_factory=list)
    peak: float = 0.0

    def __post_init__(self) -> None:
        """Prepare what every box needs."""
        self.grid = CodeGrid(self.layout) if CodeGrid.suits(self.layout) else None
        self.width = math.prod(self.layout.shape[1:])
        # whether something is added that the scale does not multiply; some formats call a min the zero point
        self.has_min = self.grid is not None and self.layout.parameters(slice(0, 1)).min is not None
        self.run = min(width_of(self.layout), self.width) if self.grid else self.width
        self.roundings = Roundings(self.layout, self.source.layout.dtype) if self.grid else None
        self.leak: CheckpointFinding | None = None
        self.strange_columns, self.strange_rows = 0, 0
        index = self.layout.group_index() if self.grid else None
        self.order = None if index is None or index.dim() > 1 else index.argsort(stable=True)
        if self.order is not None:
            self.run = min(self.layout.blocks.block[-1], self.width)

    @property
    def name(self) -> str:
        """The weight's name."""
        return self.layout.name

    @property
    def relative(self) -> float:
        """RMS error divided by the RMS of the original."""
        return self.sums.relative

    @property
    def sqnr(self) -> float:
        """In dB."""
        return self.sums.sqnr_db if self.sums.ee else math.inf

    @property
    def rounding(self) -> float:
        """The relative rounding error of values in the dtypes of both."""
        return rounding_of(self.layout.dtype) + rounding_of(self.source.layout.dtype)

    @property
    def nearest(self) -> Nearest | None:
        """How its codes are rounded to nearest; None if they are not, as far as is known."""
        if self.roundings is None or not self.inner or self.edge < _AT_EDGE * self.inner:
            return None
        # nested scales of bitsandbytes are rounded after codes were computed
        if not self.source.is_exact or "nested_absmax" in self.layout.fields:
            return None
        return self.roundings.found(self.inner)

    def add(self, box: Box) -> None:
        """Add some rows."""
        values = box.values if self.layout.holds_values else box.exact
        lines = [t.reshape(-1, self.width) for t in (box.original, values)]
        gridded: list[Tensor] = []
        if self.grid is not None:
            scale = self.grid.scales(box.rows)
            rounding = self.grid.rounding(box.rows, scale).expand(scale.shape)
            gridded = [t.reshape(-1, self.width) for t in (scale, self.grid.bits(box.codes), rounding)]
        step = max(1, ELEMENTS // 8 // self.width)
        for start in range(0, len(lines[0]), step):
            part = slice(start, start + step)
            a, b = (t[part] for t in lines)
            error = a - b
            if not bool(error.isfinite().all()):  # NaN and infinity have findings of their own
                good = error.isfinite()
                error, a, b = (torch.where(good, t, 0.0) for t in (error, a, b))
            first = box.rows.start + start
            self._squares(a, b, error, first)
            self.peak = max(self.peak, float(torch.aminmax(a).max), -float(torch.aminmax(a).min))
            if gridded:
                self._in_steps(a, b, error, first, *(t[part] for t in gridded))
            elif self.layout.is_plain:
                self._plain(a, error)

    def _squares(self, x: Tensor, y: Tensor, error: Tensor, first: int) -> None:
        found = sums_of(x, y, first * self.width)
        self.sums.merge(found.sums)
        if self.width > 1:
            squares = [t.double().square_().sum(0) for t in (error, x)]
            self.columns = self.columns + torch.stack(squares).numpy()
            mine, of_x = found.ee.sum(1), found.xx.sum(1)
            self.strange_rows += int(((mine > _STRANGE * of_x) & (mine > _MATTERS * of_x.mean())).sum())

    def _in_steps(
        self, x: Tensor, y: Tensor, error: Tensor, first: int, scale: Tensor, bits: Tensor, stored: Tensor
    ) -> None:
        assert self.grid is not None
        size = scale.abs()
        code = self.grid.table[bits]
        upward = (error > 0) ^ (scale < 0)
        limit = self.grid.limits[bits + upward.to(torch.int32) * len(self.grid.table)]
        units = error.abs() / size
        inner = limit.isfinite() & (size > 0)
        self.rounded += float((self.grid.gaps[bits] * size).double().square_().sum()) / 12
        counted = torch.where(inner, units / (2 * limit), 0.0)
        square = counted.double().square_()
        self.inner += int(inner.sum())
        self.edge += int((inner & (counted > _EDGE) & (counted <= 0.5)).sum())
        by_group = (square, inner) if self.order is None else (square[:, self.order], inner[:, self.order])
        by_run, of_run = (sums_by_run(t.double().numpy(), self.run) for t in by_group)
        self.rows.append(np.stack([by_run.sum(-1), of_run.sum(-1)]))
        mean = by_run / np.maximum(of_run, 1)
        for flat in np.argsort(mean, axis=None)[-RUNS:].tolist():
            row, run = divmod(flat, mean.shape[1])
            self.runs.append((12 * float(mean[row, run]), first + row, run * self.run))
        self.runs = heapq.nlargest(RUNS, self.runs)
        self._near(inner, counted, 2 * limit, (x, y, scale, code), stored, first)

    def _near(
        self,
        inner: Tensor,
        errors: Tensor,
        step: Tensor,
        values: Sequence[Tensor],
        stored: Tensor,
        first: int,
    ) -> None:
        """Give the elements near half a step and beyond to the ways of rounding; errors are in steps."""
        assert self.roundings is not None
        x, y, scale, code = values
        size = y.abs() / scale.abs()
        if self.has_min:
            size = code.abs() + (y - scale * code).abs() / scale.abs()
        near = inner & (errors > 0.5 - self.roundings.near * (size + code.abs() + 1))
        places = near.reshape(-1).nonzero().reshape(-1)
        if not len(places):
            return
        # by index, which is several times as fast as by mask
        found = (x, y, scale, code, errors - 0.5, size / step, stored, step)
        chosen = [t.reshape(-1).index_select(0, places) for t in found]
        self.roundings.add(Elements(*chosen), places // self.width + first, places % self.width)

    def _plain(self, x: Tensor, error: Tensor) -> None:
        """Compare with the original rounded to the dtype of the weight."""
        own, dtype = self.layout.dtype, self.source.layout.dtype
        if not (own.is_floating_point and dtype.is_floating_point):
            self.unequal += int((error != 0).sum())
        else:
            least = float(torch.finfo(own).tiny) * float(torch.finfo(own).eps)
            self.unequal += int((error.abs() > 2 * self.rounding * x.abs() + least).sum())

    def done(self) -> "Measure":
        """Return itself with what single rows and columns add up to, without these."""
        if self.rows:
            sums, counts = np.concatenate(self.rows, 1)
            known = counts > 0
            self.bulk = 12 * float(np.median(sums[known] / counts[known])) if known.any() else math.nan
        self.leak = leak_of(self.layout, self.columns[0])
        errors, powers = self.columns
        matters = errors > _MATTERS * self.sums.xx / len(errors)
        self.strange_columns = int(((errors > _STRANGE * powers) & matters).sum())
        self.rows, self.columns = [], np.zeros((2, 1))
        return self


def leak_of(layout: Layout, columns: npt.NDArray[np.float64]) -> CheckpointFinding | None:
    """Return the finding on odd columns that are much worse than even ones, or the reverse."""
    if layout.holds_values:
        return None
    # how many columns come before those that share their bytes, and what such a run is called
    size, what, n, packed = 0, "columns", len(columns), getattr(layout.fields.get(CODES), "order", None)
    if layout.block_type in ("Q4_K", "Q5_K"):
        size, what = 32, "sub-blocks"
    elif layout.block_type in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        size, what = 16, "halves of blocks"
    elif not layout.block_type and packed is not None and packed.bits == 4:
        size = int(getattr(layout.fields[CODES], "axis", 0) % len(layout.shape) == 1)
    if not size or n < 2 * size or len(layout.shape) < 2 or layout.shape[0] * n < 2 * ENOUGH:
        return None
    parity = np.arange(n) // size % 2
    # each column counts the same, so that a single one with a large error does not decide
    rows = layout.shape[0]
    means = [np.sort(columns[parity == p]) / rows for p in (0, 1)]
    even, odd = (float(m.mean()) for m in means)
    middle = [float(np.median(m)) for m in means]
    small, large = sorted((even, odd))
    agree = max(middle) > LEAKED * min(middle) and (middle[1] >= middle[0]) == (odd >= even)
    if not (large > LEAKED * small and large > 0 and agree):
        return None
    worse, better = ("odd", "even") if odd >= even else ("even", "odd")
    words = (
        "{has} larger errors in {worse} {what} than in {better} ones: {its} mean squared error against the "
        "original is {large} there, {small} elsewhere. Bits leaked between codes that share a byte because "
        "the packer did not mask them; pack the weight again."
    )
    return error(layout, "bit_leak", words, worse=worse, better=better, what=what, large=large, small=small)
