"""Many schemes at once on a few elements.

For every granularity some blocks are sampled, and some elements of each; their ranges are those of the whole
blocks. All are concatenated in flat tensors, so that one run of a kernel serves all granularities of a kind.
A scheme that does not fit the sample does not fit the tensor.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, TEXTBOOK, Convention
from quantcore.formats import INT8, IntFormat
from quantcore.granularity import Granularity, block_bounds, block_shape, grid_shape
from quantcore.matching.hypotheses.corruption import Kinds, arithmetic, requantized
from quantcore.qparams import parameters

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
Counts = npt.NDArray[np.int64]

BLOCKS, ELEMENTS = 16, 256  # sampled per granularity, at most
SEARCHED = 1 << 18  # elements per granularity whose extremes are computed, unless one block has more
_LOST = float(1 << 31)  # beyond this a cast may change values; those are compared on the whole tensor only


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled blocks and elements, for granularities of one kind.

    ``low``, ``high``: one per block; ``x``, ``index`` (flat, into the tensor), ``block`` (into the blocks): one per
    element; ``starts``: the first element of each granularity; ``blocks``: flat indices into its grid;
    ``schemes``: a cache for `scoring`.
    """

    granularities: tuple[Granularity, ...]
    low: Tensor
    high: Tensor
    x: Tensor
    index: Tensor
    block: Tensor
    starts: Counts
    blocks: tuple[Tensor, ...]
    schemes: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> Counts:
        """Elements sampled for each granularity."""
        return np.diff(self.starts, append=self.x.numel())

    def count(self, wrong: Tensor) -> Counts:
        """Sum a mask over the elements of each granularity."""
        counted: Counts = np.add.reduceat(wrong.numpy(), self.starts, dtype=np.int64)
        return counted


@dataclass(frozen=True, eq=False)
class Grid:
    """Scale, zero_point and inverse scale (if the convention stores one), one per sampled block."""

    scale: Tensor
    zero_point: Tensor
    inverse: Tensor | None

    def key(self) -> tuple[bytes, ...]:
        """Equal for equal numbers."""
        parts = (self.scale, self.zero_point, *(() if self.inverse is None else (self.inverse,)))
        return tuple(p.numpy().tobytes() for p in parts)


def always_the_same() -> torch.Generator:
    """Return a generator of numbers that are the same in every search."""
    return torch.Generator().manual_seed(0)


def draw(x: Tensor, searched: list[Granularity]) -> list[Sample]:
    """Return a sample for each kind of granularity, always the same."""
    chance = always_the_same()
    kinds = [list(group) for _, group in itertools.groupby(searched, type)]
    return [_sample(x, kind, chance) for kind in kinds]


def _sample(x: Tensor, kind: Sequence[Granularity], chance: torch.Generator) -> Sample:
    shape, values = tuple(x.shape), x.reshape(-1)
    extremes: list[Tensor] = []
    index: list[Tensor] = []
    block: list[Tensor] = []
    places: list[Tensor] = []
    starts, count, blocks = [], 0, 0
    for granularity in kind:
        size = block_shape(granularity, shape)
        grid = grid_shape(shape, size)
        drawn = _some(math.prod(grid), min(BLOCKS, max(1, SEARCHED // math.prod(size))), chance)
        bounds = [block_bounds(shape, size, _position(i, grid)) for i in drawn.tolist()]
        chosen = _elements(x, bounds, -(-ELEMENTS // len(drawn)), chance)
        starts.append(count)
        places.append(drawn)
        extremes.append(chosen[:, :2])
        index.append(chosen.reshape(-1))
        block.append((torch.arange(len(drawn)) + blocks).repeat_interleave(chosen.shape[1]))
        count, blocks = count + chosen.numel(), blocks + len(drawn)
    flat, outermost = torch.cat(index), torch.cat(extremes)
    low, high = values[outermost[:, 0]], values[outermost[:, 1]]
    return Sample(
        tuple(kind), low, high, values[flat], flat, torch.cat(block), np.array(starts), tuple(places)
    )


def _some(count: int, most: int, chance: torch.Generator) -> Tensor:
    """Draw up to ``most`` of the first ``count`` numbers, in their order."""
    if count <= 1 << 12:
        return torch.randperm(count, generator=chance)[:most].sort().values
    # drawing a block twice does no harm
    return torch.randint(count, (most,), generator=chance).sort().values


def _position(place: int, grid: Shape) -> Shape:
    return tuple(int(i) for i in np.unravel_index(place, grid)) if grid else ()


def _elements(x: Tensor, bounds: Sequence[Bounds], most: int, chance: torch.Generator) -> Tensor:
    """Flat indices in the tensor of each block's lowest and highest element, then of some or all of its elements."""
    corners = torch.tensor([[start for start, _ in b] for b in bounds], dtype=torch.int64)
    lengths = torch.tensor([[stop - start for start, stop in b] for b in bounds], dtype=torch.int64)
    sizes = lengths.prod(1, keepdim=True)
    blocks = [x[tuple(slice(*span) for span in b)] for b in bounds]
    extremes = torch.stack([torch.stack([b.argmin(), b.argmax()]) for b in blocks])
    largest = int(sizes.max())
    if largest <= most:
        local = torch.arange(largest) % sizes
    else:
        local = (torch.rand(len(bounds), most, generator=chance, dtype=torch.float64) * sizes).to(torch.int64)
    local = torch.cat([extremes, local], 1)
    flat, stride = torch.zeros_like(local), 1
    for axis in reversed(range(x.dim())):
        length = lengths[:, axis, None]
        flat += (corners[:, axis, None] + local % length) * stride
        local, stride = local // length, stride * x.shape[axis]
    return flat


def grid_of(sample: Sample, symmetric: bool, fmt: IntFormat, resolved: Convention) -> Grid:
    """Return a convention's parameters (resolved by `Convention.at`) for the sampled blocks."""
    found = parameters(sample.low, sample.high, symmetric, fmt, resolved)
    return Grid(found.scale, found.zero_point.to(torch.float32), found.inverse)


def values_of(sample: Sample, grid: Grid, resolved: Convention, kinds: Kinds = ()) -> Tensor:
    """Return the codes of the sample before the clamp."""
    kernel, x = KERNELS[resolved.coding.kernel], sample.x
    s, z = kernel.factor(grid.scale, grid.inverse), grid.zero_point
    if not kernel.fused:
        s, z = s[sample.block], z[sample.block]
    if "quantized_twice" in kinds:
        x = requantized(x, grid_of(sample, True, INT8, TEXTBOOK).scale[sample.block])
    return arithmetic(kinds, resolved, x, s, z)


def is_lost(values: Tensor) -> Tensor:
    """Mask of the values whose code NaN or a cast decides, which only the full arithmetic reproduces."""
    return ~(values.abs() < _LOST)
