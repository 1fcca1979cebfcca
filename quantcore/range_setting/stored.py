"""Scales and zero points as they are stored in a file."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.range_setting.basic import Given


@dataclass(frozen=True)
class Stored(Given):
    """Parameters read from a file: scales may be non-finite, blocks may be many, and groups may be given by an index.

    Its text form names the origin and can't be parsed back, because the numbers are only in the file.

    Args:
        origin: the file and the tensor.
        scale: block form, float32.
        zero_point: block form; int32, or float32 for float zero points and minima.
        group_index: the group of each column, where groups are not runs of columns, or of each element; the last
            axis of ``scale`` and ``zero_point`` then counts groups, and every element is a block of its own.
        owner: what the tensor was read from; codes are encoded through it.
        num_bytes: bytes that the tensor takes in its files, codes and all parameters.
    """

    scale: Tensor = field(default=torch.ones(()), compare=False, repr=False)
    zero_point: Tensor = field(default=torch.zeros((), dtype=torch.int32), compare=False, repr=False)
    origin: str = ""
    group_index: Tensor | None = field(default=None, compare=False, repr=False)
    owner: Any = field(default=None, compare=False, repr=False)
    num_bytes: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check nothing: a file may contain any numbers."""

    def parameters(self, grid: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return scale and zero_point for a grid of blocks.

        Raises:
            QuantError: they belong to a tensor of another shape.
        """
        scale = self._spread("scale", self.scale, grid, device)
        return scale, self._spread("zero_point", self.zero_point, grid, device)

    def _spread(self, what: str, tensor: Tensor, grid: tuple[int, ...], device: torch.device) -> Tensor:
        """Return a parameter for every block of the grid."""
        if tensor.numel() == 1:
            return tensor.reshape(()).expand(grid).to(device)
        every = tensor if self.group_index is None else tensor[..., self.group_index]
        if every.numel() != torch.Size(grid).numel():
            raise QuantError(
                f"The stored {what} has shape {tuple(every.shape)}, but the blocks form a grid of {grid}; "
                "it belongs to a tensor of another shape."
            )
        return every.reshape(grid).to(device)
