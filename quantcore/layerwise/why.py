"""What about a weight's values makes it lose more than others: outlier columns, heavy tails, a largest value far from the typical one."""

from dataclasses import dataclass

import torch
from torch import Tensor

OUTLIER = 3.0  # a column is an outlier if its largest magnitude is this many times the median column's


@dataclass(frozen=True)
class Traits:
    """Of the values of a weight.

    ``kurtosis``: E[(x − μ)⁴] / σ⁴, which is 3 for a normal distribution; ``peak``: max |x| over the RMS of x; ``outlier_columns``:
    of ``columns``, how many have a max |x| above `OUTLIER` times the median column's; ``largest_column``: the one with max |x|.
    Of constant values the kurtosis is nan, of zeros the peak is nan.
    """

    kurtosis: float
    peak: float
    outlier_columns: int
    columns: int
    largest_column: int


def traits(x: Tensor) -> Traits:
    """Return the traits of a weight of two axes or more, whose columns are its last axis."""
    lines = x.reshape(-1, x.shape[-1])
    largest = torch.maximum(lines.amax(0), -lines.amin(0))
    count = x.numel()
    mean = float(x.sum(dtype=torch.float64)) / count
    power = second = fourth = 0.0
    for rows in torch.split(lines, max(1, (1 << 20) // lines.shape[1])):
        exact = rows.double()
        power += float(exact.square().sum())
        squares = exact.sub_(mean).square_()
        second, fourth = second + float(squares.sum()), fourth + float(squares.square_().sum())
    outliers = largest > OUTLIER * largest.median()
    return Traits(
        fourth * count / second**2 if second else float("nan"),
        float(largest.max()) / (power / count) ** 0.5 if power else float("nan"),
        int(outliers.sum()), len(largest), int(largest.argmax()),
    )  # fmt: skip
