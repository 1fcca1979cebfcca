"""What befalls integers between a library and the one who reads them, and mistakes in computing them.

A `Damage` says how codes part from what a scheme gives: a mistake in the arithmetic, then what was done to the
stored integers. The latter is undone before anything is compared, so codes always lie on the original.
"""

import dataclasses
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.formats import MAX_BITS, IntFormat
from quantcore.kernels import KERNELS, Kernel
from quantcore.match.spaces import signed_bits
from quantcore.quantize import wrap
from quantcore.rounding import rounding
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Transposed:
    """Axis i of the codes is axis ``order[i]`` of the original."""

    order: tuple[int, ...]

    def undo(self, codes: Tensor) -> Tensor:
        """Return the codes in the axes of the original."""
        return codes.permute([self.order.index(i) for i in range(len(self.order))])

    def __str__(self) -> str:
        return "transposed" if len(self.order) == 2 else f"axes in the order {self.order}"


@dataclass(frozen=True)
class Reread:
    """Codes of ``bits`` bits read as signed although they are unsigned (``signed``), or the reverse."""

    bits: int
    signed: bool

    def undo(self, codes: Tensor) -> Tensor:
        """Return the codes as they were meant."""
        whole = 1 << self.bits
        if self.signed:
            return torch.where(codes < 0, codes + whole, codes)
        return torch.where(codes >= whole // 2, codes - whole, codes)

    def __str__(self) -> str:
        read, meant = ("signed", "unsigned") if self.signed else ("unsigned", "signed")
        return f"{meant} codes read as {read}, {self.bits} bits"


Stored = Transposed | Reread

# Mistakes in the arithmetic, the likeliest first
COMPUTED = {
    "wrapped": "codes that did not fit wrapped around",
    "narrow": "clamped to the narrow range",
    "zero_point_negated": "zero_point with the other sign",
    "zero_point_left_out": "zero_point left out",
    "half_away": "ties rounded away from zero",
    "half_up": "ties rounded up",
    "toward_zero": "rounded towards zero",
    "floor": "rounded down",
    "other_axis": "the channels' scales laid along another axis",
}
# Those that are choices of a convention
CHOICES = {"wrapped": {"overflow": "wrap"}} | {
    name: {"rounding": name} for name in ("half_away", "half_up", "toward_zero", "floor")
}


@dataclass(frozen=True)
class Damage:
    """``computed``: a key of `COMPUTED`, or empty; ``stored``: in the order in which it is undone."""

    computed: str = ""
    stored: tuple[Stored, ...] = ()

    def undo(self, codes: Tensor) -> Tensor:
        """Return given codes as the scheme would store them, on the axes of the original."""
        for step in self.stored:
            codes = step.undo(codes)
        return codes

    def __str__(self) -> str:
        parts = [COMPUTED[self.computed]] if self.computed else []
        return ", ".join([*parts, *map(str, self.stored)])

    def __bool__(self) -> bool:
        return bool(self.computed or self.stored)


NONE = Damage()


def changed(scheme: Scheme, mistake: str) -> Scheme:
    """Return the scheme with the mistake, where that is a choice of its convention."""
    if mistake not in CHOICES:
        return scheme
    return dataclasses.replace(scheme, convention=scheme.convention.changed(**CHOICES[mistake]))


def arithmetic(kind: str, convention: Convention, x: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """Return codes before they are brought into the format, a kernel run with a mistake of `COMPUTED`.

    ``convention``: resolved by `Convention.at`; ``s`` as its kernel takes it; all broadcast against x.
    """
    if kind == "zero_point_negated":
        z = -z
    elif kind == "zero_point_left_out":
        z = torch.zeros_like(z)
    rule = CHOICES.get(kind, {}).get("rounding", convention.rounding)
    return KERNELS[convention.kernel].run(x, s, z, torch.empty_like(x), rounding(rule))


def unrounded(kernel: Kernel, x: Tensor, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the kernel rounds, and what it adds afterwards."""
    before = kernel.run(x, s, z if kernel.shift_first else None, torch.empty_like(x), lambda values: values)
    return before, torch.zeros(()) if kernel.shift_first else z


def brought(kind: str, values: Tensor, fmt: IntFormat) -> Tensor:
    """Return the values in the format: clamped, or as a mistake of `COMPUTED` has it."""
    if kind == "wrapped":
        return wrap(values, fmt).to(values.dtype)
    return values.clamp(fmt.qmin + (kind == "narrow"), fmt.qmax)


def stored_damages(codes: Tensor, shape: tuple[int, ...]) -> list[Damage]:
    """Return all that may have been done to the stored codes and can be undone; none comes first."""
    orders = [(), *_orders(tuple(codes.shape), shape)]
    if tuple(codes.shape) != shape:
        orders = orders[1:]
    turned: list[tuple[Stored, ...]] = [(Transposed(o),) if o else () for o in orders]
    reread: list[tuple[Stored, ...]] = [(), *((r,) for r in _rereadings(codes))]
    pairs = [Damage("", a + b) for a, b in itertools.product(turned, reread)]
    return sorted(pairs, key=lambda d: len(d.stored))


def _orders(given: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Orders of the original's axes that have the shape of the codes; of many axes, only swaps of two."""
    rank = len(shape)
    if len(given) != rank:
        return []
    plain = tuple(range(rank))
    every = itertools.permutations(plain) if rank <= 3 else map(tuple, _swaps(rank))
    return [o for o in every if o != plain and tuple(shape[i] for i in o) == given]


def _swaps(rank: int) -> list[list[int]]:
    found = []
    for a, b in itertools.combinations(range(rank), 2):
        order = list(range(rank))
        order[a], order[b] = b, a
        found.append(order)
    return found


def _rereadings(codes: Tensor) -> list[Reread]:
    low, high = int(codes.min()), int(codes.max())
    if low >= 0:
        bits = high.bit_length()  # with fewer a code is missing, with more none would change
        return [Reread(bits, signed=False)] if 2 <= bits <= MAX_BITS else []
    needed = max(2, signed_bits(low), signed_bits(high))
    return [Reread(b, signed=True) for b in sorted({needed, 8, 16}) if needed <= b <= MAX_BITS]
