"""What ggml's searches share: rounding, what they return, and how much the error of each element counts.

Each group is a column: arrays are (elements of a group, groups), so that numpy's operations run over many
groups while each group's sums stay strictly left to right, as in C without contraction (x86-64 without fused
multiply-add). ``np.add.reduce`` over the first axis adds row after row; over the last it would add pairwise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]  # float32 throughout, and masks of the same shape
Nearest = Callable[[Floats, Floats], Floats]
_MANY = 8
_MAGIC = np.float32(12582912.0)  # 1.5 · 2^23: the sum's lowest bits are the integer
EXACT_BELOW = 4194303.0  # up to here nearest_int rounds half to even
ALL_ZERO = np.float32(1e-15)  # GROUP_MAX_EPS


class GroupScales(NamedTuple):
    """What a search found for each group: the scale, ggml's min, and the codes, (elements, groups).

    ``min``: None if the search has none. ``codes``: None if they follow from the scale alone.
    """

    scale: Floats
    min: Floats | None = None
    codes: Floats | None = None


class Trial(NamedTuple):
    """One trial of a search, for display; one number per group.

    ``tried``: what was tried, such as the numerator of the inverse scale; ``scale`` and ``min``: the result;
    ``error``: Σ w·(x - x̂)², or Σ w·|x - x̂|; ``taken``: whether it was the best so far.
    """

    tried: str
    scale: Floats
    min: Floats | None
    error: Floats
    taken: npt.NDArray[np.bool_]


Record = list[Trial] | None  # a search appends its trials to it; None if they are not needed


def written(value: np.float32) -> str:
    """Return the shortest decimal of a float32."""
    return np.format_float_positional(value, trim="-")


def squared_error(x: Floats, w: Floats, codes: Floats, scale: Floats) -> Floats:
    """Σ w·(x - scale·code)² of every group."""
    difference = x - scale * codes
    return total(w * difference * difference)


def note(
    record: Record, tried: str, x: Floats, w: Floats, codes: Floats, scale: Floats, taken: Floats
) -> None:
    """Add the trial of a scale and its codes to the record, if there is one."""
    if record is not None:
        record.append(Trial(tried, scale, None, squared_error(x, w, codes, scale), taken))


def nearest(values: Floats, out: Floats) -> Floats:
    """ggml's nearest_int for magnitudes up to `EXACT_BELOW`: half to even."""
    return np.rint(values, out=out)


def nearest_int(values: Floats, out: Floats) -> Floats:
    """ggml's nearest_int for every float32, by its bits: beyond `EXACT_BELOW` not the nearest integer."""
    bits = np.add(values, _MAGIC).view(np.int32)
    np.copyto(out, (bits & 0x007FFFFF) - 0x00400000, casting="unsafe")
    return out


def total(products: Floats) -> Floats:
    """Sum of each group, left to right from 0."""
    if products.shape[1] < _MANY:  # one group is one contiguous axis, which numpy would add pairwise
        few: Floats = np.add.accumulate(products, axis=0)[-1] + np.float32(0.0)
        return few
    sums: Floats = np.add.reduce(products, axis=0, initial=np.float32(0.0))
    return sums


def first_largest(x: Floats) -> tuple[Floats, Floats]:
    """Return the element of largest magnitude in each group, the first of equal ones, and that magnitude."""
    size = np.abs(x)
    place = size.argmax(axis=0)
    columns = np.arange(x.shape[1])
    return x[place, columns], size[place, columns]


class Weight(NamedTuple):
    """A formula as text, and whether it needs importance, or the mean of x² over more than the group.

    ``of``: (x, importance, σ²) -> weights, float32; None for what it does not need.
    """

    formula: str
    importance: bool
    mean: bool
    of: Callable[[Floats, Any, Any], Floats]


WEIGHTS: dict[str, Weight] = {
    "one": Weight("1", False, False, lambda x, importance, sigma2: np.ones_like(x)),
    "abs": Weight("|x|", False, False, lambda x, importance, sigma2: np.abs(x)),
    "square": Weight("x²", False, False, lambda x, importance, sigma2: x * x),
    "rms_plus_abs": Weight(
        "√(mean x²) + |x|", False, False,
        lambda x, importance, sigma2: np.sqrt(total(x * x) / np.float32(len(x))) + np.abs(x),
    ),
    "importance": Weight("importance", True, False, lambda x, importance, sigma2: importance),
    "importance_rms": Weight(
        "importance · √(σ² + x²)", True, True,
        lambda x, importance, sigma2: importance * np.sqrt(sigma2 + x * x),
    ),
}  # fmt: skip
