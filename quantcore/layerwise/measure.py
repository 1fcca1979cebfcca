"""The error of one weight under several schemes: read once, in boxes of rows if large, with no codes kept.

A weight that its file, or its dequantizer, gives in bfloat16 or float16 is quantized as each scheme's library
quantizes it in that dtype: what `apply` does with it. Others are float32.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from quantcore.analysis import Sums, errors_by_region, power_of, quick_sums
from quantcore.checkpoints import CheckpointTensor, Layout, ready, rows_per_box
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup, Shape, split_axes
from quantcore.layerwise.imatrix import NO_INPUTS, Imatrix, WeightInputs
from quantcore.layerwise.roles import kind_of
from quantcore.layerwise.table import WeightError, WeightRow
from quantcore.numerics import Stochastic, rounding
from quantcore.programs import HALF
from quantcore.qparams import QParams, parameters, ranges
from quantcore.scheme import Scheme, in_dtype, storage

Result = TypeVar("Result")
WHOLE = 1 << 24  # elements of a weight that is read at once, and of a box of a larger one
NOT_FINITE = "contains NaN or infinite values, and is left alone"


def measured(
    tensor: CheckpointTensor, schemes: Sequence[Scheme], imatrix: Imatrix | None = None
) -> WeightRow:
    """Return the row of one weight; what can't be read or measured has the reason instead of numbers."""

    def measure(own: WeightRow) -> WeightRow:
        inputs = NO_INPUTS if imatrix is None else imatrix.of(own.name, own.shape)
        return row_of(own, WeightWalk(tensor, schemes, inputs.weights).run(), inputs)

    return filled(outlined(tensor, schemes), measure)


def row_of(own: WeightRow, found: "Found | str", inputs: WeightInputs = NO_INPUTS) -> WeightRow:
    """Return the row of one weight.

    Args:
        own: as `outlined` returns it.
        found: of all its rows, or why they can't be read.
    """
    if isinstance(found, str):
        return replace(own, cells=(), reason=f"can't be read: {found}", is_readable=False)
    if not math.isfinite(found.power):
        return replace(own, cells=(), reason=NOT_FINITE)
    cells = tuple(map(found.cell, found.columns, own.cells))
    return replace(own, power=found.power, coverage=inputs.coverage, cells=cells)


def filled(own: WeightRow, measure: Callable[[WeightRow], WeightRow]) -> WeightRow:
    """Return what is measured of a weight, or why nothing is."""
    if own.reason:
        return own
    try:
        return measure(own)
    except QuantError as reason:
        return row_of(own, str(reason))


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


def values_of(layout: Layout, rows: slice) -> Tensor:
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
class ColumnSums:
    """What was found for one scheme.

    ``output``: Σh·e² with h the mean squared inputs; ``ends``: the ranges, where blocks extend over all rows;
    ``problem``: why there are no numbers.
    """

    sums: Sums = field(default_factory=Sums)
    clipped: int = 0
    output: float = 0.0
    ends: tuple[Tensor, Tensor] | None = None
    problem: str = ""

    def merge(self, later: "ColumnSums") -> None:
        """Add what was found of later rows."""
        self.problem = self.problem or later.problem
        self.sums.merge(later.sums)
        self.clipped, self.output = self.clipped + later.clipped, self.output + later.output
        self.extend(later.ends)

    def extend(self, ends: tuple[Tensor, Tensor] | None) -> None:
        """Extend the ranges to those of other rows."""
        if ends is not None and self.ends is not None:
            ends = torch.minimum(ends[0], self.ends[0]), torch.maximum(ends[1], self.ends[1])
        self.ends = ends if ends is not None else self.ends


@dataclass
class Column:
    """One scheme, that of the weight's dtype, and what is found for it.

    ``rows``: how many rows stay together so that boxes have the scales of the whole weight, 0 if none can be
    cut.
    """

    scheme: Scheme
    rows: int = 1
    found: ColumnSums = field(default_factory=ColumnSums)

    @classmethod
    def of(cls, scheme: Scheme, layout: Layout) -> "Column":
        """Start one for a weight, whose dtype the scheme's library may refuse."""
        try:
            return cls(in_dtype(scheme, dtype_of(layout)))
        except QuantError as reason:
            return cls(scheme, found=ColumnSums(problem=str(reason)))

    @property
    def params(self) -> QParams | None:
        """The parameters that follow from the ranges, where blocks extend over all rows."""
        if self.found.ends is None:
            return None
        return parameters(*self.found.ends, self.scheme.symmetric, self.scheme.format, self.scheme.rules)

    def divide(self, shape: Shape, undivided: str) -> None:
        """Find how many rows stay together; ``undivided``: the problem of one that needs all at once."""
        if self.found.problem:
            return
        try:
            self.rows = rows_together(self.scheme, shape)
            self.found.problem = "" if self.rows or by_range(self.scheme, shape) else undivided
        except QuantError as reason:
            self.found.problem = str(reason)

    def add_ranges(self, x: Tensor) -> None:
        """Extend the ranges to those of a box."""
        self.found.extend(ranges(x, self.scheme))

    def add(self, x: Tensor, weights: Tensor | None) -> None:
        """Add the errors of a box."""
        blocks = Blocks.of(self.scheme.granularity, tuple(x.shape))
        spread = None if weights is None else blocks.view(weights.expand(x.shape))
        for region, _, error, clipped in errors_by_region(x, self.scheme, params=self.params):
            self.found.clipped += clipped
            if spread is not None:
                own = split_axes(spread[region.elements], region.block)
                self.found.output += _weighted(error, own)
            self.found.sums.merge(quick_sums(None, error))


