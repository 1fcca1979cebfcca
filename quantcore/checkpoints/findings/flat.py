"""Rows and columns of a weight in which every number is the same: what the end of a file that was never written leaves.

Codes are compared, since scales differ along a row; of a plain weight, the values. A row or column of 0 may be sound (one that
was pruned, or that error feedback took for dead), unless several lie side by side; another number throughout is not. Either is
wrong only where siblings have none: structured pruning leaves them in every layer.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.protocol.layout import Layout

LONG = 32  # numbers in a row or column; fewer may be the same by chance
SIDE_BY_SIDE = 8  # rows or columns of 0
SIBLINGS = 4  # that have none
_LOOKS = 8  # numbers of a row or column that are compared first


@dataclass(frozen=True)
class Flat:
    """The rows or columns of a weight that are flat.

    ``axis``: "row" or "column"; ``total``: how many, of ``of``; ``longest``: of them side by side, from ``first`` on;
    ``zero``: whether those are 0; ``numbers``: what was compared.
    """

    axis: str
    total: int
    of: int
    longest: int
    first: int
    zero: bool
    numbers: str

    @property
    def is_damage(self) -> bool:
        """Whether no sound weight has it, if its siblings have none."""
        return not self.zero or self.longest >= SIDE_BY_SIDE


class FlatLines:
    """Looks for flat rows and columns in boxes of rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._rows: list[Tensor] = []
        self._first: Tensor | None = None
        self._columns = torch.zeros(0, dtype=torch.int64)  # that may be flat

    def add(self, rows: Box) -> None:
        """Add the codes of some rows, or the values where there are none."""
        numbers = rows.values if self.layout.holds_values else rows.codes
        if numbers.dim() < 2 or not numbers.numel():
            return
        box = numbers.reshape(len(numbers), -1)
        if self._first is None:
            self._first, self._columns = box[0].clone(), torch.arange(box.shape[1])
        if box.shape[1] >= LONG:
            some = box[:, :: -(-box.shape[1] // _LOOKS)]
            alike = (some == box[:, :1]).all(1).nonzero()[:, 0]
            self._rows.append(alike[(box[alike] == box[alike, :1]).all(1)] + rows.start)
        for lines in (box[:: -(-len(box) // _LOOKS)], box):
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
        ends = torch.cat([torch.tensor([0]), (places.diff() != 1).nonzero()[:, 0] + 1, torch.tensor([len(places)])])
        lengths = ends.diff()
        start = int(ends[lengths.argmax()])
        first, longest = int(places[start]), int(lengths.max())
        row = first if axis == "row" else 0
        values = self.layout.values(slice(row, row + 1)).reshape(-1)
        zero = not bool((values if axis == "row" else values[first : first + longest]).any())
        return Flat(axis, len(places), of, longest, first, zero, "value" if self.layout.is_plain else "code")


def of_flat(of_role: Mapping[str, Sequence[Flat]]) -> Iterator[CheckpointFinding]:
    """Yield what is wrong with the weights of one role, from what is flat in each, by name."""
    for name, found in of_role.items():
        for lines in (each for each in found if each.is_damage):
            others = [theirs for other, theirs in of_role.items() if other != name]
            alive = sum(all(each.axis != lines.axis for each in theirs) for theirs in others)
            if alive < max(SIBLINGS, 0.75 * len(others)):
                continue
            what = "are 0" if lines.zero else f"have one {lines.numbers} throughout"
            words = (
                f"{{has}} {{lines:{lines.axis}}} of {{of}} that {what}, {{side_by_side}} of them side by side from {lines.axis} "
                "{first} on, where {alive} of the {siblings} in other layers have none; download the release again."
            )
            yield error(
                name,
                f"flat_{lines.axis}s",
                words,
                lines=lines.total,
                of=lines.of,
                first=lines.first,
                side_by_side=lines.longest,
                alive=alive,
                siblings=len(others),
            )
            break  # a weight of one number has flat rows and columns
