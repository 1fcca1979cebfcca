"""The error of one weight under several schemes: read once, in boxes of rows if large, with no codes kept.

A first answer is an estimate from some of its rows, with a 95 % interval. All rows are read once for Σx²,
their largest |x| and the ranges of blocks that extend over all of them, which are thus exact. The rows with
the largest of either are always measured, since a few of them can hold most of the error; of the others,
`DRAWN` are drawn, and their mean error gives that of all, with Student's t (Cochran, Sampling Techniques, 2.8
and 5A).

A weight that its file, or its dequantizer, gives in bfloat16 or float16 is quantized as each scheme's library
quantizes it in that dtype: what `apply` does with it. Others are float32.
"""

import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis import Sums, errors_by_region, power_of, quick_sums, sqnr_of
from quantcore.checkpoints import CheckpointTensor, Layout, ready, rows_per_box
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup, Shape, split_axes
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.roles import kind_of
from quantcore.layerwise.table import WeightError, WeightRow
from quantcore.numerics import Stochastic, rounding
from quantcore.programs import HALF
from quantcore.qparams import QParams, parameters, ranges
from quantcore.scheme import Scheme, in_dtype, storage

Result = TypeVar("Result")
WHOLE = 1 << 24  # elements of a weight that is read at once, and of a box of a larger one
DRAWN = 64  # units of a sample
_FEW = 4  # times as many units as are drawn: fewer are all measured
# the 97.5 % quantile of Student's t with 63 degrees of freedom is 2.00; skewed errors need a little more
_T = 2.1
_BOX = 1 << 20  # elements
_Floats = npt.NDArray[np.float64]


def measured(tensor: CheckpointTensor, schemes: Sequence[Scheme], inputs: Imatrix | None = None) -> WeightRow:
    """Return the row of one weight; what can't be read or measured has the reason instead of numbers."""

    def measure(own: WeightRow) -> WeightRow:
        weights, coverage = inputs.of(own.name, own.shape) if inputs is not None else (None, "")
        work = WeightWalk(tensor, schemes, weights)
        power = work.run()
        cells = tuple(map(work.cell, work.columns, own.cells))
        return replace(own, power=power, coverage=coverage, cells=cells)

    return _filled(outlined(tensor, schemes), measure)


def _filled(own: WeightRow, measure: Callable[[WeightRow], WeightRow]) -> WeightRow:
    """Return what is measured of a weight, or why nothing is."""
    if own.reason:
        return own
    try:
        found = measure(own)
    except QuantError as reason:
        return replace(own, cells=(), reason=f"can't be read: {reason}", is_readable=False)
    if found.reason or math.isfinite(found.power):
        return found
    return replace(own, cells=(), reason="contains NaN or infinite values, and is left alone")


def outlined(tensor: CheckpointTensor, schemes: Sequence[Scheme]) -> WeightRow:
    """Return the row of one weight with the bytes of each cell alone, from headers."""
    name, kind, num_bytes = tensor.name, kind_of(tensor.name), tensor.num_bytes
    try:
        _ = tensor.layout.fields  # raises if it can't be read
        own = WeightRow(name, tensor.shape, tensor.storage, kind, num_bytes, reason=_left_alone(tensor))
    except QuantError as reason:
        said = f"can't be read: {reason}"
        return WeightRow(name, (), "can't be read", kind, num_bytes, reason=said, is_readable=False)
    if own.reason:
        return own
    return replace(own, cells=tuple(_stored_cell(scheme, tensor.layout) for scheme in schemes))


def _stored_cell(scheme: Scheme, layout: Layout) -> WeightError:
    """Return a cell with the bytes alone, or why the scheme does not fit."""
    try:
        bits = storage(in_dtype(scheme, dtype_of(layout)), layout.shape)
    except QuantError as reason:
        return WeightError(problem=str(reason))
    return WeightError(num_bytes=(bits.codes + bits.scales + bits.zero_points) / 8)


def dtype_of(layout: Layout) -> torch.dtype:
    """Return the dtype in which a library gets the weight to quantize it."""
    return layout.dtype if layout.dtype in HALF else torch.float32


