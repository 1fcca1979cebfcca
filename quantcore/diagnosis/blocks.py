"""Blocks that leave nothing to scale: constant, all zero, or too small for a normal scale."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.context import Case
from quantcore.diagnosis.formatting import number
from quantcore.diagnosis.record import MAX_BOXES, Box, Finding
from quantcore.formats import FloatFormat, IntFormat
from quantcore.granularity import block_name
from quantcore.range_setting import Given, MinMax

LEAST = 4  # elements of a block that is looked at: fewer are alike by chance
TINY = 2.0**-126  # numbers below the smallest normal float32 lose their digits one by one
WIDE = 2.0**100  # a format that reaches so far needs no scale
BY_CHANCE = 0.01  # all-zero blocks to expect of so many zeros elsewhere: fewer are no chance
BETTER_DB = 1.0
RAISED = 4.0  # times the scale that the elements need: two bits of the codes are lost


def constant_block(case: Case) -> Iterator[Finding]:
    """All elements of a block are the same number, not 0."""
    low, high = case.extremes
    constant = (low == high) & (low != 0)
    if case.block_size < LEAST or not constant.any():
        return
    value, many = float(low[constant][0]), int(constant.sum())
    yield Finding(
        "constant_block",
        "note",
        f"{_blocks(case, constant, 'equal')} {number(value)}: one number would store {'it' if many == 1 else 'each'}.",
        _boxes(case, constant),
    )


def zero_block(case: Case) -> Iterator[Finding]:
    """All elements of a block are 0, and not because most of the tensor is."""
    zero = case.largest == 0
    if case.block_size < LEAST or not zero.any() or int(zero.sum()) <= _by_chance(case, zero):
        return
    found = float(case.result.scale[zero][0])
    if math.isnan(found):  # which `nan` says
        return
    scale, many = number(found), int(zero.sum())
    yield Finding(
        "zero_block",
        "note",
        f"{_blocks(case, zero, 'equal')} 0: a dead channel, or a bug upstream. {'Its' if many == 1 else 'The first'} scale, "
        f"{scale}, means nothing.",
        _boxes(case, zero),
    )


def _by_chance(case: Case, zero: Tensor) -> float:
    """A number of all-zero blocks that is no surprise with so many zeros elsewhere."""
    x, blocks = case.sample
    others = x[~zero[blocks]] if zero.dim() else x[:0]
    zeros = float((others == 0).double().mean()) if len(others) else 0.0
    expected = zero.numel() * zeros**case.block_size
    return 0.0 if expected < BY_CHANCE else 3 * expected + 3


def tiny_block(case: Case) -> Iterator[Finding]:
    """Elements so small that their scale is not a normal float32, or below the library's smallest scale."""
    if isinstance(case.scheme.range_setting, Given):  # given manually, whatever the elements are
        return
    scale, replaced = case.result.scale, case.result.params.replaced
    alive = case.largest > 0
    denormal = alive & (scale.abs() < TINY)  # ggml's scales have a sign
    small = torch.zeros_like(alive) if replaced is None else alive & replaced
    if denormal.any() and isinstance(case.scheme.format, FloatFormat) and case.scheme.format.max > WIDE:
        yield _needs_no_scale(case, case.scheme.format, denormal)
    elif denormal.any():
        value, first = float(case.largest[denormal].amax()), float(scale[denormal][0])
        yield Finding(
            "tiny_block",
            "warning",
            f"{_blocks(case, denormal, 'are at most')} {number(value)} in size: "
            + (
                f"the scale {number(first)} is denormal and has few digits."
                if first
                else "the scale comes to 0, and so does everything."
            )
            + " Multiply the tensor first.",
            _boxes(case, denormal),
        )
    elif small.any():
        yield _small(case, small)
    elif (raised := alive & _raised(case)).any():
        yield _of_least_range(case, raised)


def _needs_no_scale(case: Case, fmt: FloatFormat, denormal: Tensor) -> Finding:
    """Of bf16, whose largest value is nearly that of float32, the scale is denormal for any tensor."""
    return Finding(
        "tiny_block",
        "warning",
        f"{fmt} reaches {number(fmt.max)} without a scale: the one that brings the largest element there, "
        f"{number(float(case.result.scale[denormal][0]))}, is denormal and has few digits. Set scale 1 manually.",
        _boxes(case, denormal),
        **case.gained(case.best([case.but(range_setting=Given(1.0))], BETTER_DB)),
    )


def _small(case: Case, small: Tensor) -> Finding:
    convention = case.scheme.convention
    textbook = case.but(convention=TEXTBOOK.changed(overflow=convention.coding.overflow))
    return Finding(
        "tiny_block",
        "warning",
        f"{_blocks(case, small, 'are at most')} {number(float(case.largest[small].amax()))} in size: the scale would be below "
        f"{number(convention.scale.eps)}, the smallest of {convention.library}, and is "
        f"{number(float(case.result.scale[small][0]))} instead.",
        _boxes(case, small),
        **case.gained(case.best([textbook], BETTER_DB)),
    )


def _raised(case: Case) -> Tensor:
    """Blocks whose range the library widened to its least: their scale is far above what min-max asks for."""
    convention, fmt = case.scheme.convention, case.scheme.format
    least = convention.range.widen_to_eps or convention.range.min_range > 0
    if not least or not isinstance(fmt, IntFormat) or not isinstance(case.scheme.range_setting, MinMax):
        return torch.zeros_like(case.largest, dtype=torch.bool)
    needed = case.largest / max(1, (1 << fmt.bits - 1) - 1)
    return case.result.scale.abs() > RAISED * needed


def _of_least_range(case: Case, raised: Tensor) -> Finding:
    convention = case.scheme.convention
    return Finding(
        "tiny_block",
        "warning",
        f"{_blocks(case, raised, 'are at most')} {number(float(case.largest[raised].amax()))} in size, less than the least "
        f"range of {convention.library}, which gives them the scale {number(float(case.result.scale[raised][0]))}.",
        _boxes(case, raised),
        **case.gained(
            case.best([case.but(convention=TEXTBOOK.changed(overflow=convention.coding.overflow))], BETTER_DB)
        ),
    )


def _blocks(case: Case, marked: Tensor, verb: str) -> str:
    """The subject of a sentence: ``All elements of row 3, columns 0–31 equal``."""
    n, first = int(marked.sum()), marked.nonzero()[0].tolist()
    if marked.numel() == 1:
        return f"All {case.laid.numel():,} elements {verb}"
    at = block_name(case.block_box(first), case.shape)
    if n == 1:
        return f"All elements of {at} {verb}"
    if verb == "equal":
        return f"In {n:,} of {marked.numel():,} blocks all elements are equal; in the first, {at}, they are"
    return f"The elements of {n:,} of {marked.numel():,} blocks, the first {at}, {verb}"


def _boxes(case: Case, marked: Tensor) -> tuple[Box, ...]:
    if marked.numel() == 1:
        return ()
    return tuple(case.block_box(place) for place in marked.nonzero()[:MAX_BOXES].tolist())
