"""A codebook fitted to a tensor: the values with the least squared error.

Lloyd's method replaces each value with the mean of the elements nearest to it, until nothing changes:
S. P. Lloyd 1982, "Least squares quantization in PCM"; J. Max 1960, "Quantizing for minimum distortion".
It ends in a local optimum. In one dimension the global optimum can be found by dynamic programming over
cuts of the sorted elements: H. Wang and M. Song 2011, "Ckmeans.1d.dp", The R
Journal 3/2. Both are implemented here in torch; the tests compare with scikit-learn's ``KMeans``.
"""

from typing import Any

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats.codebook import MAX_VALUES, CodebookFormat
from quantcore.numerics import as_float32, refuse_nonfinite

METHODS = {"lloyd_max": "Lloyd-Max", "kmeans": "k-means"}  # name -> as papers write it
MAX_STEPS = 300  # of Lloyd, as in scikit-learn
POINTS = 1024  # intervals in the dynamic program, whose table has the square of that


def fit_codebook(x: Any, size: int, method: str = "lloyd_max", reach: float | None = None) -> CodebookFormat:
    """Return a codebook of ``size`` ascending values for the elements of x, which should already be scaled.

    ``lloyd_max`` starts Lloyd's method at the quantiles of x. ``kmeans`` also starts it at the best codebook
    for 1,024 intervals of the sorted elements, each replaced by its mean, and returns the better result: the
    optimum, if x has at most that many distinct values.

    Args:
        reach: fix the outermost value at plus or minus this bound, to which scales map a block's largest
            magnitude, and clip elements beyond it; the other values are fitted.

    >>> fit_codebook([-1.0, -0.5, 0.0, 0.5, 1.5, 2.5], size=3).values
    (-0.5, 1.0, 2.5)

    Raises:
        QuantError: size is not from 2 to 256 or exceeds the number of distinct values in x, the method is
            unknown, or x contains NaN or infinity.
    """
    size = notation.integer(size, "The size of a codebook")
    if not 2 <= size <= MAX_VALUES:
        raise QuantError(f"size={size} is outside 2..{MAX_VALUES}; choose a size in that range.")
    if method not in METHODS:
        raise QuantError(
            f"{str(method)[:40]!r} is not a method for fitting a codebook; choose {' or '.join(METHODS)}."
        )
    x = as_float32(x)
    refuse_nonfinite(x, "a fitted codebook")
    x = x.reshape(-1) if reach is None else x.reshape(-1).clamp(-reach, reach)
    ordered = x.sort().values.double()
    distinct = torch.unique_consecutive(ordered)
    if len(distinct) < size:
        raise QuantError(
            f"x has {len(distinct)} different values, but the codebook needs {size}; choose a smaller size."
        )
    fixed = None if reach is None else _fixed_center(ordered, reach)
    fits = [_lloyd(ordered, _quantiles(ordered, distinct, size), fixed)]
    if method == "kmeans":
        fits.append(_lloyd(ordered, _best(ordered, distinct, size), fixed))
    return CodebookFormat(tuple(min(fits, key=lambda fit: fit[1])[0].tolist()))


def _middles(n: int, count: int) -> Tensor:
    """Return the middle indices of ``count`` equal parts of n elements."""
    return ((torch.arange(count, dtype=torch.float64) + 0.5) * n / count).long()


def _quantiles(ordered: Tensor, distinct: Tensor, size: int) -> Tensor:
    """Return the middles of ``size`` equal parts of the elements, of the distinct values if some coincide."""
    start = ordered[_middles(len(ordered), size)]
    return start if bool((start.diff() > 0).all()) else distinct[_middles(len(distinct), size)]


def _fixed_center(ordered: Tensor, reach: float) -> tuple[int, float]:
    """Return the fixed center, the first or the last, and its value: the bound that more elements reach."""
    below, above = (int((ordered == end).count_nonzero()) for end in (-reach, reach))
    if below == above:
        below, above = -float(ordered[0]), float(ordered[-1])  # type: ignore[assignment]
    return (0, -reach) if below > above else (-1, reach)


