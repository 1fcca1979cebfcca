"""Which tensors of an original and of a checkpoint belong together: found once for two open checkpoints."""

from dataclasses import dataclass

from torch import Tensor

from pages.models.opening.opened import OpenCheckpoint
from pages.shared.computing import cache
from quantcore.checkpoints import CheckpointTensor, plane_shape
from quantcore.checkpoints.comparison import Order, Pair, Pairing, pair_up, row_order


def pairing(opened: OpenCheckpoint, original: OpenCheckpoint) -> Pairing:
    """The pairs of tensors of two checkpoints, by name and shape; reads no data."""
    key, elements = f"pairing {original.key} | {opened.key}", len(opened.checkpoint.tensors)
    return cache.cached_small(cache.CacheKey(key, 100 * elements), "pairs", lambda: pair_up(original.checkpoint, opened.checkpoint))


def pairs_of(opened: OpenCheckpoint, original: OpenCheckpoint, name: str) -> list[Pair]:
    """The pairs of a tensor: none, one, or one for each expert or part of it."""
    return pairing(opened, original).of_other.get(name, [])


@dataclass(frozen=True)
class Partner:
    """The plane of the original that a plane of a tensor was made from.

    ``tensor``, ``at``: where the plane is; ``order``: the order of its rows in the checkpoint, if that is different.
    """

    tensor: CheckpointTensor
    at: tuple[int, ...]
    order: Order | None

    @property
    def key(self) -> str:
        """Identifies the plane among those of the original, for caches."""
        return f"{self.tensor.name} {self.at}"

    def rows(self, start: int, stop: int) -> Tensor:
        """The values of rows ``start`` to ``stop`` of the checkpoint, float32.

        Raises:
            QuantError: they can't be read.
        """
        if self.order is None:
            return self.tensor.window((start, stop), self.at).values
        span, index = self.order.originals(start, stop)
        return self.tensor.window(span, self.at).values[index]

    def index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The index in the original of an element of the checkpoint's tensor."""
        row, column = (0, *index)[-2:]
        row = row if self.order is None else self.order.original(row)
        return (*self.at, row, column)[-len(self.tensor.shape) :] if self.tensor.shape else ()


def partner(opened: OpenCheckpoint, original: OpenCheckpoint | None, name: str, at: tuple[int, ...]) -> Partner | None:
    """The plane that a plane of a tensor was made from; None if the original is missing or has no such plane.

    Args:
        at: the index of the plane on all axes but the last two.

    Raises:
        QuantError: one of them can't be read.
    """
    if original is None:
        return None
    for pair in pairs_of(opened, original, name):
        parts = (pair.original, pair.other)
        if any(part.rows or part.transposed for part in parts) or pair.other.index not in (None, *at[:1]):
            continue
        found = original.checkpoint.tensors[pair.original.name]
        place = at if pair.other.index is None else at[1:]
        place = place if pair.original.index is None else (pair.original.index, *place)
        shape = opened.checkpoint.tensors[name].shape
        if plane_shape(found.shape) == plane_shape(shape) and len(place) == max(0, len(found.shape) - 2):
            return Partner(found, place, _order(opened, original, found.name, name))
    return None


def _order(opened: OpenCheckpoint, original: OpenCheckpoint, was: str, name: str) -> Order | None:
    def make() -> tuple[Order | None]:
        return (row_order(original.checkpoint, opened.checkpoint, was, name),)

    content = cache.CacheKey(f"order {original.key} | {opened.key} {was} {name}", 1 << 18)
    return cache.cached_small(content, "order", make)[0]

