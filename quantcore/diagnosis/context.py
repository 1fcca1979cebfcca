"""What the findings need to know about a result, computed on first use and cached."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.analysis import Report, report, sqnr, sqnr_of
from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.estimate import Drawn, Estimate
from quantcore.diagnosis.record import Box, Gain
from quantcore.errors import QuantError
from quantcore.formats import CodebookFormat, FloatFormat, IntFormat
from quantcore.granularity import Granularity, PerFlatGroup, Shape, blocked_shape, split_axes
from quantcore.numerics import CHUNK
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme, bits_per_element

ALIKE_DB = 0.5  # if two schemes gain about the same, the simpler one is proposed
BETTER_DB = 1.0  # a fix of what is wrong must gain at least this much
SAMPLE = 1 << 14  # elements used for estimates


@dataclass(frozen=True)
class Alternative:
    """Another scheme, computed on the same tensor."""

    scheme: Scheme
    sqnr_db: float
    bits_per_element: float


@dataclass
class Context:
    """A result with its report and statistics.

    ``unfit``: whether a result has a finding of severity error, so that its scheme fixes nothing; without it,
    no other scheme is tried.
    """

    result: Quantized
    known: Report | None = None
    reached: float = -math.inf  # the SQNR in dB of the best fix found so far, for about the same storage
    unfit: Callable[["Context"], bool] | None = None
    _trials: dict[Scheme, Alternative | None] = field(default_factory=dict)
    _channels: dict[int, Tensor] = field(default_factory=dict)
    _drawn: dict[Shape, Drawn] = field(default_factory=dict)
    _estimates: dict[tuple[Granularity, bool], Estimate] = field(default_factory=dict)

    @property
    def scheme(self) -> Scheme:
        """The scheme of the result."""
        return self.result.scheme

    @property
    def fmt(self) -> IntFormat:
        """The integer format."""
        assert isinstance(self.scheme.format, IntFormat)
        return self.scheme.format

    @property
    def table_format(self) -> FloatFormat | CodebookFormat:
        """The format, which is a float or a codebook."""
        assert not isinstance(self.scheme.format, IntFormat)
        return self.scheme.format

    @property
    def values(self) -> Tensor:
        """The distinct finite values of a float or codebook format in ascending order, float32."""
        fmt = self.table_format
        return fmt.values if isinstance(fmt, FloatFormat) else torch.tensor(sorted(set(fmt.values)))

    @property
    def zero_point(self) -> Tensor:
        """Zero points in block form."""
        assert self.result.zero_point is not None  # integer formats have zero points
        return self.result.zero_point

    @property
    def shape(self) -> Shape:
        """The tensor's shape."""
        return tuple(self.result.x.shape)

    @cached_property
    def report(self) -> Report:
        """The result's `quantcore.analysis.report`."""
        return report(self.result) if self.known is None else self.known

    @cached_property
    def bits(self) -> float:
        """Bits per element."""
        return bits_per_element(self.result.computed, self.shape)

    @cached_property
    def x_blocked(self) -> Tensor:
        """x in `Quantized.blocked_shape`."""
        return self.result.x.reshape(self.result.blocked_shape)

    @cached_property
    def extremes(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest element of every block, in block form."""
        low, high = (torch.empty(self.grid, device=self.x_blocked.device) for _ in range(2))
        for region in self.result.blocks.regions(CHUNK, whole_blocks=True):
            values = split_axes(self.x_blocked[region.elements], region.block)
            inner = tuple(range(1, values.dim(), 2))
            low[region.grid] = values.amin(inner) if inner else values
            high[region.grid] = values.amax(inner) if inner else values
        return low, high

    @cached_property
    def largest(self) -> Tensor:
        """max|x| of every block."""
        low, high = self.extremes
        return torch.maximum(low.abs(), high.abs())

    def channels(self, axis: int) -> Tensor:
        """Return max|x| of every channel along an axis."""
        if axis not in self._channels:
            others = tuple(i for i in range(len(self.shape)) if i != axis)
            x = self.result.x
            self._channels[axis] = torch.maximum(x.amax(others), -x.amin(others))
        return self._channels[axis]

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest element of x."""
        low, high = torch.aminmax(self.result.x)
        return float(low), float(high)

    @cached_property
    def finite(self) -> bool:
        """Whether x contains neither NaN nor infinity."""
        return all(map(math.isfinite, self.bounds))

    def drawn(self, granularity: Granularity) -> Drawn:
        """Return the elements that ranges and errors under a granularity are estimated from."""
        shape = blocked_shape(granularity, self.shape)
        if shape not in self._drawn:
            self._drawn[shape] = Drawn(self.result.x.reshape(shape), self.bounds)
        return self._drawn[shape]

    def estimates(self, pairs: Iterable[tuple[Granularity, bool]]) -> list[Estimate]:
        """Estimate the errors of the format with other granularities, symmetric or not."""
        pairs = list(pairs)
        for flat in (False, True):
            new = [p for p in pairs if p not in self._estimates and isinstance(p[0], PerFlatGroup) == flat]
            if new:
                found = self.drawn(new[0][0]).estimates(self.scheme.format, new)
                self._estimates |= {(e.granularity, e.symmetric): e for e in found}
        return [self._estimates[pair] for pair in pairs]

    @property
    def grid(self) -> Shape:
        """Number of blocks along each axis of `Quantized.blocked_shape`."""
        return self.result.blocks.grid

    @property
    def block_size(self) -> int:
        """Elements of a full block."""
        return math.prod(self.result.block)

    @cached_property
    def places(self) -> Tensor:
        """Up to `SAMPLE` flat indices, always the same: all of a small tensor, else drawn uniformly."""
        n = self.x_blocked.numel()
        if n <= SAMPLE:
            return torch.arange(n, device=self.x_blocked.device)
        drawn = np.random.Generator(np.random.PCG64(0)).integers(n, size=SAMPLE)
        return torch.from_numpy(drawn).to(self.x_blocked.device)

    @cached_property
    def sample(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The elements at `places`, and the block of each as an index into block form."""
        blocks = self.blocks_of(self.places.cpu().numpy())
        return self.x_blocked.reshape(-1)[self.places], tuple(map(self.places.new_tensor, blocks))

    def blocks_of(self, flat: Any) -> tuple[Any, ...]:
        """Return the block of the elements at one or more flat, row-major indices, in block form."""
        # torch's own unravel_index imports sympy when it is first called, which takes half a second
        index = np.unravel_index(flat, self.result.blocked_shape) if self.result.blocked_shape else ()
        return tuple(i // b for i, b in zip(index, self.result.block, strict=True))

    def element(self, flat: int) -> tuple[int, ...]:
        """Return the index in x of a flat, row-major index."""
        return tuple(int(i) for i in np.unravel_index(flat, self.shape)) if self.shape else ()

    def block_box(self, place: Iterable[int]) -> Box:
        """Return the elements of a block, as a box of x; only the first element if they are not a box."""
        bounds = self.result.blocks.bounds(tuple(place))
        if self.result.blocked_shape == self.shape:
            return bounds
        ((start, stop),) = bounds
        first, last = self.element(start), self.element(stop - 1)
        box = tuple((a, b + 1) for a, b in zip(first, last, strict=True))
        if math.prod(max(0, b - a) for a, b in box) == stop - start:
            return box
        return tuple((a, a + 1) for a in first)

    def trial(self, scheme: Scheme) -> Alternative | None:
        """Compute another scheme; None if it does not fit x, its library refuses it, or it is no fix.

        A scheme that would have a finding of severity error itself fixes nothing.
        """
        if scheme not in self._trials:
            self._trials[scheme] = self._try(scheme)
        return self._trials[scheme]

    def _try(self, scheme: Scheme) -> Alternative | None:
        if self.unfit is None:
            return None
        try:
            result = apply_quietly(self.result.x, scheme, dtype=self.result.dtype)
        except QuantError:
            return None
        if result.warnings or self.unfit(Context(result)):  # a result with a warning is not a fix
            return None
        return Alternative(scheme, sqnr(result), bits_per_element(result.computed, self.shape))

    def storage_of(self, scheme: Scheme) -> float:
        """Return bits per element of a scheme; infinite if it does not fit x, or its library refuses it."""
        try:
            return bits_per_element(scheme.in_dtype(self.result.dtype), self.shape)
        except QuantError:
            return math.inf

    def best(self, schemes: Iterable[Scheme], gain_db: float, most_bits: float = 1e9) -> Alternative | None:
        """Return the highest SQNR; ties within `ALIKE_DB` go to the first; None if none gains enough."""
        cheap = [scheme for scheme in schemes if self.storage_of(scheme) <= most_bits]
        tried = [trial for scheme in cheap if (trial := self.trial(scheme))]
        now = self.report.sqnr_db  # infinite if x̂ is exact: then nothing is better
        better = [t for t in tried if t.sqnr_db > now and t.sqnr_db >= now + gain_db]
        most = max((t.sqnr_db for t in better), default=0.0)
        return next((t for t in better if t.sqnr_db >= most - ALIKE_DB), None)

    def fixed_by(self, trial: Alternative | None) -> dict[str, Any]:
        """Return the fields ``fix`` and ``gain`` of a finding, for a scheme with a higher SQNR."""
        if trial is None:
            return {"fix": None, "gain": None}
        return {"fix": trial.scheme, "gain": Gain("SQNR", self.report.sqnr_db, trial.sqnr_db)}

    def changed(self, **changes: Any) -> Scheme:
        """Return the scheme with some fields changed."""
        return dataclasses.replace(self.scheme, **changes)

    @property
    def as_textbook(self) -> Scheme:
        """The scheme with the textbook's arithmetic, but its own overflow."""
        return self.changed(convention=TEXTBOOK.changed(overflow=self.scheme.convention.coding.overflow))


def sqnr_among(x: Tensor, now: Tensor, then: Tensor) -> tuple[float, float]:
    """Return the SQNR in dB of some elements, with their errors now and with those of another result."""
    power, before, after = (float(values.double().square().sum()) for values in (x, now, then))
    return sqnr_of(power, before), sqnr_of(power, after)
