"""The numerical choices on which real libraries differ with all else equal.

What TEXTBOOK does, which is what courses teach when they are right (N = qmax - qmin):

==========================  ==========================================================================
choice                      textbook
==========================  ==========================================================================
arithmetic                  float32; divisions are true divisions, not products with 1/s
range, asymmetric           low = min(low, 0), high = max(high, 0): 0 is always exact
scale, symmetric            max(|low|, |high|) / (2^(bits-1) - 1)
zero_point, symmetric       0 signed, 2^(bits-1) unsigned
scale, asymmetric           (high - low) / N; where high - low overflows, high / N - low / N
zero_point, asymmetric      clamp(qmin - round(low / s), qmin, qmax)
scale 0                     becomes 1 (an all-zero block, or a range so small that the division gave 0)
codes                       clamp(round(x / s) + z, qmin, qmax)
rounding                    half to even
dequantized                 (q - z) * s
NaN, infinity               refused, with their count and the first index
overflow                    saturate; ``overflow="wrap"`` is a cast without a clamp: modulo 2^bits
==========================  ==========================================================================
"""

from dataclasses import dataclass
from typing import Literal, get_args

from quantcore import notation
from quantcore.errors import QuantError

Overflow = Literal["saturate", "wrap"]


@dataclass(frozen=True)
class Convention:
    """What a library does beyond format, symmetry, granularity and range setting.

    ``overflow``: what becomes of a code outside the format, "saturate" (clamped to the nearest) or
    "wrap" (modulo 2^bits, as a cast without a clamp).

    Raises:
        QuantError: ``overflow`` is neither.
    """

    name: str
    overflow: Overflow = "saturate"

    def __post_init__(self) -> None:
        if self.overflow not in get_args(Overflow):
            raise QuantError(f"overflow={str(self.overflow)[:40]!r} is not a choice; write saturate or wrap.")

    def __str__(self) -> str:
        return notation.write_call(self, name=self.name, skip=("name",))


TEXTBOOK = Convention("textbook")
CONVENTIONS: dict[str, Convention] = {TEXTBOOK.name: TEXTBOOK}
