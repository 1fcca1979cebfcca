"""Scales (and minima) that the format in which they are stored can't hold: too small, or too large."""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from quantcore.analysis import decibels
from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.alternatives import STORAGE
from quantcore.diagnosis.blocks import boxes_of, name_of
from quantcore.diagnosis.context import BETTER_DB, Alternative, Context, sqnr_among
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding, number, percent
from quantcore.formats import FloatFormat, IntFormat
from quantcore.granularity import cells_of
from quantcore.qparams import QParams
from quantcore.quantization import Quantized, codes_of, dequantize
from quantcore.range_setting import MIN_MAX, Given
from quantcore.scheme import Scheme
from quantcore.tensors import Generated

COARSE = 0.25  # a stored scale may differ by this fraction, or by half a step of a float that is coarser
COSTS_DB = 3.0  # the blocks concerned lose at least this much
LOST_DB = 3.0  # below this, next to nothing of the tensor is left


class _Lost(NamedTuple):
    """Parameters that their format can't hold.

    ``what``: "scale" or "min"; ``level``: as they are stored; ``wanted``, ``stored``: in block form;
    ``marked``: the blocks concerned; ``too_large``: whether they exceed the largest value, otherwise they are
    too small.
    """

    what: str
    level: Quantized
    wanted: Tensor
    stored: Tensor
    marked: Tensor
    too_large: bool

    @property
    def stored_in(self) -> str:
        """The format of the parameters, and of its own scales: ``uint6 · fp16``."""
        inner = self.level.scheme.scales
        return _format(self.level.scheme) + (f" · {_format(inner)}" if inner else "")


def _format(scheme: Scheme) -> str:
    """Return the format's name, without how numbers are cast to it."""
    fmt = scheme.format
    return str(dataclasses.replace(fmt, saturate=True) if isinstance(fmt, FloatFormat) else fmt)


@kind(
    FindingExample(
        "Scales too small for their format",
        Generated("normal", (16, 64), parameters=(("std", 0.005),)),
        "e2m1 per_group(16) torchao.nvfp4 scales(e4m3fn given(1) torchao.nvfp4.scales)",
    ),
    ("mistakes", "scale-in-float16"),
    finite=True,
    severity="error",
)
def scale_out_of_range(context: Context) -> Iterator[Finding]:
    """Find scales or minima that underflow or saturate in the format that stores them."""
    for lost in _all_lost(context):
        before, after = _sqnr_of_blocks(context, lost.marked)
        if not (after >= before + COSTS_DB or (math.isnan(before) and math.isfinite(after))):
            continue
        n, blocks = int(lost.marked.sum()), lost.marked.numel()
        first = tuple(lost.marked.nonzero()[0].tolist())
        wanted, stored = float(lost.wanted[first]), float(lost.stored[first]) + 0.0
        fix = _fix(context, lost.level)
        yield scale_out_of_range.finding(
            f"{_subject(context, lost, n)} too {'large' if lost.too_large else 'small'} for "
            f"{lost.stored_in}{_next_to(lost)}: {name_of(context, lost.marked) if blocks > 1 else 'it'} "
            f"needs {number(wanted)} and gets {number(stored)}. SQNR there: {decibels(before)}, with exact "
            f"{_parameters(context)} {decibels(after)}.{_remedy(context, lost, fix)}",
            boxes_of(context, lost.marked),
            severity="warning" if context.report.sqnr_db >= LOST_DB else "error",
            **context.fixed_by(fix),
            facts={"what": lost.what, "stored_in": lost.stored_in, "too_large": lost.too_large, "blocks": n,
                   "of_blocks": blocks, "wanted": wanted, "stored": stored,
                   "sqnr_stored": before, "sqnr_exact": after},
        )  # fmt: skip


def _parameters(context: Context) -> str:
    """Say what is stored per block, and exact in `_sqnr_of_blocks`: a min without its scale helps little."""
    return "scales" if context.result.mins is None else "scales and mins"


def _subject(context: Context, lost: _Lost, n: int) -> str:
    blocks = lost.marked.numel()
    if blocks == 1:
        return f"The {lost.what} is"
    return f"{n:,} of {blocks:,} {lost.what}s ({percent(n / blocks)}) {'is' if n == 1 else 'are'}"


