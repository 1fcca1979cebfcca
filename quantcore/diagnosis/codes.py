"""Wrong codes: wrapped around, clipped by a zero point, or lost below 0."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS, TEXTBOOK, middle_of
from quantcore.diagnosis.blocks import boxes_of
from quantcore.diagnosis.context import BETTER_DB, Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import MAX_BOXES, Finding, Gain, cell, index, number, percent
from quantcore.formats import FloatFormat, IntFormat
from quantcore.granularity import Region, cells_of
from quantcore.numerics import CHUNK
from quantcore.quantization import unclamped
from quantcore.range_setting import MIN_MAX, Fixed, MinMax, Percentile
from quantcore.scheme import Scheme
from quantcore.tensors import Generated
from quantcore.wording import count

_EXERCISE = """-0.687, 0.2607, -0.7718, 0.0841
0.6558, -1.1711, -1.0713, 0.2405
1.4967, -0.6928, 0.7961, -1.4614
0.5689, -0.5227, -1.3111, -0.8343"""
_NO_ZERO_POINT = dict.fromkeys(("float", "codebook"), "the format has no zero point")


def outside(context: Context) -> list[tuple[tuple[int, ...], float]]:
    """Return the first elements whose code did not fit the format: index in x, and the code before the clamp.

    The worst element of the tensor comes first, if it is one of them.
    """
    least, most = context.scheme.format.bounds
    found: list[tuple[tuple[int, ...], float]] = []
    for region, work in unclamped(context.result.x, context.result.params, context.result.computed):
        values = work.reshape(-1)
        for i in ((values < least) | (values > most)).nonzero()[: MAX_BOXES - len(found), 0].tolist():
            found.append((_place(context, region, i), float(values[i])))
        if len(found) >= MAX_BOXES:
            break
    worst = context.report.max_abs_error_index
    return sorted(found, key=lambda pair: pair[0] != worst)


def _place(context: Context, region: Region, flat: int) -> tuple[int, ...]:
    """Return the index in x of an element of a box of the blocked shape."""
    inside = np.unravel_index(flat, [e.stop - e.start for e in region.elements]) if region.elements else ()
    blocked = [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)]
    return (
        context.element(int(np.ravel_multi_index(blocked, context.result.blocked_shape))) if blocked else ()
    )


@kind(
    FindingExample("Codes that wrap around", _EXERCISE, "int8 given(0.0116) textbook(overflow=wrap)"),
    ("mistakes", "cast-without-clamp"),
    impossible={
        "float": "overflow saturates, or gives infinity or NaN, which `nan` reports",
        "codebook": "a number beyond the table takes the outermost value",
    },
    severity="error",
)
def wrapped(context: Context) -> Iterator[Finding]:
    """Find codes that overflowed and wrapped around."""
    if context.scheme.convention.coding.overflow != "wrap" or not context.report.clipped:
        return
    cells = outside(context)
    at, before = cells[0]
    fmt, after = context.fmt, int(context.result.codes[at])
    saturate = context.scheme.convention.changed(overflow="saturate")
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    fixes = [context.changed(convention=saturate), context.changed(convention=saturate, format=other)]
    fixes += [context.changed(convention=saturate, range_setting=MIN_MAX)]
    n = context.report.clipped
    yield wrapped.finding(
        f"{count(n, 'code')} {'does' if n == 1 else 'do'} not fit {fmt} ({fmt.qmin}..{fmt.qmax}) and "
        f"silently wrapped around: {before:.0f} became {after} at {index(at)}.",
        tuple(cell(place) for place, _ in cells),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
        facts={"codes": n, "at": at, "before": before, "after": after},
    )


@kind(
    FindingExample("A zero point that is not a code", "1, 2.5, 3, 4.5, 5", "int8 given(0.1, zero_point=128)"),
    ("zero_point", "zero"),
    impossible={
        "float zero_point": "any finite zero point can be stored",
        "min": "a minimum is not a code",
        **_NO_ZERO_POINT,
    },
    severity="error",
)
def zero_point_outside(context: Context) -> Iterator[Finding]:
    """Find a given zero point that is not a code of the format."""
    fmt, zero_point = context.fmt, context.zero_point
    if not context.scheme.range_setting.gives_parameters:
        return
    bad = (zero_point < fmt.qmin) | (zero_point > fmt.qmax)
    if not bad.any():
        return
    z = int(zero_point[bad][0])
    nearest = fmt.qmin if z < fmt.qmin else fmt.qmax
    value = (nearest - z) * _at_first(context.result.scale, bad)
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    fixes = [context.changed(format=other), context.changed(range_setting=MIN_MAX, symmetric=False)]
    yield zero_point_outside.finding(
        f"The zero point {z} is not {'an' if fmt.signed else 'a'} {fmt} code ({fmt.qmin}..{fmt.qmax}): "
        f"it can't be stored, and the nearest code, {nearest}, dequantizes to {number(value)}.",
        boxes_of(context, bad),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
        facts={"zero_point": z, "nearest": nearest, "value": value, "blocks": int(bad.sum())},
    )


@kind(
    FindingExample(
        "A range without 0", "-6, -5.9, -5.7, -5.4\n-5.8, -5.5, -5.2, -5", "uint8 asymmetric brevitas"
    ),
    ("zero_point", "zero"),
    impossible={
        "float zero_point": "a float zero point is not clamped to the codes",
        "min": "a minimum is not clamped to the codes",
        **_NO_ZERO_POINT,
    },
    finite=True,
    severity="error",
)
def zero_point_clamped(context: Context) -> Iterator[Finding]:
    """Find a range that excludes 0, whose zero point was clamped: the codes cover another range."""
    fmt, params = context.fmt, context.result.params
    if (
        params.low is None
        or params.high is None
        or context.scheme.symmetric
        or params.zero_point.is_floating_point()
    ):
        return
    scale = params.scale if params.raw is None else params.raw  # as the zero point was computed
    wanted = fmt.qmin - params.low.double() / scale.double()
    # next to 0, a range that contains it may have a scale so coarse that its zero point is clamped, too
    clamped = ((wanted - params.zero_point).abs() > 1.5) & ((params.low > 0) | (params.high < 0))
    if not clamped.any():
        return
    place = tuple(int(i) for i in clamped.nonzero()[0])
    low, high, n = float(params.low[place]), float(params.high[place]), context.report.clipped
    yield zero_point_clamped.finding(
        f"The range {number(low)}..{number(high)} excludes 0: its zero point would be "
        f"{float(wanted[place]):.0f} but is clamped to {int(params.zero_point[place])}, so "
        f"{count(n, 'element')} {'is' if n == 1 else 'are'} clipped.",
        boxes_of(context, clamped),
        **context.fixed_by(context.best([context.changed(symmetric=True), context.as_textbook], BETTER_DB)),
        facts={"low": low, "high": high, "wanted": float(wanted[place]),
               "zero_point": int(params.zero_point[place]), "clipped": n, "blocks": int(clamped.sum())},
    )  # fmt: skip


@kind(
    FindingExample(
        "Zeros that are not dequantized to 0",
        Generated("sparse", (16, 16), parameters=(("density", 0.3),)),
        "uint4 asymmetric per_channel(0) hqq",
    ),
    ("zero_point", "zero"),
)
def zero_not_exact(context: Context) -> Iterator[Finding]:
    """Find that 0, which is frequent after padding, ReLU and pruning, is not dequantized exactly."""
    fmt, params = context.scheme.format, context.result.params
    exact = not params.zero_point.is_floating_point() if isinstance(fmt, IntFormat) else 0.0 in context.values
    moved = params.center is not None or context.scheme.rules.coding.zero_replacement
    # the code of 0 is an integer zero point; one outside the format is reported by `zero_point_outside`
    if exact and not moved:
        return
    zeros, worst, places = _inexact_zeros(context)
    if not zeros:
        return
    why = "no code represents 0 there"
    if params.center is not None:
        why = f"the mean, {number(float(params.center))}, is subtracted first and added back last"
    elif exact:
        why = f"{context.scheme.convention.library} stores another value instead of 0"
    yield zero_not_exact.finding(
        f"{count(zeros, 'element')} ({percent(zeros / context.result.x.numel())}) "
        f"{'is' if zeros == 1 else 'are'} exactly 0 but {'dequantizes' if zeros == 1 else 'dequantize'} to "
        f"|x̂| up to {number(worst)}: {why}.",
        tuple(cell(context.element(i)) for i in places),
        **_exact_at_zero(context, worst),
        facts={"elements": zeros, "worst": worst}
        | ({} if params.center is None else {"mean": float(params.center)}),
    )


def _inexact_zeros(context: Context) -> tuple[int, float, list[int]]:
    """Return how many zeros become another number, the largest |x̂| of them, and where the first are."""
    x, many, worst, places = context.result.x.reshape(-1), 0, 0.0, list[int]()
    if not (x == 0).any():  # x̂ takes as much memory as x
        return many, worst, places
    x_hat = context.result.dequantized.reshape(-1)
    for start in range(0, x.numel(), CHUNK):
        own = x_hat[start : start + CHUNK]
        wrong = (x[start : start + CHUNK] == 0) & (own != 0) & own.isfinite()
        if wrong.any():
            many, worst = many + int(wrong.sum()), max(worst, float(own[wrong].abs().amax()))
            places += (wrong.nonzero()[: MAX_BOXES - len(places), 0] + start).tolist()
    return many, worst, places


def _exact_at_zero(context: Context, before: float) -> dict[str, Any]:
    """Return the first scheme that represents 0 exactly and keeps the SQNR within 1 dB."""
    for scheme in _with_exact_zero(context):
        trial = context.trial(scheme)
        if trial and trial.sqnr_db >= context.report.sqnr_db - 1:
            return {"fix": scheme, "gain": Gain("error at 0", before, 0.0)}
    return {}


def _with_exact_zero(context: Context) -> list[Scheme]:
    """Return schemes of about the same storage with a code for 0; integers, if a table has none."""
    fmt, setting, name = context.scheme.format, context.scheme.range_setting, context.scheme.convention.name
    if isinstance(fmt, IntFormat):
        rounded = CONVENTIONS.get(f"{name}.round_zero")
        return [context.changed(convention=c) for c in (rounded, TEXTBOOK) if c]
    setting = setting if isinstance(setting, MinMax | Percentile | Fixed) else MIN_MAX
    return [context.changed(format=IntFormat(max(2, fmt.bits)), convention=TEXTBOOK, range_setting=setting)]


@kind(
    FindingExample(
        "Unsigned codes for negative numbers",
        Generated("normal", (8, 8)),
        "uint8 symmetric aimet.2024.Quantize",
    ),
    ("mistakes", "negatives-lost"),
    severity="error",
)
def negatives_lost(context: Context) -> Iterator[Finding]:
    """Find that the lowest value is 0 or more: everything below 0 is lost."""
    fmt, setting = context.scheme.format, context.scheme.range_setting
    chosen = context.scheme.symmetric or setting.gives_parameters
    nan = isinstance(fmt, FloatFormat) and fmt.sign == "nan"  # reported by `nan`
    if not chosen or nan or context.scheme.convention.coding.overflow == "wrap":
        return
    lowest, step = _lowest_values(context)
    if context.result.params.center is not None:  # added last, also to the lowest value
        lowest = lowest + context.result.params.center
    if not (lowest >= 0).any():
        return
    low = context.extremes[0]
    lost = (lowest >= 0) & (step > 0) & (low.double() < -0.5 * step.double())  # half a subnormal is rounded
    if not lost.any():
        return
    cells = [at for at, _ in outside(context) if context.result.x[at] < 0]
    n = int(
        ((context.x_blocked < 0) & cells_of(lost, context.result.blocked_shape, context.result.block)).sum()
    )
    least = float(low[lost].amin())
    becomes = f"{'it becomes' if n == 1 else 'all become'} {number(_at_first(lowest, lost))}"
    if isinstance(fmt, FloatFormat):
        becomes = f"{'it loses its' if n == 1 else 'they lose their'} sign"
    elif bool((lowest[lost] != _at_first(lowest, lost)).any()):
        becomes = "they become the lowest value of their block"
    which, zero_point = "", context.result.params.zero_point
    if fmt.has_zero_point:
        name = "min" if context.scheme.rules.zero_point.is_min else "zero point"
        which = f" with {name} {number(_at_first(zero_point, lost))}"
    yield negatives_lost.finding(
        f"{count(n, 'element')} {'is' if n == 1 else 'are'} negative, down to {number(least)}, but "
        f"{fmt}{which} has no code for values below 0: {becomes}.",
        tuple(cell(at) for at in cells),
        **context.fixed_by(context.best(_with_negatives(context), BETTER_DB)),
        facts={
            "elements": n,
            "lowest": least,
            "becomes": _at_first(lowest, lost),
            "zero_point": _at_first(zero_point, lost),
        },
    )


def _lowest_values(context: Context) -> tuple[Tensor, Tensor]:
    """Return the lowest value of each block's codes, and its distance to the next; in block form, float32."""
    fmt, scale = context.scheme.format, context.result.scale
    zero_point = context.result.params.zero_point.to(scale.dtype)
    if not isinstance(fmt, IntFormat):
        values = context.values
        # a negative scale turns the table around
        lowest, second = (torch.where(scale < 0, values[-1 - i], values[i]) * scale for i in (0, 1))
        return lowest, second - lowest
    rules = context.scheme.rules.zero_point
    if rules.is_value:
        middle = middle_of(fmt) if rules.is_middle else 0.0
        ends = (fmt.qmin - middle) * scale + zero_point, (fmt.qmax - middle) * scale + zero_point
    else:
        ends = (fmt.qmin - zero_point) * scale, (fmt.qmax - zero_point) * scale
    return torch.minimum(*ends), scale.abs()


def _with_negatives(context: Context) -> list[Scheme]:
    """Return schemes of the same bits with codes for negative numbers."""
    fmt = context.scheme.format
    other = IntFormat(max(2, fmt.bits), True, fmt.narrow)
    fixes = [context.changed(format=other)] if fmt.has_zero_point and not fmt.signed else []
    fixes += [context.changed(symmetric=False, range_setting=MIN_MAX)] if fmt.has_zero_point else []
    fixes.append(context.changed(format=other, range_setting=MIN_MAX))
    return [*fixes, context.changed(format=other, range_setting=MIN_MAX, convention=TEXTBOOK, symmetric=True)]


def _at_first(values: Tensor, mask: Tensor) -> float:
    return float(values[mask][0])
