"""What an evaluation may cost, checked before the cost arises."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantcore.errors import QuantError
from quantcore.pasted.trace import ARRAYS, is_mask

MOST_ELEMENTS = 1 << 20  # of one result
MOST_IN_ALL = 1 << 22  # elements of all results of one evaluation
MOST_PRODUCTS = 1 << 26  # multiplications of one matrix product
MOST_AXES = 16
MOST_STEPS = 20_000
MOST_ITEMS = 65_536  # of a list, and of a loop
MOST_BITS = 2_048  # of an integer
MOST_CALLS = 12  # calls inside one another
SECONDS, SECONDS_IN_ALL = 0.2, 0.4  # of processor time: one evaluation, and all that find the mistakes


class OverLimitError(QuantError):
    """The code takes more steps, elements or time than an evaluation may."""


class StopError(Exception):
    """A statement can't be evaluated further. ``refused``: it is outside what is evaluated; else it fails by itself."""

    def __init__(self, why: str, *, refused: bool = True):
        super().__init__(why)
        self.why, self.refused = why, refused


@dataclass
class Budget:
    """What is left of an evaluation's steps, elements and time; ``line``: where it is."""

    line: int = 0
    steps: int = MOST_STEPS
    elements: int = MOST_IN_ALL
    end: float = field(default_factory=lambda: time.thread_time() + SECONDS)

    def step(self, line: int = 0, count: int = 1) -> None:
        """Count steps at ``line``.

        Raises:
            OverLimitError: there are too many, or the time is over.
        """
        self.line = line or self.line
        self.steps -= count
        if self.steps < 0 or time.thread_time() > self.end:
            what = f"takes more than {MOST_STEPS:,} steps" if self.steps < 0 else "takes too long to evaluate"
            raise OverLimitError(f"Line {self.line}: the code {what}; paste only the lines that quantize.")

    def room(self, elements: float) -> None:
        """Reserve room for a result before it is computed.

        Raises:
            StopError: the result is too large.
            OverLimitError: all results together are.
        """
        if not elements <= MOST_ELEMENTS:
            raise StopError(f"a result here would have more than {MOST_ELEMENTS:,} elements")
        self.elements -= int(elements)
        if self.elements < 0:
            raise OverLimitError(
                f"Line {self.line}: the code computes more than {MOST_IN_ALL:,} elements in all; paste only the lines "
                "that quantize."
            )


def broadcast(shapes: Sequence[tuple[int, ...]]) -> int:
    """An upper bound of the elements of a broadcast, also of shapes that do not fit one another."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return math.prod(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def arrays(values: Iterable[Any]) -> Iterator[Any]:
    """The arrays in arguments, also in lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from arrays(value)
        elif isinstance(value, ARRAYS):
            yield value


def shapes(values: Iterable[Any]) -> list[tuple[int, ...]]:
    """Their shapes."""
    return [tuple(a.shape) for a in arrays(values)]


def elementwise(values: list[Any]) -> float:
    """The elements of a result that is broadcast from all arguments."""
    return broadcast(shapes(values))


def product(values: list[Any]) -> float:
    """The elements of a matrix product.

    Raises:
        StopError: it takes too many multiplications.
    """
    a, b = (*shapes(values), (1,), (1,))[:2]
    inner = max((a or (1,))[-1], 1)
    if math.prod(a) * math.prod(b) // inner > MOST_PRODUCTS:
        raise StopError(f"a matrix product here would take more than {MOST_PRODUCTS:,} multiplications")
    return math.prod(a) * math.prod(b) / inner**2


def indexed(shape: tuple[int, ...], index: Any) -> float:
    """The elements of ``x[index]`` of a tensor of ``shape``, at most."""
    parts = index if isinstance(index, tuple) else (index,)
    chosen = [tuple(p.shape) for p in parts if isinstance(p, ARRAYS) and not is_mask(p)]
    lists = [p for p in parts if isinstance(p, list)]
    if any(not isinstance(item, int) for part in lists for item in part):
        raise StopError("a list of anything but integers is no index here")
    chosen += [(len(p),) for p in lists]
    rest = sorted(shape)[len(chosen) :]  # an array of integers takes the place of an axis
    return broadcast(chosen) * math.prod(rest) if chosen else math.prod(shape)


def check_operands(op: str, a: object, b: object) -> None:
    """Refuse what would give a long integer, a long list, or no real number.

    Raises:
        StopError: it is refused.
    """
    bits = 0
    if isinstance(a, int) and isinstance(b, int):
        bits = {"pow": a.bit_length() * max(b, 0), "shift": a.bit_length() + max(b, 0)}.get(
            op, a.bit_length() + b.bit_length()
        )
    if bits > MOST_BITS:
        raise StopError(f"an integer here would have more than {MOST_BITS:,} bits")
    for one, other in ((a, b), (b, a)):
        times = other if isinstance(other, int) else 1
        if isinstance(one, list | tuple) and (len(one) + 1) * max(times, 1) > MOST_ITEMS:
            raise StopError(f"a list here would have more than {MOST_ITEMS:,} items")
