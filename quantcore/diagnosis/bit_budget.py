"""Bits that could be spent better: granularity, groups, bit width; and ties, on which libraries differ."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.analysis import decibels
from quantcore.diagnosis.context import Case
from quantcore.diagnosis.formatting import along, count, index, number, percent
from quantcore.diagnosis.record import MAX_BOXES, Finding, Gain, cell
from quantcore.formats import MAX_BITS, MIN_BITS, IntFormat
from quantcore.granularity import PerBlock, PerChannel, PerFlatGroup, PerGroup, PerTensor
from quantcore.notation import write_call
from quantcore.numerics import KERNELS, half_even
from quantcore.scheme import Scheme

CHANNEL_DB = 6.0  # a scale per channel gains at least this …
CHANNEL_STORAGE = 1.01  # … for at most so many times the storage
SMALL_GROUP = 8  # elements: a scale of 32 bits costs 4 bits per element or more
GROUP_DB = 3.0
USUAL_BITS = (2, 4, 8, 16)  # widths that libraries store; others are proposed where these don't help
SAME_DB = 0.5  # what a narrower format may lose
ROUNDED_DB = 130.0  # beyond this, what is lost is float32's own rounding
TIES = 0.01  # of the elements
BIT_DB = 6.02
_HALVES = ("half_even", "half_away", "half_up")  # the roundings to the nearest, which have a rule for halves


def per_channel(case: Case) -> Iterator[Finding]:
    """One scale for the tensor, where one per channel would gain much and cost almost nothing."""
    if not isinstance(case.scheme.granularity, PerTensor) or len(case.shape) < 2:
        return
    axes = [axis for axis in range(len(case.shape)) if _estimated_gain(case, axis) > CHANNEL_DB - 1.5]
    schemes = [case.but(granularity=PerChannel(axis)) for axis in axes]
    best = case.best(schemes, CHANNEL_DB, CHANNEL_STORAGE * case.bits)
    if best is None or not isinstance(best.scheme.granularity, PerChannel):
        return
    axis = best.scheme.granularity.axis
    gain, more = best.sqnr_db - case.report.sqnr_db, best.bits_per_element / case.bits - 1
    yield Finding(
        "per_channel",
        "warning",
        f"One scale serves all; one per {along(len(case.shape), axis)}, {case.shape[axis]:,} in all, gains {decibels(gain)} "
        f"for {percent(more)} more storage.",
        **case.gained(best),
    )


def _estimated_gain(case: Case, axis: int) -> float:
    """What the steps alone tell: the mean squared step of the channels against the tensor's, in dB."""
    largest = case.channels(axis).double()
    if not largest.any() or CHANNEL_STORAGE * case.bits * case.laid.numel() < 32 * len(largest):
        return 0.0
    return float(10 * torch.log10(largest.amax().square() / largest.square().mean()))


def small_groups(case: Case) -> Iterator[Finding]:
    """Groups so small that the bits of their scales would gain more as bits of the codes."""
    if not isinstance(case.scheme.granularity, PerGroup | PerFlatGroup | PerBlock):
        return
    if case.block_size > SMALL_GROUP or case.laid.numel() <= 2 * SMALL_GROUP:
        return
    wider = list(_wider(case))
    usual = [scheme for scheme in wider if scheme.format.bits in USUAL_BITS]
    best = case.best(usual, GROUP_DB, case.bits) or case.best(wider, GROUP_DB, case.bits)
    if best is None:
        return
    overhead = case.bits - case.fmt.bits
    yield Finding(
        "small_groups",
        "warning",
        f"With {count(case.block_size, 'element')} per scale, scales cost {number(overhead)} bits per element beside "
        f"{case.fmt.bits} for codes. {best.scheme.format} {write_call(best.scheme.granularity)} takes "
        f"{number(best.bits_per_element)} in all and gains {decibels(best.sqnr_db - case.report.sqnr_db)}.",
        **case.gained(best),
    )


def _wider(case: Case) -> Iterator[Scheme]:
    """Larger groups with as many more bits as the scales leave, at no more storage."""
    granularity, fmt, shape = case.scheme.granularity, case.fmt, case.shape
    axis = granularity.axis if isinstance(granularity, PerGroup) else -1
    sizes = [size for size in (16, 32, 64, 128) if case.block_size < size <= shape[axis]]
    others = [PerGroup(size, axis) for size in sizes]
    per_block = case.bits * case.block_size - fmt.bits * case.block_size  # bits of scale and zero point
    for size, other in zip(sizes, others, strict=True):
        room = int(case.bits - per_block / size)
        for bits in {b for b in (8, 16, room) if fmt.bits < b <= min(room, MAX_BITS)}:
            yield case.but(format=IntFormat(bits, fmt.signed, fmt.narrow), granularity=other)
        yield case.but(granularity=other)
    yield from (case.but(granularity=PerTensor(), format=IntFormat(b, fmt.signed, fmt.narrow))
                for b in (8, 16) if fmt.bits < b <= case.bits)  # fmt: skip


