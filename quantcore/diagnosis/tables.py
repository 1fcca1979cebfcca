"""Findings of small floats and codebooks, whose codes have a table of values instead of a uniform step."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.formatting import gains, number
from quantcore.diagnosis.ranges import ONE_SIDED, SIDED_DB, UNUSED, UNUSED_DB, WASTED
from quantcore.diagnosis.record import Finding
from quantcore.formats import IntFormat
from quantcore.range_setting import MIN_MAX, Fixed, Given


def one_sided(context: Context) -> Iterator[Finding]:
    """Data on one side of 0: the values of the other side are never used."""
    below, above = (-context.extremes[0]).clamp(min=0), context.extremes[1].clamp(min=0)
    if context.block_size < 4 or not (below.any() or above.any()):
        return
    side = "below" if bool((below <= ONE_SIDED * above).all()) else "above"
    if side == "above" and not bool((above <= ONE_SIDED * below).all()):
        return
    if (context.result.scale < 0).any():  # such a scale turns the table around
        return
    fmt, values = context.table_format, context.values
    wasted = int(((values < 0) if side == "below" else (values > 0)).sum())
    if not WASTED * len(values) <= wasted < len(values):
        return
    plain = context.changed(format=IntFormat(max(2, fmt.bits)), convention=TEXTBOOK, range_setting=MIN_MAX)
    asymmetric = context.changed(
        format=IntFormat(max(2, fmt.bits), signed=False), convention=TEXTBOOK, range_setting=MIN_MAX, symmetric=False
    )  # fmt: skip
    best, even = context.best([asymmetric], SIDED_DB), context.trial(plain)
    if best is None or even is None or not best.sqnr_db >= even.sqnr_db + SIDED_DB:
        return
    low, high = context.bounds
    yield Finding(
        "one_sided",
        "warning",
        f"x lies between {number(low)} and {number(high)}, but {wasted} of the {len(values)} values of {fmt} are {side} 0. "
        f"Asymmetric {best.scheme.format} {gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
        facts={"low": low, "high": high, "unused": wasted, "codes": len(values), "side": side},
    )


def codes_unused(context: Context) -> Iterator[Finding]:
    """A fixed or given range is much wider than the data: most values are never used."""
    if not isinstance(context.scheme.range_setting, Fixed | Given) or context.report.clipped:
        return
    fmt, values, used = context.table_format, context.values, _values_used(context)
    low, high = float(used.amin()), float(used.amax())
    reached = int(((values >= low) & (values <= high)).sum())
    if reached >= UNUSED * len(values):
        return
    best = context.best([context.changed(range_setting=MIN_MAX)], UNUSED_DB)
    if best is None:
        return
    least, most = context.bounds
    occur = f"Only the value {number(low)}" if low == high else f"Only values between {number(low)} and {number(high)}"
    yield Finding(
        "codes_unused",
        "warning",
        f"{occur} of {fmt} ({number(float(values[0]))}..{number(float(values[-1]))}) {'occurs' if low == high else 'occur'}: "
        f"the range is wider than the data, which lie between {number(least)} and {number(most)}.",
        **context.fixed_by(best),
        facts={"low": low + 0.0, "high": high + 0.0, "reached": reached, "codes": len(values), "least": least, "most": most},
    )  # fmt: skip


def _values_used(context: Context) -> Tensor:
    """The values whose codes occur."""
    fmt = context.table_format
    counts = torch.bincount(context.result.codes.reshape(-1).to(torch.int32), minlength=fmt.available)
    return fmt.table[counts > 0]
