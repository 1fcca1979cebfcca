"""Ranges that do not suit the tensor: one-sided, too narrow, too wide."""

from collections.abc import Iterator
from typing import Any

import torch

from quantcore.analysis import sqnr_of
from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.alternatives import narrowed, shrunk
from quantcore.diagnosis.codes import outside
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding, cell, gains, number, percent
from quantcore.formats import IntFormat
from quantcore.granularity import PerTensor
from quantcore.notation import write_call
from quantcore.range_setting import MIN_MAX
from quantcore.tensors import Generated
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
_ASYMMETRIC = "the range of asymmetric codes follows the data on both sides"


@kind(
    FindingExample("Half of the codes unused", Generated("relu", (16, 16)), "int4 symmetric"),
    ("zero_point", "one-sided"),
    follows=("outlier_element", "outlier_channel", "negatives_lost", "wrapped"),
    impossible={"float zero_point": _ASYMMETRIC, "min": _ASYMMETRIC},
    finite=True,
)
def one_sided(context: Context) -> Iterator[Finding]:
    """Find data on one side of 0: the codes of the other side are never used."""
    found = _one_sided_codes if context.scheme.format.has_zero_point else _one_sided_values
    return found(context)


def _one_sided_codes(context: Context) -> Iterator[Finding]:
    """Find symmetric codes with a uniform step."""
    if not context.scheme.symmetric or context.block_size < 4:
        return
    below, above = (-context.extremes[0]).clamp(min=0), context.extremes[1].clamp(min=0)
    larger, smaller = torch.maximum(below, above), torch.minimum(below, above)
    nonzero = larger > 0
    sided = nonzero & (smaller <= ONE_SIDED * larger)
    if not nonzero.any() or int(sided.sum()) < MOST_BLOCKS * int(nonzero.sum()):
        return
    fmt, z = context.fmt, context.zero_point[sided].double()
    positive = (above > below)[sided]
    spent = torch.where(positive, z - fmt.qmin, fmt.qmax - z)  # on the side with less data
    if not ((spent >= WASTED * fmt.available) & (spent < fmt.available)).all():
        return  # a given zero point may be anywhere
    setting = context.scheme.range_setting
    own = MIN_MAX if setting.gives_parameters or setting.ends_are_given else setting
    asymmetric = context.changed(symmetric=False, range_setting=own)
    best, symmetric = context.best([asymmetric], SIDED_DB), context.report.sqnr_db
    if best is not None and best.scheme.range_setting != context.scheme.range_setting:
        # another range may gain most of it, and it is not the asymmetry that does
        again = context.trial(context.changed(range_setting=best.scheme.range_setting))
        symmetric = max(symmetric, again.sqnr_db) if again else symmetric
    if best is None or not best.sqnr_db >= symmetric + SIDED_DB:
        return
    if bool(positive.all()) or not bool(positive.any()):
        low, high = context.bounds
        fact = f"x lies between {number(low)} and {number(high)}, "
        fact += f"but symmetric {fmt} spends {int(spent[0])} of "
        side = "below" if bool(positive[0]) else "above"
        fact += f"{fmt.available} codes on values {side} 0."
        facts: dict[str, Any] = {
            "low": low,
            "high": high,
            "unused": int(spent[0]),
            "codes": fmt.available,
            "side": side,
        }
    else:
        up, down = int(positive.sum()), int((~positive).sum())
        fact = f"{count(up, 'block')} {'lies' if up == 1 else 'lie'} above 0 and {down:,} below, "
        fact += f"but symmetric {fmt} "
        codes = fmt.available * (up + down)
        fact += f"spends {int(spent.sum()):,} of their {codes:,} codes on the other side."
        facts = {"above": up, "below": down, "unused": int(spent.sum()), "codes": fmt.available * (up + down)}
    yield one_sided.finding(
        f"{fact} An asymmetric range {gains(symmetric, best.sqnr_db)}"
        f"{'' if symmetric == context.report.sqnr_db else ' over a symmetric one'}.",
        **context.fixed_by(best),
        facts=facts | {"sqnr_db_symmetric": symmetric},
    )


def _one_sided_values(context: Context) -> Iterator[Finding]:
    """Find values of a small float or a codebook, which has a table of them instead of a uniform step."""
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
    bits, usual = max(2, fmt.bits), {"convention": TEXTBOOK, "range_setting": MIN_MAX}
    plain = context.changed(format=IntFormat(bits), **usual)
    asymmetric = context.changed(format=IntFormat(bits, signed=False), symmetric=False, **usual)
    best, even = context.best([asymmetric], SIDED_DB), context.trial(plain)
    if best is None or even is None or not best.sqnr_db >= even.sqnr_db + SIDED_DB:
        return
    low, high = context.bounds
    yield one_sided.finding(
        f"x lies between {number(low)} and {number(high)}, but {wasted} of the {len(values)} values of "
        f"{fmt} are {side} 0. Asymmetric {best.scheme.format} {gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
        facts={"low": low, "high": high, "unused": wasted, "codes": len(values), "side": side},
    )


