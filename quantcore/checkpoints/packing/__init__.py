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

__all__ = [
    "Fragment",
    "Order",
    "dense",
    "high_first",
    "pack",
    "padded",
    "parts",
    "permuted",
    "planar",
    "unpack",
]
