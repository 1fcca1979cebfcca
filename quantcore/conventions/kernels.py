"""From x, scale and zero_point to the code before clamping: one formula, eight orders of operations.

In exact arithmetic they are equal. float32 rounds each operation, so they differ at ties and next to them.
Which library uses which order was measured on 300,000 values near ties and is recorded in `libraries`.
Libraries round half to even.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from quantcore.expressions import (
    FUSED,
    PRODUCT,
    SUBTRACT,
    Expression,
    Name,
    chain,
    rounded,
    without,
    written,
)
from quantcore.numerics import Rounding, half_even

X, S, Z, HALF = (Name(name) for name in ("x", "s", "z", "½"))
INVERSE = Name("1/s", PRODUCT)


@dataclass(frozen=True, eq=False)
class Kernel:
    """One order of operations, of x, z, and s or 1/s.

    ``unrounded``: what is rounded; ``added``: what is added to it afterwards. 1/s is a float32 number. Where
    ½ is added last, the rounding truncates, so that the result is rounded to nearest.
    """

    unrounded: Expression
    added: Expression | None = None

    def code(self, round_: Rounding = half_even) -> Expression:
        """Return the code before clamping."""
        return _code(self, round_)

    @cached_property
    def formula(self) -> str:
        """The code before clamping, in symbols."""
        return written(self.code())

    @cached_property
    def quotient(self) -> Expression:
        """x / s or x · (1/s), without z."""
        return without(self.unrounded, "½", "z")

    @property
    def inverse(self) -> bool:
        """Whether x is multiplied by 1/s instead of divided by s."""
        return "1/s" in self.unrounded.names

    @property
    def shift_first(self) -> bool:
        """Whether z is added before rounding."""
        return self.added is None

    @property
    def adds_z_last(self) -> bool:
        """Whether z is added last of what is rounded."""
        return Z in self.unrounded.children

    @cached_property
    def fused(self) -> bool:
        """Whether product and sum are rounded together, once."""
        return chain(self.unrounded)[-1].operation is FUSED

    @property
    def half(self) -> bool:
        """Whether ½ is added last."""
        return "½" in self.unrounded.names

    @cached_property
    def subtracts(self) -> bool:
        """Whether z, the value of code 0, is subtracted from x first."""
        return chain(self.unrounded)[0].operation is SUBTRACT


@lru_cache(maxsize=64)
def _code(kernel: Kernel, round_: Rounding) -> Expression:
    found = rounded(round_)(kernel.unrounded)
    return found if kernel.added is None else found + kernel.added


KERNELS: dict[str, Kernel] = {
    "A": Kernel(X / S, Z),
    "B": Kernel(X * INVERSE, Z),
    "C": Kernel(X / S + Z),
    "D": Kernel(X * INVERSE + Z),
    "E": Kernel(FUSED(X, INVERSE, Z)),
    "F": Kernel(X * INVERSE + (Z + HALF)),
    "G": Kernel((X - Z) * INVERSE + HALF),
    "H": Kernel((X - Z) / S),
}
