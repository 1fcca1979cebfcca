"""Wrong codes: wrapped around, clipped by a zero point, lost below 0, or computed from NaN."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.formatting import index, number, percent
from quantcore.diagnosis.record import MAX_BOXES, Box, Finding, Gain, cell
from quantcore.formats import IntFormat
from quantcore.granularity import Region, cells_of
from quantcore.quantization import unclamped
from quantcore.range_setting import MIN_MAX, Given
from quantcore.scheme import Scheme
from quantcore.wording import count

BETTER_DB = 1.0  # a fix must gain at least this much


def outside(context: Context) -> list[tuple[tuple[int, ...], float]]:
    """Return the first elements whose code did not fit the format: index in x, and the code before the clamp.

    The worst element of the tensor comes first, if it is one of them.
    """
    least, most = context.scheme.format.bounds
    found: list[tuple[tuple[int, ...], float]] = []
    for region, work in unclamped(context.result.x, context.result.params, context.scheme):
        values = work.reshape(-1)
        for i in ((values < least) | (values > most)).nonzero()[: MAX_BOXES - len(found), 0].tolist():
            found.append((_place(context, region, i), float(values[i])))
        if len(found) >= MAX_BOXES:
            break
    worst = context.report.max_abs_error_index
    return sorted(found, key=lambda pair: pair[0] != worst)


def _place(context: Context, region: Region, flat: int) -> tuple[int, ...]:
    """The index in x of an element of a box of the blocked shape."""
    inside = np.unravel_index(flat, [e.stop - e.start for e in region.elements]) if region.elements else ()
    blocked = [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)]
    return (
        context.element(int(np.ravel_multi_index(blocked, context.result.blocked_shape))) if blocked else ()
    )


def wrapped(context: Context) -> Iterator[Finding]:
    """Codes that overflowed and wrapped around."""
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
    yield Finding(
        "wrapped",
        "error",
        f"{count(n, 'code')} {'does' if n == 1 else 'do'} not fit {fmt} ({fmt.qmin}..{fmt.qmax}) and silently wrapped "
        f"around: {before:.0f} became {after} at {index(at)}.",
        tuple(cell(place) for place, _ in cells),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
    )


def zero_point_outside(context: Context) -> Iterator[Finding]:
    """A given zero point that is not a code of the format."""
    fmt, zero_point = context.fmt, context.zero_point
    if not (isinstance(context.scheme.range_setting, Given) and context.scheme.rules.zero_point.is_integer):
        return
    bad = (zero_point < fmt.qmin) | (zero_point > fmt.qmax)
    if not bad.any():
        return
    z, nearest = int(zero_point[bad][0]), context.fmt.qmin if int(zero_point[bad][0]) < fmt.qmin else fmt.qmax
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    fixes = [context.changed(format=other), context.changed(range_setting=MIN_MAX, symmetric=False)]
    yield Finding(
        "zero_point_outside",
        "error",
        f"The zero point {z} is not {_a(fmt)} code ({fmt.qmin}..{fmt.qmax}): it can't be stored, and the nearest "
        f"code, {nearest}, dequantizes to {number((nearest - z) * _at_first(context.result.scale, bad))}.",
        _boxes(context, bad),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
    )


def zero_point_clamped(context: Context) -> Iterator[Finding]:
    """A range that excludes 0, whose zero point was clamped: the codes cover another range."""
    fmt, params = context.fmt, context.result.params
    if (
        params.low is None
        or params.high is None
        or context.scheme.symmetric
        or params.zero_point.is_floating_point()
    ):
        return
    wanted = fmt.qmin - params.low.double() / params.scale.double()
    clamped = (wanted - params.zero_point).abs() > 1.5
    if not clamped.any():
        return
    place = tuple(int(i) for i in clamped.nonzero()[0])
    low, high, n = float(params.low[place]), float(params.high[place]), context.report.clipped
    yield Finding(
        "zero_point_clamped",
        "error",
        f"The range {number(low)}..{number(high)} excludes 0: its zero point would be {float(wanted[place]):.0f} but is "
        f"clamped to {int(params.zero_point[place])}, so {count(n, 'element')} {'is' if n == 1 else 'are'} clipped.",
        _boxes(context, clamped),
        **context.fixed_by(context.best([context.changed(symmetric=True), *_textbook(context)], BETTER_DB)),
    )


def _textbook(context: Context) -> list[Scheme]:
    convention = TEXTBOOK.changed(overflow=context.scheme.convention.coding.overflow)
    return [context.changed(convention=convention)]


def zero_not_exact(context: Context) -> Iterator[Finding]:
    """0, which is frequent after padding, ReLU and pruning, is not dequantized exactly."""
    if (
        not context.zero_point.is_floating_point()
    ):  # an integer zero point is the code of 0, or `zero_point_outside` reports it
        return
    x_hat = context.result.dequantized.reshape(-1)
    places = ((context.result.x.reshape(-1) == 0) & (x_hat != 0)).nonzero()[:, 0]
    zeros = len(places)
    if not zeros:
        return
    worst = float(x_hat[places].abs().amax())
    yield Finding(
        "zero_not_exact",
        "warning",
        f"{count(zeros, 'element')} ({percent(zeros / context.result.x.numel())}) {'is' if zeros == 1 else 'are'} exactly 0 but "
        f"{'dequantizes' if zeros == 1 else 'dequantize'} to |x̂| up to {number(worst)}: no code represents 0 there.",
        tuple(cell(context.element(int(i))) for i in places[:MAX_BOXES]),
        **_exact_at_zero(context, worst),
    )


def _exact_at_zero(context: Context, before: float) -> dict[str, Any]:
    """The first scheme that represents 0 exactly and keeps the SQNR within 1 dB."""
    exact = [context.changed(convention=c) for c in _with_exact_zero(context)]
    for scheme in exact:
        trial = context.trial(scheme)
        if trial and trial.sqnr_db >= context.report.sqnr_db - 1:
            return {"fix": scheme, "gain": Gain("error at 0", before, 0.0)}
    return {}


def _with_exact_zero(context: Context) -> list[Convention]:
    name = f"{context.scheme.convention.name}.round_zero"
    return [*([CONVENTIONS[name]] if name in CONVENTIONS else []), TEXTBOOK]


def negatives_lost(context: Context) -> Iterator[Finding]:
    """Unsigned codes with the zero point at qmin: everything below 0 becomes 0."""
    fmt, zero_point = context.fmt, context.zero_point
    chosen = context.scheme.symmetric or isinstance(context.scheme.range_setting, Given)
    if fmt.signed or not chosen or context.scheme.convention.coding.overflow == "wrap":
        return
    low = context.extremes[0]
    lost = (zero_point == fmt.qmin) & (low < -0.5 * context.result.scale)
    if not lost.any():
        return
    cells = [at for at, value in outside(context) if value < fmt.qmin]
    n = int(
        ((context.x_blocked < 0) & cells_of(lost, context.result.blocked_shape, context.result.block)).sum()
    )
    other = IntFormat(fmt.bits, True, fmt.narrow)
    fixes = [context.changed(format=other), context.changed(symmetric=False, range_setting=MIN_MAX)]
    fixes += [context.changed(format=other, range_setting=MIN_MAX)]
    yield Finding(
        "negatives_lost",
        "error",
        f"{count(n, 'element')} {'is' if n == 1 else 'are'} negative, down to {number(float(low[lost].amin()))}, but {fmt} "
        f"with zero point {int(zero_point[lost][0])} has no code for values below 0: {'it becomes' if n == 1 else 'all become'} 0.",
        tuple(cell(at) for at in cells),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
    )


def nan(context: Context) -> Iterator[Finding]:
    """NaN and infinity: in x, if the library accepts them, or in x̂ where the format can't represent x."""
    notes = [note for note in context.result.warnings if "NaN" in note]
    if context.finite and not notes and math.isfinite(context.report.sse):
        return
    x, x_hat = context.result.x.reshape(-1), context.result.dequantized.reshape(-1)
    nonfinite = (~x.isfinite()).nonzero()[:, 0]
    if not len(nonfinite):
        nonfinite = (~x_hat.isfinite()).nonzero()[:, 0]
    at = f", first at {index(context.element(int(nonfinite[0])))}" if len(nonfinite) else ""
    what = f"{count(len(nonfinite), 'element')} of x {'is' if len(nonfinite) == 1 else 'are'} NaN or infinite{at}. "
    if context.finite and not notes:
        if not len(nonfinite):  # only the sums exceed float64
            return
        first = int(nonfinite[0])
        what = (
            f"{count(len(nonfinite), 'element')} {'dequantizes' if len(nonfinite) == 1 else 'dequantize'} to NaN or infinity{at}, where x is "
            f"{number(float(x[first]))}: {context.scheme.format} can't represent it at this scale."
        )
        yield Finding(
            "nan", "error", what, tuple(cell(context.element(int(i))) for i in nonfinite[:MAX_BOXES])
        )
        return
    yield Finding(
        "nan",
        "error",
        (what if not context.finite else "")
        + (notes[0] if notes else "Replace them: most metrics are undefined."),
        tuple(cell(context.element(int(i))) for i in nonfinite[:MAX_BOXES]),
    )


def _boxes(context: Context, blocks: Tensor) -> tuple[Box, ...]:
    """The marked blocks; empty if there is only one block."""
    if blocks.numel() == 1:
        return ()
    return tuple(context.block_box(place) for place in blocks.nonzero()[:MAX_BOXES].tolist())


def _a(fmt: IntFormat) -> str:
    """``an int8``, ``a uint8``."""
    return f"{'an' if fmt.signed else 'a'} {fmt}"


def _at_first(values: Tensor, mask: Tensor) -> float:
    return float(values[mask][0])
