"""Bits that leaked into the codes of the neighbors with which they share bytes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.value import CODES

LEAKED = 2.0  # ratio of the mean squared errors of odd and even sub-blocks
ENOUGH = 512  # elements of each parity


def leak_of(layout: Layout, columns: npt.NDArray[np.float64]) -> CheckpointFinding | None:
    """Return what the squared errors of columns show: odd ones are much worse than even ones, or the reverse."""
    if layout.holds_values:
        return None
    size, what = _sub_block(layout)
    n = len(columns)
    if not size or n < 2 * size or len(layout.shape) < 2 or layout.shape[0] * n < 2 * ENOUGH:
        return None
    parity = np.arange(n) // size % 2
    # each column counts the same, so that a single one with a large error does not decide
    rows = layout.shape[0]
    means = [np.sort(columns[parity == p]) / rows for p in (0, 1)]
    even, odd = (float(m.mean()) for m in means)
    middle = [float(np.median(m)) for m in means]
    small, large = sorted((even, odd))
    agree = max(middle) > LEAKED * min(middle) and (middle[1] >= middle[0]) == (odd >= even)
    if not (large > LEAKED * small and large > 0 and agree):
        return None
    worse, better = ("odd", "even") if odd >= even else ("even", "odd")
    words = (
        "{has} larger errors in {worse} {what} than in {better} ones: {its} mean squared error against the original is "
        "{large} there, {small} elsewhere. Bits leaked between codes that share a byte because the packer did not mask "
        "them; pack the weight again."
    )
    return error(layout, "bit_leak", words, worse=worse, better=better, what=what, large=large, small=small)


def _sub_block(layout: Layout) -> tuple[int, str]:
    """Return how many columns come before those that share their bytes, and what such a run is called."""
    if layout.block_type:
        size: Any = {"Q4_K": 32, "Q5_K": 32, "Q4_0": 16, "Q4_1": 16, "Q5_0": 16, "Q5_1": 16}.get(
            layout.block_type
        )
        return (0, "") if size is None else (size, "sub-blocks" if size == 32 else "halves of blocks")
    field = layout.fields.get(CODES)
    packed = getattr(field, "order", None)
    if packed is not None and packed.bits == 4 and getattr(field, "axis", 0) % len(layout.shape) == 1:
        return 1, "columns"
    return 0, ""
