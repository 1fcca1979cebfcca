"""Many schemes at once on a few elements, with scales computed by min-max, or given.

For every granularity some blocks are sampled, and some elements of each; their ranges are those of the whole
blocks. All are concatenated in flat tensors, so that one run of a kernel serves all granularities of a kind.
A scheme that does not fit the sample does not fit the tensor.
"""

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, TEXTBOOK, CodingStage, Convention
from quantcore.formats import INT8, IntFormat
from quantcore.granularity import Granularity, PerChannel, block_bounds, block_shape, cells_of, grid_shape
from quantcore.matching.hypotheses.corruption import of_blocks, subtracted_by_kernels
from quantcore.matching.inputs import on_grid
from quantcore.mistakes import Kinds, program_of
from quantcore.qparams import QParams, parameters
from quantcore.range_setting import MIN_MAX, Given, RangeSetting
from quantcore.scheme import Scheme

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
Counts = npt.NDArray[np.int64]

BLOCKS, ELEMENTS = 16, 256  # sampled per granularity, at most
SEARCHED = 1 << 18  # elements per granularity whose extremes are computed, unless one block has more
_LOST = float(1 << 31)  # beyond this a cast may change values; those are compared on the whole tensor only
# Elements: no zero_points are inferred for larger tensors
MOST_INFERRED = 1 << 20
Parameters = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Sample:
    """Sampled blocks and elements, for granularities of one kind, as float32 numbers.

    ``dtype``: of the tensor as the libraries are given it;
    ``low``, ``high``: one per block; ``x``, ``index`` (flat, into the tensor), ``block`` (into the blocks):
    one per element; ``starts``: the first element of each granularity; ``blocks``: flat indices into its
    grid; ``schemes``: a cache for `scoring`, which samples of tensors of the same shape share.
    """

    granularities: tuple[Granularity, ...]
    low: Tensor
    high: Tensor
    x: Tensor
    index: Tensor
    block: Tensor
    starts: Counts
    blocks: tuple[Tensor, ...]
    dtype: torch.dtype = torch.float32
    schemes: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> Counts:
        """Elements sampled for each granularity."""
        return np.diff(self.starts, append=self.x.numel())

    @cached_property
    def grids(self) -> dict[Any, QParams]:
        """What `grid_of` has computed: other codes and other mistakes ask for it again."""
        return {}

    @cached_property
    def neighbors(self) -> tuple[Counts, npt.NDArray[np.bool_]]:
        """The order of elements by block, then x, and where the next one is larger and of the same block.

        Blocks stand in the order of their granularities, so `starts` holds for the sorted elements too.
        """
        x, block = self.x.numpy(), self.block.numpy()
        order = np.lexsort((x, block))
        x, block = x[order], block[order]
        return order, (block[1:] == block[:-1]) & (x[1:] > x[:-1])

    def converted(self, dtype: torch.dtype) -> "Sample":
        """Return the sample of the tensor converted to a dtype, which keeps the order of its values."""
        low, high, x = (t.to(dtype).to(torch.float32) for t in (self.low, self.high, self.x))
        return replace(self, low=low, high=high, x=x, dtype=dtype)

    def only(self, kept: Sequence[int]) -> "Sample":
        """Return the sample of some of the granularities."""
        stops = np.append(self.starts[1:], self.x.numel())
        places = [torch.arange(self.starts[i], stops[i]) for i in kept]
        first = [int(self.block[self.starts[i]]) for i in kept]
        counts = [len(self.blocks[i]) for i in kept]
        before = np.cumsum([0, *counts])
        element = torch.cat(places)
        of_blocks = torch.cat([torch.arange(f, f + n) for f, n in zip(first, counts, strict=True)])
        block = [self.block[p] - f + int(b) for p, f, b in zip(places, first, before, strict=False)]
        return replace(
            self,
            granularities=tuple(self.granularities[i] for i in kept),
            low=self.low[of_blocks],
            high=self.high[of_blocks],
            x=self.x[element],
            index=self.index[element],
            block=torch.cat(block),
            starts=np.cumsum([0, *map(len, places)])[:-1],
            blocks=tuple(self.blocks[i] for i in kept),
        )

    def count(self, wrong: Tensor) -> Counts:
        """Sum a mask over the elements of each granularity."""
        counted: Counts = np.add.reduceat(wrong.numpy(), self.starts, dtype=np.int64)
        return counted


def always_the_same() -> torch.Generator:
    """Return a generator of numbers that are the same in every search."""
    return torch.Generator().manual_seed(0)


def draw(x: Tensor, searched: list[Granularity]) -> list[Sample]:
    """Return a sample for each kind of granularity, always the same."""
    chance = always_the_same()
    kinds = [list(group) for _, group in itertools.groupby(searched, type)]
    return [_sample(x, kind, chance) for kind in kinds]


def _sample(x: Tensor, kind: Sequence[Granularity], chance: torch.Generator) -> Sample:
    shape, values = tuple(x.shape), x.reshape(-1).to(torch.float32)
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
        tuple(kind),
        low,
        high,
        values[flat],
        flat,
        torch.cat(block),
        np.array(starts),
        tuple(places),
        x.dtype,
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
    """Return flat indices in x: of each block's lowest and highest element, then of some or all others."""
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


def grid_of(sample: Sample, symmetric: bool, fmt: IntFormat, resolved: Convention) -> QParams:
    """Return a convention's parameters (resolved by `Convention.at`) for the sampled blocks."""
    key = symmetric, fmt, resolved.parameter_stages, resolved.coding.coding_dtype
    if key not in sample.grids:
        found = parameters(sample.low, sample.high, symmetric, fmt, resolved)
        found = replace(found, zero_point=found.zero_point.to(torch.float32))
        sample.grids[key] = subtracted_by_kernels(found, fmt, resolved)
    return sample.grids[key]


