"""Range settings: how (low, high), the range that the codes of a block span, is chosen.

A range setting is a frozen dataclass, called as ``range_setting(blocks, task) -> (low, high)``:
``blocks`` is float32 of shape (number of blocks, elements of a block), the results have one number
per block. The convention then adjusts the range (includes 0, makes it symmetric).
The term is that of Nagel et al. 2021, "A White Paper on Neural Network Quantization", arXiv 2106.08295, 3.1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore import notation, syntax
from quantcore.errors import QuantError
from quantcore.range_setting.protocol import Control, Range, RangeSetting, Task


@dataclass(frozen=True)
class MinMax(RangeSetting):
    """The lowest and the highest element: nothing is clipped."""

    option = "min-max"
    ends_are_elements = True
    about = "from the lowest to the highest element"
    usual = ((),)

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        return blocks.amin(-1), blocks.amax(-1)


@dataclass(frozen=True)
class Percentile(RangeSetting):
    """Symmetric: ±the ``p``-th percentile of |x|. Asymmetric: the (100-p)-th and the p-th of x.

    Interpolates linearly between two elements, in float64, like numpy's default.

    Raises:
        QuantError: ``p`` is not greater than 50 and at most 100.
    """

    option = "percentile"
    about = "a percentile of the elements"
    usual = ((99,), (99.9,))
    controls = (
        Control(
            "p", "p", "Percentile", 99.0, low=50.001, high=100.0, step=0.1, format="%.3f",
            help="Symmetric: a percentile of |x|. Asymmetric: one for each tail. "
            "Elements outside are clipped.",
        ),
    )  # fmt: skip

    p: float

    @property
    def title(self) -> str:
        """``percentile 99``."""
        return f"percentile {self.p:g}"

    @property
    def wider(self) -> tuple[RangeSetting, ...]:
        """The usual higher percentiles."""
        return tuple(Percentile(p) for p in (99.0, 99.9, 99.99) if p > self.p)

    def __post_init__(self) -> None:
        notation.read_numbers(self, p="The percentile")
        if not 50 < self.p <= 100:
            raise QuantError(
                f"The percentile must be greater than 50 and at most 100, not {self.p:g}; 99.9 clips 1 in "
                "1,000."
            )

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        if task.symmetric:
            high = _percentiles(blocks.abs(), [self.p])[0]
            return -high, high
        low, high = _percentiles(blocks.clone(), [100 - self.p, self.p])
        return low, high


@dataclass(frozen=True)
class Fixed(RangeSetting):
    """The same range for every block; symmetric: ±max(|low|, |high|).

    Raises:
        QuantError: low is not less than high, or a bound is beyond float32.
    """

    option = "fixed"
    ends_are_given = True
    about = "two fixed numbers"
    controls = (
        Control("low", "low", "Low", -1.0, format="%g"),
        Control("high", "high", "High", 1.0, format="%g"),
    )

    low: float
    high: float

    @property
    def title(self) -> str:
        """``-1 to 1``."""
        return f"{self.low:g} to {self.high:g}"

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        low, high = self.low, self.high
        if not low < high:
            raise QuantError(f"The range needs low < high, not {low:g} and {high:g}.")
        if max(abs(low), abs(high)) > torch.finfo(torch.float32).max:
            raise QuantError(
                f"The range {low:g} .. {high:g} does not fit in float32, whose largest value is 3.4e38."
            )

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        low = blocks.new_full(blocks.shape[:1], self.low)
        return low, blocks.new_full(blocks.shape[:1], self.high)


_PER_BLOCK = "One number for all blocks, or a nested list with one number per block, such as [[0.1], [0.2]]"


def _read(what: str) -> Callable[[str], Any]:
    """Return what is typed for every block, or for each."""

    def read(typed: str) -> Any:
        try:
            return syntax.literal(typed.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise QuantError(
                f"{what} must be a number or a nested list of numbers such as [[0.1], [0.2]], not "
                f"{typed[:40]!r}."
            ) from None

    return read


def _write(value: Any) -> str:
    return str(value).replace("(", "[").replace(",)", "]").replace(")", "]")


@dataclass(frozen=True)
class Given(RangeSetting):
    """Given scale and zero_point: one number for all blocks, or nested tuples in block form.

    Raises:
        QuantError: a scale is not positive and finite, a zero_point is not a 32-bit integer, or the nested
            tuples are ragged.
    """

    option = "by hand"
    gives_parameters = True
    label = "manual"
    about = "a manual scale and zero point"
    controls = (
        Control("scale", "scale", "Scale", "0.1", _PER_BLOCK, read=_read("The scale"), write=_write),
        Control(
            "zero_point", "zero_point", "Zero point", "0", _PER_BLOCK,
            read=_read("The zero point"), write=_write,
        ),
    )  # fmt: skip

    scale: Any
    zero_point: Any = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _each(self.scale, _positive))
        object.__setattr__(self, "zero_point", _each(self.zero_point, _int32))

    @property
    def given_scales(self) -> tuple[float, ...]:
        """The scales in its text."""
        return tuple(_numbers_in(self.scale))

    @property
    def given_zero_points(self) -> tuple[float, ...]:
        """The zero points in its text."""
        return tuple(_numbers_in(self.zero_point))

    @property
    def is_per_block(self) -> bool:
        """Whether it gives a number for each block of one tensor."""
        return isinstance(self.scale, tuple) or isinstance(self.zero_point, tuple)

    def parameters(self, grid: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return scale (float32) and zero_point (int32) for a grid of blocks.

        Raises:
            QuantError: the nested tuples do not have the shape of the grid.
        """
        return (
            _filled(self.scale, grid, torch.float32, "scale", device),
            _filled(self.zero_point, grid, torch.int32, "zero_point", device),
        )