def spare_bits(case: Case) -> Iterator[Finding]:
    """More bits than the values need: fewer are as good."""
    report = case.report
    usual = BIT_DB * case.fmt.bits + 24  # no tensor whose values spread over a step comes so near
    if report.clipped or report.sqnr_db < usual or not case.largest.any():
        return
    best = None
    for bits in range(case.fmt.bits - 1, MIN_BITS - 1, -1):
        trial = case.tried(case.but(format=IntFormat(bits, case.fmt.signed, case.fmt.narrow)))
        if trial and trial.sqnr_db >= min(report.sqnr_db - SAME_DB, ROUNDED_DB):
            best = trial
    if best is None:
        return
    yield Finding(
        "spare_bits",
        "note",
        f"x needs only {count(report.codes_used, 'code')}: {count(best.scheme.format.bits, 'bit')} instead of {case.fmt.bits} "
        f"are enough. SQNR now: {decibels(report.sqnr_db)}; then: {decibels(best.sqnr_db)}.",
        mended=best.scheme,
        gain=Gain("bits per element", case.bits, best.bits_per_element),
    )


def ties(case: Case) -> Iterator[Finding]:
    """Elements halfway between two codes: the rounding rule and the order of operations decide."""
    rule = case.scheme.rules.coding.rounding
    if rule not in _HALVES:
        return
    x, blocks = case.sample
    scale, zero_point = (
        t[blocks].to(torch.float32).expand_as(x) for t in (case.result.scale, case.zero_point)
    )
    half = (x / scale).sub_((x / scale).floor()) == 0.5
    within = _codes(x, scale, zero_point, case, "A") == _unclamped(x, scale, zero_point, "A")
    tie = half & within
    n = int(tie.sum())
    if n < TIES * len(x) or not n:
        return
    codes = case.result.codes.reshape(-1)[case.places][tie].double()
    steps, ratio = codes - zero_point[tie], (x / scale)[tie].double()
    others = [name for name, differs in (("rules", _rules_differ(steps, ratio)),
                                         ("orders of operations", _differing(x, scale, zero_point, case))) if differs]  # fmt: skip
    if not others:
        return
    every = len(x) == case.laid.numel()
    what = count(n, "element") if every else f"About {percent(n / len(x))} of the elements"
    cells = [cell(case.element(int(i))) for i in tie.nonzero()[:MAX_BOXES, 0]] if every else []
    first = f", such as {index(tuple(a for a, _ in cells[0]))}," if cells else ""
    one = n == 1 and every
    yield Finding(
        "ties",
        "note",
        f"{what}{first} {'is' if one else 'are'} exactly halfway between two codes and {'goes' if one else 'go'} "
        f"{_way(rule, codes, steps, ratio)}; other {' or '.join(others)} give other integers.",
        tuple(cells),
    )


def _way(rule: str, codes: Tensor, steps: Tensor, ratio: Tensor) -> str:
    """Where the halves went: by the convention's rule, or as the codes tell where the order of operations moved them."""
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
    """Whether another rule for halves gives another integer."""
    away = ratio.sign() * (ratio.abs() + 0.5).floor()
    return any(bool((other != steps).any()) for other in (ratio.round(), away, (ratio + 0.5).floor()))


def _unclamped(x: Tensor, scale: Tensor, zero_point: Tensor, kernel: str) -> Tensor:
    run = KERNELS[kernel]
    return run.run(
        x, torch.reciprocal(scale) if run.inverse else scale, zero_point, torch.empty_like(x), half_even
    )


def _codes(x: Tensor, scale: Tensor, zero_point: Tensor, case: Case, kernel: str) -> Tensor:
    return _unclamped(x, scale, zero_point, kernel).clamp_(case.fmt.qmin, case.fmt.qmax)


def _differing(x: Tensor, scale: Tensor, zero_point: Tensor, case: Case) -> bool:
    """Whether an element gets another code from another kernel."""
    first = _codes(x, scale, zero_point, case, "A")
    others = [_codes(x, scale, zero_point, case, kernel) != first for kernel in "BCD"]
    return bool(torch.stack(others).any())
