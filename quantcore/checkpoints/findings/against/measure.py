"""How far a weight is from its original, gathered in one walk over its rows: what the judgement needs, in bounded memory."""

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.findings.against.grid import FLOAT32, Grid, rounding_of, sums_by_run, width_of
from quantcore.checkpoints.findings.against.leak import Leak, leak_of
from quantcore.checkpoints.findings.against.ordered import Ordered
from quantcore.checkpoints.findings.against.rescaled import Rescaled
from quantcore.checkpoints.layouts.plain import Plain
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import ELEMENTS
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.formats import IntFormat

KEPT = 64  # runs of columns, and elements beyond half a step, that are kept
_EDGE = (
    0.4  # in steps: errors of codes rounded to nearest reach from here to half a step as often as anywhere
)
# of `Measure.room`: a tenth would lie beyond if it were needed
_FEW_BEYOND, _MANY = 0.002, 2000
_STRANGE, _MATTERS = 1.2, 0.05  # Σe² of a column over its Σx², and over the mean Σx² of columns
_ROUNDED = 0.999  # of the errors must be within half a step
_AT_EDGE = 0.05  # and this share between `_EDGE` and half a step: a fifth would be if they were uniform


@dataclass(frozen=True)
class Beyond:
    """An element whose error exceeds half a step: its row and column (of the flattened rest), and by how many steps."""

    row: int
    column: int
    steps: float


