"""What is wrong or unusual in what is stored: scales, zero points, the group of each column (g_idx), codes.

Codes that never occur, -0, NaN, and bits that are lost. In a flat row or column every number is the same:
what the end of a file that was never written leaves. Codes are compared, since scales differ along a row; of
a plain weight, the values. A row or column of 0 may be sound (one that was pruned, or that error feedback
took for dead), unless several lie side by side; another number throughout is not.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.record import CheckpointFinding, error, finding_of, note, warning
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, SCALE, GroupOrder
from quantcore.checkpoints.rows import ELEMENTS, boxes
from quantcore.checkpoints.statement import Facts, Statement
from quantcore.formats import FloatFormat, IntFormat

FEW = 8  # fewer scales than this can all be powers of two by chance
ENOUGH = 64  # elements per code; with fewer, a code that never occurs means nothing
FEW_BITS = 6  # of wider codes, those for the tails often never occur
TINY = 1e-7  # the median of scales or values that no model has
LONG = 32  # numbers in a row or column; fewer may be the same by chance
_LOOKS = 8  # numbers of a row or column that are compared first


def of_parameters(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield the findings that need only the parameters of a quantized weight.

    Raises:
        QuantError: they can't be read.
    """
    # decisions against the config or without it, which other readers may make differently, and the format's
    # own checks
    own = layout.checks(layout) if layout.checks is not None else ()
    said = (*layout.statements(), *own, *of_dtype(layout.fields.get(SCALE), "scales"))
    powers = any(s.kind == "e8m0_nan" for s in said)
    yield from (finding_of(s.severity, layout, s.kind, s.words, **s.facts) for s in said)
    yield from of_group_index(layout)
    yield from (found for found in _scales(layout) if not (powers and found.kind == "scale_nonfinite"))
    yield from _powers_of_two(layout)


