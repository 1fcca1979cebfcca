"""What an evaluation may cost, checked before the cost arises."""

import math
import time
from dataclasses import dataclass, field

from quantcore.errors import QuantError

MOST_ELEMENTS = 1 << 20  # of one result
MOST_IN_ALL = 1 << 24  # elements of all results of one evaluation
MOST_PRODUCTS = 1 << 26  # multiplications of one matrix product
MOST_STEPS = 20_000
MOST_ITEMS = 65_536  # of a list, and of a loop
MOST_BITS = 2_048  # of an integer
MOST_CALLS = 12  # calls inside one another
SECONDS = 0.6


class OverLimitError(QuantError):
    """The code takes more steps, elements or time than an evaluation may."""


class StopError(Exception):
    """A statement can't be evaluated further. ``refused``: it is outside what is evaluated; else it fails by itself."""

    def __init__(self, why: str, line: int = 0, refused: bool = True):
        super().__init__(why)
        self.why, self.line, self.refused = why, line, refused


@dataclass
class Budget:
    """What is left of an evaluation's steps, elements and time."""

    line: int = 0
    steps: int = MOST_STEPS
    elements: int = MOST_IN_ALL
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def step(self, line: int) -> None:
        """Count one step at ``line``.

        Raises:
            OverLimitError: it is one too many, or the time is over.
        """
        self.line = line or self.line
        self.steps -= 1
        if self.steps < 0:
            raise OverLimitError(
                f"Line {self.line}: the code takes more than {MOST_STEPS:,} steps; paste only the lines that quantize."
            )
        if time.monotonic() > self.end:
            raise OverLimitError(
                f"Line {self.line}: the code takes too long to evaluate; paste only the lines that quantize."
            )

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


def numel(shape: tuple[int, ...]) -> int:
    """The elements of a shape."""
    return math.prod(shape)


def broadcast(shapes: list[tuple[int, ...]]) -> int:
    """An upper bound of the elements of a broadcast, also of shapes that do not fit one another."""
    rank = max(map(len, shapes), default=0)
    if rank > 16:
        raise StopError("a tensor here would have more than 16 axes")
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return math.prod(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def check_power(base: object, exponent: object) -> None:
    """Refuse ``base ** exponent`` of integers if it would be too long, or is no real number.

    Raises:
        StopError: it is refused.
    """
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent > 0 and base.bit_length() * exponent > MOST_BITS:
            raise StopError(f"an integer here would have more than {MOST_BITS:,} bits")
    elif isinstance(base, int | float) and base < 0 and isinstance(exponent, float) and not exponent.is_integer():
        raise StopError("the root of a negative number is not a real number", refused=False)


def check_product(a: object, b: object) -> None:
    """Refuse a product whose integer, list or tuple would be too long.

    Raises:
        StopError: it is refused.
    """
    for one, other in ((a, b), (b, a)):
        if isinstance(one, list | tuple) and isinstance(other, int) and len(one) * other > MOST_ITEMS:
            raise StopError(f"a list here would have more than {MOST_ITEMS:,} items")
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > MOST_BITS:
        raise StopError(f"an integer here would have more than {MOST_BITS:,} bits")


def check_shift(a: object, b: object) -> None:
    """Refuse ``a << b`` if the integer would be too long.

    Raises:
        StopError: it is refused.
    """
    if isinstance(a, int) and isinstance(b, int) and (b > MOST_BITS or a.bit_length() + b > MOST_BITS):
        raise StopError(f"an integer here would have more than {MOST_BITS:,} bits")
