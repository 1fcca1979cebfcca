"""Codes in words: orders as data, and one kernel for all of them."""

from quantcore.checkpoints.packing.kernel import pack, unpack
from quantcore.checkpoints.packing.orders import (
    Fragment,
    Order,
    dense,
    high_first,
    padded,
    parts,
    permuted,
    planar,
)
from quantcore.checkpoints.packing.pairs import fits_pairs, look_up_pairs, pairs_of

__all__ = [
    "Fragment",
    "Order",
    "dense",
    "fits_pairs",
    "high_first",
    "look_up_pairs",
    "pack",
    "padded",
    "pairs_of",
    "parts",
    "permuted",
    "planar",
    "unpack",
]
