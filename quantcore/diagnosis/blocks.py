"""Degenerate blocks: constant, all zero, or too small for a normal scale."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.diagnosis.context import BETTER_DB, Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import MAX_BOXES, Box, Finding, number
from quantcore.formats import FloatFormat, IntFormat
from quantcore.granularity import block_name
from quantcore.range_setting import Given
from quantcore.scheme import Scheme

MIN_ELEMENTS = 4  # elements: smaller blocks may be constant by chance
MIN_NORMAL = 2.0**-126  # the smallest normal float32; smaller numbers lose bits
LEAST_POWER = 2.0**-127  # the smallest scale of e8m0
WIDE = 2.0**100  # a format with this maximum needs no scale
BY_CHANCE = 0.01  # expected number of all-zero blocks below which one is not a coincidence
RAISED = 4.0  # times the scale that the elements need: two bits of precision are lost


@kind(
    FindingExample(
        "A constant row", "0.5, -1.1, 0.3, 2\n0.7, 0.7, 0.7, 0.7\n1.3, 0.8, -0.4, -1.8", "int8 per_channel(0)"
    ),
    ("scale", "marks"),
    severity="note",
)
def constant_block(context: Context) -> Iterator[Finding]:
    """Find blocks whose elements are all the same nonzero number."""
    low, high = context.extremes
    constant = (low == high) & (low != 0)
    if context.block_size < MIN_ELEMENTS or not constant.any():
        return
    value, many, blocks = float(low[constant][0]), int(constant.sum()), constant.numel()
    subject = f"{_all_elements(context, constant)} are"
    if many > 1:
        first = name_of(context, constant)
        subject = f"In {many:,} of {blocks:,} blocks all elements are equal; in the first, {first}, they are"
    yield constant_block.finding(
        f"{subject} {number(value)}: one number {'' if many == 1 else 'per block '}is enough.",
        boxes_of(context, constant),
        facts={"value": value, "blocks": many},
    )


@kind(
    FindingExample(
        "A dead row", "0.5, -1.1, 0.3, 2\n0, 0, 0, 0\n1.3, 0.7, -0.4, -1.8", "int8 per_channel(0)"
    ),
    ("scale", "marks"),
    severity="note",
)
def zero_block(context: Context) -> Iterator[Finding]:
    """Find blocks whose elements are all 0, although most of the tensor is not."""
    zero = context.largest == 0
    if context.block_size < MIN_ELEMENTS or not zero.any() or int(zero.sum()) <= _by_chance(context, zero):
        return
    found = float(context.result.scale[zero][0])
    if math.isnan(found):  # reported by `nan`
        return
    scale, many = number(found), int(zero.sum())
    yield zero_block.finding(
        f"{_all_elements(context, zero)} are 0: a dead channel, or a bug upstream. "
        f"{'The' if many == 1 else 'The first'} scale, {scale}, is meaningless.",
        boxes_of(context, zero),
        facts={"scale": found, "blocks": many},
    )


def _by_chance(context: Context, zero: Tensor) -> float:
    """Return how many all-zero blocks may occur by chance, given the zeros elsewhere."""
    x, blocks = context.sample
    others = x[~zero[blocks]]
    zeros = float((others == 0).double().mean()) if len(others) else 0.0
    expected = zero.numel() * zeros**context.block_size
    return 0.0 if expected < BY_CHANCE else 3 * expected + 3


@kind(
    FindingExample(
        "Numbers too small for a scale", "1e-42, -2e-42, 3e-42, 5e-43\n1, -2, 3, 0.5", "int8 per_channel(0)"
    ),
    ("mistakes", "scale-in-float16"),
)
def tiny_block(context: Context) -> Iterator[Finding]:
    """Find elements so small that their scale is subnormal, or below the library's minimum."""
    if context.scheme.range_setting.gives_parameters:  # given scales do not depend on the elements
        return
    params, convention = context.result.params, context.scheme.convention
    # scales that are quantized themselves may underflow in their format, which `scale_out_of_range` reports
    scale, replaced = params.scale if params.raw is None else params.raw, params.replaced
    nonzero = context.largest > 0
    denormal = nonzero & (scale.abs() < MIN_NORMAL)  # ggml's scales have a sign
    small = torch.zeros_like(nonzero) if replaced is None else nonzero & replaced
    if denormal.any() and context.scheme.rules.scale.is_power:  # a subnormal power of two is exact
        yield from _least_power(context, denormal)
    elif (
        denormal.any() and isinstance(context.scheme.format, FloatFormat) and context.scheme.format.max > WIDE
    ):
        yield _needs_no_scale(context, context.scheme.format, denormal, float(scale[denormal][0]))
    elif denormal.any():
        lost = " underflows to 0, and so does every element"
        if float(scale[denormal][0]):
            lost = ", {}, is subnormal and has few significant bits"
        yield _tiny(context, denormal, scale, f": the scale{lost}. Scale the tensor up first.")
    elif small.any():
        least = convention.scale.eps
        words = f": the scale would be below {number(least)}, the minimum of {convention.library}, "
        words += "which uses {} instead."
        yield _tiny(context, small, params.scale, words, context.as_textbook, least=least)
    elif (raised := nonzero & _raised(context)).any():
        words = f", less than the minimum range of {convention.library}, which makes the scale {{}}."
        yield _tiny(context, raised, params.scale, words, context.as_textbook)


