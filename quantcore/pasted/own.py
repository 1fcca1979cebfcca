"""Tensors that pasted code makes itself: what their elements are, and what they are called."""

from typing import NamedTuple

from quantcore.pasted.chain import Chain, origin
from quantcore.pasted.values import OWN, RANDOM, Val
from quantcore.pasted.walk import Walk


class OwnTensor(NamedTuple):
    """A tensor that the code makes itself: its name in the code, the line that names it, and its shape.

    ``random``: its values are drawn at random, so that they are not those that the code gives elsewhere.
    """

    name: str
    line: int
    shape: tuple[int, ...]
    random: bool


def is_own(chain: Chain) -> bool:
    """Tell whether a quantizer is given a tensor that the code makes itself."""
    return origin(chain.data).op == OWN


def is_literal(chain: Chain) -> bool:
    """Tell whether the values of that tensor stand in the code."""
    return is_own(chain) and origin(chain.data).name not in RANDOM


def start(chain: Chain) -> Val:
    """Return the tensor, or the part of it, that has as many elements as the codes."""
    while chain.earlier is not None:
        chain = chain.earlier
    val, size = chain.data, chain.codes[-1].numbers.numel()
    while val.flow is not None and val.flow.numbers.numel() == size:
        val = val.flow
    return val


def own_tensor(walk: Walk, chain: Chain) -> OwnTensor | None:
    """Return the tensor of the code's own that a quantizer is given; None if it is given another."""
    if not is_own(chain):
        return None
    val = start(chain)
    named = ((name, line) for line, name, assigned in walk.assigned if assigned is val)
    name, line = next(named, ("", val.line))
    return OwnTensor(name[:40], line, tuple(val.value.shape), not is_literal(chain))