def _values(layout: Layout, rows: slice) -> Tensor:
    """Return the values of some rows as float32 numbers, those of 16 bits in memory of large pages."""
    if not (layout.is_plain and layout.dtype in HALF):
        return layout.values(rows)
    # NumPy requests huge pages: writing to its new memory costs a quarter of writing to torch's
    shape = (rows.stop - rows.start, *layout.shape[1:])
    return layout.values(rows, torch.from_numpy(np.empty(shape, np.float32)))


def _left_alone(tensor: CheckpointTensor) -> str:
    """Say why a weight is not quantized; empty if it is."""
    if not math.prod(tensor.shape):
        return "has no elements"
    if len(tensor.shape) < 2:
        return "is a norm, a bias or another vector, and is left alone"
    if tensor.layout.is_plain and not tensor.layout.dtype.is_floating_point:
        return "holds integers, and is left alone"
    return ""


@dataclass
class Column:
    """What is summed for one scheme, that of the weight's dtype.

    ``rows``: how many rows stay together so that boxes have the scales of the whole weight, 0 if none can be
    cut; ``ends``: the ranges, where blocks extend over all rows.
    """

    scheme: Scheme
    rows: int = 1
    sums: Sums = field(default_factory=Sums)
    clipped: int = 0
    output: float = 0.0
    ends: tuple[Tensor, Tensor] | None = None
    problem: str = ""

    @classmethod
    def of(cls, scheme: Scheme, layout: Layout) -> "Column":
        """Start one for a weight, whose dtype the scheme's library may refuse."""
        try:
            return cls(in_dtype(scheme, dtype_of(layout)))
        except QuantError as reason:
            return cls(scheme, problem=str(reason))

    @property
    def params(self) -> QParams | None:
        """The parameters that follow from the ranges, where blocks extend over all rows."""
        if self.ends is None:
            return None
        return parameters(*self.ends, self.scheme.symmetric, self.scheme.format, self.scheme.rules)

    def divide(self, shape: Shape, undivided: str) -> None:
        """Find how many rows stay together; ``undivided``: the problem of one that needs all at once."""
        if self.problem:
            return
        try:
            self.rows = rows_together(self.scheme, shape)
            self.problem = "" if self.rows or by_range(self.scheme, shape) else undivided
        except QuantError as reason:
            self.problem = str(reason)

    def add_ranges(self, x: Tensor) -> None:
        """Extend the ranges to those of a box."""
        low, high = ranges(x, self.scheme)
        if self.ends is not None:
            low, high = torch.minimum(low, self.ends[0]), torch.maximum(high, self.ends[1])
        self.ends = low, high

    def add(self, x: Tensor, weights: Tensor | None) -> None:
        """Add the errors of a box."""
        blocks = Blocks.of(self.scheme.granularity, tuple(x.shape))
        spread = None if weights is None else blocks.view(weights.expand(x.shape))
        for region, _, error, clipped in errors_by_region(x, self.scheme, params=self.params):
            self.clipped += clipped
            if spread is not None:
                own = split_axes(spread[region.elements], region.block)
                self.output += float(error.double().square_().mul_(own).sum())
            self.sums.merge(quick_sums(None, error))


