"""What sets a scale alone: one element, or one channel."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.diagnose.case import Case, Trial
from quantcore.diagnose.record import Box, Finding, cell
from quantcore.diagnose.words import decibels, index, number
from quantcore.errors import QuantError
from quantcore.granularity import PerChannel, PerFlatGroup, PerGroup, block_bounds, split_axes
from quantcore.inputs import CHUNK
from quantcore.quantize import apply
from quantcore.range_setting import MinMax
from quantcore.regions import regions
from quantcore.scheme import Scheme

FAR = 4.0  # times as large as the next largest: two bits of the codes are lost to the others
OTHERS = 8  # so many other elements, not 0, share the scale
BETTER_DB = 3.0
CONCERNED = 1 / 16  # part of the tensor that stands in blocks with a far element, at least
LOUD = 0.25  # part of a loud channel that exceeds all other channels, at least
ENOUGH = 1 << 20  # elements for a sentence's numbers
LOOK_AT = 64  # blocks with a far element that are looked into


class _Far(NamedTuple):
    """An element far from the others of its block: flat places, and values."""

    place: tuple[int, ...]
    second: float
    block: tuple[int, ...]
    bounds: Box


def outlier_element(case: Case) -> Iterator[Finding]:
    """One element of a block, far from all others, sets the scale of that block."""
    if not isinstance(case.scheme.range_setting, MinMax) or case.block_size <= OTHERS:
        return
    found = _far_elements(case)
    if not found or len(found) * case.block_size < CONCERNED * case.laid.numel():
        return
    far = max(found, key=lambda f: abs(float(case.result.x[f.place])))
    now, without = _others(case, far)
    if not without >= now + BETTER_DB:
        return
    left = _codes_left(case, far.second, far.block)
    where = f"; {len(found)} blocks are so" if len(found) > 1 else ""
    yield Finding(
        "outlier_element",
        "warning",
        f"One element, {number(float(case.result.x[far.place]))} at {index(far.place)}, sets the scale alone: the next "
        f"largest is {number(far.second)}, so the others share about {left} of {case.fmt.available} codes{where}. "
        f"Their SQNR is {decibels(now)}, and {decibels(without)} without it.",
        tuple(cell(f.place) for f in found),
        **case.gained(_finer(case)),
    )


def _far_elements(case: Case) -> list[_Far]:
    """Elements at least `FAR` times as large as all others of their block."""
    above = torch.zeros(case.grid, dtype=torch.int64, device=case.laid.device)
    for region in regions(case.result.laid_shape, case.result.block, CHUNK, whole_blocks=False):
        values = split_axes(case.laid[region.elements], region.block).abs()
        limit = case.largest[region.grid] / FAR
        near = values > limit.reshape([n for g in limit.shape for n in (g, 1)])
        inner = tuple(range(1, values.dim(), 2))
        above[region.grid] += near.sum(inner) if inner else near
    alone = ((above == 1) & (case.largest > 0)).nonzero()
    return [far for place in alone[:LOOK_AT].tolist() if (far := _look_into(case, tuple(place)))]


def _look_into(case: Case, block: tuple[int, ...]) -> _Far | None:
    bounds = block_bounds(case.result.laid_shape, case.result.block, block)
    part = case.laid[tuple(slice(*span) for span in bounds)]
    sizes = part.abs().reshape(-1)
    if int(sizes.count_nonzero()) <= OTHERS:
        return None
    inside = torch.unravel_index(sizes.argmax(), part.shape)
    laid = [int(i) + a for i, (a, _) in zip(inside, bounds, strict=True)]
    flat = 0
    for i, n in zip(laid, case.result.laid_shape, strict=True):
        flat = flat * n + i
    sizes[int(sizes.argmax())] = 0
    return _Far(case.element(flat), float(sizes.amax()), block, bounds)


def _others(case: Case, far: _Far) -> tuple[float, float]:
    """SQNR in dB of the block's other elements: as it is, and quantized without the far one.

    Of many others, evenly spaced ones and the largest, which sets the scale.
    """
    part = case.laid[tuple(slice(*span) for span in far.bounds)].reshape(-1)
    alone = int(part.abs().argmax())
    step = max(1, len(part) // ENOUGH)
    rest = torch.cat([part[:alone][::step], part[alone + 1 :][::step]])
    if step > 1:
        rest[0] = far.second
    scheme = Scheme(case.fmt, case.scheme.symmetric)
    with_it = apply(torch.cat([part[alone : alone + 1], rest]), scheme).error[1:]
    return _sqnr(rest, with_it), _sqnr(rest, apply(rest, scheme).error)


def _sqnr(x: Tensor, error: Tensor) -> float:
    power, sse = (float(t.double().square().sum()) for t in (x, error))
    return 10 * math.log10(power / sse) if power and sse else math.inf


def _codes_left(case: Case, largest: float, block: tuple[int, ...]) -> int:
    """How many codes values up to ``largest`` reach."""
    steps = round(largest / float(case.result.scale[block]))
    one_side = float(case.extremes[0].amin()) >= 0 or float(case.extremes[1].amax()) <= 0
    return min(case.fmt.available, steps + 1 if one_side else 2 * steps + 1)


def _finer(case: Case) -> Trial | None:
    """A finer granularity that gains, the cheaper ones first."""
    rank, block = len(case.shape), case.block_size
    kinds = [PerChannel(axis) for axis in range(rank) if rank > 1]
    runs = [PerGroup(size) for size in (128, 32, 16, 8) if rank and size <= case.shape[-1] and size < block]
    finer = [case.but(granularity=g) for g in (*kinds, *runs) if g != case.scheme.granularity]
    for extra_bits in (0.1, 1.5, 5):
        found = case.best(finer, BETTER_DB, case.bits + extra_bits)
        if found:
            return found
    return None


def outlier_channel(case: Case) -> Iterator[Finding]:
    """One channel, larger than all others, sets the scale that they share."""
    if not isinstance(case.scheme.range_setting, MinMax) or isinstance(case.scheme.granularity, PerFlatGroup):
        return
    for axis in range(len(case.shape)):
        channel = _loud_channel(case, axis)
        if channel is not None:
            yield _of_channel(case, axis, *channel)


def _loud_channel(case: Case, axis: int) -> tuple[int, float, float] | None:
    """A channel louder than the others that share its scale: where, its max|x|, that of the next."""
    x, n = case.result.x, case.shape[axis]
    if len(case.shape) < 2 or n < 4 or case.result.block[axis] < n or x.numel() // n < 4:
        return None
    (first, second), places = torch.topk(case.channels(axis), 2)
    part = x.select(axis, int(places[0]))
    loud = int((part.abs() > second).sum()) >= max(2, LOUD * part.numel())
    return (
        (int(places[0]), float(first), float(second))
        if second > 0 and first > FAR * second and loud
        else None
    )


def _of_channel(case: Case, axis: int, at: int, first: float, second: float) -> Finding:
    name = ("Row", "Column")[axis] if len(case.shape) == 2 else f"Index {at} of axis {axis}"
    name += f" {at}" if len(case.shape) == 2 else ""
    box = tuple((at, at + 1) if i == axis else (0, n) for i, n in enumerate(case.shape))
    now, without = _other_channels(case, axis, at)
    worst = tuple(int(i) for i in torch.unravel_index(case.result.scale.argmax(), case.grid))
    words = "columns" if name.startswith("Column") else "rows" if name.startswith("Row") else "indices"
    gain = (
        f" The SQNR of the other {words} is {decibels(now)}, and {decibels(without)} without it."
        if without
        else ""
    )
    return Finding(
        "outlier_channel",
        "warning",
        f"{name} reaches {number(first)}, the next largest of the {words} {number(second)}: it sets the scale, and the "
        f"others share about {_codes_left(case, second, worst)} of {case.fmt.available} codes.{gain}",
        (box,),
        **case.gained(_finer(case)),
    )


def _other_channels(case: Case, axis: int, at: int) -> tuple[float, float]:
    """SQNR in dB of the other channels: as it is, and quantized without the loud one.

    Of many elements, evenly spaced channels and the loudest of the others.
    """
    x, loudest = case.result.x, case.channels(axis).clone()
    loudest[at] = 0
    step = max(1, x.numel() // ENOUGH)
    some = {int(loudest.argmax()), *range(0, case.shape[axis], step)} - {at}
    keep = torch.tensor(sorted(some), device=x.device)
    rest = x.index_select(axis, keep)
    now = _sqnr(rest, case.result.error.index_select(axis, keep))
    try:
        return now, _sqnr(rest, apply(rest, case.scheme).error)
    except QuantError:  # the granularity does not fit what is left
        return now, _sqnr(rest, apply(rest, Scheme(case.fmt, case.scheme.symmetric)).error)
