"""Row orders in which some software stores weights, and shifted norms: what they are, and how to undo them."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.layouts.awq import INTERLEAVE
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.protocol.value import CODES, ZERO_POINT

INVERSE = tuple(INTERLEAVE.index(place) for place in range(len(INTERLEAVE)))  # of AWQ's order of eight outputs
AS_STORED = "as stored"
HALVES, PAIRS, PLUS_ONE, MINUS_ONE = "halves", "pairs", "plus one", "minus one"
EIGHTS = {" ".join(map(str, order)): inverse for order, inverse in ((INTERLEAVE, INVERSE), (INVERSE, INTERLEAVE))}
FAR = 0.3  # relative error above which other row orders are tried
EXPLAINED = 0.25  # an order explains the error if it leaves less than this fraction of the squared error
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
            inner = config.get("text_config")
            for given in (config, inner if isinstance(inner, dict) else {}):
                queries = _numbers(given.get("num_attention_heads"))
                if queries:
                    return cls(queries, _numbers(given.get("num_key_value_heads")) or queries)
            architecture = config.get("general.architecture")
            queries = _numbers(config.get(f"{architecture}.attention.head_count"))
            if queries:
                return cls(
                    queries, _numbers(config.get(f"{architecture}.attention.head_count_kv")) or queries
                )
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


@dataclass(frozen=True)
class Orders:
    """The orders in which the rows of a weight may be stored.

    ``shape``: that of the weight; ``heads``: the number of heads that its rows belong to, 0 if none; ``layout``: needed
    for orders of codes alone, without their scales.
    """

    shape: tuple[int, ...]
    heads: int = 0
    layout: Layout | None = None

    @property
    def has_eights(self) -> bool:
        """Whether the outputs divide into groups of eight, as AWQ packs them."""
        return len(self.shape) == 2 and self.shape[0] % 8 == 0

    @property
    def has_heads(self) -> bool:
        """Whether the rows divide into heads with an even number of rows each."""
        return self.heads > 0 and len(self.shape) <= 2 and self.shape[0] % (2 * self.heads) == 0

    @property
    def multiple(self) -> int:
        """The number of adjacent rows that must stay in one box."""
        return math.lcm(8 if self.has_eights else 1, self.head if self.has_heads else 1)

    @property
    def head(self) -> int:
        """Rows per head."""
        return self.shape[0] // self.heads

    @property
    def head_orders(self) -> tuple[str, ...]:
        """The orders of the rows within a head: llama.cpp's and its inverse."""
        return (HALVES, PAIRS) if self.has_heads else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every order except as stored."""
        codes = "codes" if self.layout is not None and self.layout.format_name == "awq" else "rows"
        ones = (PLUS_ONE, MINUS_ONE) if len(self.shape) == 1 else ()
        eights = tuple(f"{codes} {order}" for order in EIGHTS) if self.has_eights else ()
        return (*ones, *eights, *self.head_orders)

    def undo(self, order: str, values: Tensor, rows: slice) -> Tensor:
        """Return the values of some rows with ``order`` undone; their number must be a multiple of `multiple`.

        Args:
            order: what was done: "pairs": the two halves of each head were interleaved; "halves": the even rows of
                each head were put before the odd ones; "plus one": 1 was added; "rows 0 4 1 5 2 6 3 7": AWQ's interleave.
            rows: the rows that ``values`` holds.
        """
        if order in (PLUS_ONE, MINUS_ONE):
            return values - (1 if order == PLUS_ONE else -1)
        kind = order.partition(" ")[0]
        if kind == "codes":
            return self._with_codes(self.places(order, len(values)), rows)
        return values[self.places(order, len(values))]

    def source(self, order: str, row: int) -> int:
        """Return the row of the file that undoing ``order`` moves to ``row``."""
        if order in (AS_STORED, PLUS_ONE, MINUS_ONE):
            return row
        block = self.head if order in self.head_orders else 8
        return row - row % block + int(self.places(order, block)[row % block])

    def places(self, order: str, n: int) -> Tensor:
        """Return the stored row that belongs at each of ``n`` rows."""
        if order in self.head_orders:
            shape = (2, self.head // 2) if order == HALVES else (self.head // 2, 2)
            inside = torch.arange(self.head).reshape(shape).T.reshape(-1)
        else:
            inside = torch.tensor(EIGHTS[order.partition(" ")[2]])
        return in_blocks(n, inside)

    def _with_codes(self, places: Tensor, rows: slice) -> Tensor:
        """Return the values with the rows of codes and zero points reordered, and scales as stored."""
        assert self.layout is not None
        fields = self.layout.fields
        codes, zeros = fields[CODES].read(rows)[places], fields[ZERO_POINT].read(rows)[places]
        scale, size = self.layout.parameters(rows).scale, self.layout.blocks.block[-1]
        assert scale is not None  # AWQ has scales
        columns = codes.shape[-1]
        spread: Callable[[Tensor], Tensor] = lambda p: p.repeat_interleave(size, -1)[:, :columns]  # noqa: E731
        return (codes.to(torch.float32) - spread(zeros.to(torch.float32))) * spread(scale)


def in_blocks(n: int, inside: Tensor) -> Tensor:
    """Return ``n`` places whose runs of ``len(inside)`` are ordered alike, as ``inside`` says."""
    return (torch.arange(0, n, len(inside))[:, None] + inside).reshape(-1)


def described(order: str) -> str:
    """Describe an order: ``with the two halves of each head interleaved``."""
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
