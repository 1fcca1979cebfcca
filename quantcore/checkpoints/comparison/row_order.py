"""The order in which a query or key weight has the rows of its original, found from one head, to show single rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import AS_STORED, EXPLAINED, Heads, Orders, described
from quantcore.checkpoints.comparison.sides import Opened


@dataclass(frozen=True)
class RowOrder:
    """An order of the rows within each head; ``name``: as `Orders.undo` takes it."""

    orders: Orders
    name: str

    def __str__(self) -> str:
        return described(self.name)

    def original(self, row: int) -> int:
        """Return the row of the original that a row corresponds to."""
        (start, _), index = self.originals(row, row + 1)
        return start + int(index[0])

    def originals(self, start: int, stop: int) -> tuple[tuple[int, int], Tensor]:
        """Return the range of rows of the original that includes some rows, and the position of each in it."""
        head = self.orders.head
        low, high = start // head * head, -(-stop // head) * head
        inside = torch.tensor([self.orders.source(self.name, row) for row in range(head)]).argsort()
        rows = torch.arange(start, stop)
        return (low, high), rows - rows % head - low + inside[rows % head]


def row_order(original: Opened, other: Opened, original_name: str, other_name: str) -> RowOrder | None:
    """Return the order in which a weight has the rows of its original; None if it is the same, or no order explains it.

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
    errors |= {
        name: float((was - orders.undo(name, now, rows)).square().sum()) for name in orders.head_orders
    }
    best = min(errors, key=lambda name: errors[name])
    return RowOrder(orders, best) if errors[best] < EXPLAINED * errors[AS_STORED] else None