def _weighted(x: Tensor, weights: Tensor) -> float:
    """Return Σ h·x²; NumPy's sum, unlike torch's, does not depend on the number of threads."""
    return float(x.double().square_().mul_(weights).numpy().sum())


@dataclass
class Found:
    """What was found of some rows of a weight.

    ``power``: Σx²; ``output_power``: Σh·x² with h the mean squared inputs, nan without an imatrix.
    """

    columns: list[ColumnSums]
    power: float = 0.0
    output_power: float = math.nan

    def merge(self, later: "Found") -> None:
        """Add what was found of later rows."""
        self.power, self.output_power = self.power + later.power, self.output_power + later.output_power
        for column, other in zip(self.columns, later.columns, strict=True):
            column.merge(other)

    def cell(self, column: ColumnSums, own: WeightError) -> WeightError:
        """Return the cell of a scheme, with the bytes of its own."""
        if own.problem or column.problem:
            return replace(own, problem=own.problem or column.problem)
        column.sums.xx = self.power
        found, undefined = column.sums.metrics()
        output = math.nan if math.isnan(self.output_power) else column.output
        output_relative = output / self.output_power if self.output_power else math.nan
        return WeightError(
            found["sqnr_db"], found["mse"], found["sse"], found["max_abs_error"], column.clipped,
            own.num_bytes, output, output_relative, undefined.get("mse", ""),
        )  # fmt: skip


def joined(found: Iterable[Found]) -> Found:
    """Return what was found of all rows, from boxes in order; a value that is not finite ends it."""
    parts = iter(found)
    whole = next(parts)
    for part in parts if math.isfinite(whole.power) else ():
        whole.merge(part)
        if not math.isfinite(whole.power):
            break
    return whole


class WeightWalk:
    """The walk over the rows of a weight, for all schemes; ``weights``: of inputs, broadcast with rows.

    What `errors` finds of the ``boxes``, joined in their order, is the same wherever each is measured.
    """

    def __init__(
        self, tensor: CheckpointTensor, schemes: Sequence[Scheme], weights: Tensor | None = None
    ) -> None:
        self._tensor, self._rows, self._weights = tensor, tensor.shape[0], weights
        self._columns = [Column.of(scheme, tensor.layout) for scheme in schemes]
        step = self._rows
        if math.prod(tensor.shape) > WHOLE:
            undivided = f"needs all elements at once, and a weight of more than {WHOLE:,} is read in parts"
            for column in self._columns:
                column.divide(tensor.shape, undivided)
            multiple = math.lcm(*(max(1, c.rows) for c in self._columns))
            step = rows_per_box(self._rows, math.prod(tensor.shape[1:]), multiple, WHOLE)
        starts = range(0, self._rows, step)
        self.boxes = [slice(start, min(start + step, self._rows)) for start in starts]

    @cached_property
    def _layout(self) -> Layout:
        return ready(self._tensor.layout)

    @property
    def needs_ranges(self) -> bool:
        """Whether blocks extend over rows of several boxes."""
        return any(column.rows == 0 and not column.found.problem for column in self._columns)

    def run(self) -> Found:
        """Measure all rows."""
        known = joined(map(self.ranges, self.boxes)) if self.needs_ranges else None
        return joined(self.errors(box, known) for box in self.boxes)

    def ranges(self, box: slice) -> Found:
        """Return the ranges of blocks that extend over all rows, from a box."""
        x, columns = values_of(self._layout, box), self._fresh()
        for column in columns:
            if column.rows == 0:
                attempt(column, column.add_ranges, x)
        return Found([column.found for column in columns])

    def errors(self, box: slice, known: Found | None) -> Found:
        """Return the errors of a box; ``known``: the ranges of all boxes, where they are needed."""
        columns = self._fresh(known)
        x, weights = values_of(self._layout, box), self._weights
        found = Found([column.found for column in columns], power_of(x))
        if not math.isfinite(found.power):
            return found
        if weights is not None:
            weights = weights[box] if weights.shape[0] == self._rows > 1 else weights
            found.output_power = _weighted(x, weights)
        for column in columns:
            attempt(column, column.add, x, weights)
        return found

    def _fresh(self, known: Found | None = None) -> list[Column]:
        """Return columns without sums, with the ranges that are known."""
        own = known.columns if known else [column.found for column in self._columns]
        started = (replace(each, sums=Sums()) for each in own)
        return [replace(each, found=found) for each, found in zip(self._columns, started, strict=True)]


def attempt(column: Column, work: Callable[..., Result], *given: Any) -> Result | None:
    """Do a part of a column's work unless one has failed; keep the reason and return None if it fails."""
    try:
        return None if column.found.problem else work(*given)
    except QuantError as reason:
        column.found.problem = str(reason)
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
