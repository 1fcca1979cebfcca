"""In which order a weight of queries or keys has the rows of its original: found from one head, for looking at rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import AS_STORED, EXPLAINED, Heads, Orders, described
from quantcore.checkpoints.comparison.sides import Opened


@dataclass(frozen=True)
class RowOrder:
    """An order of the rows of each head; ``name``: what undoes it, see `orders`."""

    orders: Orders
    name: str

    def __str__(self) -> str:
        return described(self.name)

    def original(self, row: int) -> int:
        """Return which row of the original a row is."""
        (start, _), index = self.originals(row, row + 1)
        return start + int(index[0])

    def originals(self, start: int, stop: int) -> tuple[tuple[int, int], Tensor]:
        """Return the rows of the original that hold some rows, and the place of each among them."""
        head = self.orders.head
        low, high = start // head * head, -(-stop // head) * head
        inside = torch.tensor([self.orders.source(self.name, row) for row in range(head)]).argsort()
        rows = torch.arange(start, stop)
        return (low, high), rows - rows % head - low + inside[rows % head]


def row_order(original: Opened, other: Opened, original_name: str, other_name: str) -> RowOrder | None:
    """Return the order in which a weight has the rows of its original; None if it is the same, or no order fits.

    Reads one head of both.

    Raises:
        QuantError: one of them can't be read.
    """
    x, y = original.tensors[original_name], other.tensors[other_name]
    orders = Orders(y.shape, Heads.of(original.release, other.release).of_weight(other_name))
    if len(y.shape) != 2 or x.shape != y.shape or not orders.has_heads:
        return None
    rows = slice(0, orders.head)
    was, now = x.read(rows), y.read(rows)
    errors = {AS_STORED: float((was - now).square().sum())}
    errors |= {name: float((was - orders.undone(name, now, rows)).square().sum()) for name in orders.of_heads}
    best = min(errors, key=lambda name: (errors[name], name != AS_STORED))
    return RowOrder(orders, best) if errors[best] < EXPLAINED * errors[AS_STORED] else None
