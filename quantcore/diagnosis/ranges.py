"""Ranges that do not suit the tensor: one-sided, too narrow, too wide."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.analysis import sqnr_of
from quantcore.diagnosis.codes import outside
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.formatting import gains, number, percent
from quantcore.diagnosis.record import Finding, cell
from quantcore.formats import IntFormat
from quantcore.granularity import PerTensor
from quantcore.notation import write_call
from quantcore.range_setting import MIN_MAX, RANGE_SETTINGS, Fixed, Given, MinMax, Percentile, RangeSetting
from quantcore.scheme import Scheme
from quantcore.wording import count

ONE_SIDED = 0.1  # the smaller side of the data is at most this fraction of the larger
MOST_BLOCKS = 0.9  # this fraction of the blocks must be one-sided
WASTED = 0.4  # at least this fraction of the codes is spent on the side without data
SIDED_DB = 3.0  # minimum gain from spending no codes on the empty side; about 6 is possible
CLIPPED_TIMES = 4.0  # the clipped elements have this many times the squared error of the others
CLIPPED_DB = 1.0
NARROWER_DB = 4.0  # minimum gain of a narrower range
UNUSED = 0.5  # the data use less than this fraction of the codes
UNUSED_DB = 3.0


def one_sided(context: Context) -> Iterator[Finding]:
    """Symmetric codes for data on one side of 0: the codes of the other side are never used."""
    if not context.scheme.symmetric or context.block_size < 4:
        return
    below, above = (-context.extremes[0]).clamp(min=0), context.extremes[1].clamp(min=0)
    larger, smaller = torch.maximum(below, above), torch.minimum(below, above)
    nonzero = larger > 0
    sided = nonzero & (smaller <= ONE_SIDED * larger)
    if not nonzero.any() or int(sided.sum()) < MOST_BLOCKS * int(nonzero.sum()):
        return
    side = "below" if float(above.sum()) > float(below.sum()) else "above"
    fmt, z = context.fmt, int(context.zero_point.reshape(-1)[0])
    wasted = z - fmt.qmin if side == "below" else fmt.qmax - z
    if not WASTED * fmt.available <= wasted < fmt.available:  # a given zero point may be anywhere
        return
    best = context.best(_asymmetric(context), SIDED_DB)
    if best is None:
        return
    low, high = float(context.extremes[0].amin()), float(context.extremes[1].amax())
    yield Finding(
        "one_sided",
        "warning",
        f"x lies between {number(low)} and {number(high)}, but symmetric {fmt} spends {wasted} of {fmt.available} codes on "
        f"values {side} 0. An asymmetric range {gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
    )


def _asymmetric(context: Context) -> list[Scheme]:
    fmt, setting = context.fmt, context.scheme.range_setting
    setting = MIN_MAX if isinstance(setting, Given | Fixed) else setting
    other = IntFormat(fmt.bits, not fmt.signed, fmt.narrow)
    same = context.changed(symmetric=False, range_setting=setting)
    return (
        [same]
        if context.trial(same)
        else [context.changed(symmetric=False, range_setting=setting, format=other)]
    )


def clipped_too_much(context: Context) -> Iterator[Finding]:
    """The range is too narrow: clipping costs more than the finer step gains."""
    report = context.report
    if not report.clipped or context.scheme.convention.coding.overflow == "wrap":
        return
    if report.clipping_sse <= CLIPPED_TIMES * report.rounding_sse:
        return
    wider: list[RangeSetting] = [MIN_MAX]
    if isinstance(context.scheme.range_setting, Percentile):
        wider += [
            Percentile(p) for p in (99.0, 99.9, 99.99)
        ]  # a percentile lower than the current one gains nothing
    best = context.best([context.changed(range_setting=setting) for setting in wider], CLIPPED_DB)
    if best is None:
        return
    n = report.clipped
    yield Finding(
        "clipped_too_much",
        "warning",
        f"{count(n, 'element')} ({percent(report.clipped_fraction)}) {'lies' if n == 1 else 'lie'} outside the range and "
        f"{'is' if n == 1 else 'are'} clipped, which causes {percent(report.clipping_sse / report.sse)} of the squared error.",
        tuple(cell(at) for at, _ in outside(context)),
        **context.fixed_by(best),
    )


def clips_too_little(context: Context) -> Iterator[Finding]:
    """A narrower range would lose less: the largest elements make the step coarse for the others."""
    if not isinstance(context.scheme.range_setting, MinMax) or context.block_size < 16:
        return
    shrink, estimated = _best_shrink(context)
    if estimated < NARROWER_DB - 0.5:
        return
    best = context.best(_narrower(context, shrink), NARROWER_DB)
    if best is None:
        return
    yield Finding(
        "clips_too_little",
        "warning",
        f"The range extends to the largest |x|, {number(float(context.largest.amax()))}, which makes the step coarse. A narrower "
        f"range, {write_call(best.scheme.range_setting)}, clips some elements and {gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
    )


def _best_shrink(context: Context) -> tuple[float, float]:
    """The factor on the range with the smallest squared error on a sample, and its gain in dB.

    A cheap estimate, to decide whether computing it is worthwhile.
    """
    x, blocks = context.sample
    low, high = (t[blocks].clamp(max=0) if i == 0 else t[blocks].clamp(min=0)
                 for i, t in enumerate(context.extremes))  # fmt: skip
    if context.scheme.symmetric:
        high = torch.maximum(-low, high)
        low = -high
    steps = context.fmt.qmax - context.fmt.qmin
    factors = [0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 1.0]
    errors = [_shrunk_error(x, low * f, high * f, steps) for f in factors]
    best = errors.index(min(errors))
    return factors[best], sqnr_of(errors[-1], errors[best]) if errors[-1] else 0.0


def _shrunk_error(x: Tensor, low: Tensor, high: Tensor, steps: int) -> float:
    scale = ((high - low) / steps).clamp(min=torch.finfo(torch.float32).tiny)
    x_hat = ((x - low) / scale).round_().clamp_(0, steps).mul_(scale).add_(low)
    return float((x - x_hat).double().square().sum())


def _narrower(context: Context, shrink: float) -> list[Scheme]:
    settings: list[RangeSetting] = []
    if isinstance(context.scheme.granularity, PerTensor):
        low, high = (float(t) * shrink for t in context.extremes)
        settings.append(Fixed(float(f"{min(low, 0.0):.3g}"), float(f"{max(high, 0.0):.3g}")))
    else:
        x, blocks = context.sample
        inside = float((x.abs() <= shrink * context.largest[blocks]).double().mean())
        settings += [Percentile(p) for p in (round(max(90.0, 100 * inside), 2), 99.0, 99.9) if p < 100]
    if "min_mse" in RANGE_SETTINGS and context.x_blocked.numel() <= 1 << 20:
        settings.append(RANGE_SETTINGS["min_mse"]())  # type: ignore[call-arg]
    return [context.changed(range_setting=setting) for setting in settings]


def codes_unused(context: Context) -> Iterator[Finding]:
    """A fixed or given range is much wider than the data: most codes are never used."""
    if not isinstance(context.scheme.range_setting, Fixed | Given):
        return
    codes, fmt = context.result.codes, context.fmt
    low, high = (int(v) for v in torch.aminmax(codes))
    reached = high - low + 1
    if reached >= UNUSED * fmt.available or context.report.clipped:
        return
    best = context.best([context.changed(range_setting=MIN_MAX)], UNUSED_DB)
    if best is None:
        return
    yield Finding(
        "codes_unused",
        "warning",
        f"Only codes {low}..{high} of {fmt.qmin}..{fmt.qmax} occur: the range is wider than the data, which lie "
        f"between {number(float(context.extremes[0].amin()))} and {number(float(context.extremes[1].amax()))}.",
        **context.fixed_by(best),
    )
