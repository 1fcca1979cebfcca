"""What a checkpoint holds, tensor by tensor, from headers alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from quantcore.checkpoints.protocol.refused import Refused
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError


@dataclass(frozen=True)
class Entry:
    """A tensor of a list.

    ``problem``: why it can't be read; its shape is then that of what is stored.
    """

    name: str
    shape: tuple[int, ...]
    storage: str
    num_bytes: int
    problem: str = ""

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bits(self) -> float:
        """Bits per weight, parameters included; NaN for a tensor that can't be read or has no elements."""
        return math.nan if self.problem or not self.elements else 8 * self.num_bytes / self.elements


def listing(tensors: Mapping[str, CheckpointTensor]) -> list[Entry]:
    """Return every tensor, in the order of the files."""
    return [_entry(name, tensor) for name, tensor in tensors.items()]


def _entry(name: str, tensor: CheckpointTensor) -> Entry:
    layout = tensor.layout
    try:
        problem = layout.reason if isinstance(layout, Refused) else ""
        return Entry(name, tensor.shape, tensor.storage, tensor.num_bytes, problem)
    except QuantError as error:  # a shape that a stored tensor should hold
        return Entry(name, (), "can't be read", tensor.num_bytes, str(error))