def _lloyd(ordered: Tensor, centers: Tensor, fixed: tuple[int, float] | None) -> tuple[Tensor, float]:
    """Move all centers but the fixed one until they converge; return them and the error up to a constant."""
    sums, error = _running(ordered), 0.0
    if fixed is not None:
        centers = centers.clone()
        centers[fixed[0]] = fixed[1]
    for _ in range(MAX_STEPS):
        cuts = torch.searchsorted(ordered, (centers[1:] + centers[:-1]) / 2, right=True)
        ends = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), len(ordered))])
        counts = ends.diff()
        totals = sums[ends].diff()
        means = torch.where(counts > 0, totals / counts.clamp(min=1), centers)
        if fixed is not None:
            means[fixed[0]] = fixed[1]
        error = float(
            (counts * means.square() - 2 * means * totals).sum()
        )  # plus the sum of all squares, a constant
        if not bool((counts > 0).all()):
            means = _relocate(ordered, ends, means)
        if torch.equal(means, centers):
            break
        centers = means
    return centers, error


def _relocate(ordered: Tensor, ends: Tensor, means: Tensor) -> Tensor:
    """Move the centers of empty cells to the elements farthest from their centers, at the bounds of cells."""
    empty = ends.diff() == 0
    low, high, own = ends[:-1][~empty], ends[1:][~empty] - 1, means[~empty]
    elements = torch.cat([ordered[low], ordered[high]])
    farthest = (elements - torch.cat([own, own])).abs().argsort(descending=True)
    spare = empty.nonzero()[:, 0][: len(farthest)]  # if there are too few bounds, the next step has more
    moved = means.clone()
    moved[spare] = elements[farthest[: len(spare)]]
    return moved.sort().values


def _running(values: Tensor) -> Tensor:
    """Return the sums of the first 0, 1, 2, … values."""
    return torch.cat([values.new_zeros(1), values.cumsum(0)])


def _best(ordered: Tensor, distinct: Tensor, size: int) -> Tensor:
    """Return the centers with the least squared error for the intervals between `_cuts`."""
    cuts = _cuts(ordered, distinct)
    middle = ordered.mean()  # subtracted, so that squares do not cancel
    sums, squares = (_running(v)[cuts] for v in (ordered - middle, (ordered - middle).square()))
    counts, totals, powers = (v[None, :] - v[:, None] for v in (cuts, sums, squares))
    cost = powers - totals.square() / counts.clamp(min=1)
    cost[counts <= 0] = torch.inf
    least, before = cost[0], []
    for _ in range(size - 1):  # add one center, which takes everything after some cut
        found = (least[:, None] + cost).min(0)
        least = found.values
        before.append(found.indices)
    ends = [len(cuts) - 1]
    for indices in reversed(before):
        ends.append(int(indices[ends[-1]]))
    bounds = torch.tensor([*ends, 0]).flip(0)
    return sums[bounds].diff() / cuts[bounds].diff() + middle


def _cuts(ordered: Tensor, distinct: Tensor) -> Tensor:
    """Return where the sorted elements are cut, both ends included: between all distinct values if few.

    Otherwise half of the cuts enclose equally many elements and half equal widths, which isolates outliers.
    """
    if len(distinct) <= POINTS:
        edges = distinct[1:]
    else:
        widths = torch.linspace(float(ordered[0]), float(ordered[-1]), POINTS // 2 + 1, dtype=torch.float64)
        edges = torch.cat([ordered[_middles(len(ordered), POINTS // 2)], widths[1:].to(ordered.device)])
    cuts = torch.searchsorted(ordered, edges)
    ends = torch.tensor([0, len(ordered)], device=cuts.device)
    unique: Tensor = torch.unique(torch.cat([cuts, ends]))
    return unique
