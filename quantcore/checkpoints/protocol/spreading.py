"""Parameters of blocks, shaped to broadcast with the codes of some rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.granularity import Blocks
from quantcore.numerics import like


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

    ``elements``: a range of the flattened rows if blocks are runs of the flat tensor, else None, for all; ``grid``: the
    rows of their blocks; ``width``: elements per block along the last axis.
    """

    elements: slice | None
    grid: slice
    width: int


@dataclass(frozen=True)
class Spreading:
    """The blocks of the rows from ``first`` to ``last``; ``index``: the group of each column, if there is one."""

    blocks: Blocks
    index: Tensor | None
    first: int
    last: int

    @property
    def _is_flat(self) -> bool:
        return self.blocks.blocked_shape != self.blocks.shape

    def parts(self) -> Iterator[Part]:
        """Cut the rows so that parameters can be broadcast."""
        shape, block = self.blocks.shape, self.blocks.block
        if not self._is_flat:
            height = block[0] if shape else 1
            grid = slice(self.first // height, -(-self.last // height))
            yield Part(None, grid, block[-1] if len(shape) > 1 else 1)
            return
        inner = self.blocks.blocked_shape[0] // max(1, shape[0])
        start, stop, size = self.first * inner, self.last * inner, block[0]
        # a run that began in an earlier row, whole runs, and one that continues in a later row
        cuts = sorted({start, min(stop, -(-start // size) * size), max(start, stop // size * size), stop})
        for a, b in pairwise(cuts):
            yield Part(slice(a - start, b - start), slice(a // size, -(-b // size)), min(size, b - a))

    def by_rows(self, parameters: Parameters, part: Part, out: Tensor) -> Parameters:
        """Return parameters of a part's blocks with one row for each row of ``out``; a single number broadcasts.

        With a group index, they have one number per element.
        """
        spread = parameters.each(partial(self._of_rows, grid=part.grid))
        if self.index is None or self._is_flat:
            return spread
        pairs = zip(Parameters._fields, spread, strict=True)
        return Parameters(*(None if p is None else self._of_elements(p, name, out) for name, p in pairs))

    def _of_rows(self, parameter: Tensor, grid: slice) -> Tensor:
        shape = self.blocks.shape
        if self._is_flat or len(shape) < 2 or parameter.numel() == 1:
            return parameter
        for axis, b in enumerate(self.blocks.block[:-1]):
            if b > 1 and parameter.shape[axis] > 1:
                rows = torch.arange(self.first, self.last) if axis == 0 else torch.arange(shape[axis])
                parameter = parameter.index_select(axis, rows // b - (grid.start if axis == 0 else 0))
        return parameter

    def _of_elements(self, parameter: Tensor, name: str, out: Tensor) -> Tensor:
        if parameter.numel() == 1:
            return parameter
        assert self.index is not None
        shaped = out[: len(parameter)]  # one row, if all rows share it
        # into reused memory: new pages would cost more than the arithmetic
        return torch.index_select(
            parameter.to(torch.float32), -1, self.index, out=like(shaped, f"{name} by index")
        )

    def run(
        self,
        part: Part,
        parameters: Parameters,
        codes: Tensor,
        out: Tensor,
        dequantize: Callable[[Tensor, Parameters, Tensor], None],
    ) -> None:
        """Dequantize a part, in runs of one block along the last axis; the last run may be shorter."""
        if part.elements is not None:
            codes, out = codes.view(-1)[part.elements], out.view(-1)[part.elements]
        elif self.index is not None:
            return dequantize(codes, parameters, out)
        if part.width == 1:
            return dequantize(codes, parameters, out)
        width = part.width
        whole = codes.shape[-1] // width * width
        for elements, groups, size in (
            (slice(0, whole), slice(0, whole // width), width),
            (slice(whole, None), slice(whole // width, None), codes.shape[-1] - whole),
        ):
            if codes[..., elements].numel():
                split = [t[..., elements].view(*t.shape[:-1], -1, size) for t in (codes, out)]
                mine = parameters.each(partial(_runs_of, groups=groups))
                dequantize(split[0], mine, split[1])
        return None


def _runs_of(parameter: Tensor, groups: slice) -> Tensor:
    return parameter[..., groups].unsqueeze(-1)
