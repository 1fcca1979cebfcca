"""The numbers of one element's way, without the words."""

from dataclasses import dataclass

from quantcore.conventions import Convention
from quantcore.numerics import KERNELS, Kernel
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Numbers:
    """What happened to one element. Floats are float32 values.

    ``convention``: the record that ran, of its variants that of this granularity and block;
    ``block``: position in the grid of blocks; ``bounds``: (start, stop) of the block along each axis;
    ``low``, ``high``: the block's range, None where scale and zero_point were given; ``replaced``: whether
    the convention put another scale in the place of what the range gave; ``raw_scale``: the scale before it
    was quantized itself, else None; ``coded_scale``, ``shift``: the scale and zero_point that codes are found
    with, which in some libraries are not those stored; ``operand``: what is divided, x or what the
    convention makes of it first; ``factor``: what that was multiplied with where the kernel multiplies,
    else None; ``quotient``: operand / s, or operand times the factor; ``summed``: that and what is added
    before rounding, else None; ``shifted``: the code before it is brought into the format (of a float
    format or a codebook, ``rounded`` and this are the value of the code); ``overflow``: "saturate"
    or "wrap" where that changed it, "cast" where NaN or a number too large became what the library makes of
    it, else None; ``center``: what was taken off x before all else and is added again last, else None;
    ``decoding``, ``decoded_with``, ``constant``: what the code is dequantized by, see
    `coding.Dequantizer`.
    """

    index: tuple[int, ...]
    scheme: Scheme
    convention: Convention
    block: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]
    low: float | None
    high: float | None
    x: float
    scale: float
    raw_scale: float | None
    zero_point: float
    replaced: bool
    coded_scale: float
    shift: float
    operand: float
    factor: float | None
    quotient: float
    summed: float | None
    rounded: float
    shifted: float
    code: int
    overflow: str | None
    center: float | None
    decoding: str
    decoded_with: float | None
    constant: float
    dequantized: float
    error: float

    @property
    def kernel(self) -> Kernel:
        """The order of operations that ran."""
        return KERNELS[self.convention.coding.kernel]
