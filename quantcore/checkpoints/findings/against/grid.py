"""The grid of a weight's codes and scales: each element in units of its scale, and half its step.

A value y is A + S · V: V the value of its code (an integer, or that of a small float or codebook), S its
scale, A what the zero point or min adds. A code is the nearest one to x if x - y lies within half the
distance to the next code.

Whether codes are those that rounding to nearest gives, by which arithmetic, and which of them can't be.

Libraries round in float32 or in the original's dtype, and may round the scale, or the original, afterwards.
Each such arithmetic explains errors beyond half a step up to a bound of its own. Error feedback (GPTQ) moves
values before they are rounded, by however little: a value moved by d steps is rounded away from its nearest
code with probability |d|, so the share of codes that are not the nearest is the mean movement, and single
movements are as large in every row of a column. A code is impossible only if it is off by far more than both.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import SCALE
from quantcore.formats import IntFormat

# relative rounding errors of arithmetic in float32, several operations
FLOAT32 = 2.0**-20
# half a unit in the last place, relative, with room for the operation that divides by the rounded number
_HALF, BFLOAT16 = 2.0**-10.5, 2.0**-7.5
_SUBNORMAL = 2.0**-24.5  # half the smallest float16, with the same room
KEPT = 64  # elements beyond half a step that are kept for each arithmetic
FLOAT_ROOM = 2.0**-16  # steps
_UNEXPLAINED, _FEW = 0.001, 2  # of the codes may be none that rounding gives, or so many
_LONE = 8.0  # steps over the number of rows: movements so large would show in other rows
_MOVED = 100.0  # times the mean movement that an arithmetic does not explain
_OF_BOUND = 16.0  # times the mean movement, where rounding afterwards explains it
_PER_COLUMN = 2  # movements are those of few columns if so many elements or more share one on average
_WIDE = 16  # columns of a matrix in a stack, at least


@dataclass(frozen=True, eq=False)
class CodeGrid:
    """What the codes of a weight mean; ``layout``: of the weight."""

    layout: Layout

    @classmethod
    def suits(cls, layout: Layout) -> bool:
        """Tell whether each code is a number of at most 8 bits on a scale of its own block."""
        if layout.holds_values:
            return False
        if layout.block_type.startswith(("IQ1", "IQ2", "IQ3")):
            return False  # codes are rows of a grid
        return layout.element.bits <= 8

    @cached_property
    def table(self) -> Tensor:
        """The value of each code by its bits, float32."""
        bits, element = self.layout.element.bits, self.layout.element
        codes = torch.arange(1 << bits)
        if isinstance(element, IntFormat):
            signed = element.signed
            codes = torch.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes) if signed else codes
            return codes.float()
        out = torch.empty(1 << bits)
        return element.decode_(codes.to(element.dtype), out)

    @cached_property
    def limits(self) -> Tensor:
        """Half the distance of each code to the next: first downwards, then upwards; infinite at the ends."""
        table = self.table.double()
        known = table.isfinite()
        levels = torch.unique(table[known])
        halves = torch.nn.functional.pad(levels.diff() / 2, (1, 1), value=torch.inf)
        at = torch.searchsorted(levels, torch.where(known, table, levels[0]))
        return torch.cat((halves[at], halves[at + 1])).masked_fill(~known.repeat(2), torch.inf).float()

    @cached_property
    def gaps(self) -> Tensor:
        """The step at each code: the smaller of the distances to its neighbors."""
        down, up = self.limits.view(2, -1)
        found = 2 * torch.minimum(down, up)
        return found.masked_fill(~found.isfinite(), 1.0)

    def bits(self, codes: Tensor) -> Tensor:
        """Return codes as indices into the table."""
        return codes.to(torch.int32) & (len(self.table) - 1)

    def scales(self, rows: slice) -> Tensor:
        """Return the scale of each element of some rows, float32."""
        return self.layout.spread(self.steps, rows)

    def steps(self, blocks: slice | None) -> Tensor:
        """Return the step of integers in some rows of blocks, in block form."""
        layout = self.layout
        scale = layout.parameters(blocks).scale
        if scale is None:
            return torch.ones(1)
        if layout.decoding == "divided":
            return 1 / scale
        return scale * (1 / layout.element.symmetric_max) if layout.decoding == "of_largest" else scale

    def rounding(self, rows: slice, scales: Tensor) -> Tensor:
        """Return the relative rounding error of the stored scales, if they were rounded after the codes.

        One number, or one for each element.

        Args:
            scales: of the elements of these rows.
        """
        layout = self.layout
        if layout.block_type:
            if "d" not in layout.fields:
                return torch.zeros(())
            stored = layout.fields["d"].read(rows).float().abs()
            size = layout.shape[-1] // stored.shape[-1]
            return _half_rounding(stored.repeat_interleave(size, -1))
        field = layout.fields.get(SCALE)
        dtype = "" if field is None else field.piece.dtype
        if dtype == "F16":
            return _half_rounding(scales.abs())
        return torch.tensor(BFLOAT16 if dtype == "BF16" else 0.0)


def _half_rounding(sizes: Tensor) -> Tensor:
    """Return the relative rounding error of float16 numbers; that of subnormal ones is larger."""
    return (_SUBNORMAL / sizes.clamp(min=_SUBNORMAL)).add_(_HALF)


def rounding_of(dtype: torch.dtype) -> float:
    """Return the relative rounding error of a float dtype; 0 of integers."""
    return float(torch.finfo(dtype).eps) / 2 if dtype.is_floating_point else 0.0


def width_of(layout: Layout) -> int:
    """Return how many columns of a row share a scale, or a fitting number if those are not adjacent."""
    columns = layout.shape[-1]
    size = layout.blocks.block[-1]
    if layout.group_index() is not None:
        return min(columns, 64)
    if layout.blocks.blocked_shape != layout.shape:
        return size if columns % size == 0 else columns
    return min(size, columns)


def nearest_power(factor: float) -> float:
    """Return the power of two, with the sign of a factor, that is nearest to it by their ratio."""
    return math.copysign(2.0 ** round(math.log2(abs(factor))), factor)


def sums_by_run(values: np.ndarray, width: int) -> np.ndarray:
    """Return the sums of runs of ``width`` columns; the last may be shorter."""
    return np.add.reduceat(values, np.arange(0, values.shape[-1], width), axis=-1)


@dataclass(frozen=True, order=True)
class Beyond:
    """An element whose code rounding does not give.

    ``excess``: by how many steps it exceeds the bound; ``steps``: its error.
    """

    excess: float
    row: int
    column: int
    steps: float


@dataclass(frozen=True)
class Nearest:
    """Codes are rounded to nearest, as far as is known.

    ``tolerance``: the relative one of the arithmetic;
    ``margin``: by how many steps more an error must exceed half a step to show anything, and ``places``: the
        farthest off of those that do, at most `KEPT`.
    ``unexplained``: how many codes the arithmetic does not give;
    ``in_few_columns``: whether most of these share a column.
    """

    tolerance: float
    margin: float
    places: tuple[Beyond, ...]
    unexplained: int
    in_few_columns: bool


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements of integer or other codes whose errors are near half a step or beyond, as vectors.

    ``excess``: over half a step, in steps;
    ``size``: of the value, in steps;
    ``stored``: the relative rounding error of its scale;
    ``step``: the step in units of the scale.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    code: Tensor
    excess: Tensor
    size: Tensor
    stored: Tensor
    step: Tensor

    @property
    def float32(self) -> Tensor:
        """What arithmetic in float32 may add to an error, in steps."""
        rest = (self.y - self.scale * self.code).abs() / self.scale.abs()
        return FLOAT32 * (self.code.abs() + rest + self.step / 2) / self.step + FLOAT_ROOM

    @property
    def of_scale(self) -> Tensor:
        """What rounding the scale afterwards may add, in steps."""
        return self.float32 + self.stored * (self.size + 0.5)


@dataclass
class _Arithmetic:
    """One way to round: by how much an element exceeds what it may give; ``count``: of those that do."""

    excess: Callable[[Elements], Tensor]
    tolerance: float
    afterwards: bool = False
    count: int = 0
    places: list[Beyond] = field(default_factory=list)


class Roundings:
    """Counts the codes that each arithmetic does not give."""

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        self._layout, self._dtype = layout, dtype
        self._most = max(_FEW, int(_UNEXPLAINED * math.prod(layout.shape)))
        # the columns of a matrix, or of those in a stack; a convolution's kernels are columns, too
        self._width = layout.shape[-1] if layout.shape[-1] >= _WIDE else math.prod(layout.shape[1:])
        self._half = dtype in (torch.bfloat16, torch.float16)
        self._exact = _Arithmetic(lambda e: e.excess - e.float32, FLOAT32)
        ways = _in_dtype(dtype) if self._half and isinstance(layout.element, IntFormat) else ()
        self._in_dtype = [_Arithmetic(way, 2 * rounding_of(dtype)) for way in ways]
        self._afterwards = [_Arithmetic(lambda e: e.excess - e.of_scale, BFLOAT16, afterwards=True)]
        if self._half:
            tolerance = BFLOAT16 + 2 * rounding_of(dtype)
            self._afterwards.append(_Arithmetic(self._of_original, tolerance, afterwards=True))

    @property
    def near(self) -> float:
        """How far below half a step the errors begin that matter, relative to values and codes."""
        return 2 * rounding_of(self._dtype) if self._in_dtype else 0.0

    def add(self, elements: Elements, rows: Tensor, columns: Tensor) -> None:
        """Add elements at these rows and columns."""
        for way in (self._exact, *self._afterwards):
            self._count(way, way.excess(elements), elements, rows, columns)
        different: list[tuple[_Arithmetic, Tensor]] = []
        for way in self._in_dtype:
            excess = way.excess(elements)
            # equal where no zero point is added
            if not any(torch.equal(excess, other) for _, other in different):
                self._count(way, excess, elements, rows, columns)
                different.append((way, excess))
        # float32's is kept: what it does not give is the mean movement
        self._in_dtype = [way for way, _ in different if way.count <= self._most]
        self._afterwards = [way for way in self._afterwards if way.count <= self._most]

    @staticmethod
    def _count(way: _Arithmetic, excess: Tensor, elements: Elements, rows: Tensor, columns: Tensor) -> None:
        beyond = (excess > 0).nonzero().flatten()
        way.count += len(beyond)
        largest = beyond[excess[beyond].topk(min(KEPT, len(beyond))).indices]
        found = (t[largest].tolist() for t in (excess, rows, columns, elements.excess + 0.5))
        places = [Beyond(*one) for one in zip(*found, strict=True)]
        way.places = heapq.nlargest(KEPT, way.places + places)

    def found(self, inner: int) -> Nearest | None:
        """Return the first arithmetic that explains nearly all codes, or None.

        Of those without rounding afterwards, the best is the first.

        Args:
            inner: the number of elements that are not clipped.
        """
        moved, rows = self._exact.count / inner, math.prod(self._layout.shape) // self._width
        best = min((self._exact, *self._in_dtype), key=lambda way: way.count)
        for way in (best, *self._afterwards):
            if way.count <= max(_FEW, _UNEXPLAINED * inner):
                of_bound = _OF_BOUND * moved if way.afterwards else 0.0
                margin = max(_LONE / rows, _MOVED * way.count / inner, of_bound)
                places = tuple(p for p in way.places if p.excess > margin)
                columns = {place.column % self._width for place in way.places}
                few = len(way.places) > _PER_COLUMN and len(columns) * _PER_COLUMN <= len(way.places)
                return Nearest(way.tolerance, margin, places, way.count, few)
        return None

    def _of_original(self, e: Elements) -> Tensor:
        half = _half_unit(e.x, self._dtype) / e.scale.abs() / e.step
        return e.excess - e.of_scale - half


def _half_unit(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half a unit in the last place of 16-bit floats; of subnormal ones and 0, half the smallest."""
    info = torch.finfo(dtype)
    return torch.ldexp(torch.full_like(x, info.eps / 4), torch.frexp(x.abs().clamp(min=info.tiny)).exponent)


def _in_dtype(dtype: torch.dtype) -> Iterator[Callable[[Elements], Tensor]]:
    """Yield the ways to round x / s and x · (1 / s) that are computed in the original's dtype."""

    def of(quotient: Callable[[Tensor, Tensor], Tensor], before: bool) -> Callable[[Elements], Tensor]:
        def excess(e: Elements) -> Tensor:
            zero = (e.code - e.y / e.scale).round()
            exact = quotient(e.x, e.scale).to(dtype).float()
            given = (exact + zero).to(dtype).float().round() if before else exact.round() + zero
            # a unit in the last place is what the dtype may move a quotient by
            beyond = e.excess - e.float32 - 2 * _half_unit(exact, dtype)
            return torch.where(given == e.code, -1.0, beyond.clamp(min=FLOAT_ROOM))

        return excess

    for before in (False, True):
        yield of(lambda x, s: x / s, before)
        yield of(lambda x, s: x * (1 / s).to(dtype).float(), before)
        yield of(lambda x, s: x / s.to(dtype).float(), before)