@dataclass
class Measure:
    """The errors of one weight against its original, summed over boxes of rows.

    ``squares``, ``original``: Σe² and Σx². ``units``: the sum of squared errors in steps of their own codes over the
    ``inner`` elements that are not clipped. ``edge``, ``within``: how many of these have errors near half a step, and
    within it. ``beyond``: how many exceed half a step by more than each tolerance (that of float32, then that of rounded scales, then
    that of the original's dtype), and ``room``: the sum of each tolerance, in steps. ``places``: some of the elements that exceed the largest tolerance. ``unequal``: elements of a plain weight
    that differ by more than rounding. ``bulk``: the mean squared error, as in `steps`, of a typical row. ``columns``: Σe² and
    Σx² of each column until `done`; ``strange_columns``,
    ``strange_rows``: how many no longer resemble the original's. ``runs``: the runs of columns with the largest mean u², as (mean, row, first column), where ``order``
    puts columns of a group side by side. ``peak``: the original's max |x|.
    """

    layout: Layout
    source: Ordered
    squares: float = 0.0
    original: float = 0.0
    units: float = 0.0
    inner: int = 0
    edge: int = 0
    within: int = 0
    beyond: list[int] = field(default_factory=lambda: [0, 0, 0])
    room: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    places: list[list[Beyond]] = field(default_factory=lambda: [[], [], []])
    unequal: int = 0
    largest: tuple[float, int] = (0.0, 0)
    rows: list[npt.NDArray[np.float64]] = field(default_factory=list)
    bulk: float = math.nan
    columns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 1)))
    runs: list[tuple[float, int, int]] = field(default_factory=list)
    peak: float = 0.0

    def __post_init__(self) -> None:
        """Prepare what every box needs."""
        self.grid = Grid(self.layout) if Grid.suits(self.layout) else None
        self.width = math.prod(self.layout.shape[1:])
        self.run = min(width_of(self.layout), self.width) if self.grid else self.width
        # the quotient may have been computed in the original's dtype, and the original rounded to it afterwards
        self.of_original = 3 * rounding_of(self.source.layout.dtype)
        self.leak: Leak | None = None
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
    def original_name(self) -> str:
        """Its name in the original."""
        return self.source.name

    @property
    def is_plain(self) -> bool:
        """Whether it is stored as its values."""
        return isinstance(self.layout, Plain)

    @property
    def relative(self) -> float:
        """RMS error divided by the RMS of the original."""
        return math.sqrt(self.squares / self.original) if self.original else math.inf if self.squares else 0.0

    @property
    def sqnr(self) -> float:
        """In dB."""
        if not self.squares:
            return math.inf
        return 10 * math.log10(self.original / self.squares) if self.original else -math.inf

    @property
    def steps(self) -> float:
        """The mean squared error of elements that are not clipped, over that of rounding to nearest; nan if unknown."""
        return 12 * self.units / self.inner if self.inner else math.nan

    @property
    def model(self) -> int | None:
        """The tightest tolerance that the errors of codes rounded to nearest agree with; None if they are not rounded so.

        If a wider tolerance were needed, a tenth of ``room`` elements would lie beyond the tighter one.
        """
        if self.grid is None or not self.inner or not self.grid.is_exact or self.edge < _AT_EDGE * self.inner:
            return None
        if isinstance(self.source, Rescaled):  # what was quantized is not known exactly
            return None
        last = len(self.beyond) - 1
        if self.beyond[last] > (1 - _ROUNDED) * self.inner:
            return None
        for tight in range(last):
            wider = self.room[last] - self.room[tight]
            if self.beyond[tight] - self.beyond[last] <= _FEW_BEYOND * wider and wider > _MANY:
                return tight
        return last

    def add(self, x: Tensor, values: Tensor, box: slice, codes: Tensor | None) -> None:
        """Add some rows: the original's, their values (not rounded to the output dtype if there are codes), their codes."""
        lines = [t.reshape(-1, self.width) for t in (x, values)]
        scale, stored = None, torch.zeros(1, 1)
        if self.grid is not None:
            own = self.grid.scales(box)
            rounding = self.grid.rounding(box, own)
            stored = (
                rounding.reshape(-1, self.width)
                if isinstance(rounding, Tensor)
                else torch.full((1, 1), rounding)
            )
            scale = own.reshape(-1, self.width)
        bits = self.grid.bits(codes).reshape(-1, self.width) if self.grid and codes is not None else None
        step = max(1, ELEMENTS // 8 // self.width)
        for start in range(0, len(lines[0]), step):
            part = slice(start, start + step)
            a, b = (t[part] for t in lines)
            error = a - b
            if not bool(error.isfinite().all()):  # NaN and infinity have findings of their own
                good = error.isfinite()
                error, a, b = (torch.where(good, t, 0.0) for t in (error, a, b))
            self._squares(a, error)
            self.peak = max(self.peak, float(torch.aminmax(a).max), -float(torch.aminmax(a).min))
            first = box.start + start
            if scale is not None and bits is not None:
                self._in_steps(
                    a, b, error, scale[part], bits[part], first, stored if len(stored) == 1 else stored[part]
                )
            elif self.is_plain:
                self._plain(a, b, error, first)

    def _squares(self, x: Tensor, error: Tensor) -> None:
        columns = torch.stack([t.double().square_().sum(0) for t in (error, x)]).numpy()
        self.squares += float(columns[0].sum())
        self.original += float(columns[1].sum())
        if self.width > 1:
            self.columns = self.columns + columns
            mine, of_x = (t.double().square_().sum(1) for t in (error, x))
            self.strange_rows += int(((mine > _STRANGE * of_x) & (mine > _MATTERS * of_x.mean())).sum())

    def _in_steps(
        self, x: Tensor, y: Tensor, error: Tensor, scale: Tensor, bits: Tensor, first: int, stored: Tensor
    ) -> None:
        assert self.grid is not None
        size = scale.abs()
        code = self.grid.table[bits]
        upward = (error > 0) ^ (scale < 0)
        limit = self.grid.limits[bits + upward.to(torch.int32) * len(self.grid.table)]
        units = error.abs() / size
        inner = limit.isfinite() & (size > 0)
        counted = torch.where(inner, units / (2 * limit), 0.0)
        square = counted.double().square_()
        self.units += float(square.sum())
        count = int(inner.sum())
        self.inner += count
        self.within += int((inner & (counted <= 0.5)).sum())
        self.edge += int((inner & (counted > _EDGE) & (counted <= 0.5)).sum())
        by_group = (square, inner) if self.order is None else (square[:, self.order], inner[:, self.order])
        by_run, of_run = (sums_by_run(t.double().numpy(), self.run) for t in by_group)
        self.rows.append(np.stack([by_run.sum(-1), of_run.sum(-1)]))
        mean = by_run / np.maximum(of_run, 1)
        for flat in np.argsort(mean, axis=None)[-KEPT:].tolist():
            row, run = divmod(flat, mean.shape[1])
            self.runs.append((12 * float(mean[row, run]), first + row, run * self.run))
        self.runs = heapq.nlargest(KEPT, self.runs)
        over = torch.where(inner, units - limit, -1.0)
        rests = (y - scale * code).abs() / size
        magnitude = torch.where(inner, code.abs() + limit + rests, 0.0)
        tolerances = (torch.full((1, 1), FLOAT32), FLOAT32 + stored, FLOAT32 + stored + self.of_original)
        for i, tolerance in enumerate(tolerances):
            room = tolerance * magnitude
            self.room[i] += float((room / (2 * limit)).sum(dtype=torch.float64))
            beyond = over > room + FLOAT_ROOM
            if i + 1 < len(tolerances) and bool(beyond.any()):
                beyond[beyond.clone()] = ~self._coarse(*(t[beyond] for t in (x, y, scale, code)))
            n = int(beyond.sum())
            self.beyond[i] += n
            if n and len(self.places[i]) < KEPT:
                for row, column in beyond.nonzero()[: KEPT - len(self.places[i])].tolist():
                    self.places[i].append(Beyond(first + row, column, float(counted[row, column])))

    def _coarse(self, x: Tensor, y: Tensor, scale: Tensor, code: Tensor) -> Tensor:
        """Whether integer codes are what rounding gives if the original's dtype holds the quotients x / s."""
        dtype = self.source.layout.dtype
        if dtype not in (torch.bfloat16, torch.float16) or not isinstance(self.layout.element, IntFormat):
            return torch.zeros_like(code, dtype=torch.bool)
        zero_point = code - y / scale
        found = torch.zeros_like(code, dtype=torch.bool)
        for quotient in (x / scale, x * (1 / scale).to(dtype).float()):
            exact = (quotient.to(dtype).float() + zero_point).to(dtype).float()
            found |= (exact - code).abs() <= 0.5 + FLOAT_ROOM
        return found

    def _plain(self, x: Tensor, y: Tensor, error: Tensor, first: int) -> None:
        """Compare with the original rounded to the dtype of the weight."""
        own, dtype = self.layout.dtype, self.source.layout.dtype
        if not (own.is_floating_point and dtype.is_floating_point):
            self.unequal += int((error != 0).sum())
        else:
            rounding = rounding_of(own) + rounding_of(dtype)
            least = float(torch.finfo(own).tiny) * float(torch.finfo(own).eps)
            self.unequal += int((error.abs() > 2 * rounding * x.abs() + least).sum())
        worst = int(error.abs().argmax())
        size = float(error.abs().reshape(-1)[worst])
        if size > self.largest[0]:
            self.largest = size, first * self.width + worst

    def done(self) -> "Measure":
        """Return itself with what single rows and columns add up to, without these."""
        if self.rows:
            sums, counts = np.concatenate(self.rows, 1)
            known = counts > 0
            self.bulk = 12 * float(np.median(sums[known] / counts[known])) if known.any() else math.nan
        self.leak = leak_of(self.layout, self.columns[0])
        errors, powers = self.columns
        matters = errors > _MATTERS * self.original / len(errors)
        self.strange_columns = int(((errors > _STRANGE * powers) & matters).sum())
        self.rows, self.columns = [], np.zeros((2, 1))
        return self


FLOAT_ROOM = 2.0**-16  # steps


def measure_of(tensor: CheckpointTensor, original: Ordered) -> Measure:
    """Return an empty measure of a weight against its original."""
    return Measure(tensor.layout, original)
