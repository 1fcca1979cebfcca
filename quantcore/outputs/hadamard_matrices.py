"""Hadamard matrices: entries ±1 and orthogonal rows, for powers of two and most multiples of four.

Sylvester's construction doubles a matrix. Paley's two constructions give the orders q + 1 for a prime
q ≡ 3 (mod 4) and 2·(q + 1) for q ≡ 1 (mod 4): R. E. A. C. Paley 1933, "On Orthogonal Matrices". Williamson's
gives those up to 172 which Paley's do not: J. Williamson 1944, "Hadamard's Determinant Theorem and the Sum
of Four Squares".
"""

import itertools
from functools import cache

import torch
from torch import Tensor

from quantcore.errors import QuantError

LARGEST_BASE = 256  # a matrix that is not made by doubling is multiplied densely
# order -> the first halves of the first rows of Williamson's four symmetric circulants, as in the library of
# N. J. A. Sloane, neilsloane.com/hadamard
_WILLIAMSON = {
    52: "+-+--++ +---+++ ++-+--+ +----+-",
    92: "+++-+++-+--- +++---++-+-+ +-++-++--+++ ++---+---+-+",
    100: "+-++++----++- +++-+++---+-+ +-++-+++-++-- +--++-+-+----",
    116: "++--+--+-+++-++ ++++-++-+---+++ +-+---++--+-+++ +++---++--+-+--",
    156: "+++--+-+-----+--++-- ++++---+--++----+-+- +++--++-+---+-+--+-- +---++-+-+-----+++-+",
    172: "+---++--++++-+-+++-++- ++-++++++----+-+--++-+ +++-+-++--+-+-++++-+-- ++---++++-+--+--++----",
}
# where the circulants A, B, C, D (0..3) stand in Williamson's array, and with which sign
_ARRAY = (
    ((1, 0), (1, 1), (1, 2), (1, 3)),
    ((-1, 1), (1, 0), (-1, 3), (1, 2)),
    ((-1, 2), (1, 3), (1, 0), (-1, 1)),
    ((-1, 3), (-1, 2), (1, 1), (1, 0)),
)


def hadamard_matrix(size: int) -> Tensor:
    """Return a Hadamard matrix, int8 [size, size]: Sylvester's for powers of two.

    >>> hadamard_matrix(4).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]

    Raises:
        QuantError: none is known here.
    """
    order, doublings = factors(size)
    found = torch.ones((1, 1), dtype=torch.int8)
    for _ in range(doublings):
        found = torch.cat([torch.cat([found, found], 1), torch.cat([found, -found], 1)])
    return torch.kron(base(order), found)


def factors(size: int) -> tuple[int, int]:
    """Return the order of the smallest known matrix, and how often it is doubled for this size.

    Raises:
        QuantError: none is known here.
    """
    best = _factors(size)
    if best is None:
        block = size & -size
        low = next(n for n in range(size - 1, 0, -1) if _factors(n))
        high = next(n for n in itertools.count(size + 1) if _factors(n))
        raise QuantError(
            f"There is no Hadamard matrix of {size:,} columns here, but of {low:,} and {high:,}; choose one "
            f"of these, or rotate blocks of columns, such as size={block}."
            if block > 1
            else f"There is no Hadamard matrix of {size:,} columns: an odd number can't be rotated by one; "
            f"choose {low:,} or {high:,} columns."
        )
    return best


def _factors(size: int) -> tuple[int, int] | None:
    order, doublings = size, 0
    best = (order, doublings) if _is_base(order) else None
    while order % 2 == 0 and order > 1:
        order, doublings = order // 2, doublings + 1
        best = (order, doublings) if _is_base(order) else best
    return best


def _is_base(order: int) -> bool:
    if order == 1 or order in _WILLIAMSON:
        return True
    return order % 4 == 0 and order <= LARGEST_BASE and _paley_prime(order) is not None


def _paley_prime(order: int) -> tuple[int, int] | None:
    """Return the prime of Paley's construction of an order, and which of the two; None if there is none."""
    if _is_prime(order - 1) and (order - 1) % 4 == 3:
        return order - 1, 1
    if order % 2 == 0 and _is_prime(order // 2 - 1) and (order // 2 - 1) % 4 == 1:
        return order // 2 - 1, 2
    return None


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, int(n**0.5) + 1))


@cache
def base(order: int) -> Tensor:
    """Return a matrix that is not made by doubling, int8."""
    if order == 1:
        return torch.ones((1, 1), dtype=torch.int8)
    if order in _WILLIAMSON:
        return _williamson(_WILLIAMSON[order].split())
    construction = _paley_prime(order)
    assert construction is not None  # `factors` found it
    prime, which = construction
    squares = {i * i % prime for i in range(1, prime)}
    chi = torch.tensor([0, *(1 if i in squares else -1 for i in range(1, prime))], dtype=torch.int8)
    index = torch.arange(prime)
    core = torch.ones((prime + 1, prime + 1), dtype=torch.int8)
    core[1:, 1:] = chi[(index[:, None] - index) % prime]
    core[0, 0] = 0
    unit = torch.eye(prime + 1, dtype=torch.int8)
    if which == 1:
        core[0, 1:] = -1
        return core + unit
    return torch.cat([torch.cat([core + unit, core - unit], 1), torch.cat([core - unit, -core - unit], 1)])


def _williamson(halves: list[str]) -> Tensor:
    circulants = []
    for half in halves:
        signs = [1 if sign == "+" else -1 for sign in half]
        row = torch.tensor(signs + signs[:0:-1], dtype=torch.int8)
        circulants.append(torch.stack([row.roll(i) for i in range(len(row))]))
    return torch.cat([torch.cat([sign * circulants[i] for sign, i in line], 1) for line in _ARRAY])
