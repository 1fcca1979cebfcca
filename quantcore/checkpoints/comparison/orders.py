"""Other orders in which software stores the rows of a weight, and shifted norms: what they are, and how they are undone."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.layouts.awq import Awq
from quantcore.checkpoints.protocol.layout import CODES, ZERO_POINT, Layout
from quantcore.checkpoints.protocol.release import Release

# AWQ's order of eight outputs in a word, and its inverse
ORDER, INVERSE = (0, 4, 1, 5, 2, 6, 3, 7), (0, 2, 4, 6, 1, 3, 5, 7)
AS_STORED = "as stored"
HALVES, PAIRS, PLUS_ONE, MINUS_ONE = "halves", "pairs", "plus one", "minus one"
_EIGHTS = {" ".join(map(str, order)): inverse for order, inverse in ((ORDER, INVERSE), (INVERSE, ORDER))}
FAR = 0.3  # relative error from which another order of rows is tried
EXPLAINED = 0.25  # of the squared error is left by the right order
_ATTENTION = re.compile(r"(?:layers|blk|h|blocks)\.(\d+)\..*?(attn_[qk]|[qk]_proj)\.(?:weight|bias)$")


@dataclass(frozen=True)
class Heads:
    """Attention heads, of queries and of keys, by layer or of all; empty if they are not known."""

    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()

    @classmethod
    def of(cls, *releases: Release) -> "Heads":
        """Read them from the first config that has them: of a GGUF file, or config.json."""
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
        """Return the heads of a weight of queries or keys; 0 for another."""
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
    """The orders in which the rows of a weight may lie.

    ``shape``: of the weight; ``heads``: that its rows belong to, 0 if none; ``layout``: where its codes are read apart
    from its scales.
    """

    shape: tuple[int, ...]
    heads: int = 0
    layout: Layout | None = None

    @property
    def has_eights(self) -> bool:
        """Whether outputs come in eights, as AWQ packs them."""
        return len(self.shape) == 2 and self.shape[0] % 8 == 0

    @property
    def has_heads(self) -> bool:
        """Whether rows come in heads of an even number."""
        return self.heads > 0 and len(self.shape) <= 2 and self.shape[0] % (2 * self.heads) == 0

    @property
    def multiple(self) -> int:
        """Rows that a box must not separate."""
        return math.lcm(8 if self.has_eights else 1, self.head if self.has_heads else 1)

    @property
    def head(self) -> int:
        """Rows of a head."""
        return self.shape[0] // self.heads

    @property
    def of_heads(self) -> tuple[str, ...]:
        """The orders of the rows of a head: llama.cpp's, and the way back."""
        return (HALVES, PAIRS) if self.has_heads else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every order but the one in which they are stored."""
        codes = "codes" if isinstance(self.layout, Awq) else "rows"
        ones = (PLUS_ONE, MINUS_ONE) if len(self.shape) == 1 else ()
        eights = tuple(f"{codes} {order}" for order in _EIGHTS) if self.has_eights else ()
        return (*ones, *eights, *self.of_heads)

    def undone(self, order: str, values: Tensor, rows: slice) -> Tensor:
        """Return the values of some rows, a multiple of `multiple`, as they are if ``order`` is undone.

        Args:
            order: "pairs": the two halves of each head are interleaved in the file, "halves": pairs are taken apart
                into two halves, "plus one": 1 was added, "rows 0 4 1 5 2 6 3 7": AWQ's interleave.
            rows: which rows they are.
        """
        if order in (PLUS_ONE, MINUS_ONE):
            return values - (1 if order == PLUS_ONE else -1)
        kind = order.partition(" ")[0]
        if kind == "codes":
            return self._with_codes(self._places(order, len(values)), rows)
        return values[self._places(order, len(values))]

    def source(self, order: str, row: int) -> int:
        """Return in which row the file has what ``order`` undone puts into ``row``."""
        if order in (AS_STORED, PLUS_ONE, MINUS_ONE):
            return row
        block = self.head if order in self.of_heads else 8
        return row - row % block + int(self._places(order, block)[row % block])

    def _places(self, order: str, n: int) -> Tensor:
        """Return which row of ``n`` goes where."""
        if order in self.of_heads:
            shape = (2, self.head // 2) if order == HALVES else (self.head // 2, 2)
            inside = torch.arange(self.head).reshape(shape).T.reshape(-1)
        else:
            inside = torch.tensor(_EIGHTS[order.partition(" ")[2]])
        return (torch.arange(0, n, len(inside))[:, None] + inside).reshape(-1)

    def _with_codes(self, places: Tensor, rows: slice) -> Tensor:
        """Return values with codes and zero points in another order of rows, and scales as they are."""
        assert self.layout is not None
        fields = self.layout.fields
        codes, zeros = fields[CODES].read(rows)[places], fields[ZERO_POINT].read(rows)[places]
        scale, size = self.layout.parameters(rows).scale, self.layout.blocks.block[-1]
        assert scale is not None  # AWQ has scales
        columns = codes.shape[-1]
        spread: Callable[[Tensor], Tensor] = lambda p: p.repeat_interleave(size, -1)[:, :columns]  # noqa: E731
        return (codes.to(torch.float32) - spread(zeros.to(torch.float32))) * spread(scale)


def described(order: str) -> str:
    """Say which order it is: ``with the two halves of each head interleaved``."""
    kind, _, places = order.partition(" ")
    words = {
        AS_STORED: "as stored",
        HALVES: "with pairs of rows of each head taken apart into two halves",
        PAIRS: "with the two halves of each head interleaved",
        PLUS_ONE: "plus 1",
        MINUS_ONE: "minus 1",
    }
    if order in words:
        return words[order]
    what = "codes and zeros of its output channels" if kind == "codes" else "output channels"
    return f"with {what} permuted {places} inside each eight"
