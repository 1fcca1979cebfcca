"""Which tensor of an original belongs to which of a checkpoint: found once for two that are open."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pages.models.opening.opened import Opened
from pages.shared import cache
from pages.shared.selection import Tensor as ForCache
from quantcore.checkpoints import CheckpointTensor
from quantcore.checkpoints.comparison import Pair, Pairing, RowOrder, pair_up, row_order


def pairing(opened: Opened, original: Opened) -> Pairing:
    """The pairs of two checkpoints, by names and shapes; reads no data."""
    key, elements = f"pairing {original.key} | {opened.key}", len(opened.checkpoint.tensors)
    record = ForCache(key, "", (100 * elements,), _nothing)
    return cache.cached_small(record, "pairs", lambda: pair_up(original.checkpoint, opened.checkpoint))


def pairs_of(opened: Opened, original: Opened, name: str) -> list[Pair]:
    """The pairs of a tensor: one, or one for each expert or part of it."""

    def make() -> dict[str, list[Pair]]:
        found: dict[str, list[Pair]] = {}
        for pair in pairing(opened, original).pairs:
            found.setdefault(pair.other.name, []).append(pair)
        return found

    key = f"pairing {original.key} | {opened.key}"
    return cache.cached_small(ForCache(key, "", (1,), _nothing), "by name", make).get(name, [])


@dataclass(frozen=True)
class Partner:
    """The tensor of the original that a whole tensor was made from.

    ``order``: in which order its rows lie, if that is another.
    """

    tensor: CheckpointTensor
    order: RowOrder | None

    def rows(self, start: int, stop: int, at: tuple[int, ...]) -> Tensor:
        """The values of some rows of a plane, as the checkpoint has them, float32.

        Raises:
            QuantError: they can't be read.
        """
        if self.order is None:
            return self.tensor.window((start, stop), at).values
        span, index = self.order.originals(start, stop)
        return self.tensor.window(span, at).values[index]

    def index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Where an element of the checkpoint's tensor lies in the original."""
        return index if self.order is None else (self.order.original(index[0]), *index[1:])


def partner(opened: Opened, original: Opened | None, name: str) -> Partner | None:
    """The tensor of the original that a whole tensor was made from; None if there is none of its shape.

    Raises:
        QuantError: one of them can't be read.
    """
    if original is None:
        return None
    whole = [p for p in pairs_of(opened, original, name) if p.original.is_whole and p.other.is_whole]
    if not whole:
        return None
    found = original.checkpoint.tensors[whole[0].original.name]
    if found.shape != opened.checkpoint.tensors[name].shape:
        return None

    def make() -> tuple[RowOrder | None]:
        return (row_order(original.checkpoint, opened.checkpoint, found.name, name),)

    key = f"order {original.key} | {opened.key} {name}"
    return Partner(found, cache.cached_small(ForCache(key, "", (1 << 18,), _nothing), "order", make)[0])


def _nothing() -> np.ndarray:
    raise AssertionError("a pairing has no values")
