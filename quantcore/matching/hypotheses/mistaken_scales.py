"""Scales that no library computes by min-max: from percentiles, from mistaken ranges, or rounded to float16.

Per tensor or per channel, with the textbook's arithmetic, as in handwritten code.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.formats import FLOATS, INT8, IntFormat
from quantcore.granularity import (
    Granularity,
    PerChannel,
    PerTensor,
    block_shape,
    cells_of,
    grid_shape,
    to_blocks,
)
from quantcore.matching.hypotheses.corruption import Corruption, changed
from quantcore.matching.hypotheses.sample import (
    Sample,
    Source,
    always_the_same,
    grid_of,
    write_given,
)
from quantcore.matching.hypotheses.scoring import OF_PERCENTILE, GivenCodes, Hypothesis, SearchTask
from quantcore.mistakes import Kinds, program_of
from quantcore.qparams import BlockErrors, QParams, parameters
from quantcore.range_setting import Given, Percentile, RangeSetting, Task
from quantcore.scheme import Scheme

PERCENTILES = (90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999)
LEAST_CLIPPED = 1.0  # percent of an element
MOST = 1 << 20  # elements: larger tensors are not sorted
DRAWN = 512  # elements sampled
FLOAT16 = Scheme(
    dataclasses.replace(FLOATS["fp16"], saturate=False),
    range_setting=Given(1.0),
    convention=CONVENTIONS["stored"],
)
_OVERFLOWS: tuple[Kinds, ...] = ((), ("wrapped",), ("unclamped",))


def sortable(x: Tensor) -> bool:
    """Tell whether x is small and finite enough to be sorted."""
    return 0 < x.numel() <= MOST and bool(x.isfinite().all())


@dataclass(frozen=True, eq=False)
class TriedParams:
    """Parameters to try, in block form; ``range``: mistakes that lead to them; ``then``: later ones."""

    granularity: Granularity
    format: IntFormat
    symmetric: bool
    scale: Tensor
    zero_point: Tensor
    setting: RangeSetting | None = None  # None: the parameters are given as numbers
    range: Kinds = ()
    then: tuple[Kinds, ...] = ((),)


Trials = Callable[[Tensor, tuple[IntFormat, ...]], Iterator[TriedParams]]


def percentiles(x: Tensor, formats: tuple[IntFormat, ...]) -> Iterator[TriedParams]:
    """Yield ranges that clip as intended: a percentile of |x|, or two of x."""
    for granularity in _granularities(x):
        blocks = _by_block(x, granularity)
        # of few elements, it is hardly less than the largest
        apart = [p for p in PERCENTILES if (blocks.shape[-1] - 1) * (100 - p) >= LEAST_CLIPPED]
        for setting, symmetric in itertools.product(map(Percentile, apart), (True, False)):
            scheme = Scheme(INT8, symmetric, granularity, setting)
            low, high = setting(
                blocks, Task(INT8, symmetric, BlockErrors(blocks, scheme).search, len(blocks))
            )
            for fmt in formats:
                found = parameters(low, high, symmetric, fmt, TEXTBOOK)
                s, z = (
                    _block_form(p, x, granularity) for p in (found.scale, found.zero_point.to(torch.float32))
                )
                yield TriedParams(granularity, fmt, symmetric, s, z, setting)


def mistaken(x: Tensor, formats: tuple[IntFormat, ...]) -> Iterator[TriedParams]:
    """Yield scales from the range 0 to max |x|, although x has negative values.

    The range is divided into all steps, or is that of symmetric unsigned codes; zero_points other than 0 are
    omitted.
    """
    wide = [fmt for fmt in formats if not fmt.narrow and bool((x < 0).any())]
    for fmt, granularity in itertools.product(wide, _granularities(x)):
        largest = _by_block(x.abs(), granularity).amax(-1)
        scale = _block_form(largest / (fmt.qmax - fmt.qmin), x, granularity)
        lowest = torch.full_like(scale, float(fmt.qmin))
        then = tuple((("zero_point_left_out",) if fmt.qmin else ()) + fit for fit in _OVERFLOWS)
        yield TriedParams(granularity, fmt, False, scale, lowest, range=("range_from_zero",), then=then)
        if not fmt.signed:
            scale = _block_form(largest / fmt.middle, x, granularity)
            middle = torch.full_like(scale, float(fmt.middle))
            yield TriedParams(granularity, fmt, True, scale, middle, then=(("middle_left_out",),))


def signed_percentiles(x: Tensor, formats: tuple[IntFormat, ...]) -> Iterator[TriedParams]:
    """Yield scales from a percentile of x instead of |x|."""
    wide = [fmt for fmt in formats if fmt.signed and not fmt.narrow and bool((x < 0).any())]
    for fmt, granularity in itertools.product(wide, _granularities(x)):
        fractions = torch.tensor([p / 100 for p in PERCENTILES])
        for high in torch.quantile(_by_block(x, granularity), fractions, dim=-1):
            scale = _block_form(high / fmt.qmax, x, granularity)
            z, mistake = torch.zeros_like(scale), ("signed_percentile",)
            yield TriedParams(granularity, fmt, True, scale, z, range=mistake, then=_OVERFLOWS)


def tried(
    x: Tensor, reading: GivenCodes, trials: Iterator[TriedParams], limit: float
) -> Iterator[Hypothesis]:
    """Yield the trials that fit the sampled elements, or whose fraction of wrong codes is below ``limit``."""
    drawn = torch.arange(x.numel())
    if x.numel() > DRAWN:
        drawn = torch.randint(x.numel(), (DRAWN,), generator=always_the_same())
    values, codes = x.reshape(-1)[drawn], reading.codes.reshape(-1)[drawn].to(torch.float32)
    for trial in trials:
        if not bool(((trial.scale > 0) & trial.scale.isfinite()).all()):
            continue
        s, z = (_spread(p, x, trial.granularity)[drawn] for p in (trial.scale, trial.zero_point))
        numbers, code = {"x": values, "s": s, "z": z}, torch.empty_like(values)
        for then in trial.then:
            kinds = trial.range + then
            found = program_of(TEXTBOOK.coding, kinds, trial.format).write("q", numbers, code)
            wrong = float((found != codes).to(torch.float32).mean())
            if wrong < limit:
                setting = trial.setting or write_given(trial.scale, trial.zero_point)
                scheme = Scheme(trial.format, trial.symmetric, trial.granularity, setting)
                doubt = OF_PERCENTILE if "signed_percentile" in kinds else 0
                corruption = Corruption(kinds, reading.corruption.stored)
                yield Hypothesis(changed(scheme, kinds), corruption, wrong, doubt)


def float16(ranged: Source, readings: list[GivenCodes]) -> SearchTask:
    """Return a search of every granularity with its scales rounded to float16."""

    rounded = program_of(TEXTBOOK.coding, ("scale_float16",))

    def grid(sample: Sample, symmetric: bool, fmt: IntFormat, convention: Convention) -> QParams:
        found = grid_of(sample, symmetric, fmt, convention)
        return QParams(rounded.write("s", {"s": found.scale}), found.zero_point)

    source = dataclasses.replace(ranged, grid=grid, mistake=("scale_float16",), scales=FLOAT16)
    return SearchTask(source, readings, ((), ("wrapped",)), conventions=(TEXTBOOK,))


def _granularities(x: Tensor) -> list[Granularity]:
    channels = [PerChannel(axis) for axis in range(x.dim())] if x.dim() > 1 else []
    return [PerTensor(), *channels]


def _by_block(x: Tensor, granularity: Granularity) -> Tensor:
    """Return one row per block."""
    return to_blocks(x, block_shape(granularity, tuple(x.shape)))


def _block_form(values: Tensor, x: Tensor, granularity: Granularity) -> Tensor:
    """Return one number per block, in block form."""
    shape = tuple(x.shape)
    return values.reshape(grid_shape(shape, block_shape(granularity, shape)))


def _spread(values: Tensor, x: Tensor, granularity: Granularity) -> Tensor:
    shape = tuple(x.shape)
    return cells_of(values, shape, block_shape(granularity, shape)).expand(shape).reshape(-1)
