"""The numbers of one element, from x to its error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from quantcore.conventions import KERNELS, Convention, Kernel
from quantcore.formats import Format
from quantcore.programs import ReadLine
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
    super-block with the largest magnitude; ``unit``: the scale of the codes; ``stored``: that in half
    precision.
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


T = TypeVar("T")


class _Of(Generic[T]):
    """A number of an element, by its name."""

    def __init__(self, name: str, words: str) -> None:
        self._name, self.__doc__ = name, words

    def __get__(self, t: Any, kind: object = None) -> T:
        if t is None:  # of the class, as a docstring is looked up
            return self  # type: ignore[return-value]
        found: T = t.numbers[self._name]
        return found


@dataclass(frozen=True)
class ElementNumbers:
    """One element: where it is, its numbers by name, and the lines of its program from x to x̂.

    Floats are float32 values. ``scheme``: with what its library does in the dtype of x; ``convention``: the
    record in use, with the variant of this granularity and block; ``block``: position in the grid of blocks;
    ``bounds``: (start, stop) of the block along each axis; ``coding``, ``decoding``: the lines of the code
    and of x̂; ``search``: what one of ggml's searches did, else None. ``overflow``: "saturate" or "wrap"
    where that changed the code, "searched" where a search chose it, "cast" where NaN or a number too large
    went through the library's cast, "stored" where the code was read from a file and is not what rounding
    gives, else None.
    """

    index: tuple[int, ...]
    scheme: Scheme
    convention: Convention
    block: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]
    numbers: Mapping[str, Any]
    coding: tuple[ReadLine, ...]
    decoding: tuple[ReadLine, ...]
    overflow: str | None
    search: Searched | None = None

    x = _Of[float]("x", "The element.")
    low = _Of[float | None](
        "low", "The lower end of the block's range; None where scale and zero_point are given."
    )
    high = _Of[float | None](
        "high", "The upper end of the block's range; None where scale and zero_point are given."
    )
    scale = _Of[float]("s", "The scale, as stored.")
    zero_point = _Of[float]("z", "The zero point, as stored.")
    raw_scale = _Of[float | None]("raw", "The scale before it was quantized itself; None if it was not.")
    replaced = _Of[bool]("replaced", "Whether the convention replaced the scale that the range gave.")
    coded_scale = _Of[float]("divisor", "What x is divided by: in some libraries not the stored scale.")
    shift = _Of[float](
        "shift", "The zero point that the code is computed with: in some libraries not the stored one."
    )
    factor = _Of[float | None]("1/s", "What x is multiplied by if the kernel multiplies, else None.")
    center = _Of[float | None]("mean", "The mean that is subtracted first and added last; None if none is.")
    quotient = _Of[float]("quotient", "x, or what is left of it, divided by the scale or times its inverse.")
    summed = _Of[float | None](
        "summed", "The quotient plus what is added before rounding; None if nothing is."
    )
    rounded = _Of[float](
        "rounded", "The rounded number; for a float format or a codebook the value of the code."
    )
    shifted = _Of[float](
        "shifted", "The code before it is brought into the format, or the value of the code."
    )
    code = _Of[int]("q", "The code.")
    dequantized = _Of[float]("x̂", "What the code is dequantized to.")
    error = _Of[float]("error", "x - x̂.")

    @property
    def kernel(self) -> Kernel:
        """The order of operations."""
        return KERNELS[self.convention.coding.kernel]

    @property
    def unrounded(self) -> float:
        """The value that is rounded."""
        return self.quotient if self.summed is None else self.summed
