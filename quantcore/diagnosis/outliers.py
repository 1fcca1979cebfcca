"""Outliers that set a scale: one or a few channels, or one element."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantcore.analysis import decibels, sqnr_of, squares_among
from quantcore.diagnosis.context import Alternative, Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import MAX_BOXES, Box, Finding, cell, channels, index, number
from quantcore.granularity import PerChannel, PerFlatGroup, PerGroup, split_axes
from quantcore.numerics import CHUNK
from quantcore.quantization import apply_quietly
from quantcore.tensors import Generated
from quantcore.wording import count

FAR = 4.0  # an outlier is this many times the next largest element: the others lose two bits of precision
FAR_CHANNEL = 3.0  # a channel has many elements, so less is enough
FEW = 16  # among fewer elements a large one is more likely by chance, so it must be larger
OTHERS = 3  # at least this many other nonzero elements share the scale
BETTER_DB = 3.0
CONCERNED = 1 / 16  # at least this fraction of the tensor is in blocks with an outlier
EXCEED = 0.25  # this fraction of an outlier channel's elements, plus one, must exceed all other channels
SOME = 4  # one in this many channels can be an outlier: two of 8
LOOK_AT = 64  # blocks with a large element that are checked, at most


class _Channels(NamedTuple):
    """Outliers among channels ``start..stop``, which share scales; max |x| of these and of the others."""

    start: int
    stop: int
    places: list[int]
    first: float
    second: float
    next_place: int


@kind(
    FindingExample("One column sets the scale", Generated("outlier_channel", (16, 16)), "int8 symmetric"),
    ("granularity", "tensor"),
    finite=True,
)
def outlier_channel(context: Context) -> Iterator[Finding]:
    """Find one or a few channels, much larger than the others, that set the scale that all share."""
    setting, is_flat = context.scheme.range_setting, isinstance(context.scheme.granularity, PerFlatGroup)
    if is_flat or not (setting.ends_are_elements or setting.searches_codes):
        return
    for axis in range(len(context.shape)):
        found = _outlier_channels(context, axis)
        if found:
            yield from _channel_finding(context, axis, found)


def _outlier_channels(context: Context, axis: int) -> list[_Channels]:
    """Return the outlier channels of every run of channels that share scales."""
    n = context.shape[axis]
    width = min(context.result.block[axis], n)
    if len(context.shape) < 2 or width < 2 or context.x_blocked.numel() < 2 * n:
        return []
    sizes = torch.nn.functional.pad(context.channels(axis), (0, -n % width)).reshape(-1, width)
    sizes, order = sizes.sort(dim=1, descending=True, stable=True)
    most = max(1, width // SOME)
    ratios = torch.where(sizes[:, 1:] > 0, sizes[:, :-1] / sizes[:, 1:], 0.0)[:, :most]
    ratio, last = ratios.max(dim=1)
    shared = context.x_blocked.numel() // n * width  # elements of a run
    runs = (ratio > FAR_CHANNEL * (1 + FEW / 2 / shared)).nonzero()[:, 0].tolist()
    found = [
        _run(context, axis, run * width, int(last[run]), sizes[run], order[run]) for run in runs[:LOOK_AT]
    ]
    confirmed = [channels for channels in found if channels]
    fraction = len(runs) * len(confirmed) / max(1, len(found)) * width / n
    return sorted(confirmed, key=lambda c: c.second / c.first) if fraction >= CONCERNED else []


def _run(
    context: Context, axis: int, start: int, last: int, sizes: Tensor, order: Tensor
) -> _Channels | None:
    """Return the outlier channels of a run, if enough of their elements exceed all others."""
    x, n = context.result.x, context.shape[axis]
    chosen = start + order[: last + 1]
    parts = x.index_select(axis, chosen).movedim(axis, 0).reshape(last + 1, -1).abs()
    exceed = (parts > sizes[last + 1]).sum(1)
    if int(exceed.amin()) < max(2.0, EXCEED * parts.shape[1] + 1):
        return None
    stop = min(n, start + min(context.result.block[axis], n))
    places = sorted(chosen.tolist())
    first, second = float(sizes[0]), float(sizes[last + 1])
    return _Channels(start, stop, places, first, second, start + int(order[last + 1]))


def _channel_finding(context: Context, axis: int, found: list[_Channels]) -> Iterator[Finding]:
    worst, rank = found[0], len(context.shape)
    now, without = _other_channels(context, axis, worst)
    if not without >= now + BETTER_DB:
        return
    boxes = [
        tuple((place, place + 1) if i == axis else (0, n) for i, n in enumerate(context.shape))
        for run in found
        for place in run.places
    ]
    many = len(worst.places) > 1
    run = "" if worst.stop - worst.start == context.shape[axis] else f" among {worst.start}–{worst.stop - 1}"
    again = f" {count(len(found), 'run')} of channels have outlier channels." if len(found) > 1 else ""
    yield outlier_channel.finding(
        f"{channels(rank, axis, worst.places)} (max |x| {number(worst.first)}) set{'' if many else 's'} the "
        f"scale of the others{run} (max |x| {number(worst.second)}). SQNR of the others: {decibels(now)} "
        f"with {'them' if many else 'it'}, {decibels(without)} without.{again}",
        tuple(boxes[:MAX_BOXES]),
        **context.fixed_by(_finer(context)),
        facts={
            "axis": axis,
            "channels": tuple(worst.places),
            "first": worst.first,
            "second": worst.second,
            "among": (worst.start, worst.stop),
            "sqnr_with": now,
            "sqnr_without": without,
            "runs": len(found),
        },
    )


def _other_channels(context: Context, axis: int, run: _Channels) -> tuple[float, float]:
    """Return the SQNR in dB of the other channels: with the outliers, and with the next largest instead."""
    x = context.result.x
    without_outliers = x.clone()
    for place in run.places:
        without_outliers.select(axis, place).copy_(x.select(axis, run.next_place))
    others = torch.zeros(x.shape[axis], dtype=torch.bool, device=x.device)
    others[run.start : run.stop] = True
    others[run.places] = False
    others = others.reshape([-1] + [1] * (x.dim() - axis - 1)).expand(x.shape)
    return _sqnrs(context, without_outliers, others)


class _Far(NamedTuple):
    """An element much larger than others of its block: its index, and |x| and value of the next largest."""

    place: tuple[int, ...]
    second: float
    next_value: float
    bounds: Box


@kind(
    FindingExample("One element sets the scale", Generated("outlier_element", (16, 16)), "int8 symmetric"),
    ("granularity", "groups"),
    finite=True,
)
def outlier_element(context: Context) -> Iterator[Finding]:
    """Find one element of a block, much larger than all others, that sets the scale."""
    if not (context.scheme.range_setting.ends_are_elements or context.scheme.range_setting.searches_codes):
        return
    alone = _blocks_with_far_element(context)
    looked = alone[:LOOK_AT].tolist()
    found = [far for place in looked if (far := _far_element(context, tuple(place)))]
    if (
        not found
        or len(alone) * len(found) / len(looked) * context.block_size < CONCERNED * context.x_blocked.numel()
    ):
        return
    found.sort(key=lambda f: -abs(float(context.result.x[f.place])))
    far = found[0]
    now, without = _others_of_block(context, far)
    if not without >= now + BETTER_DB:
        return
    value = float(context.result.x[far.place])
    blocks = (
        f"{'At least ' if len(alone) > LOOK_AT else ''}{count(len(found), 'block')} have such an outlier."
    )
    yield outlier_element.finding(
        f"Outlier {number(value)} at {index(far.place)} sets the scale; the next largest |x| is "
        f"{number(far.second)}. SQNR of the others: {decibels(now)} with it, {decibels(without)} without."
        + f" {blocks}"
        * (len(found) > 1),
        tuple(cell(f.place) for f in found),
        **context.fixed_by(_finer(context)),
        facts={
            "value": value,
            "at": far.place,
            "second": far.second,
            "sqnr_with": now,
            "sqnr_without": without,
            "blocks": len(found),
            "at_least": len(alone) > LOOK_AT,
        },
    )


def _blocks_with_far_element(context: Context) -> Tensor:
    """Return positions of blocks in which one element is at least `FAR` times as large as all others."""
    far = FAR * max(1.0, FEW / context.block_size)
    above = torch.zeros(context.grid, dtype=torch.int64, device=context.x_blocked.device)
    for region in context.result.blocks.regions(CHUNK):
        values = split_axes(context.x_blocked[region.elements], region.block).abs()
        limit = context.largest[region.grid] / far
        near = values > limit.reshape([n for g in limit.shape for n in (g, 1)])
        inner = tuple(range(1, values.dim(), 2))
        above[region.grid] += near.sum(inner) if inner else near
    return (above == 1).nonzero()  # in a block of zeros no element is above the limit


def _far_element(context: Context, block: tuple[int, ...]) -> _Far | None:
    bounds = context.result.blocks.bounds(block)
    part = context.x_blocked[tuple(slice(*span) for span in bounds)]
    sizes = part.abs().reshape(-1)
    if int(sizes.count_nonzero()) <= OTHERS:
        return None
    at = int(sizes.argmax())
    sizes[at] = 0
    inside = np.unravel_index(at, part.shape)
    blocked = [int(i) + start for i, (start, _) in zip(inside, bounds, strict=True)]
    flat = int(np.ravel_multi_index(blocked, context.result.blocked_shape))
    next_value = float(part.reshape(-1)[int(sizes.argmax())])
    return _Far(context.element(flat), abs(next_value), next_value, bounds)


def _others_of_block(context: Context, far: _Far) -> tuple[float, float]:
    """Return the SQNR in dB of the other elements: with the outlier, and with the next largest instead."""
    x = context.result.x
    without_outliers = x.clone()
    without_outliers[far.place] = far.next_value
    others = torch.zeros(context.result.blocked_shape, dtype=torch.bool, device=x.device)
    others[tuple(slice(*span) for span in far.bounds)] = True
    others = others.reshape(x.shape)
    others[far.place] = False
    return _sqnrs(context, without_outliers, others)


def _sqnrs(context: Context, without_outliers: Tensor, others: Tensor) -> tuple[float, float]:
    """Return the SQNR in dB of the others: of the result, and of the same scheme without the outliers."""
    power, before = squares_among(context.result, others)
    after = squares_among(apply_quietly(without_outliers, context.scheme), others)[1]
    return sqnr_of(power, before), sqnr_of(power, after)


def _finer(context: Context) -> Alternative | None:
    """Return a finer granularity that gains enough; cheaper ones are tried first."""
    rank, block = len(context.shape), context.block_size
    kinds = [PerChannel(axis) for axis in range(rank) if rank > 1]
    runs = [
        PerGroup(size) for size in (128, 32, 16, 8) if rank and size <= context.shape[-1] and size < block
    ]
    finer = [context.changed(granularity=g) for g in (*kinds, *runs) if g != context.scheme.granularity]
    for extra_bits in (0.1, 1.5, 5):
        found = context.best(finer, BETTER_DB, context.bits + extra_bits)
        if found:
            return found
    return None
