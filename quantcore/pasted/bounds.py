"""What an evaluation may cost, checked before the cost arises."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError

ARRAYS = (Tensor, np.ndarray, np.generic)
NUMBERS = (bool, int, float, *ARRAYS)
MOST_ELEMENTS = 1 << 20  # of one result
MOST_IN_ALL = 1 << 22  # elements of all results of one evaluation
MOST_PRODUCTS = 1 << 26  # multiplications of one matrix product
MOST_AXES = 16
MOST_STEPS = 60_000  # which only protect the time, and the memory of what is noted in each
MOST_BITS = 1_000  # of an integer; a float holds it
MOST_CALLS = 12  # calls inside one another
SECONDS, SECONDS_IN_ALL = 0.4, 1.2  # of processor time: one evaluation, and all that find the mistakes


class OverLimitError(QuantError):
    """The code takes more steps, elements or time than an evaluation may."""


class StopError(Exception):
    """A statement can't be evaluated further; ``refused``: none of its kind is, else it fails by itself."""

    def __init__(self, why: str, *, refused: bool = True):
        super().__init__(why)
        self.why, self.refused = why, refused


def require(holds: bool, why: str, *, refused: bool = True) -> None:
    """Stop a statement unless something holds."""
    if not holds:
        raise StopError(why, refused=refused)


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """Yield what is in lists, in lists of them, and outside: values of an evaluation, or their contents."""
    for value in values:
        inside = getattr(value, "value", value)
        if isinstance(inside, list | tuple):
            yield from flat(inside)
        else:
            yield value


def is_mask(value: object) -> bool:
    """Tell whether a value is a boolean array."""
    return isinstance(value, ARRAYS) and value.dtype in (torch.bool, np.bool_)


def check_integers(op: str, values: list[Any]) -> None:
    """Refuse what would give a long integer, and integers that NumPy computes with as objects."""
    if all(isinstance(value, int) for value in values):
        a, b = (*values[:1], *values[-1:], 0, 0)[:2]
        bits = {"pow": a.bit_length() * b, "shift": a.bit_length() + b, "round": a.bit_length() + 4 * abs(b)}
        few = bits.get(op, a.bit_length() + b.bit_length()) <= MOST_BITS
        require(few, f"an integer here would have more than {MOST_BITS:,} bits")
    elif any(isinstance(n, int) and n.bit_length() > 64 for n in flat(values)):
        raise StopError("an integer here has more than 64 bits")


# Upper bounds of the elements of a result, from the arguments of its call


def broadcast(shapes: Sequence[Sequence[int]]) -> int:
    """Return an upper bound of the elements of a broadcast, also of shapes that do not fit one another."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return math.prod(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an argument; NumPy takes a list for an array."""
    if isinstance(value, list | tuple):
        return (len(value), *max(map(shape_of, value), key=math.prod, default=()))
    return tuple(value.shape) if isinstance(value, ARRAYS) else ()


def usual(values: list[Any]) -> float:
    """Bound a broadcast of the arguments, their concatenation, or values and indices of one of them."""
    shapes = [shape_of(value) for value in values]
    return broadcast(shapes) + sum(map(math.prod, shapes))


def crossed(values: list[Any]) -> float:
    """Bound every element of one argument with every one of the others."""
    return math.prod(math.prod(shape_of(value)) for value in values)


def product(values: list[Any]) -> float:
    """Bound a matrix product."""
    shapes = [shape_of(value) for value in values[:2]]
    inner = max(shapes[0][-1], 1) if all(shapes) and shapes else 1
    few = crossed(values) // inner <= MOST_PRODUCTS
    require(few, f"a matrix product here would take more than {MOST_PRODUCTS:,} multiplications")
    return crossed(values) / inner**2


def numbers_in(values: Iterable[Any]) -> list[float]:
    """Return the numbers in arguments that give sizes, also those in lists and in small arrays."""
    found: list[float] = []
    for value in flat(values):
        require(math.prod(shape_of(value)) <= MOST_AXES, "a tensor gives sizes here")
        each = value.reshape(-1).tolist() if isinstance(value, ARRAYS) else [value]
        found += [n for n in each if isinstance(n, int | float)]
    few = all(abs(n) <= 2**62 for n in found) and len(found) <= MOST_AXES
    require(few, "a shape here is larger than a tensor can be")
    return found


def sizes(values: list[Any]) -> float:
    """Bound a tensor of these sizes."""
    return math.prod(max(int(n), 1) for n in numbers_in(values))


def repeated(values: list[Any]) -> float:
    """Bound the first argument, repeated so many times along each axis."""
    require(len(values) > 1, "a tensor gives sizes here")  # a tensor alone gives the number of times
    return crossed(values[:1]) * sizes(values[1:])


def expanded(values: list[Any]) -> float:
    """Bound the first argument, broadcast to these sizes."""
    require(bool(values) and isinstance(values[0], ARRAYS), "only tensors are expanded")
    return broadcast([values[0].shape, [max(int(n), 1) for n in numbers_in(values[1:])]])


def drawn(given: Sequence[Any], named: Sequence[Any]) -> float:
    """Bound random numbers of a distribution: its two parameters, broadcast to the sizes, third or by name.

    Methods of a tensor, and torch with a tensor as its first parameter, have no sizes.
    """
    if given and isinstance(given[0], Tensor):
        return usual([*given, *named])
    asked = [max(int(n), 1) for n in numbers_in([*given[2:], *named])]
    return broadcast([*map(shape_of, given[:2]), asked])


def counted(values: list[Any]) -> float:
    """Bound how often each integer occurs: as many counts as the highest one, or as are asked for."""
    each = [value if isinstance(value, ARRAYS) else np.array(value) for value in values[:1]]
    highest = max((float(one.max()) for one in each if math.prod(one.shape)), default=0.0)
    asked = numbers_in(value for value in values[1:] if math.prod(shape_of(value)) == 1)  # weights are more
    return highest + 1 + sum(max(n, 0) for n in asked)


def ranged(values: list[Any]) -> float:
    """Bound the numbers from a start to a stop by a step."""
    ends = [abs(n) for n in numbers_in(values)]  # whichever is the step
    return 2 * max(ends, default=0) / min(1, *(n for n in ends if n), 1) + 1


def indexed(values: list[Any]) -> int:
    """Bound the first argument at an index."""
    shape, index = tuple(values[0].shape), values[1]
    parts = index if isinstance(index, tuple) else (index,)
    listed = [item for p in parts if isinstance(p, list | tuple) for item in p]
    require(all(isinstance(item, int) for item in listed), "a list of anything but integers is no index here")
    chosen = [shape_of(p) for p in parts if isinstance(p, (*ARRAYS, list, tuple)) and not is_mask(p)]
    rest = sorted(shape)[len(chosen) :]  # an array of integers takes the place of an axis
    return broadcast(chosen) * math.prod(rest) if chosen else math.prod(shape)