def _scales(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield the scales that are not finite or negative; of zeros, see `siblings`."""
    nonfinite, negative, total = _Marked(), _Marked(), 0
    for start, scale in scale_boxes(layout):
        nonfinite.add(~scale.isfinite(), start)
        negative.add(scale < 0, start)
        total += scale.numel()
    if nonfinite.count:
        words = (
            "{has} {scales:NaN or infinite scale}, first at {first} of the grid of blocks; "
            "the values there are wrong."
        )
        yield error(layout, "scale_nonfinite", words, scales=nonfinite.count, first=nonfinite.first)
    # those of MLX and ggml are signed, and nested ones of bitsandbytes are rounded
    unusual = layout.symmetric and SCALE in layout.fields
    if unusual and negative.count:
        words = (
            "{has} {scales:negative scale} ({share:%}), first at {first} of the grid of blocks; {its} format "
            "does not write negative scales."
        )
        count = negative.count
        share = count / total
        yield warning(layout, "scale_negative", words, scales=count, share=share, first=negative.first)


@dataclass
class _Marked:
    """The number of marked entries over boxes of rows, and the index of the first."""

    count: int = 0
    first: tuple[int, ...] = ()

    def add(self, mask: Tensor, start: int) -> None:
        """Count the marks of a box whose first row is ``start``."""
        n = int(mask.sum())
        if n and not self.count:
            place = mask.nonzero()[0].tolist()
            self.first = (place[0] + start, *place[1:]) if place else ()  # of one scale that has no axes
        self.count += n


def scale_boxes(layout: Layout) -> Iterator[tuple[int, Tensor]]:
    """Yield the effective scales in block form, in boxes of rows, each with its first row."""
    if layout.blocks.blocked_shape != layout.shape or layout.blocks.block[:1] != (1,):
        scale = layout.scale()
        if scale is not None:
            yield 0, scale
        return
    for box in boxes(layout):
        scale = layout.parameters(box).scale
        if scale is None:
            return
        yield box.start, scale
        if scale.numel() == 1 < layout.shape[0]:  # one scale for all rows
            return


def of_dtype(field: Field | None, what: str) -> Iterator[Statement]:
    """Yield the statement that numbers of bfloat16 have the bits of float16: they are far too small."""
    if field is None or field.piece.dtype != "BF16" or not isinstance(field, Numbers):
        return
    shape = field.piece.shape
    some = (slice(0, max(1, min(shape[0], ELEMENTS // max(1, math.prod(shape[1:]))))),) if shape else ()
    own = field.piece.bits(some)
    values = [torch.from_numpy(own.view("<i2").copy()).view(d) for d in (torch.bfloat16, torch.float16)]
    stored, other = (float(t.float().abs().median()) for t in values)
    if 0 < stored < TINY < other and bool(values[1].isfinite().all()):
        words = (
            "{has} {what} of {stored} (median of magnitudes) in bfloat16, smaller than any model's; the same "
            "bits are {other} in float16: the dtype in the file is probably wrong."
        )
        facts: Facts = {"what": what, "stored": stored, "other": other}
        yield Statement("bits_reinterpreted", "warning", words, facts)


def _powers_of_two(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield scales in float32 that E8M0 could store."""
    field = layout.fields.get(SCALE)
    if field is None or field.piece.dtype != "F32":
        return
    scale = field.read().contiguous()
    powers = (scale.view(torch.int32) & 0x7FFFFF == 0) & (scale != 0)
    if scale.numel() >= FEW and bool((powers | (scale == 0)).all()) and int((powers & (scale != 1)).sum()):
        words = (
            "{has} float32 scales that are all powers of two ({scales:scale}), as in E8M0 (ue8m0); if they "
            "were rounded after the codes were computed, "
            "values are too large or too small by a factor of up to 2."
        )
        yield warning(layout, "scales_powers_of_two", words, scales=int(powers.sum()))


def of_group_index(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield findings about columns that are not in the order of their groups, and groups of a wrong size."""
    if GROUP_INDEX not in layout.fields:
        return
    found = layout.fields[GROUP_INDEX].read()
    if not found.numel() or bool((found == -1).all()):  # compressed-tensors: never set
        return
    yield from _sizes(layout, found)
    order = layout.group_order
    assert order is not None  # every format with a group index says it
    falls = found[1:] < found[:-1]
    if bool(falls.any()):
        yield _unsorted(layout, found, int(falls.nonzero()[0, 0]) + 1, order)
    elif order.said and layout.blocks.grid[-1] > 1:
        words = (
            "{has} columns in the order of {its} groups, although the config says {says}; "
            "the values are the same."
        )
        yield note(layout, "config_unused", words, says=order.option, groups=layout.blocks.grid[-1])


def _unsorted(layout: Layout, found: Tensor, at: int, order: GroupOrder) -> CheckpointFinding:
    where = (
        "{has} an unsorted g_idx: column {column} belongs to group {group}, "
        "the one before it to group {before}"
    )
    say, words = (note, f"{where} {order.unsorted}") if order.said else (error, f"{where}{order.unsaid}")
    group, before = int(found[at]), int(found[at - 1])
    return say(layout, "g_idx_unsorted", words, column=at, group=group, before=before)


def _sizes(layout: Layout, found: Tensor) -> Iterator[CheckpointFinding]:
    """Yield the groups that do not have as many columns as the group size says; the last may have fewer."""
    size, groups = layout.blocks.block[-1], layout.blocks.grid[-1]
    if int(found.min()) < 0 or int(found.max()) >= groups:  # reading it says so
        return
    counts = torch.bincount(found.to(torch.int64), minlength=groups)
    expected = torch.full_like(counts, size)
    expected[-1] = layout.shape[-1] - size * (groups - 1)
    wrong = (counts.sort().values != expected.sort().values).nonzero()
    if not len(wrong):
        return
    at = int((counts != expected).nonzero()[0, 0])
    words = (
        "{has} a g_idx that gives group {group} {columns:column} instead of {size}; every group has as many "
        "columns as the group size, so it is damaged."
    )
    yield error(layout, "g_idx_unbalanced", words, group=at, columns=int(counts[at]), size=size)


@dataclass
class Histogram:
    """How often each code occurs, by its bits."""

    layout: Layout
    counts: npt.NDArray[np.int64] = field(init=False)
    outside: int = 0  # codes that are wider than the format, where each has a byte

    def __post_init__(self) -> None:
        """Start with counts of 0."""
        self.counts = np.zeros(1 << self.layout.element.bits, np.int64)
        element = self.layout.element
        is_int = isinstance(element, IntFormat) and element.bits < 8
        self._narrow = is_int and isinstance(self.layout.fields[CODES], Numbers)

    @classmethod
    def suits(cls, layout: Layout) -> bool:
        """Tell whether each code is a stored number of its own, of at most 8 bits."""
        return CodeGrid.suits(layout) and not layout.block_type.startswith("TQ")  # whose codes are digits

    def add(self, box: Box) -> None:
        """Count the codes of a box."""
        codes = box.codes
        if self._narrow:
            half = len(self.counts) // 2
            self.outside += int(((codes < -half) | (codes >= half)).sum())
        flat = codes.contiguous().view(torch.uint8).reshape(-1).numpy()
        for start in range(0, len(flat), ELEMENTS):  # bincount needs 8 bytes per code
            bits = flat[start : start + ELEMENTS] & np.uint8(len(self.counts) - 1)
            self.counts += np.bincount(bits, minlength=len(self.counts))

    @property
    def total(self) -> int:
        """The number of codes."""
        return int(self.counts.sum())

    def found(self) -> Iterator[CheckpointFinding]:
        """Yield the findings from a weight's codes."""
        if self.outside:
            words = (
                "{has} {codes:code} outside {format}, the format that is given for {it}; "
                "correct the format or the codes."
            )
            element = self.layout.element
            yield error(self.layout, "code_outside", words, codes=self.outside, format=str(element))
        if isinstance(self.layout.element, FloatFormat):
            yield from _floats(self)
        if self.total >= ENOUGH * len(self.counts):
            lost = list(_lost_bits(self))
            yield from lost
            if not lost and self.layout.element.bits <= FEW_BITS:
                yield from _never_used(self)


def _floats(histogram: Histogram) -> Iterator[CheckpointFinding]:
    """Yield NaN, and the -0 of FP4; in 8-bit floats, -0 is what small negative values round to."""
    layout, counts = histogram.layout, histogram.counts
    element: Any = layout.element
    table = element.table.numpy()
    nan = int(counts[~np.isfinite(table)].sum())
    if nan:
        words = "{has} {codes:NaN or infinity code}; {its} values there are not finite."
        yield error(layout, "code_nan", words, codes=nan)
    minus_zero = int(counts[(table == 0) & np.signbit(table)].sum())
    if not minus_zero or element.bits > 4:
        return
    total = histogram.total
    of = "in {codes} of {its} {total} codes ({share:%})"
    words = f"{{has}} the code −0 {of}; its value is 0."
    if not counts[0]:
        mxfp4 = SCALE_CODE in layout.fields and layout.fields[SCALE_CODE].piece.dtype in ("U8", "F8_E8M0")
        who = ", as ModelOpt does in MXFP4" * mxfp4
        words = f"{{stores}} 0 as −0 {of}, and never as +0{who}."
    share = minus_zero / total
    facts = {"codes": minus_zero, "total": total, "share": share, "plus_zeros": int(counts[0])}
    yield note(layout, "minus_zero", words, **facts)


def _lost_bits(histogram: Histogram) -> Iterator[CheckpointFinding]:
    """Yield the bits that are the same in every code: a packer or unpacker may shift or mask wrongly."""
    used = np.flatnonzero(histogram.counts)
    if len(used) < 2:
        return
    bits = histogram.layout.element.bits
    always, ever = int(np.bitwise_and.reduce(used)), int(np.bitwise_or.reduce(used))
    for bit in range(bits):
        if always >> bit & 1 or not ever >> bit & 1:
            words = (
                "{has} bit {bit} set to {value} in every code, so half of the {codes} codes never occur; a "
                "packer may have lost it."
            )
            facts = {"bit": bit, "value": always >> bit & 1, "codes": 1 << bits}
            yield warning(histogram.layout, "bit_constant", words, **facts)


def _never_used(histogram: Histogram) -> Iterator[CheckpointFinding]:
    """Yield the codes that never occur."""
    layout, element = histogram.layout, histogram.layout.element
    unused = np.flatnonzero(histogram.counts == 0)
    if isinstance(element, FloatFormat):
        table = element.table.numpy()
        # an unused NaN, infinity or signed zero is no loss
        unused = unused[np.isfinite(table[unused]) & (table[unused] != 0)]
    if not len(unused):
        return
    bits = element.bits
    signed = isinstance(element, IntFormat) and element.signed
    numbers = sorted(int(c) - (1 << bits) if signed and c >> (bits - 1) else int(c) for c in unused)
    words = f"never {{uses}} the {'code' if len(numbers) == 1 else 'codes'} {{codes:list}} of {{format}}."
    yield note(layout, "codes_never_used", words, codes=tuple(numbers), format=str(element))


@dataclass(frozen=True)
class Flat:
    """The rows or columns of a weight that are flat.

    ``axis``: "row" or "column";
    ``total``: how many, of ``of``;
    ``longest``: of them side by side, from ``first`` on;
    ``zero``: whether those are 0;
    ``numbers``: what was compared.
    """

    axis: str
    total: int
    of: int
    longest: int
    first: int
    zero: bool
    numbers: str


class FlatLines:
    """Looks for flat rows and columns in boxes of rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._rows: list[Tensor] = []
        self._first: Tensor | None = None
        self._columns = torch.zeros(0, dtype=torch.int64)  # that may be flat

    def add(self, box: Box) -> None:
        """Add the codes of some rows, or the values where there are none."""
        numbers = box.values if self.layout.holds_values else box.codes
        if numbers.dim() < 2 or not numbers.numel():
            return
        numbers = numbers.reshape(len(numbers), -1)
        if self._first is None:
            self._first, self._columns = numbers[0].clone(), torch.arange(numbers.shape[1])
        if numbers.shape[1] >= LONG:
            some = numbers[:, :: -(-numbers.shape[1] // _LOOKS)]
            alike = (some == numbers[:, :1]).all(1).nonzero()[:, 0]
            alike = alike[(numbers[alike] == numbers[alike, :1]).all(1)]
            self._rows.append(alike + box.rows.start)
        for lines in (numbers[:: -(-len(numbers) // _LOOKS)], numbers):
            if len(self._columns):
                same = (lines[:, self._columns] == self._first[self._columns]).all(0)
                self._columns = self._columns[same]

    def found(self) -> tuple[Flat, ...]:
        """Return what has been added."""
        rows, *inner = self.layout.shape
        found = []
        if self._rows and len(flat := torch.cat(self._rows)):
            found.append(self._of("row", flat, rows))
        if rows >= LONG and len(self._columns):
            found.append(self._of("column", self._columns, math.prod(inner)))
        return tuple(found)

    def _of(self, axis: str, places: Tensor, of: int) -> Flat:
        _, lengths = torch.unique_consecutive(places - torch.arange(len(places)), return_counts=True)
        longest = int(lengths.max())
        first = int(places[lengths[: lengths.argmax()].sum()])
        row = first if axis == "row" else 0
        values = self.layout.values(slice(row, row + 1)).reshape(-1)
        zero = not bool((values if axis == "row" else values[first : first + longest]).any())
        return Flat(axis, len(places), of, longest, first, zero, "value" if self.layout.is_plain else "code")
