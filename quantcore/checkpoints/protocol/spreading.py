"""Parameters of blocks, shaped to broadcast with the codes of some rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.granularity import Blocks
from quantcore.numerics import like

Numbers = Mapping[str, Tensor]  # parameters by name


class Parameters(NamedTuple):
    """The parameters of some codes, shaped to broadcast with them; None where there are none."""

    scale: Tensor | None
    zero_point: Tensor | None
    min: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Parameters":
        """Return the changed parameters."""
        return Parameters(*(None if p is None else change(p) for p in self))


class Part(NamedTuple):
    """Some of the codes of the rows, whose blocks all have the same width.

    ``elements``: a range of the flattened rows if blocks are not boxes, else None, for all; ``grid``: the rows of
    their blocks; ``width``: elements per block along the last axis.
    """

    elements: slice | None
    grid: slice
    width: int


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

    def parts(self) -> Iterator[Part]:
        """Cut the rows so that parameters can be broadcast."""
        shape, block = self.blocks.shape, self.blocks.block
        if self.blocks.blocked_shape == shape and not self.columns:
            height = block[0] if shape else 1
            grid = slice(self.first // height, -(-self.last // height))
            yield Part(None, grid, block[-1] if len(shape) > 1 else 1)
            return
        inner = shape[1] if self.columns else self.blocks.blocked_shape[0] // max(1, shape[0])
        start, stop, size = self.first * inner, self.last * inner, self.columns or block[0]
        # a run that began in an earlier row, whole runs, and one that continues in a later row
        cuts = sorted({start, min(stop, -(-start // size) * size), max(start, stop // size * size), stop})
        for a, b in pairwise(cuts):
            width = min(size, b - a)
            groups = slice(a % size, a % size + width) if self.columns else slice(a // size, -(-b // size))
            yield Part(slice(a - start, b - start), groups, width)

    def run(
        self, part: Part, numbers: Numbers, codes: Tensor, out: Tensor, compute: Callable[[Numbers, Tensor, Tensor], None]
    ) -> None:
        """Compute the values of a part's codes, in runs of one block along the last axis; the last may be shorter.

        Args:
            numbers: the parameters of the part's blocks; those of columns are of all of them.
            compute: (parameters that broadcast, codes, values to be written).
        """
        if part.elements is not None:
            codes, out = (t.view(-1)[part.elements].view(-1, part.width) for t in (codes, out))
            if self.columns:
                numbers = {name: p if p.numel() == 1 else p.view(1, -1)[:, part.grid] for name, p in numbers.items()}
            else:
                numbers = {name: p.unsqueeze(-1) for name, p in numbers.items()}
            return compute(numbers, codes, out)
        numbers = {name: self._of_rows(p, part.grid) for name, p in numbers.items()}
        if self.index is not None:
            return compute({name: self._of_elements(p, name, out) for name, p in numbers.items()}, codes, out)
        if part.width == 1:
            return compute(numbers, codes, out)
        width = part.width
        whole = codes.shape[-1] // width * width
        for elements, groups, size in (
            (slice(0, whole), slice(0, whole // width), width),
            (slice(whole, None), slice(whole // width, None), codes.shape[-1] - whole),
        ):
            if codes[..., elements].numel():
                split = [t[..., elements].view(*t.shape[:-1], -1, size) for t in (codes, out)]
                compute({name: p[..., groups].unsqueeze(-1) for name, p in numbers.items()}, *split)
        return None

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
