"""What only a comparison with the original shows: rows in another order, and bits that leaked into other codes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import EXPLAINED, FAR, Orders
from quantcore.checkpoints.findings.record import CheckpointFinding, error, named, note, warning
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.protocol.layout import CODES, Layout
from quantcore.checkpoints.rows import ELEMENTS
from quantcore.diagnosis import number

LEAKED = 2.0  # ratio of the mean squared errors of odd and even sub-blocks
ENOUGH = 512  # elements of each parity


@dataclass
class Errors:
    """Squared errors against the original, summed over boxes of rows: as stored, and with other row orders undone."""

    layout: Layout
    orders: Orders
    squares: float = 0.0
    original: float = 0.0
    columns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    others: dict[str, float] = field(default_factory=dict)

    @property
    def relative(self) -> float:
        """RMS error divided by the RMS of the original."""
        return math.sqrt(self.squares / self.original) if self.original else math.inf if self.squares else 0.0

    def add(self, x: Tensor, values: Tensor) -> None:
        """Add the errors of some rows, ``values``, against those of the original, ``x``."""
        width = x.shape[-1] if x.dim() > 1 else 1
        for mine, theirs in zip(*(_in_parts(t.reshape(-1, width)) for t in (x, values)), strict=True):
            square = _finite(theirs - mine).to(torch.float64).square_()
            if width > 1:
                self.columns = self.columns + square.sum(0).numpy()
            self.squares += float(square.sum())
            self.original += float(_finite(mine).to(torch.float64).square_().sum())

    def add_orders(self, x: Tensor, values: Tensor, box: slice) -> None:
        """Add the errors of some rows with each of the other orders undone."""
        for name in self.orders.names:
            changed = self.orders.undo(name, values, box)
            total = float(_finite(changed - x).to(torch.float64).square_().sum())
            self.others[name] = self.others.get(name, 0.0) + total


def _in_parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Split rows into parts that are small in float64."""
    return torch.split(rows, max(1, ELEMENTS // max(1, rows.shape[-1])))


def _finite(values: Tensor) -> Tensor:
    """Replace NaN and infinity, which have findings of their own, by 0."""
    return values.nan_to_num(0.0, 0.0, 0.0)


def of_original(errors: Errors, name: str) -> Iterator[CheckpointFinding]:
    """Yield what the comparison with the original shows.

    Args:
        name: the name of the weight in the original.
    """
    order = min(errors.others, key=lambda k: errors.others[k], default=None)
    if order is not None and errors.others[order] < EXPLAINED * errors.squares:
        yield from _other_order(errors, order)
        return
    if not math.isfinite(errors.relative) or errors.relative > 1:
        yield error(
            errors.layout,
            "not_the_original",
            f"is not {named(name)} of the original: its RMS error is {number(errors.relative)} times the RMS of the "
            "original. No known row order explains it.",
        )
        return
    if errors.relative > 2 * FAR:
        yield warning(
            errors.layout,
            "far_from_original",
            f"differs from {named(name)} of the original: its RMS error is {number(errors.relative)} times the RMS of the "
            "original.",
        )
    yield from _leak(errors)


def _other_order(errors: Errors, order: str) -> Iterator[CheckpointFinding]:
    left, before = (math.sqrt(e / errors.original) for e in (errors.others[order], errors.squares))
    kind, _, places = order.partition(" ")
    by = f"in the right order, the relative error is {number(left)} instead of {number(before)}"
    if kind == "codes":
        yield error(
            errors.layout,
            "awq_order",
            f"has the codes and zero points of its output channels permuted {places} in each group of eight, but not "
            f"the scales: a packer or reader forgot AWQ's interleave; {by}.",
        )
    elif kind == "rows":
        yield error(
            errors.layout,
            "awq_order",
            f"has its output channels permuted {places} in each group of eight: AWQ's interleave was not undone; {by}.",
        )
    elif kind in ("plus", "minus"):
        yield note(
            errors.layout,
            "plus_one",
            f"is the original {kind} 1: llama.cpp adds 1 to the norms of some models; with that undone, the relative error "
            f"is {number(left)} instead of {number(before)}.",
        )
    else:
        yield note(
            errors.layout,
            "rows_permuted",
            f"has the rows of each of its {errors.orders.heads} heads in a different order than the original "
            f"({'the two halves interleaved' if kind == 'pairs' else 'the even rows before the odd ones'}): llama.cpp "
            f"permutes q and k for rotary embeddings; {by}.",
        )


def _leak(errors: Errors) -> Iterator[CheckpointFinding]:
    """Yield a finding if odd sub-blocks or columns are worse than even ones, or the reverse: bits leaked."""
    size, what = _sub_block(errors.layout)
    n = len(errors.columns)
    if not size or n < 2 * size or len(errors.layout.shape) < 2 or errors.layout.shape[0] * n < 2 * ENOUGH:
        return
    parity = np.arange(n) // size % 2
    even, odd = (float(errors.columns[parity == p].sum()) / int((parity == p).sum()) for p in (0, 1))
    worse, better, names = (odd, even, ("odd", "even")) if odd >= even else (even, odd, ("even", "odd"))
    if worse > LEAKED * better and worse > 0:
        yield error(
            errors.layout,
            "bit_leak",
            f"has larger errors in {names[0]} {what} than in {names[1]} ones: their mean squared error against the original "
            f"is {number(worse)}, that of the others {number(better)}. Bits leaked between codes that share a byte because "
            "the packer did not mask them; pack the weight again.",
        )


def _sub_block(layout: Layout) -> tuple[int, str]:
    """Return how many columns come before those that share their bytes, and what such a run is called."""
    if isinstance(layout, Gguf):
        size: Any = {"Q4_K": 32, "Q5_K": 32, "Q4_0": 16, "Q4_1": 16, "Q5_0": 16, "Q5_1": 16}.get(
            layout.kind.name
        )
        return (0, "") if size is None else (size, "sub-blocks" if size == 32 else "halves of blocks")
    field = layout.fields.get(CODES)
    packed = getattr(field, "order", None)
    if packed is not None and packed.bits == 4 and getattr(field, "axis", 0) % len(layout.shape) == 1:
        return 1, "columns"
    return 0, ""
