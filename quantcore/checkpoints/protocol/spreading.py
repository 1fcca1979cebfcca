"""Parameters of blocks, shaped to broadcast with the codes of some rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.granularity import Blocks
from quantcore.numerics import like

Numbers = Mapping[str, Tensor]  # parameters by name
Given = Callable[[slice], Numbers]  # those of some rows of blocks; of columns, those of all of them
Compute = Callable[[Numbers, Tensor, Tensor], None]  # of parameters that broadcast, codes, and values to be written


class Parameters(NamedTuple):
    """The parameters of some codes, shaped to broadcast with them; None where there are none."""

    scale: Tensor | None
    zero_point: Tensor | None
    min: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Parameters":
        """Return the changed parameters."""
        return Parameters(*(None if p is None else change(p) for p in self))


@dataclass(frozen=True)
class Spreading:
    """The blocks of the rows from ``first`` to ``last``.

    ``index``: the group of each column, or of each element, if there is one. ``columns``: the number of groups whose
    elements take turns in the flat weight, else 0.
    """

    blocks: Blocks
    index: Tensor | None
    first: int
    last: int
    columns: int = 0

    def run(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute the values of codes, in parts whose blocks all have the same width along the last axis."""
        boxes = self.blocks.blocked_shape == self.blocks.shape and not self.columns
        (self._boxes if boxes else self._runs)(parameters, codes, out, compute)

    def _boxes(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute blocks that are boxes, of which the last along an axis may be shorter."""
        shape, block = self.blocks.shape, self.blocks.block
        height, width = block[0] if shape else 1, block[-1] if len(shape) > 1 else 1
        grid = slice(self.first // height, -(-self.last // height))
        numbers = {name: self._of_rows(p, grid) for name, p in parameters(grid).items()}
        if self.index is not None:
            return compute({name: self._of_elements(p, name, out) for name, p in numbers.items()}, codes, out)
        if width == 1:
            return compute(numbers, codes, out)
        whole = codes.shape[-1] // width * width
        for elements, groups, size in (
            (slice(0, whole), slice(0, whole // width), width),
            (slice(whole, None), slice(whole // width, None), codes.shape[-1] - whole),
        ):
            if codes[..., elements].numel():
                split = [t[..., elements].view(*t.shape[:-1], -1, size) for t in (codes, out)]
                compute({name: p[..., groups].unsqueeze(-1) for name, p in numbers.items()}, *split)
        return None

    def _runs(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute blocks that are runs of the flat weight, or whose elements take turns in it."""
        inner = self.blocks.shape[1] if self.columns else self.blocks.blocked_shape[0] // max(1, self.blocks.shape[0])
        start, stop, size = self.first * inner, self.last * inner, self.columns or self.blocks.block[0]
        # a run that began in an earlier row, whole runs, and one that continues in a later row
        cuts = sorted({start, min(stop, -(-start // size) * size), max(start, stop // size * size), stop})
        for a, b in pairwise(cuts):
            width = min(size, b - a)
            if self.columns:
                groups = slice(a % size, a % size + width)
                numbers = {n: p if p.numel() == 1 else p.view(1, -1)[:, groups] for n, p in parameters(groups).items()}
            else:
                numbers = {n: p.unsqueeze(-1) for n, p in parameters(slice(a // size, -(-b // size))).items()}
            compute(numbers, *(t.view(-1)[a - start : b - start].view(-1, width) for t in (codes, out)))

    def _of_rows(self, parameter: Tensor, grid: slice) -> Tensor:
        """Return parameters of boxes with one row for each row of the weight; a single number broadcasts."""
        shape = self.blocks.shape
        if len(shape) < 2 or parameter.numel() == 1:
            return parameter
        for axis, b in enumerate(self.blocks.block[:-1]):
            if b > 1 and parameter.shape[axis] > 1:
                rows = torch.arange(self.first, self.last) if axis == 0 else torch.arange(shape[axis])
                parameter = parameter.index_select(axis, rows // b - (grid.start if axis == 0 else 0))
        return parameter

    def _of_elements(self, parameter: Tensor, name: str, out: Tensor) -> Tensor:
        """Return one number per element, by the group of its column."""
        if parameter.numel() == 1:
            return parameter
        assert self.index is not None
        shaped = out[: len(parameter)]  # one row, if all rows share it
        # into reused memory: new pages would cost more than the arithmetic
        return torch.index_select(parameter.to(torch.float32), -1, self.index, out=like(shaped, f"{name} by index"))
