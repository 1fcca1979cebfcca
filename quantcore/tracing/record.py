"""The numbers of one element, from x to its error."""

from dataclasses import dataclass

from quantcore.conventions import Convention
from quantcore.numerics import KERNELS, Kernel
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Numbers:
    """The numbers of one element. Floats are float32 values.

    ``convention``: the record in use, with the variant of this granularity and block;
    ``block``: position in the grid of blocks; ``bounds``: (start, stop) of the block along each axis;
    ``low``, ``high``: the block's range, None where scale and zero_point are given; ``replaced``: whether
    the convention replaced the scale that the range gave; ``raw_scale``: the scale before it was quantized
    itself, else None; ``coded_scale``, ``shift``: the scale and zero_point that codes are computed with,
    which in some libraries are not the stored ones; ``operand``: the dividend, x or what the convention
    computes from it first; ``factor``: what the operand is multiplied by if the kernel multiplies, else None;
    ``quotient``: operand / s, or operand times the factor; ``summed``: the quotient plus what is added before
    rounding, else None; ``shifted``: the code before it is brought into the format (for a float format or a
    codebook, this and ``rounded`` are the value of the code); ``overflow``: "saturate" or "wrap" where that
    changed the code, "cast" where NaN or a number too large went through the library's cast, "stored" where the code
    was read from a file and is not what rounding gives, else None;
    ``center``: the mean that is subtracted first and added last, else None; ``decoding``, ``decoded_with``,
    ``constant``: how the code is dequantized, see `coding.Dequantizer`.
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
        """The order of operations."""
        return KERNELS[self.convention.coding.kernel]
