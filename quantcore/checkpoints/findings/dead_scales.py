"""Blocks whose scale is 0 although their codes differ: what they held is lost.

A block of zeros has a scale of 0 in many libraries, and equal codes. `Provenance` counts such blocks itself where codes are
integers in groups of adjacent columns; here are the others: floats, blocks of several rows, columns in the order of a g_idx.
"""

import math
from dataclasses import dataclass

import torch

from quantcore.checkpoints.findings.against.grid import Grid
from quantcore.checkpoints.findings.provenance import Provenance
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.formats import IntFormat

_MANY = 0.01  # of the runs; the scales of small floats underflow in fewer, where weights hardly matter
_MATTERS = 0.05  # of the mean x² of the weight


@dataclass
class DeadScales:
    """Counts runs of columns whose scale is 0 although the values of their codes differ.

    ``dead``: of ``runs``; ``first``: the row and the column of the first; ``lost``, ``elements``: Σx² of the original in them, and
    how many they are; ``original``: Σx² of the rest.
    """

    layout: Layout
    runs: int = 0
    dead: int = 0
    first: tuple[int, int] = (0, 0)
    lost: float = 0.0
    elements: int = 0
    original: float = 0.0

    def __post_init__(self) -> None:
        """Find the columns of each run."""
        self._width = math.prod(self.layout.shape[1:])
        self._run = min(self.layout.blocks.block[-1], self._width)
        index = self.layout.group_index()
        self._order = None if index is None else index.argsort(stable=True)
        self._grid = Grid(self.layout)

    @classmethod
    def suits(cls, layout: Layout) -> bool:
        """Whether runs of columns share a scale, and `Provenance` does not look at them.

        llama.cpp leaves the codes of sub-blocks whose scale becomes 0 as its search found them.
        """
        if layout.block_type or not Grid.suits(layout) or Provenance.suits(layout) or len(layout.shape) < 2:
            return False
        index = layout.group_index()
        whole = len(layout.shape) == 2 or layout.shape[-1] % layout.blocks.block[-1] == 0
        return whole and (index is None or index.dim() == 1) and layout.blocks.blocked_shape == layout.shape

    def add(self, box: Box) -> None:
        """Add some rows, and those of the original."""
        given = self._grid.scales(box.rows), self._grid.bits(box.codes)
        scales, bits = (t.reshape(len(box.codes), -1) for t in given)
        if self._order is not None:
            scales, bits = scales[:, self._order], bits[:, self._order]
        values = self._grid.table[bits].nan_to_num(0.0, 0.0, 0.0)
        last = (self._width // self._run) * self._run  # a shorter run at the end is left out
        runs = [t[:, :last].reshape(len(t), -1, self._run) for t in (scales, values)]
        low, high = torch.aminmax(runs[1], dim=-1)
        dead = (runs[0] == 0).all(-1) & (low < high)
        self.runs += dead.numel()
        found = dead.nonzero()
        if len(found) and not self.dead:
            column = int(found[0, 1]) * self._run
            at = column if self._order is None else int(self._order[column])
            self.first = (int(found[0, 0]) + box.start, at)
        self.dead += len(found)
        if box.source is not None:
            x = box.original.reshape(len(box.codes), -1).nan_to_num(0.0, 0.0, 0.0)
            x = x if self._order is None else x[:, self._order]
            squares = x[:, :last].reshape(len(x), -1, self._run).double().square().sum(-1)
            self.lost += float(squares[dead].sum())
            self.original += float(squares.sum())
            self.elements += len(found) * self._run

    def found(self) -> list[CheckpointFinding]:
        """Return what has been added, an error where it matters."""
        if not 0 < self.dead < self.runs:  # of all, `extremes` says more
            return []
        matters = isinstance(self.layout.element, IntFormat) or self.dead >= _MANY * self.runs
        if self.elements:
            matters = self.lost > _MATTERS * self.elements * self.original / (self.runs * self._run)
        words = (
            "{has} a scale of 0 in {dead} of {groups} runs of {size:column}, the first at {at}, although {its} codes there differ; "
            "their values are lost."
        )
        say = error if matters else note
        return [say(self.layout, "scale_zero", words, dead=self.dead, groups=self.runs, size=self._run, at=self.first)]
