"""Where the scales of the tried schemes come from: computed by min-max, or given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerChannel, block_shape, cells_of, grid_shape
from quantcore.matching.hypotheses.corruption import Kinds
from quantcore.matching.hypotheses.sample import ELEMENTS, Grid, Sample, always_the_same, draw, grid_of
from quantcore.matching.inputs import on_grid
from quantcore.range_setting import MIN_MAX, Given, RangeSetting
from quantcore.scheme import Scheme

# Elements: no zero_points are inferred for larger tensors
MOST_INFERRED = 1 << 20
Parameters = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Source:
    """Samples, and the parameters of their blocks.

    ``grid(sample, symmetric, format, convention)``: see `sample.grid_of`; ``setting(granularity)``: the range
    setting of the schemes; ``zero_point``: all zero_points if given, which then decide whether a scheme is
    symmetric; ``mistake``: keys of `MISTAKES` built into the samples or the grid; ``scales``: how
    the scales are stored.
    """

    samples: list[Sample]
    grid: Callable[[Sample, bool, IntFormat, Convention], Grid]
    setting: Callable[[Granularity], RangeSetting]
    zero_point: Tensor | None = None
    mistake: Kinds = ()
    scales: Scheme | None = None

    def symmetries(self, fmt: IntFormat) -> tuple[bool, ...]:
        """Which of symmetric (True) and asymmetric (False) are tried."""
        if self.zero_point is None:
            return (True, False)
        return (bool((self.zero_point == fmt.middle).all()),)


def by_range(x: Tensor, searched: list[Granularity]) -> Source:
    """Return every granularity with the scales that each convention computes by min-max."""
    return Source(draw(x, searched), grid_of, lambda granularity: MIN_MAX)


def swapped_axes(x: Tensor) -> list[Source]:
    """Return a square matrix's channels with scales along the wrong axis; an empty list for other shapes."""
    if x.dim() != 2 or x.shape[0] != x.shape[1]:
        return []
    n = len(x)
    flat = torch.randint(n * n, (2, ELEMENTS), generator=always_the_same())
    block = torch.cat(
        [flat[0] % n, n + flat[1] // n]
    )  # row scales are applied to columns, column scales to rows
    low, high = torch.cat([x.amin(1), x.amin(0)]), torch.cat([x.amax(1), x.amax(0)])
    values, starts = x.reshape(-1)[flat.reshape(-1)], np.array([0, ELEMENTS])
    sample = Sample((PerChannel(0), PerChannel(1)), low, high, values, flat.reshape(-1), block, starts, ())
    return [Source([sample], grid_of, lambda granularity: MIN_MAX, mistake=("other_axis",))]


def with_given_scale(
    x: Tensor, codes: Tensor, scale: Tensor, zero_point: Tensor | None, searched: list[Granularity]
) -> list[Source]:
    """Return the granularities that a given scale fits, with the given zero_point (of either sign) or an inferred one.

    ``codes``: on the axes of x, as int64.
    """
    found = []
    for granularity in searched:
        grid = grid_shape(tuple(x.shape), block_shape(granularity, tuple(x.shape)))
        in_grid = on_grid(scale, grid)
        if in_grid is not None:
            choices = _zero_points(x, codes, in_grid, zero_point, granularity)
            found += [_given(x, granularity, in_grid, z) for z in choices]
    return found


def _given(x: Tensor, granularity: Granularity, scale: Tensor, zero_point: Tensor) -> Source:
    samples = draw(x, [granularity])
    places = samples[0].blocks[0]
    grid = Grid(scale.reshape(-1)[places], zero_point.reshape(-1)[places], None)
    setting = write_given(scale, zero_point)
    return Source(samples, lambda *_: grid, lambda _: setting, zero_point)


def write_given(scale: Tensor, zero_point: Tensor) -> Given:
    """Return the setting with these parameters, plain numbers for one block; they read back as the same float32."""
    return Given(_written(scale), _written(zero_point.to(torch.int64)))


def _written(values: Tensor) -> Any:
    if values.numel() == 1:
        return _number(values.reshape(()).numpy()[()])
    return _nested(values.numpy())


def _nested(values: Any) -> Any:
    return tuple(map(_nested, values)) if values.ndim else _number(values[()])


def _number(value: Any) -> int | float:
    return int(value) if value.dtype.kind == "i" else float(str(value))


def _zero_points(
    x: Tensor, codes: Tensor, scale: Tensor, known: Tensor | None, granularity: Granularity
) -> list[Tensor]:
    """The possible zero_points: the given ones, of either sign, or else 0 and inferred ones."""
    if known is not None:
        in_grid = (
            known.reshape(()).expand(scale.shape)
            if known.numel() == 1
            else on_grid(known, tuple(scale.shape))
        )
        if in_grid is None or bool((in_grid % 1 != 0).any()):
            return []
        return [in_grid, -in_grid] if bool(in_grid.any()) else [in_grid]
    found = [torch.zeros(scale.shape)]
    if x.numel() <= MOST_INFERRED:
        found.append(inferred(x, codes, scale, granularity))
    return found


def inferred(x: Tensor, codes: Tensor, scale: Tensor, granularity: Granularity) -> Tensor:
    """Return the zero_point that fits each block best: the median of q - x/s, rounded."""
    shape = tuple(x.shape)
    block = block_shape(granularity, shape)
    owner = cells_of(torch.arange(scale.numel()).reshape(scale.shape), shape, block).reshape(-1).numpy()
    offset = (codes.to(torch.float32) - x / cells_of(scale, shape, block)).reshape(-1).numpy()
    order = np.lexsort((offset, owner))
    stops = np.cumsum(np.bincount(owner, minlength=scale.numel()))
    starts = np.concatenate([[0], stops[:-1]])
    middle = offset[order][(starts + stops) // 2]
    return torch.from_numpy(np.nan_to_num(middle).round().clip(-(1 << 16), 1 << 16)).reshape(scale.shape)
