"""Bits that could be spent better: granularity, groups, bit width; and ties, which libraries round differently."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.analysis import decibels, sqnr_of
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.formatting import along, gains, index, number, percent
from quantcore.diagnosis.record import MAX_BOXES, Finding, Gain, cell
from quantcore.formats import MAX_BITS, MIN_BITS, IntFormat
from quantcore.granularity import PerBlock, PerChannel, PerFlatGroup, PerGroup, PerTensor
from quantcore.notation import write_call
from quantcore.numerics import KERNELS, half_even
from quantcore.scheme import Scheme
from quantcore.wording import count

CHANNEL_DB = 6.0  # a scale per channel must gain at least this …
CHANNEL_STORAGE = 1.01  # … with at most this many times the storage
SMALL_GROUP = 8  # elements: a scale of 32 bits costs 4 bits per element or more
GROUP_DB = 3.0
USUAL_BITS = (2, 4, 8, 16)  # widths that libraries store; other widths are proposed only if these do not help
SAME_DB = 0.5  # a narrower format may lose this much
ROUNDED_DB = 130.0  # beyond this the error is float32 rounding
TIES = 0.01  # at least this fraction of the elements are ties
BIT_DB = 6.02
_HALVES = ("half_even", "half_away", "half_up")  # rules that round to the nearest and differ in ties


def per_channel(context: Context) -> Iterator[Finding]:
    """One scale for the tensor, although one per channel would gain much and cost almost nothing."""
    if not isinstance(context.scheme.granularity, PerTensor) or len(context.shape) < 2:
        return
    axes = [axis for axis in range(len(context.shape)) if _estimated_gain(context, axis) > CHANNEL_DB - 1.5]
    schemes = [context.changed(granularity=PerChannel(axis)) for axis in axes]
    best = context.best(schemes, CHANNEL_DB, CHANNEL_STORAGE * context.bits)
    if best is None or not isinstance(best.scheme.granularity, PerChannel):
        return
    axis = best.scheme.granularity.axis
    more = best.bits_per_element / context.bits - 1
    yield Finding(
        "per_channel",
        "warning",
        f"All elements share one scale. One per {along(len(context.shape), axis)}, {context.shape[axis]:,} in all, "
        f"{gains(context.report.sqnr_db, best.sqnr_db)} for {percent(more)} more storage.",
        **context.fixed_by(best),
    )


def _estimated_gain(context: Context, axis: int) -> float:
    """A gain in dB estimated from the steps alone: the tensor's squared step over the channels' mean squared step."""
    largest = context.channels(axis).double()
    if not largest.any() or CHANNEL_STORAGE * context.bits * context.x_blocked.numel() < 32 * len(largest):
        return 0.0
    return sqnr_of(float(largest.amax().square()), float(largest.square().mean()))


def small_groups(context: Context) -> Iterator[Finding]:
    """Groups so small that the storage of their scales would gain more as bits of the codes."""
    if not isinstance(context.scheme.granularity, PerGroup | PerFlatGroup | PerBlock):
        return
    if context.block_size > SMALL_GROUP or context.x_blocked.numel() <= 2 * SMALL_GROUP:
        return
    wider = list(_wider(context))
    usual = [scheme for scheme in wider if scheme.format.bits in USUAL_BITS]
    best = context.best(usual, GROUP_DB, context.bits) or context.best(wider, GROUP_DB, context.bits)
    if best is None:
        return
    overhead = context.bits - context.fmt.bits
    yield Finding(
        "small_groups",
        "warning",
        f"With {count(context.block_size, 'element')} per scale, scales {'' if context.scheme.symmetric else 'and zero points '}"
        f"cost {number(overhead)} bits per element on top of {context.fmt.bits} for the codes. {best.scheme.format} "
        f"{write_call(best.scheme.granularity)} takes {number(best.bits_per_element)} bits in total and "
        f"{gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
    )


def _wider(context: Context) -> Iterator[Scheme]:
    """Larger groups with more bits, within the same storage."""
    granularity, fmt, shape = context.scheme.granularity, context.fmt, context.shape
    axis = granularity.axis if isinstance(granularity, PerGroup) else -1
    sizes = [size for size in (16, 32, 64, 128) if context.block_size < size <= shape[axis]]
    others = [PerGroup(size, axis) for size in sizes]
    per_block = (
        context.bits * context.block_size - fmt.bits * context.block_size
    )  # bits of scale and zero point
    for size, other in zip(sizes, others, strict=True):
        room = int(context.bits - per_block / size)
        for bits in {b for b in (8, 16, room) if fmt.bits < b <= min(room, MAX_BITS)}:
            yield context.changed(format=IntFormat(bits, fmt.signed, fmt.narrow), granularity=other)
        yield context.changed(granularity=other)
    yield from (context.changed(granularity=PerTensor(), format=IntFormat(b, fmt.signed, fmt.narrow))
                for b in (8, 16) if fmt.bits < b <= context.bits)  # fmt: skip


def spare_bits(context: Context) -> Iterator[Finding]:
    """More bits than needed: fewer give the same quality."""
    report = context.report
    usual = BIT_DB * context.fmt.bits + 24  # values spread over a step never get this close
    if report.clipped or report.sqnr_db < usual or not context.largest.any():
        return
    best = None
    for bits in range(context.fmt.bits - 1, MIN_BITS - 1, -1):
        trial = context.trial(context.changed(format=IntFormat(bits, context.fmt.signed, context.fmt.narrow)))
        if trial and trial.sqnr_db >= min(report.sqnr_db - SAME_DB, ROUNDED_DB):
            best = trial
    if best is None:
        return
    yield Finding(
        "spare_bits",
        "note",
        f"x uses only {count(report.codes_used, 'code')}: {count(best.scheme.format.bits, 'bit')} instead of {context.fmt.bits} "
        f"are enough. SQNR: {decibels(report.sqnr_db)} with {context.fmt.bits} bits, {decibels(best.sqnr_db)} with "
        f"{best.scheme.format.bits}.",
        fix=best.scheme,
        gain=Gain("bits per element", context.bits, best.bits_per_element),
    )


def ties(context: Context) -> Iterator[Finding]:
    """Ties: elements halfway between two codes, which the rounding rule and the order of operations decide."""
    rule = context.scheme.rules.coding.rounding
    if rule not in _HALVES:
        return
    x, blocks = context.sample
    scale, zero_point = (
        t[blocks].to(torch.float32).expand_as(x) for t in (context.result.scale, context.zero_point)
    )
    half = (x / scale).sub_((x / scale).floor()) == 0.5
    within = _codes(x, scale, zero_point, context, "A") == _unclamped(x, scale, zero_point, "A")
    tie = half & within
    n = int(tie.sum())
    if n < TIES * len(x) or not n:
        return
    codes = context.result.codes.reshape(-1)[context.places][tie].double()
    steps, ratio = codes - zero_point[tie], (x / scale)[tie].double()
    others = [name for name, differs in (("rounding rules", _rules_differ(steps, ratio)),
                                         ("orders of operations", _differing(x, scale, zero_point, context))) if differs]  # fmt: skip
    if not others:
        return
    every = len(x) == context.x_blocked.numel()
    what = count(n, "element") if every else f"About {percent(n / len(x))} of the elements"
    cells = [cell(context.element(int(i))) for i in tie.nonzero()[:MAX_BOXES, 0]] if every else []
    one = n == 1 and every
    first = index(tuple(a for a, _ in cells[0])) if cells else ""
    first = f" at {first}" if one else first and f", such as {first},"
    yield Finding(
        "ties",
        "note",
        f"{what}{first} {'lies' if one else 'lie'} exactly halfway between two codes and {'is' if one else 'are'} rounded "
        f"{_way(rule, codes, steps, ratio)}; other {' or '.join(others)} give other codes.",
        tuple(cells),
    )


def _way(rule: str, codes: Tensor, steps: Tensor, ratio: Tensor) -> str:
    """How the ties were rounded: by the convention's rule, or as the codes show if the order of operations changed it."""
    ways = {
        "half_even": ("to the even multiple of the scale", steps % 2 == 0),
        "half_away": ("away from 0", steps.abs() > ratio.abs()),
        "half_up": ("up", steps > ratio),
        "even code": ("to the even code", codes % 2 == 0),
    }
    for name in (rule, *ways):
        words, so = ways[name]
        if bool(so.all()):
            return words
    return "up or down"


def _rules_differ(steps: Tensor, ratio: Tensor) -> bool:
    """Whether another rule for ties gives different codes."""
    away = ratio.sign() * (ratio.abs() + 0.5).floor()
    return any(bool((other != steps).any()) for other in (ratio.round(), away, (ratio + 0.5).floor()))


def _unclamped(x: Tensor, scale: Tensor, zero_point: Tensor, kernel: str) -> Tensor:
    run = KERNELS[kernel]
    return run.run(
        x, torch.reciprocal(scale) if run.inverse else scale, zero_point, torch.empty_like(x), half_even
    )


def _codes(x: Tensor, scale: Tensor, zero_point: Tensor, context: Context, kernel: str) -> Tensor:
    return _unclamped(x, scale, zero_point, kernel).clamp_(context.fmt.qmin, context.fmt.qmax)


def _differing(x: Tensor, scale: Tensor, zero_point: Tensor, context: Context) -> bool:
    """Whether another order of operations gives different codes."""
    first = _codes(x, scale, zero_point, context, "A")
    others = [_codes(x, scale, zero_point, context, kernel) != first for kernel in "BCD"]
    return bool(torch.stack(others).any())
