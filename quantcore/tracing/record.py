"""The numbers of one element, from x to its error."""

from dataclasses import dataclass

from quantcore.conventions import KERNELS, Convention, Kernel
from quantcore.formats import Format
from quantcore.qparams import GroupSearch
from quantcore.range_setting import RangeSetting, Search
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Step:
    """One line of arithmetic: its name, the formula with its numbers, and the result."""

    name: str
    formula: str
    value: str


@dataclass(frozen=True)
class Level:
    """How a scale or min of a super-block's group was coded.

    ``raw``: what the search found; ``setting``: what chose the code; ``extreme``: the raw value of the
    super-block with the largest magnitude; ``unit``: the scale of the codes; ``stored``: it in half precision.
    """

    raw: float
    setting: RangeSetting
    fmt: Format
    extreme: float
    code: int
    unit: float
    stored: float


@dataclass(frozen=True)
class Searched:
    """What a search did for the element's group, and how its scale and min were coded.

    ``weight``: the element's weight; ``of_scale``, ``of_min``: None if the scale or min is not coded.
    """

    setting: Search
    group: GroupSearch
    weight: float
    of_scale: Level | None
    of_min: Level | None


@dataclass(frozen=True)
class ElementNumbers:
    """The numbers of one element. Floats are float32 values.

    ``scheme``: with what its library does in the dtype of x; ``convention``: the record in use, with the variant of this
    granularity and block;
    ``block``: position in the grid of blocks; ``bounds``: (start, stop) of the block along each axis;
    ``low``, ``high``: the block's range, None where scale and zero_point are given; ``replaced``: whether
    the convention replaced the scale that the range gave; ``raw_scale``: the scale before it was quantized
    itself, else None; ``coded_scale``, ``shift``: the scale and zero_point that codes are computed with,
    which in some libraries are not the stored ones; ``operand``: the dividend, x or what the convention
    computes from it first; ``factor``: what the operand is multiplied by if the kernel multiplies, else None;
    ``quotient``: operand / s, or operand times the factor; ``summed``: the quotient plus what is added before
    rounding, else None; ``shifted``: the code before it is brought into the format (for a float format or a
    codebook, this and ``rounded`` are the value of the code); ``overflow``: "saturate" or "wrap" where that
    changed the code, "searched" where a search chose it, "cast" where NaN or a number too large went through the
    library's cast, "stored" where the code was read from a file and is not what rounding gives, else None;
    ``center``: the mean that is subtracted first and added last, else None; ``decoding``, ``decoded_with``,
    ``constant``: how the code is dequantized, see `quantcore.qparams.Dequantizer`. ``search``: what one of
    ggml's searches did, else None.
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
    search: Searched | None = None

    @property
    def kernel(self) -> Kernel:
        """The order of operations."""
        return KERNELS[self.convention.coding.kernel]

    @property
    def unrounded(self) -> float:
        """The value that is rounded."""
        return self.quotient if self.summed is None else self.summed