def numbers_of(params: QParams) -> tuple[bytes | None, ...]:
    """Return scale, zero_point and stored 1/s as bytes, which are equal for equal numbers."""
    numbers = params.scale, params.zero_point, params.inverse
    return tuple(None if p is None else p.numpy().tobytes() for p in numbers)


def code_numbers(sample: Sample, grid: QParams, coding: CodingStage) -> dict[str, Any]:
    """Return what a kernel computes codes of: x, s or 1/s, and z, one per element or one for all."""
    numbers = of_blocks(program_of(coding), grid)
    if not KERNELS[coding.kernel].fused:
        numbers = {name: number[sample.block] for name, number in numbers.items()}
    return {"x": sample.x, **numbers}


def values_of(sample: Sample, numbers: dict[str, Any], coding: CodingStage, kinds: Kinds = ()) -> Tensor:
    """Return the codes of the sample before the clamp, for its `code_numbers`."""
    if "quantized_twice" in kinds:
        numbers = {**numbers, "s8": grid_of(sample, True, INT8, TEXTBOOK).scale[sample.block]}
    found: Tensor = program_of(coding, kinds).write("v", numbers, torch.empty_like(sample.x))
    return found


def is_lost(values: Tensor) -> Tensor:
    """Return a mask of values whose code NaN or a cast decides, which only the full arithmetic reproduces."""
    return ~(values.abs() < _LOST)


@dataclass(frozen=True, eq=False)
class Source:
    """Samples, and the parameters of their blocks.

    ``grid(sample, symmetric, format, convention)``: see `sample.grid_of`; ``setting(granularity)``: the range
    setting of the schemes; ``zero_point``: all zero_points if given, which then decide whether a scheme is
    symmetric; ``mistake``: keys of `MISTAKES` built into the samples or the grid; ``scales``: how
    the scales are stored.
    """

    samples: list[Sample]
    grid: Callable[[Sample, bool, IntFormat, Convention], QParams]
    setting: Callable[[Granularity], RangeSetting]
    zero_point: Tensor | None = None
    mistake: Kinds = ()
    scales: Scheme | None = None

    def only(self, kept: Collection[Granularity]) -> "Source":
        """Return the source with some of its granularities."""
        places = [[i for i, g in enumerate(s.granularities) if g in kept] for s in self.samples]
        pairs = zip(self.samples, places, strict=True)
        return replace(self, samples=[sample.only(own) for sample, own in pairs if own])

    def converted(self, dtype: torch.dtype) -> "Source":
        """Return the source for the tensor converted to a dtype."""
        return replace(self, samples=[sample.converted(dtype) for sample in self.samples])

    def symmetries(self, fmt: IntFormat) -> tuple[bool, ...]:
        """Return which of symmetric (True) and asymmetric (False) are tried."""
        if self.zero_point is None:
            return (True, False)
        return (bool((self.zero_point == fmt.middle).all()),)


def by_range(x: Tensor, searched: list[Granularity]) -> Source:
    """Return every granularity with the scales that each convention computes by min-max."""
    schemes = _schemes_of(tuple(x.shape))
    samples = [replace(sample, schemes=schemes) for sample in draw(x, searched)]
    return Source(samples, grid_of, lambda granularity: MIN_MAX)


@lru_cache(maxsize=2)
def _schemes_of(shape: Shape) -> dict[Any, Any]:
    """Return a cache for `scoring` that searches in tensors of the same shape share."""
    return {}


def swapped_axes(x: Tensor) -> list[Source]:
    """Return a square matrix's channels with scales along the wrong axis; an empty list for other shapes."""
    if x.dim() != 2 or x.shape[0] != x.shape[1]:
        return []
    n, dtype, x = len(x), x.dtype, x.to(torch.float32)
    flat = torch.randint(n * n, (2, ELEMENTS), generator=always_the_same())
    block = torch.cat(
        [flat[0] % n, n + flat[1] // n]
    )  # row scales are applied to columns, column scales to rows
    low, high = torch.cat([x.amin(1), x.amin(0)]), torch.cat([x.amax(1), x.amax(0)])
    values, starts = x.reshape(-1)[flat.reshape(-1)], np.array([0, ELEMENTS])
    kind, places = (PerChannel(0), PerChannel(1)), flat.reshape(-1)
    sample = Sample(kind, low, high, values, places, block, starts, (), dtype)
    return [Source([sample], grid_of, lambda granularity: MIN_MAX, mistake=("other_axis",))]


def with_given_scale(
    x: Tensor, codes: Tensor, scale: Tensor, zero_point: Tensor | None, searched: list[Granularity]
) -> list[Source]:
    """Return the granularities that a given scale fits, with the given zero_point or an inferred one.

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
    grid = QParams(scale.reshape(-1)[places], zero_point.reshape(-1)[places])
    setting = write_given(scale, zero_point)
    return Source(samples, lambda *_: grid, lambda _: setting, zero_point)


def write_given(scale: Tensor, zero_point: Tensor) -> Given:
    """Return the setting with these parameters; as text, it reads back as the same float32."""
    s, z = (p.reshape(()) if p.numel() == 1 else p for p in (scale, zero_point.to(torch.int64)))
    return Given(s.numpy().astype(str).astype(np.float64), z)


def _zero_points(
    x: Tensor, codes: Tensor, scale: Tensor, known: Tensor | None, granularity: Granularity
) -> list[Tensor]:
    """Return the possible zero_points: the given ones, of either sign, or else 0 and inferred ones."""
    if known is not None:
        in_grid = on_grid(known, tuple(scale.shape), shared=True)
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
