"""Findings from the codes of a weight: codes that never occur, -0, NaN, and bits that are lost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note, warning
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.rows import ELEMENTS
from quantcore.formats import FloatFormat, IntFormat

ENOUGH = 64  # elements per code; with fewer, a code that never occurs means nothing
FEW_BITS = 6  # of wider codes, those for the tails often never occur


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
        self._narrow = isinstance(element, IntFormat) and element.bits < 8 and isinstance(self.layout.fields[CODES], Numbers)

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
            words = "{has} {codes:code} outside {format}, the format that is given for {it}; correct the format or the codes."
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
    yield note(layout, "minus_zero", words, codes=minus_zero, total=total, share=share, plus_zeros=int(counts[0]))


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
                "{has} bit {bit} set to {value} in every code, so half of the {codes} codes never occur; a packer may have "
                "lost it."
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