def _all_lost(context: Context) -> Iterator[_Lost]:
    result = context.result
    scales, mins = result.scales, result.mins
    if scales is None:
        return
    assert result.params.raw is not None
    wanted = _wanted(scales)
    stored = scales.dequantized
    # its largest relative error of rounding, within its normal range, is half a step
    fmt = scales.scheme.format
    coarse = max(COARSE, 2.0 ** -(fmt.mantissa + 1) if isinstance(fmt, FloatFormat) else 0.0)
    yield from _sides("scale", scales, wanted, stored, (stored - wanted).abs() > coarse * wanted.abs())
    if mins is not None:
        wanted, stored = _wanted(mins), mins.dequantized
        step = result.params.raw.abs()
        yield from _sides("min", mins, wanted, stored, (stored - wanted).abs() > step)


def _wanted(level: Quantized) -> Tensor:
    """Return what a level of scales would store if it were exact."""
    return level.x / level.scheme.rules.scale.divisor


def _sides(what: str, level: Quantized, wanted: Tensor, stored: Tensor, off: Tensor) -> Iterator[_Lost]:
    """Yield the blocks whose parameter is too large, and those whose parameter is too small."""
    fmt, center = level.scheme.format, level.params.center
    top = max(abs(v) for v in (fmt.qmin, fmt.qmax)) if isinstance(fmt, IntFormat) else fmt.max
    unit = level.scale if level.params.raw is None else level.params.raw
    reach = 1.001 * top * cells_of(unit.abs(), level.blocked_shape, level.block).reshape(wanted.shape)
    large = stored.isinf() | ((wanted if center is None else wanted - center).abs() > reach)
    # within reach, NaN is what a format without a sign makes of a negative number, which `nan` reports
    off = (off | (large & ~stored.isfinite())) & wanted.isfinite() & (wanted != 0)
    for too_large in (True, False):
        marked = off & (large if too_large else ~large)
        if marked.any():
            yield _Lost(what, level, wanted, stored, marked, too_large)


def _next_to(lost: _Lost) -> str:
    """Say that, with a scale of their own, small ones are lost next to larger ones."""
    own = not lost.level.scheme.range_setting.gives_parameters
    has_larger = own and not lost.too_large and lost.level.params.scale.any()
    return f" next to larger {lost.what}s" if has_larger else ""


def _sqnr_of_blocks(context: Context, marked: Tensor) -> tuple[float, float]:
    """Return the SQNR in dB of the marked blocks: as they are, and with the parameters of their range."""
    result, scheme = context.result, context.scheme
    assert result.scales is not None
    params, scale = result.params, _wanted(result.scales)
    zero_point = params.zero_point
    if result.mins is not None:
        below = scheme.rules.zero_point.zero_point_form == "below"
        zero_point = -result.mins.x if below else result.mins.x
    exact = QParams(scale, zero_point, params.low, params.high, center=params.center)
    plain = dataclasses.replace(scheme, range_setting=Given(1.0))
    codes = codes_of(result.x, exact, plain)
    x_hat = dequantize(codes, scale, zero_point, plain)
    x_hat = x_hat if params.center is None else x_hat + params.center
    here = cells_of(marked, result.blocked_shape, result.block).reshape(result.x.shape).bool()
    x = result.x[here]
    return sqnr_among(x, result.error[here], x - x_hat[here])


def _fix(context: Context, level: Quantized) -> Alternative | None:
    """Return a scale for all scales on top, if it needs about the same storage, else scales in float32."""
    inner = context.scheme.scales
    assert inner is not None
    wide: list[Scheme] = []
    if inner.range_setting.gives_parameters:
        wide.append(context.changed(scales=dataclasses.replace(inner, range_setting=MIN_MAX)))
        plain = dataclasses.replace(inner, range_setting=MIN_MAX, convention=TEXTBOOK)
        wide.append(context.changed(scales=plain, convention=TEXTBOOK))
    exact = [context.changed(scales=None), context.changed(scales=None, convention=TEXTBOOK)]
    return context.best(wide, BETTER_DB, STORAGE * context.bits) or context.best(exact, BETTER_DB)


def _remedy(context: Context, lost: _Lost, fix: Alternative | None) -> str:
    if fix is not None and fix.scheme.scales is not None:
        return " Add a scale for the whole tensor."
    if fix is not None:
        return f" Keep the {_parameters(context)} in float32."
    if _next_to(lost):
        return f" Clip the outliers, or store the {_parameters(context)} in float16."
    return f" Scale the tensor {'down' if lost.too_large else 'up'} first."
