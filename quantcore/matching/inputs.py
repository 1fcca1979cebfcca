"""The inputs besides the original: codes, and optionally their scale and zero_point."""

import math
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import MAX_BITS
from quantcore.granularity import Granularity, block_shape, grid_shape
from quantcore.notation import write_call
from quantcore.numerics import as_float32, as_floats
from quantcore.wording import count

Shape = tuple[int, ...]
LISTED = 5  # numbers of blocks that an error names
_LOWEST, _HIGHEST = -(1 << (MAX_BITS - 1)), (1 << MAX_BITS) - 1


def read_original(x: Any) -> Tensor:
    """Return x as libraries are given it: in half precision as it is, everything else as float32.

    Raises:
        QuantError: x is not an array of numbers.
    """
    x = as_floats(x)
    return x if x.itemsize == 2 else as_float32(x)


def read_codes(codes: Any, shape: Shape) -> Tensor:
    """Return the codes as int32.

    Raises:
        QuantError: they are not integers, do not have the original's shape (axes may be permuted), or fit no
            format of up to 16 bits.
    """
    array = _numbers(codes, "The codes")
    if array.size == 0:
        raise QuantError("There are no codes; give one integer per element of the original.")
    if array.dtype.kind == "f":
        integer = np.isfinite(array)
        integer[integer] = array[integer] % 1 == 0
        if not integer.all():
            at = _first(~integer)
            raise QuantError(
                f"The code {array[at]:.6g} at index {at} is not an integer; give the stored integers, "
                "not dequantized values."
            )
    _check_shape(tuple(array.shape), shape)
    outside = (array < _LOWEST) | (array > _HIGHEST)
    if outside.any():
        at = _first(outside)
        raise QuantError(
            f"The code {array[at]:.0f} at index {at} does not fit {MAX_BITS} bits, the widest format here; "
            "check how the integers were read."
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 and high >= -_LOWEST:
        raise QuantError(
            f"The codes run from {low} to {high}, which no format of up to {MAX_BITS} bits holds; "
            "check how the integers were read."
        )
    return torch.from_numpy(array.astype(np.int32))


def _numbers(values: Any, what: str) -> np.ndarray[Any, Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.to(torch.float32) if values.dtype == torch.bfloat16 else values
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise QuantError(f"{what} have rows of different lengths; give a rectangular array.") from None
    if array.dtype.kind not in "iuf":
        raise QuantError(f"{what} are not numbers but {array.dtype}; give an array of numbers.")
    return array


def _first(mask: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _check_shape(given: Shape, shape: Shape) -> None:
    codes, wanted = math.prod(given), math.prod(shape)
    if codes != wanted:
        excess = f"{abs(codes - wanted):,} too {'many' if codes > wanted else 'few'}"
        raise QuantError(
            f"There are {codes:,} codes, {excess}: the original of shape {shape} has {wanted:,} elements. "
            "Give one code per element."
        )
    if Counter(given) != Counter(shape):
        raise QuantError(
            f"The codes have shape {given}, the original {shape}; give them in that shape, or transposed."
        )


def read_parameter(value: Any, what: str, shape: Shape, searched: list[Granularity]) -> Tensor | None:
    """Return a given scale or zero_point as float32; None if none was given.

    Raises:
        QuantError: not numbers, a scale that is not positive and finite, or a count that matches no searched
            granularity.
    """
    if value is None:
        return None
    array = _numbers(value, f"The values of {what}")
    if array.size == 0:
        raise QuantError(f"The {what} is empty; give one number, or one per block, or leave it out.")
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    bad = ~np.isfinite(numbers) | ((numbers <= 0) if what == "scale" else False)
    if bad.any():
        required = "positive and finite" if what == "scale" else "finite"
        at = _first(bad)
        where = f" at index {at}" if at else ""
        raise QuantError(f"The {what}{where} must be a {required} float32 number, not {array[at]:g}.")
    counts = {math.prod(grid_shape(shape, block_shape(g, shape))): g for g in reversed(searched)}
    if array.size not in counts:
        fits = ", ".join(f"{n:,} ({write_call(g)})" for n, g in sorted(counts.items())[:LISTED])
        fits += ", …" if len(counts) > LISTED else ""
        raise QuantError(
            f"The {what} has {array.size:,} values, which matches no granularity of a tensor of shape "
            f"{shape}; give {fits}."
        )
    return torch.from_numpy(numbers)


def on_grid(values: Tensor, grid: Shape, shared: bool = False) -> Tensor | None:
    """Return given parameters in block form for a grid of blocks; None if they are not one per block.

    Axes with one block may be left out; a flat list is in row-major order. ``shared``: one may be for all
    blocks.
    """
    if shared and values.numel() == 1:
        return values.reshape(()).expand(grid)
    if values.numel() != math.prod(grid):
        return None
    thin = tuple(n for n in values.shape if n > 1)
    if len(thin) <= 1 or thin == tuple(n for n in grid if n > 1):
        return values.reshape(grid)
    return None


def fits_grid(values: Tensor, granularity: Granularity, shape: Shape) -> bool:
    """Tell whether given parameters are one per block of a tensor of ``shape``."""
    return on_grid(values, grid_shape(shape, block_shape(granularity, shape))) is not None


def parameter_note(what: str, given: Tensor, found: Tensor) -> str:
    """Return how a given "scale" or "zero_point" differs from a scheme's; empty if they are equal."""
    found = found.to(torch.float32)
    own = on_grid(given, tuple(found.shape), shared=what == "zero_point")
    if own is None:
        values, blocks = count(given.numel(), "value"), count(found.numel(), "block")
        return f"the given {what} has another granularity: {values} for {blocks}"
    if torch.equal(own, found):
        return ""
    if what == "zero_point" and torch.equal(own, -found):
        return "the given zero_point has the opposite sign, like AIMET's offset"
    if what == "scale" and (torch.equal(own, found.reciprocal()) or torch.equal(own.reciprocal(), found)):
        return "the given scale is the inverse, 1/s"
    wrong = own != found
    if wrong.numel() == 1:
        return f"the given {what} differs: {own.item():.9g} instead of {found.item():.9g}"
    at = tuple(int(i) for i in wrong.nonzero()[0])
    return (
        f"the given {what} differs in {int(wrong.sum()):,} of {wrong.numel():,} blocks, first in block {at}: "
        f"{own[at]:.9g} instead of {found[at]:.9g}"
    )
