"""Row orders in which some software stores weights, and shifted norms.

What they are, which a weight has, and how to undo them.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.sides import Opened
from quantcore.checkpoints.layouts.awq import INTERLEAVE
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, ZERO_POINT
from quantcore.checkpoints.protocol.release import Release

AS_STORED = "as stored"
HALVES, PAIRS, PLUS_ONE, MINUS_ONE = "halves", "pairs", "plus one", "minus one"
_INTERLEAVED = torch.tensor(INTERLEAVE)
# AWQ's order of eight outputs and its inverse, each with the place that undoing it takes every output from
EIGHTS = {
    " ".join(map(str, order.tolist())): order.argsort() for order in (_INTERLEAVED, _INTERLEAVED.argsort())
}
FAR = 0.3  # relative error above which other row orders are tried
_LIKELY = 0.7  # the same, of llama.cpp's orders, which one expects: much of the error may have another cause
EXPLAINED = 0.25  # an order explains the error if it leaves less than this fraction of the squared error
_HEADS = ("num_attention_heads", "num_key_value_heads")
_ATTENTION = re.compile(r"(?:layers|blk|h|blocks)\.(\d+)\..*?(attn_[qk]|[qk]_proj)\.(?:weight|bias)$")


@dataclass(frozen=True)
class Heads:
    """The numbers of query and key heads, one per layer or one for all layers; empty if unknown."""

    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()

    @classmethod
    def of(cls, *releases: Release) -> "Heads":
        """Read them from the first config that has them: config.json or the metadata of a GGUF file."""
        for release in releases:
            config = release.config
            gguf = f"{config.get('general.architecture')}.attention.head_count"
            text = section(config, "text_config")
            places = ((config, *_HEADS), (text, *_HEADS), (config, gguf, f"{gguf}_kv"))
            for given, of_queries, of_keys in places:
                queries = _numbers(given.get(of_queries))
                if queries:
                    return cls(queries, _numbers(given.get(of_keys)) or queries)
        return cls()

    def of_weight(self, name: str) -> int:
        """Return the number of heads of a query or key weight; 0 for any other weight."""
        found = _ATTENTION.search(name)
        if found is None:
            return 0
        heads, layer = self.queries if "q" in found[2].replace("attn_", "") else self.keys, int(found[1])
        return heads[0] if len(heads) == 1 else heads[layer] if layer < len(heads) else 0


def _numbers(value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    return tuple(listed) if all(type(n) is int and 0 < n < 2**20 for n in listed) else ()


@dataclass(frozen=True, eq=False)
class Order:
    """What some software did to the rows of a weight, and how to undo it.

    ``name``: in records;
    ``inside``: the stored row that belongs at each row of a run of adjacent rows;
    ``added``: to every value;
    ``codes_of``: the layout of which only codes and zero points were moved, not scales;
    ``heads``: those whose rows were moved, 0 if others were.
    """

    name: str
    inside: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    added: int = 0
    codes_of: Layout | None = None
    heads: int = 0

    def __str__(self) -> str:
        return described(self.name)

    def undo(self, values: Tensor, rows: slice) -> Tensor:
        """Return the values of some rows as they were before; as many as a multiple of `Orders.multiple`.

        Args:
            rows: the rows that ``values`` holds.
        """
        if self.added:
            return values - self.added
        places = in_blocks(len(values), self.inside)
        return values[places] if self.codes_of is None else _with_codes(self.codes_of, places, rows)

    def source(self, row: int) -> int:
        """Return the row of the file that undoing it moves to ``row``."""
        start = row - row % len(self.inside)
        return start + int(self.inside[row - start])

    def original(self, row: int) -> int:
        """Return the row of the original that a row corresponds to."""
        (start, _), index = self.originals(row, row + 1)
        return start + int(index[0])

    def originals(self, start: int, stop: int) -> tuple[tuple[int, int], Tensor]:
        """Return the range of rows of the original that some rows lie in, and the position of each there."""
        run = len(self.inside)
        low, high = start // run * run, -(-stop // run) * run
        return (low, high), in_blocks(high - low, self.inside.argsort())[start - low : stop - low]


UNCHANGED = Order(AS_STORED)


def _with_codes(layout: Layout, places: Tensor, rows: slice) -> Tensor:
    """Return the values with the rows of codes and zero points reordered, and scales as stored."""
    fields = layout.fields
    codes, zeros = fields[CODES].read(rows)[places], fields[ZERO_POINT].read(rows)[places]
    scale, size = layout.parameters(rows).scale, layout.blocks.block[-1]
    assert scale is not None  # AWQ has scales
    columns = codes.shape[-1]
    spread: Callable[[Tensor], Tensor] = lambda p: p.repeat_interleave(size, -1)[:, :columns]  # noqa: E731
    return (codes.to(torch.float32) - spread(zeros.to(torch.float32))) * spread(scale)


@dataclass(frozen=True)
class Orders:
    """The orders in which the rows of a weight may be stored.

    ``shape``: that of the weight; ``heads``: the number of heads that its rows belong to, 0 if none;
    ``layout``: needed for orders of codes alone, without their scales.
    """

    shape: tuple[int, ...]
    heads: int = 0
    layout: Layout | None = None

    @property
    def has_heads(self) -> bool:
        """Whether the rows divide into heads with an even number of rows each."""
        return self.heads > 0 and len(self.shape) <= 2 and self.shape[0] % (2 * self.heads) == 0

    @property
    def multiple(self) -> int:
        """The number of adjacent rows that must stay in one box."""
        return math.lcm(*(len(order.inside) for order in self.by_name.values()))

    @cached_property
    def of_heads(self) -> tuple[Order, ...]:
        """The orders of the rows within a head: llama.cpp's inverse, and llama.cpp's."""
        if not self.has_heads:
            return ()
        head = self.shape[0] // self.heads
        rows = torch.arange(head)
        shapes = {HALVES: (2, head // 2), PAIRS: (head // 2, 2)}
        return tuple(Order(n, rows.reshape(s).T.reshape(-1), heads=self.heads) for n, s in shapes.items())

    @cached_property
    def by_name(self) -> dict[str, Order]:
        """Every order by its name; as stored first."""
        found = [UNCHANGED]
        if len(self.shape) == 1:
            found += Order(PLUS_ONE, added=1), Order(MINUS_ONE, added=-1)
        if len(self.shape) == 2 and self.shape[0] % 8 == 0:  # in groups of eight outputs, as AWQ packs them
            layout = self.layout if self.layout is not None and self.layout.format_name == "awq" else None
            what = "rows" if layout is None else "codes"
            found += [Order(f"{what} {name}", inside, codes_of=layout) for name, inside in EIGHTS.items()]
        return {order.name: order for order in (*found, *self.of_heads)}


def in_blocks(n: int, inside: Tensor) -> Tensor:
    """Return ``n`` places whose runs of ``len(inside)`` are ordered alike, as ``inside`` says."""
    return (torch.arange(0, n, len(inside))[:, None] + inside).reshape(-1)


def described(order: str) -> str:
    """Describe an order by its name: ``with the two halves of each head interleaved``."""
    kind, _, places = order.partition(" ")
    words = {
        AS_STORED: "as stored",
        HALVES: "with the even rows of each head before the odd ones",
        PAIRS: "with the two halves of each head interleaved",
        PLUS_ONE: "plus 1",
        MINUS_ONE: "minus 1",
    }
    if order in words:
        return words[order]
    what = "codes and zero points of its output channels" if kind == "codes" else "output channels"
    return f"with {what} permuted {places} in each group of eight"


def row_order(original: Opened, other: Opened, original_name: str, other_name: str) -> Order | None:
    """Return the order in which a weight has the rows of its original; None if none explains it.

    Reads one head of both.

    Raises:
        QuantError: one of them can't be read.
    """
    x, y = original.tensors[original_name], other.tensors[other_name]
    orders = Orders(y.shape, Heads.of(original.release, other.release).of_weight(other_name)).of_heads
    if len(y.shape) != 2 or x.shape != y.shape or not orders:
        return None
    rows = slice(0, len(orders[0].inside))
    was, now = x.read(rows), y.read(rows)
    left = {order: float((was - order.undo(now, rows)).square().sum()) for order in orders}
    best = min(orders, key=lambda order: left[order])
    return best if left[best] < _LIKELY * float((was - now).square().sum()) else None