class WeightWalk:
    """One walk over the rows of a weight, for all schemes; ``weights``: of inputs, broadcast with rows."""

    def __init__(self, tensor: CheckpointTensor, schemes: Sequence[Scheme], weights: Tensor | None) -> None:
        self.shape, self.weights = tensor.shape, weights
        self.power, self.output_power = 0.0, 0.0
        self._layout = ready(tensor.layout)
        self.columns = [Column.of(scheme, tensor.layout) for scheme in schemes]
        self._is_whole = math.prod(self.shape) <= WHOLE
        undivided = f"needs all elements at once, and a weight of more than {WHOLE:,} is read in parts"
        for column in () if self._is_whole else self.columns:
            column.divide(self.shape, undivided)

    def run(self) -> float:
        """Measure all schemes, and return Σx²."""
        across = [column for column in self.columns if column.rows == 0 and not column.problem]
        for x, _ in self._boxes() if across else ():
            for column in across:
                attempt(column, column.add_ranges, x)
        for x, weights in self._boxes():
            self.power += power_of(x)
            if not math.isfinite(self.power):
                return self.power
            if weights is not None:
                self.output_power += float(x.double().square_().mul_(weights).sum())
            for column in self.columns:
                attempt(column, column.add, x, weights)
        return self.power

    def cell(self, column: Column, own: WeightError) -> WeightError:
        """Return the cell of a scheme, with the bytes of its own."""
        if own.problem or column.problem:
            return replace(own, problem=own.problem or column.problem)
        column.sums.xx = self.power
        found, undefined = column.sums.metrics()
        output = math.nan if self.weights is None else column.output
        output_relative = output / self.output_power if self.output_power else math.nan
        return WeightError(
            found["sqnr_db"], found["mse"], found["sse"], found["max_abs_error"], column.clipped,
            own.num_bytes, output, output_relative, undefined.get("mse", ""),
        )  # fmt: skip

    def _boxes(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield boxes of rows, with the weights of their inputs."""
        rows = self.shape[0]
        step = rows
        if not self._is_whole:
            multiple = math.lcm(*(max(1, c.rows) for c in self.columns))
            step = rows_per_box(rows, math.prod(self.shape[1:]), multiple, WHOLE)
        for start in range(0, rows, step):
            box = slice(start, min(start + step, rows))
            weights = self.weights
            if weights is not None and weights.shape[0] == rows > 1:
                weights = weights[box]
            yield _values(self._layout, box), weights


def attempt(column: Column, work: Callable[..., Result], *given: Any) -> Result | None:
    """Do a part of a column's work unless one has failed; keep the reason and return None if it fails."""
    try:
        return None if column.problem else work(*given)
    except QuantError as reason:
        column.problem = str(reason)
        return None


def rows_together(scheme: Scheme, shape: Shape) -> int:
    """Return how many rows of axis 0 must stay together for the codes of the whole tensor; 0: all.

    >>> shape = (4096, 4096)
    >>> [rows_together(Scheme.parse(text), shape) for text in ("int4 per_group(32)", "int8 per_tensor")]
    [1, 0]

    Raises:
        QuantError: the scheme does not fit the shape.
    """
    blocks, setting, rules = Blocks.of(scheme.granularity, shape), scheme.range_setting, scheme.rules
    is_stochastic = isinstance(rounding(rules.coding.rounding), Stochastic)
    if rules.scale.center == "mean" or is_stochastic or setting.is_per_block:
        return 0
    inner = 1 if scheme.scales is None else rows_together(scheme.scales, blocks.grid)  # in blocks
    if isinstance(scheme.granularity, PerFlatGroup):
        width = math.prod(shape[1:])
        together = math.lcm(blocks.block[0] * inner, width) // width
    else:
        together = inner if setting.gives_parameters else blocks.block[0] * inner
    return together if together < shape[0] else 0


def by_range(scheme: Scheme, shape: Shape) -> bool:
    """Return whether ranges of boxes of rows give those of blocks that extend over all rows."""
    blocks, rules = Blocks.of(scheme.granularity, shape), scheme.rules.scale
    over_all = not isinstance(scheme.granularity, PerFlatGroup) and blocks.block[0] == shape[0]
    simple = scheme.scales is None and scheme.range_setting.ends_are_elements and rules.center != "mean"
    return over_all and simple and rules.symmetric_scale != "signed_amax"


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
            return replace(own, power=found.power)
        found.draw(zlib.crc32(tensor.name.encode()))
        cells = tuple(found.cell(column, cell) for column, cell in zip(found.columns, own.cells, strict=True))
        return replace(own, power=found.power, cells=cells)

    return _filled(outlined(tensor, schemes), estimate)


class _Sample:
    """A sample of units of ``unit`` rows, that many as stay together under every scheme."""

    def __init__(self, layout: Layout, schemes: Sequence[Scheme]) -> None:
        self._layout, self.shape = layout, layout.shape
        self.columns = [Column.of(scheme, layout) for scheme in schemes]
        for column in self.columns:
            column.divide(self.shape, "no interval can be given: the scheme needs all elements at once")
        self.unit = math.lcm(*(max(1, c.rows) for c in self.columns if not c.problem))
        self.units = -(-self.shape[0] // self.unit)
        self.power = 0.0

    def walk(self) -> None:
        """Read all rows once."""
        rows, width = self.shape[0], math.prod(self.shape[1:])
        powers, largest = np.empty(rows), np.empty(rows)
        step = rows_per_box(rows, width, 1, _BOX)
        for start in range(0, rows, step):
            box = slice(start, min(start + step, rows))
            x = _values(self._layout, box)
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
            return replace(own, problem=own.problem or column.problem)
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