MIN_MAX = MinMax()


def _numbers_in(value: Any) -> Iterator[float]:
    """Yield the numbers in nested tuples."""
    if not isinstance(value, tuple):
        yield value
        return
    for inner in value:
        yield from _numbers_in(inner)


def _percentiles(blocks: Tensor, ps: list[float]) -> list[Tensor]:
    """Return percentiles of each row of ``blocks``, whose elements are reordered in place.

    numpy's partition selects without sorting or copying: torch.quantile is limited to 16 million elements,
    and torch.kthvalue takes 8 more bytes per element.
    """
    n = blocks.shape[-1]
    places = [p / 100 * (n - 1) for p in ps]
    ranks = {k for place in places for k in (int(place), min(int(place) + 1, n - 1))}
    ordered = blocks.cpu().numpy()
    ordered.partition(sorted(ranks), axis=-1)
    found = []
    for place in places:
        k = int(place)
        below = ordered[..., k].astype(np.float64)
        above = ordered[..., min(k + 1, n - 1)].astype(np.float64)
        value = below + (above - below) * (place - k)
        found.append(torch.from_numpy(value.astype(np.float32)).to(blocks.device))
    return found


def _positive(value: object) -> float:
    scale = notation.finite(value, "The scale")
    with np.errstate(over="ignore"):
        fits = 0 < np.float32(scale) < np.inf
    if not fits:
        raise QuantError(f"The scale must be positive and within float32, not {scale:g}.")
    return scale


def _int32(value: object) -> int:
    zero_point = notation.integer(value, "zero_point")
    if not -(1 << 31) <= zero_point < 1 << 31:
        raise QuantError(f"zero_point={zero_point} does not fit in 32 bits.")
    return zero_point


def _each(value: Any, check: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return tuple(_each(v, check) for v in value)
    return check(value)


def _filled(value: Any, grid: tuple[int, ...], dtype: torch.dtype, what: str, device: torch.device) -> Tensor:
    try:
        tensor = torch.tensor(value, dtype=dtype, device=device)
    except (ValueError, TypeError):
        raise QuantError(
            f"The rows of {what} have different lengths; give one number per block, shape {grid}."
        ) from None
    if tensor.dim() and tensor.shape != grid:
        raise QuantError(
            f"{what} has shape {tuple(tensor.shape)}, but the blocks form a grid of {grid}. "
            "Give one number for all, or one per block in that shape."
        )
    return tensor.expand(grid).contiguous()


@dataclass(frozen=True)
class Stored(Given):
    """Parameters read from a file: scales may be non-finite, blocks many, and groups given by an index.

    Its text form names the origin and can't be parsed back, because the numbers are only in the file.

    Args:
        origin: the file and the tensor. scale: block form, float32. zero_point: block form; int32, or float32
        for float zero points and minima. group_index: the group of each column, where groups are not runs of
        columns, or of each element; the last axis of ``scale`` and ``zero_point`` then counts groups, and
        every element is a block of its own. owner: what the tensor was read from; codes are encoded through
        it. num_bytes: bytes that the tensor takes in its files, codes and all parameters.
    """

    scale: Tensor = field(default=torch.ones(()), compare=False, repr=False)
    zero_point: Tensor = field(default=torch.zeros((), dtype=torch.int32), compare=False, repr=False)
    origin: str = ""
    group_index: Tensor | None = field(default=None, compare=False, repr=False)
    owner: Any = field(default=None, compare=False, repr=False)
    num_bytes: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check nothing: a file may contain any numbers."""

    @property
    def given_scales(self) -> tuple[float, ...]:
        """None: they are in the file, and may be millions."""
        return ()

    @property
    def given_zero_points(self) -> tuple[float, ...]:
        """None: they are in the file, and may be millions."""
        return ()

    def parameters(self, grid: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return scale and zero_point for a grid of blocks.

        Raises:
            QuantError: they belong to a tensor of another shape.
        """
        scale = self._spread("scale", self.scale, grid, device)
        return scale, self._spread("zero_point", self.zero_point, grid, device)

    def _spread(self, what: str, tensor: Tensor, grid: tuple[int, ...], device: torch.device) -> Tensor:
        """Return a parameter for every block of the grid."""
        if tensor.numel() == 1:
            return tensor.reshape(()).expand(grid).to(device)
        every = tensor if self.group_index is None else tensor[..., self.group_index]
        if every.numel() != torch.Size(grid).numel():
            raise QuantError(
                f"The stored {what} has shape {tuple(every.shape)}, but the blocks form a grid of {grid}; "
                "it belongs to a tensor of another shape."
            )
        return every.reshape(grid).to(device)
