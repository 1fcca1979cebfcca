"""The numbers of one cell: of an element, and of the block that gives its scale and zero point."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, block_bounds
from quantcore.numerics import before_rounding
from quantcore.qparams import choose_qparams, wrap
from quantcore.quantization import Quantized
from quantcore.scheme import storage
from quantcore.tracing import Trace, number

MAX_BLOCKS = 4096  # blocks whose parameters are tried in place of the right one's


@dataclass(frozen=True, eq=False)
class Cell:
    """An element of a result, or any of a block whose parameters are asked for; ``t``: its trace."""

    t: Trace
    result: Quantized

    @cached_property
    def fmt(self) -> IntFormat:
        """The format of the codes."""
        assert isinstance(self.t.scheme.format, IntFormat)  # no other format is asked about
        return self.t.scheme.format

    @property
    def other(self) -> IntFormat:
        """The format of the other signedness."""
        return replace(self.fmt, signed=not self.fmt.signed)

    @property
    def nearest(self) -> float:
        """x / s, rounded."""
        return self.t.rounded if self.t.summed is None else round(self.t.quotient)

    def fit(self, value: float) -> float:
        """Return the value clamped or wrapped as the scheme does."""
        if not math.isfinite(value):
            return math.nan
        if self.t.scheme.convention.coding.overflow == "wrap":
            return self.wrapped(value)
        return self.clamped(value)

    def clamped(self, value: float) -> float:
        """Return the value clamped to the codes."""
        return float(min(max(value, self.fmt.qmin), self.fmt.qmax))

    def wrapped(self, value: float) -> float:
        """Return the value that the lowest bits represent."""
        return float(wrap(torch.tensor(value, dtype=torch.float64), self.fmt))

    def code(self, quotient: float, zero_point: float | None = None) -> float:
        """Return the code of another quotient, with another zero point."""
        z = self.t.zero_point if zero_point is None else zero_point
        return self.fit(round(quotient) + z) if math.isfinite(quotient) else math.nan

    @cached_property
    def elements(self) -> Tensor:
        """The elements of the block."""
        bounds = block_bounds(self.result.blocked_shape, self.result.block, self.t.block)
        return self.result.x.reshape(self.result.blocked_shape)[tuple(slice(*b) for b in bounds)]

    @cached_property
    def low(self) -> float:
        """The lowest element of the block."""
        return float(self.elements.min())

    @cached_property
    def high(self) -> float:
        """The highest element of the block."""
        return float(self.elements.max())

    @property
    def size(self) -> float:
        """max|x| of the block."""
        return max(abs(self.low), abs(self.high))

    @property
    def span(self) -> float:
        """The highest minus the lowest element of the block."""
        return self.high - self.low

    @property
    def count(self) -> int:
        """How many codes the bits can represent."""
        return 1 << self.fmt.bits

    @property
    def symmetric(self) -> bool:
        """Whether the scheme is symmetric."""
        return self.t.scheme.symmetric

    @property
    def finite(self) -> bool:
        """Whether the code before the clamp is a number."""
        return math.isfinite(self.t.shifted)

    @property
    def of_low(self) -> bool:
        """Whether the zero point is that of low."""
        return self.has_steps and not self.symmetric

    @property
    def has_steps(self) -> bool:
        """Whether there is a range and a scale to divide its low by."""
        return self.t.low is not None and bool(self.t.scale)

    @cached_property
    def steps(self) -> float:
        """low / s in the library's precision, with s before it is stored."""
        precision = getattr(torch, self.t.scheme.convention.zero_point.zero_point_precision)
        scale = self.t.scale if self.t.raw_scale is None else self.t.raw_scale
        return float(torch.tensor(self.t.low, dtype=precision) / torch.tensor(scale, dtype=precision))

    @property
    def divisor(self) -> float:
        """What max|x| of the block is divided by, in half steps; 0 if that does not give the scale."""
        if not self.symmetric or not self.t.scale or self.t.high != self.size:
            return 0.0
        found = round(2 * self.size / self.t.scale) / 2
        return found if found and math.isclose(self.size / found, self.t.scale, rel_tol=1e-5) else 0.0

    @property
    def how_zero_point(self) -> str:
        """How the zero point is computed, if there are ``steps``."""
        return f"It is qmin - round(low / s) = {self.fmt.qmin} - round({before_rounding(self.steps)})."

    def scale_with(self, x: Tensor, **changes: Any) -> Iterator[float]:
        """Yield the scale of one block x under the scheme with changes; nothing if that is not supported."""
        other = replace(self.result.scheme, granularity=PER_TENSOR, scales=None, **changes)
        try:
            scale = choose_qparams(x, other).scale
        except QuantError:  # the library or the range setting does not support it
            return
        yield float(scale.flatten()[0])

    @property
    def bits_without_zero_points(self) -> float:
        """The bits per element of the tensor if zero points took no room."""
        found = storage(self.result.scheme, tuple(self.result.x.shape))
        return (found.codes + found.scales) / found.elements

    @property
    def bits_with_half_scales(self) -> float:
        """The bits per element of the tensor if a scale took half its bits."""
        found = storage(self.result.scheme, tuple(self.result.x.shape))
        return (found.codes + found.scales / 2 + found.zero_points) / found.elements

    def blocks(self) -> Iterator[tuple[tuple[int, ...], float, float]]:
        """Yield position, scale and zero point of each block, the nearest first; none of too many."""
        scales = self.result.scale
        if not 1 < scales.numel() <= MAX_BLOCKS:
            return
        numbers = scales.flatten().tolist(), self.result.params.zero_point.flatten().tolist()
        every = zip(np.ndindex(*scales.shape), *numbers, strict=True)
        yield from sorted(
            every, key=lambda block: sum(abs(a - b) for a, b in zip(block[0], self.t.block, strict=True))
        )

    @property
    def outside(self) -> str:
        """What a sentence on a code out of range begins with."""
        return f"{number(self.t.shifted)} is outside {self.fmt.qmin}..{self.fmt.qmax}"
