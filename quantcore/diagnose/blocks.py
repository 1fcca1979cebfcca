"""Blocks that hold nothing to scale: constant, all zero, or too small for their numbers."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.conventions import TEXTBOOK
from quantcore.diagnose.case import Case
from quantcore.diagnose.record import MAX_BOXES, Box, Finding
from quantcore.diagnose.words import number, where
from quantcore.float_format import FloatFormat
from quantcore.range_setting import Given

LEAST = 4  # elements of a block that is looked at
TINY = 2.0**-126  # below the smallest normal float32 the digits go one by one
WIDE = 2.0**100  # a format that reaches so far needs no scale
BY_CHANCE = 0.01  # all-zero blocks that the share of zeros in the others would make, at most
BETTER_DB = 1.0


def constant_block(case: Case) -> Iterator[Finding]:
    """All elements of a block are the same number, not 0."""
    low, high = case.extremes
    constant = (low == high) & (low != 0)
    if case.block_size < LEAST or not constant.any():
        return
    value = float(low[constant][0])
    yield Finding(
        "constant_block",
        "note",
        f"{_blocks(case, constant)} {number(value)}: there is nothing to tell apart, and one number would say it all.",
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
    scale = number(found)
    yield Finding(
        "zero_block",
        "note",
        f"{_blocks(case, zero)} 0: a dead channel, or a mistake before this. Its scale means nothing, and {scale} "
        "stands for it.",
        _boxes(case, zero),
    )


def _by_chance(case: Case, zero: Tensor) -> float:
    """A number of all-zero blocks that is no surprise among so many zeros."""
    x, blocks = case.sample
    others = x[~zero[blocks]] if zero.dim() else x[:0]
    part = float((others == 0).double().mean()) if len(others) else 0.0
    expected = zero.numel() * part**case.block_size
    return 0.0 if expected < BY_CHANCE else 3 * expected + 3


def tiny_block(case: Case) -> Iterator[Finding]:
    """Elements so small that their scale is no normal float32, or smaller than the library's smallest scale."""
    if isinstance(case.scheme.range_setting, Given):  # typed by hand, whatever the elements are
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
            f"{_blocks(case, denormal)} at most {number(value)}: "
            + (
                f"the scale {number(first)} is denormal, which has few digits, and which some processors take for 0."
                if first
                else "their scale comes to 0, and nothing is left of them."
            )
            + " Multiply the tensor first.",
            _boxes(case, denormal),
        )
    elif small.any():
        yield _small(case, small)


def _needs_no_scale(case: Case, fmt: FloatFormat, denormal: Tensor) -> Finding:
    """Of bf16, whose largest value is nearly that of float32, the scale is denormal for any tensor."""
    return Finding(
        "tiny_block",
        "warning",
        f"{fmt} reaches {number(fmt.max)} by itself: the scale that brings the largest element there, "
        f"{number(float(case.result.scale[denormal][0]))}, is denormal and has few digits. Choose scale 1 by hand.",
        _boxes(case, denormal),
        **case.gained(case.best([case.but(range_setting=Given(1.0))], BETTER_DB)),
    )


def _small(case: Case, small: Tensor) -> Finding:
    convention = case.scheme.convention
    mend = case.but(convention=TEXTBOOK.changed(overflow=convention.overflow))
    return Finding(
        "tiny_block",
        "warning",
        f"{_blocks(case, small)} at most {number(float(case.largest[small].amax()))}: their scale would be below "
        f"{number(convention.smallest_scale)}, the smallest that {convention.library} uses, and is "
        f"{number(float(case.result.scale[small][0]))} instead.",
        _boxes(case, small),
        **case.gained(case.best([mend], BETTER_DB)),
    )


def _blocks(case: Case, marked: Tensor) -> str:
    """``All 32 elements of row 3, columns 0..31 are``."""
    n, first = int(marked.sum()), marked.nonzero()[0].tolist()
    if marked.numel() == 1:
        return f"All {case.laid.numel():,} elements are"
    at = where(case.block_box(first))
    return (
        f"All elements of {at} are"
        if n == 1
        else f"{n:,} of {marked.numel():,} blocks, the first {at}, are all"
    )


def _boxes(case: Case, marked: Tensor) -> tuple[Box, ...]:
    if marked.numel() == 1:
        return ()
    return tuple(case.block_box(place) for place in marked.nonzero()[:MAX_BOXES].tolist())
