"""An original with its rows in the order that the release has them: llama.cpp permutes those of q and k."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.row_order import RowOrder, row_order
from quantcore.checkpoints.comparison.sides import Opened, is_gguf
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError


@dataclass(frozen=True)
class Ordered:
    """A weight of the original; ``order``: that of its rows in the release, None if it is the same."""

    tensor: CheckpointTensor
    order: RowOrder | None = None

    @property
    def name(self) -> str:
        """Its name in the original."""
        return self.tensor.name

    @property
    def layout(self) -> Layout:
        """How the original stores it."""
        return self.tensor.layout

    def read(self, rows: slice) -> Tensor:
        """Return the values of the rows that the release has at ``rows``."""
        if self.order is None:
            return self.tensor.read(rows)
        (low, high), places = self.order.originals(rows.start, rows.stop)
        return self.tensor.read(slice(low, high)).index_select(0, places.to(torch.int64))


def in_order(source: Opened, release: Opened, original: str, name: str) -> Ordered:
    """Return a weight of the original in the order of the release, where only llama.cpp's order makes them differ."""
    tensor = source.tensors[original]
    if is_gguf(source) == is_gguf(release):
        return Ordered(tensor)
    try:
        return Ordered(tensor, row_order(source, release, original, name))
    except QuantError:  # said when the weight is read
        return Ordered(tensor)
