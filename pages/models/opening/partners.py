"""Which tensor of an original belongs to which of a checkpoint: found once for two that are open."""

import numpy as np

from pages.models.opening.opened import Opened
from pages.shared import cache
from pages.shared.selection import Tensor
from quantcore.checkpoints import CheckpointTensor
from quantcore.checkpoints.comparison import Pair, Pairing, pair_up


def pairing(opened: Opened, original: Opened) -> Pairing:
    """The pairs of two checkpoints, by names and shapes; reads no data."""
    key, elements = f"pairing {original.key} | {opened.key}", len(opened.checkpoint.tensors)
    record = Tensor(key, "", (100 * elements,), _nothing)
    return cache.cached_small(record, "pairs", lambda: pair_up(original.checkpoint, opened.checkpoint))


def pairs_of(opened: Opened, original: Opened, name: str) -> list[Pair]:
    """The pairs of a tensor: one, or one for each expert or part of it."""

    def make() -> dict[str, list[Pair]]:
        found: dict[str, list[Pair]] = {}
        for pair in pairing(opened, original).pairs:
            found.setdefault(pair.other.name, []).append(pair)
        return found

    key = f"pairing {original.key} | {opened.key}"
    return cache.cached_small(Tensor(key, "", (1,), _nothing), "by name", make).get(name, [])


def partner(opened: Opened, original: Opened | None, name: str) -> CheckpointTensor | None:
    """The tensor of the original that a whole tensor was made from; None if there is none of its shape."""
    if original is None:
        return None
    whole = [p for p in pairs_of(opened, original, name) if p.original.is_whole and p.other.is_whole]
    found = original.checkpoint.tensors[whole[0].original.name] if whole else None
    return found if found is not None and found.shape == opened.checkpoint.tensors[name].shape else None


def _nothing() -> np.ndarray:
    raise AssertionError("a pairing has no values")
