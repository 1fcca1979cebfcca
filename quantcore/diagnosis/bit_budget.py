"""Bits that could be spent better: on scales per channel, or on fewer scales."""

from collections.abc import Iterator

from quantcore.analysis import sqnr_of
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding, gains, number, percent
from quantcore.formats import MAX_BITS, IntFormat
from quantcore.granularity import PerBlock, PerChannel, PerFlatGroup, PerGroup, PerTensor
from quantcore.notation import write_call
from quantcore.scheme import Scheme, storage
from quantcore.tensors import Generated
from quantcore.wording import along, count

CHANNEL_DB = 6.0  # a scale per channel must gain at least this …
CHANNEL_STORAGE = 1.01  # … with at most this many times the storage
SMALL_GROUP = 8  # elements: a scale of 32 bits costs 4 bits per element or more
GROUP_DB = 3.0
USUAL_BITS = (2, 4, 8, 16)  # widths that libraries store; other widths are proposed only if these do not help


@kind(
    FindingExample(
        "One scale for different channels",
        Generated("outlier_channel", (512, 64), parameters=(("factor", 3.5),)),
        "int8 symmetric",
    ),
    ("granularity", "rows"),
    follows=("outlier_element", "outlier_channel"),
    impossible={"min": "minima are stored per group, never one for the tensor"},
    finite=True,
)
def per_channel(context: Context) -> Iterator[Finding]:
    """Find one scale for the tensor, although one per channel would gain much and cost almost nothing."""
    if not isinstance(context.scheme.granularity, PerTensor) or len(context.shape) < 2:
        return
    axes = [axis for axis in range(len(context.shape)) if _estimated_gain(context, axis) > CHANNEL_DB - 1.5]
    schemes = [context.changed(granularity=PerChannel(axis)) for axis in axes]
    best = context.best(schemes, CHANNEL_DB, CHANNEL_STORAGE * context.bits)
    if best is None or not isinstance(best.scheme.granularity, PerChannel):
        return
    axis = best.scheme.granularity.axis
    more = best.bits_per_element / context.bits - 1
    yield per_channel.finding(
        f"All elements share one scale. One per {along(len(context.shape), axis)}, {context.shape[axis]:,} "
        f"in all, {gains(context.report.sqnr_db, best.sqnr_db)} for {percent(more)} more storage.",
        **context.fixed_by(best),
        facts={"axis": axis, "channels": context.shape[axis], "more_storage": more},
    )


def _estimated_gain(context: Context, axis: int) -> float:
    """Estimate a gain in dB from the steps: the tensor's squared step over the channels' mean square."""
    largest = context.channels(axis).double()
    return sqnr_of(float(largest.amax().square()), float(largest.square().mean()))


@kind(
    FindingExample("Groups too small", Generated("normal", (32, 64)), "int4 per_group(4)"),
    ("granularity", "cost"),
    finite=True,
)
def small_groups(context: Context) -> Iterator[Finding]:
    """Find groups so small that the storage of their scales would gain more as bits of the codes."""
    if not isinstance(context.scheme.granularity, PerGroup | PerFlatGroup | PerBlock):
        return
    if context.block_size > SMALL_GROUP or context.x_blocked.numel() <= 2 * SMALL_GROUP:
        return
    wider = list(_wider(context))
    usual = [scheme for scheme in wider if scheme.format.bits in USUAL_BITS]
    best = context.best(usual, GROUP_DB, context.bits) or context.best(wider, GROUP_DB, context.bits)
    if best is None:
        return
    fmt = context.scheme.format
    overhead = context.bits - fmt.bits
    minima = context.scheme.rules.zero_point.is_min
    free = storage(context.scheme, context.shape).zero_points
    stored = f"scales and {'minima' if minima else 'zero points'}" if free else "scales"
    yield small_groups.finding(
        f"With {count(context.block_size, 'element')} per scale, {stored} "
        f"cost {number(overhead)} bits per element on top of {fmt.bits} for the codes. {best.scheme.format} "
        f"{write_call(best.scheme.granularity)} takes {number(best.bits_per_element)} bits in total and "
        f"{gains(context.report.sqnr_db, best.sqnr_db)}.",
        **context.fixed_by(best),
        facts={"elements": context.block_size, "overhead_bits": overhead, "bits": best.bits_per_element},
    )


def _wider(context: Context) -> Iterator[Scheme]:
    """Yield larger groups with more bits, within the same storage."""
    granularity, fmt, shape = context.scheme.granularity, context.scheme.format, context.shape
    axis = granularity.axis if isinstance(granularity, PerGroup) else -1
    sizes = [size for size in (16, 32, 64, 128) if context.block_size < size <= shape[axis]]
    others = [PerGroup(size, axis) for size in sizes]
    per_block = (context.bits - fmt.bits) * context.block_size  # bits of scale and zero point
    for size, other in zip(sizes, others, strict=True):
        room = int(context.bits - per_block / size)
        for bits in {b for b in (8, 16, room) if fmt.bits < b <= min(room, MAX_BITS)}:
            yield context.changed(format=IntFormat(bits, fmt.signed, fmt.narrow), granularity=other)
        yield context.changed(granularity=other)
    yield from (context.changed(granularity=PerTensor(), format=IntFormat(b, fmt.signed, fmt.narrow))
                for b in (8, 16) if fmt.bits < b <= context.bits)  # fmt: skip
