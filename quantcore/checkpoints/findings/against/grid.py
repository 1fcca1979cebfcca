"""The grid that a weight's codes and scales make: the value of each element in units of its scale, and half its step.

A value y is A + S · V: V the value of its code (an integer, or that of a small float or codebook), S its scale, A what the
zero point or min adds. A code is the nearest one to x if x - y lies within half the distance to the next code.
"""

import math
from dataclasses import dataclass
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
        levels = torch.unique(table[table.isfinite()])
        up, down = torch.full_like(table, torch.inf), torch.full_like(table, torch.inf)
        known = table.isfinite()
        at = torch.searchsorted(levels, table.masked_fill(~known, 0.0))
        gaps = levels.diff() / 2
        up[known & (at < len(levels) - 1)] = gaps[at[known & (at < len(levels) - 1)]]
        down[known & (at > 0)] = gaps[at[known & (at > 0)] - 1]
        return torch.cat((down, up)).float()

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
        return self.layout.spread(self._step, rows)

    def _step(self, grid: slice | None) -> Tensor:
        """Return the step of integers, in block form."""
        layout = self.layout
        scale = layout.parameters(grid).scale
        if scale is None:
            return torch.ones(1)
        if layout.decoding == "divided":
            return 1 / scale
        return scale * (1 / layout.element.symmetric_max) if layout.decoding == "of_largest" else scale

    def rounding(self, rows: slice, scales: Tensor) -> Tensor:
        """Return the relative rounding error of the stored scales, which may have been rounded after codes were computed.

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

    @property
    def is_exact(self) -> bool:
        """Whether codes belong to the scales as they are stored: nested scales of bitsandbytes are rounded afterwards."""
        return "nested_absmax" not in self.layout.fields


def _half_rounding(sizes: Tensor) -> Tensor:
    """Return the relative rounding error of float16 numbers; that of subnormal ones is larger."""
    return (_SUBNORMAL / sizes.clamp(min=_SUBNORMAL)).add_(_HALF)


def has_min(layout: Layout) -> bool:
    """Tell whether something is added that the scale does not multiply."""
    return layout.parameters(slice(0, 1)).min is not None  # some formats store a min as the zero point


def rounding_of(dtype: torch.dtype) -> float:
    """Return the relative rounding error of a float dtype; 0 of integers."""
    return float(torch.finfo(dtype).eps) / 2 if dtype.is_floating_point else 0.0


def width_of(layout: Layout) -> int:
    """Return how many columns of a row share a scale, or a fitting number of columns if a scale has no run of columns."""
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