@kind(
    FindingExample("A range too narrow", Generated("normal", (16, 16)), "int8 fixed(-1, 1)"),
    ("error", "clipping"),
    follows=("nan", "wrapped", "zero_point_outside", "zero_point_clamped", "negatives_lost"),
    finite=True,
)
def clipped_too_much(context: Context) -> Iterator[Finding]:
    """Find a range that is too narrow: clipping costs more than the finer step gains."""
    report = context.report
    if not report.clipped or context.scheme.convention.coding.overflow == "wrap":
        return
    if report.clipping_sse <= CLIPPED_TIMES * report.rounding_sse:
        return
    wider = (MIN_MAX, *context.scheme.range_setting.wider)
    best = context.best([context.changed(range_setting=setting) for setting in wider], CLIPPED_DB)
    if best is None:
        return
    n = report.clipped
    yield clipped_too_much.finding(
        f"{count(n, 'element')} ({percent(report.clipped_fraction)}) {'lies' if n == 1 else 'lie'} outside "
        f"the range and {'is' if n == 1 else 'are'} clipped, which causes "
        f"{percent(report.clipping_sse / report.sse)} of the squared error.",
        tuple(cell(at) for at, _ in outside(context)),
        **context.fixed_by(best),
        facts={"clipped": n, "of_error": report.clipping_sse / report.sse},
    )


@kind(
    FindingExample("A range stretched by a long tail", Generated("laplace", (128, 256)), "int4 symmetric"),
    ("error", "clipping"),
    follows=("outlier_element", "outlier_channel", "per_channel", "tiny_block", "scale_out_of_range"),
    finite=True,
)
def clips_too_little(context: Context) -> Iterator[Finding]:
    """Find that a narrower range would lose less: the largest elements leave few codes for the others."""
    scheme = context.scheme
    if not scheme.range_setting.ends_are_elements or context.block_size < 16:
        return
    (estimate,) = context.estimates([(scheme.granularity, scheme.symmetric)])
    if not estimate.min_max or sqnr_of(estimate.min_max, estimate.searched) < NARROWER_DB - 0.2:
        return
    shrink = estimate.shrink
    # of one range of integers, computing it is quicker than a search
    whole = isinstance(scheme.granularity, PerTensor) and scheme.format.has_zero_point
    setting = shrunk(context, shrink) if whole else narrowed(context, scheme.granularity, shrink)
    best = context.best([context.changed(range_setting=setting)], NARROWER_DB)
    if best is None:
        return
    largest = float(context.largest.amax())
    effect = (
        "makes the step coarse" if scheme.format.has_zero_point
        else f"leaves few values of {scheme.format} for most elements"
    )  # fmt: skip
    yield clips_too_little.finding(
        f"The range extends to the largest |x|, {number(largest)}, which {effect}. A narrower range, "
        f"{write_call(best.scheme.range_setting)}, {gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
        facts={"largest": largest},
    )


@kind(
    FindingExample(
        "Most codes unused", Generated("normal", (16, 16), parameters=(("std", 0.1),)), "int8 fixed(-10, 10)"
    ),
    ("error", "clipping"),
    follows=("nan", "zero_point_outside"),
    finite=True,
)
def codes_unused(context: Context) -> Iterator[Finding]:
    """Find a fixed or given range that is much wider than the data: most codes are never used."""
    fmt, report = context.scheme.format, context.report
    setting = context.scheme.range_setting
    if report.clipped or not (setting.ends_are_given or setting.gives_parameters):
        return
    facts: dict[str, Any] = {}
    low: float
    high: float
    if isinstance(fmt, IntFormat):
        low, high = (int(v) for v in torch.aminmax(context.result.codes))
        reached, every = high - low + 1, fmt.available
        used = f"code {low}" if low == high else f"codes {low}..{high}"
        of = f"{fmt.qmin}..{fmt.qmax}"
    else:
        values = context.values
        counts = torch.bincount(context.result.codes.reshape(-1).to(torch.int32), minlength=fmt.available)
        low, high = (float(v) for v in torch.aminmax(fmt.table[counts > 0]))
        reached, every = int(((values >= low) & (values <= high)).sum()), len(values)
        used = f"values between {number(low)} and {number(high)}"
        used = f"the value {number(low)}" if low == high else used
        of = f"{fmt} ({number(float(values[0]))}..{number(float(values[-1]))})"
        facts = {"low": low + 0.0, "high": high + 0.0, "reached": reached, "codes": every}
    if reached >= UNUSED * every:
        return
    best = context.best([context.changed(range_setting=MIN_MAX)], UNUSED_DB)
    if best is None:
        return
    least, most = context.bounds
    yield codes_unused.finding(
        f"Only {used} of {of} {'occurs' if low == high else 'occur'}: the range is wider than the data, "
        f"which lie between {number(least)} and {number(most)}.",
        **context.fixed_by(best),
        facts={"low": low, "high": high, "least": least, "most": most, **facts},
    )