def _tiny(
    context: Context, marked: Tensor, scale: Tensor, words: str, *fixes: Scheme, **facts: float
) -> Finding:
    """Say how small the marked blocks are, then ``words``, with their first scale in place of {}."""
    largest, first = float(context.largest[marked].amax()), float(scale[marked][0])
    one = context.x_blocked.numel() == 1
    subject = "The only element has" if one else f"{_all_elements(context, marked)} have"
    return tiny_block.finding(
        f"{subject} |x| ≤ {number(largest)}{words.format(number(first))}",
        boxes_of(context, marked),
        **context.fixed_by(context.best(fixes, BETTER_DB)),
        facts={"largest": largest, "scale": first, **facts, "blocks": int(marked.sum())},
    )


def _least_power(context: Context, denormal: Tensor) -> Iterator[Finding]:
    """Find 2^-127, the least of E8M0 and subnormal in float32: some libraries divide by another number."""
    scale, instead = context.result.scale, context.scheme.rules.storage.e8m0_min_as
    divided = denormal & (scale == LEAST_POWER)
    if instead and divided.any():
        library = context.scheme.convention.library
        words = f": the scale is {{}}, but {library} divides by {number(instead)}."
        yield _tiny(context, divided, scale, f"{words} Scale the tensor up first.", divisor=instead)


def _needs_no_scale(context: Context, fmt: FloatFormat, denormal: Tensor, first: float) -> Finding:
    """Report that bf16 has nearly the range of float32: its scale is subnormal if max|x| is below about 4."""
    lost = f"{number(first)}, is subnormal and has few significant bits" if first else "underflows to 0"
    return tiny_block.finding(
        f"{fmt} reaches {number(fmt.max)} without a scale. The scale that maps the range to "
        f"that{', ' if first else ' '}{lost}. Set the scale to 1.",
        boxes_of(context, denormal),
        **context.fixed_by(context.best([context.changed(range_setting=Given(1.0))], BETTER_DB)),
        facts={"max": fmt.max, "scale": first, "blocks": int(denormal.sum())},
    )


def _raised(context: Context) -> Tensor:
    """Mark blocks with a range that the library widened to its minimum: their scale is far too large."""
    convention, fmt = context.scheme.convention, context.scheme.format
    least = convention.range.widen_to_eps or convention.range.min_range
    least = least or convention.scale.asymmetric_scale == "inverse_range"  # hqq bounds 1/s
    if not least or not isinstance(fmt, IntFormat) or not context.scheme.range_setting.ends_are_elements:
        return torch.zeros_like(context.largest, dtype=torch.bool)
    needed = context.largest / fmt.symmetric_max
    return context.result.scale.abs() > RAISED * needed


def _all_elements(context: Context, marked: Tensor) -> str:
    """Begin a sentence: ``All elements of row 3``, ``All elements of 2 of 8 blocks (first: row 3)``."""
    n = int(marked.sum())
    if marked.numel() == 1:
        return f"All {context.x_blocked.numel():,} elements"
    if n == 1:
        return f"All elements of {name_of(context, marked)}"
    return f"All elements of {n:,} of {marked.numel():,} blocks (first: {name_of(context, marked)})"


def name_of(context: Context, marked: Tensor) -> str:
    """Return the readable name of the first marked block."""
    return block_name(context.block_box(marked.nonzero()[0].tolist()), context.shape)


def boxes_of(context: Context, marked: Tensor) -> tuple[Box, ...]:
    """Return the marked blocks, at most `MAX_BOXES`; empty if there is only one block."""
    if marked.numel() == 1:
        return ()
    return tuple(context.block_box(place) for place in marked.nonzero()[:MAX_BOXES].tolist())
